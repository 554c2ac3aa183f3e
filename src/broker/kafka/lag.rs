//! How far behind a member of a group is, and what holds it back: for people.
//!
//! Of a topic with transactions only what is decided is received. A producer that has begun a transaction and never ends
//! it (it was killed, and its time-out is long) holds back everything behind it, of everybody; to the group this looks
//! as if it had caught up. So the messages that there are count, and not those that can be had.

use std::collections::BTreeMap;

/// Looks at a partition that must find the same transaction open before people are told: a minute, longer than a
/// producer should have one open.
const LOOKS: u32 = 6;

/// What the client knows of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) number: i32,
    /// Behind the last message that there is.
    pub(super) end: i64,
    /// Behind the last one that can be received: of a transaction that is open nothing can.
    pub(super) decided: i64,
    /// Of the next message to be received.
    pub(super) next: i64,
}

/// How far behind the member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lag {
    /// Messages that there are, and that it has not received. Marks of transactions count as messages.
    pub(super) behind: u64,
    /// Of them, those that nobody can receive yet.
    pub(super) undecided: u64,
}

impl Partition {
    pub(super) fn lag(&self) -> Lag {
        let count = |from: i64| u64::try_from(self.end.saturating_sub(from)).unwrap_or_default();
        Lag { behind: count(self.next), undecided: count(self.decided.max(self.next)) }
    }
}

/// Knows for how long each partition has been held back.
#[derive(Debug, Default)]
pub(super) struct Watch(BTreeMap<i32, Held>);

#[derive(Debug)]
struct Held {
    at: i64,
    looks: u32,
}

impl Watch {
    /// Looks at a partition; says, once, at which offset a transaction begins that does not end.
    pub(super) fn look(&mut self, partition: &Partition) -> Option<i64> {
        let is_held_back = partition.lag().undecided > 0 && partition.next >= partition.decided;
        if !is_held_back {
            self.0.remove(&partition.number);
            return None;
        }
        let held = self.0.entry(partition.number).or_insert(Held { at: partition.decided, looks: 0 });
        if held.at != partition.decided {
            *held = Held { at: partition.decided, looks: 0 };
        }
        held.looks = held.looks.saturating_add(1);
        (held.looks == LOOKS).then_some(held.at)
    }

    /// Of these partitions somebody else has the watch.
    pub(super) fn leave(&mut self, mut is_left: impl FnMut(i32) -> bool) {
        self.0.retain(|partition, _| !is_left(*partition));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(next: i64, decided: i64, end: i64) -> Partition {
        Partition { number: 3, end, decided, next }
    }

    #[test]
    fn what_there_is_counts_and_not_what_can_be_had() {
        for (next, decided, end, behind, undecided) in
            [(10, 10, 10, 0, 0), (4, 10, 10, 6, 0), (4, 6, 10, 6, 4), (6, 6, 10, 4, 4), (11, 10, 10, 0, 0)]
        {
            assert_eq!(partition(next, decided, end).lag(), Lag { behind, undecided }, "{next} {decided} {end}");
        }
    }

    #[test]
    fn a_transaction_that_does_not_end_is_told_once() {
        const NOTHING: [i64; 0] = [];
        let mut watch = Watch::default();
        let mut told =
            |partition: Partition, looks: u32| (0..looks).filter_map(|_| watch.look(&partition)).collect::<Vec<_>>();
        assert_eq!(told(partition(10, 10, 10), 20), NOTHING, "it has caught up");
        assert_eq!(told(partition(4, 6, 10), 20), NOTHING, "it has enough to do");
        assert_eq!(told(partition(6, 6, 10), LOOKS - 1), NOTHING);
        assert_eq!(told(partition(8, 8, 12), LOOKS - 1), NOTHING, "another transaction");
        assert_eq!(told(partition(8, 8, 12), 20), [8]);
        assert_eq!(told(partition(8, 8, 90), 20), NOTHING, "once, however much gathers behind it");
        assert_eq!(told(partition(90, 90, 90), 1), NOTHING);
        assert_eq!(told(partition(90, 90, 91), 20), [90], "the next one");
    }

    #[test]
    fn who_leaves_a_partition_watches_it_no_more() {
        let mut watch = Watch::default();
        for _ in 1..LOOKS {
            assert_eq!(watch.look(&partition(6, 6, 10)), None);
        }
        watch.leave(|number| number == 3);
        assert_eq!(watch.look(&partition(6, 6, 10)), None);
    }
}
