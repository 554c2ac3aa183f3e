//! What a member of a group has received of the partitions that are assigned to it.
//!
//! The client calls back about its assignment while it is polled. What is not acknowledged of a partition that was
//! taken away is forgotten in that moment: its receipts name nothing any more, so that nothing is committed for
//! somebody else's partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::statistics::{self, Statistics};

use super::lag::{Partition, Watch};
use crate::broker::held::{Held, Said};
use crate::broker::subscriber::{Receipt, Received};

/// A partition, and an offset in it.
pub(super) type Place = (i32, i64);

/// Shared by the subscriber and the client.
#[derive(Debug, Clone, Default)]
pub(super) struct Assignment {
    state: Arc<Mutex<State>>,
    /// What metrics and the log call it.
    topic: Arc<str>,
    group: Arc<str>,
}

#[derive(Debug, Default)]
struct State {
    held: Held<Place>,
    /// What comes after the last message received, of each partition.
    next: BTreeMap<i32, i64>,
    watch: Watch,
}

impl Assignment {
    pub(super) fn of(topic: &str, group: &str) -> Self {
        Self { topic: topic.into(), group: group.into(), ..Self::default() }
    }

    /// Whole after every step, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hand_out(&self, (partition, offset): Place, place: Box<str>, said: Said) -> Received {
        let mut state = self.lock();
        // The broker does not say whether it was delivered before. What is received again after a rewind was.
        let redelivered = state.next.get(&partition).is_some_and(|next| offset < *next);
        state.next.insert(partition, offset + 1);
        state.held.hand_out((partition, offset), place, redelivered, said)
    }

    /// Where the first message is that is not acknowledged, of each partition that has one.
    pub(super) fn unacknowledged(&self) -> BTreeMap<i32, i64> {
        firsts(self.lock().held.names().copied())
    }

    /// What is not acknowledged will be received again.
    pub(super) fn rewound(&self) {
        self.lock().held.clear();
    }

    /// What is to be committed with `receipts`: of each partition the place up to which all is acknowledged then.
    pub(super) fn commits(&self, receipts: &[Receipt]) -> BTreeMap<i32, i64> {
        let state = self.lock();
        let (first, others) = state.held.named(receipts);
        let acknowledged: BTreeSet<Place> = first.into_iter().chain(others).collect();
        let open = firsts(state.held.names().copied().filter(|place| !acknowledged.contains(place)));
        let up_to = |partition: &i32| open.get(partition).or_else(|| state.next.get(partition)).copied();
        // Nothing is committed where the first one is not among them.
        let begun = firsts(acknowledged.iter().copied()).into_iter();
        begun.filter_map(|(partition, first)| Some((partition, up_to(&partition).filter(|to| *to > first)?))).collect()
    }

    pub(super) fn forget(&self, receipts: &[Receipt]) {
        self.lock().held.forget(receipts);
    }

    /// Nothing is assigned any more.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.held.clear();
        state.next.clear();
        state.watch.leave(|_| true);
    }

    fn revoke(&self, partitions: &BTreeSet<i32>) {
        let mut state = self.lock();
        state.held.retain(|(partition, _)| !partitions.contains(partition));
        state.next.retain(|partition, _| !partitions.contains(partition));
        state.watch.leave(|partition| partitions.contains(&partition));
    }

    /// Tells how far behind it is.
    fn measure(&self, told: &statistics::Partition) {
        let mut state = self.lock();
        let received = state.next.get(&told.partition).copied().unwrap_or(told.committed_offset.max(told.lo_offset));
        // Where nothing is in between, what was passed over to be fetched are marks of transactions.
        let next = if told.fetchq_cnt == 0 { received.max(told.next_offset) } else { received };
        let decided = if told.ls_offset < 0 { told.hi_offset } else { told.ls_offset };
        let partition = Partition { number: told.partition, end: told.hi_offset, decided, next };
        let held_back = state.watch.look(&partition);
        drop(state);
        let labels = || {
            let partition = partition.number.to_string();
            [("topic", self.topic.to_string()), ("group", self.group.to_string()), ("partition", partition)]
        };
        let (lag, number) = (partition.lag(), |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
        metrics::gauge!("oncegate_kafka_behind", &labels()).set(number(lag.behind));
        metrics::gauge!("oncegate_kafka_undecided", &labels()).set(number(lag.undecided));
        if let Some(offset) = held_back {
            let (topic, group, partition) = (&*self.topic, &*self.group, partition.number);
            tracing::error!(
                topic,
                group,
                partition,
                offset,
                "a producer has begun a transaction there and does not end it: nothing behind it can be received until \
                 it is ended (`kafka-transactions.sh find-hanging` and `abort`)"
            );
        }
    }
}

fn firsts(places: impl Iterator<Item = Place>) -> BTreeMap<i32, i64> {
    let mut firsts = BTreeMap::new();
    for (partition, offset) in places {
        let first = firsts.entry(partition).or_insert(offset);
        *first = offset.min(*first);
    }
    firsts
}

impl ClientContext for Assignment {
    /// Of the partitions that are received from, and only once the client knows where they end.
    fn stats(&self, statistics: Statistics) {
        let Some(topic) = statistics.topics.get(&*self.topic) else { return };
        let is_ours = |told: &&statistics::Partition| told.fetch_state == "active" && told.hi_offset >= 0;
        topic.partitions.values().filter(is_ours).for_each(|told| self.measure(told));
    }

    /// What stops us comes with a message's turn, so this is for people.
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "Kafka client");
    }
}

impl ConsumerContext for Assignment {
    fn pre_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(_) => {}
            Rebalance::Revoke(list) => {
                self.revoke(&list.elements().iter().map(|element| element.partition()).collect());
            }
            Rebalance::Error(_) => self.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives so many messages of each partition in turn, from offset 10 on.
    fn received(partitions: i32, number: i64) -> (Assignment, Vec<Receipt>) {
        let assignment = Assignment::default();
        let places = (10..10 + number).flat_map(|offset| (0..partitions).map(move |partition| (partition, offset)));
        let receipts = places.map(|place| assignment.hand_out(place, "".into(), Said::default()).receipt).collect();
        (assignment, receipts)
    }

    #[test]
    fn what_is_committed_is_acknowledged_without_a_gap() {
        let (assignment, receipts) = received(1, 4);
        let commit = |places: &[usize]| {
            let receipts: Vec<_> = places.iter().map(|place| receipts[*place]).collect();
            let commits = assignment.commits(&receipts);
            assignment.forget(&receipts);
            commits.get(&0).copied()
        };
        assert_eq!(commit(&[1]), None);
        assert_eq!(commit(&[3]), None);
        assert_eq!(commit(&[0]), Some(12));
        assert_eq!(commit(&[0]), None);
        assert_eq!(commit(&[2]), Some(14));
    }

    #[test]
    fn partitions_do_not_wait_for_each_other() {
        let (assignment, receipts) = received(2, 2);
        assert_eq!(assignment.commits(&receipts[..1]), BTreeMap::from([(0, 11)]));
        assert_eq!(assignment.commits(&receipts), BTreeMap::from([(0, 12), (1, 12)]));
    }

    #[test]
    fn nothing_is_committed_for_a_partition_that_was_taken_away() {
        let (assignment, receipts) = received(2, 2);
        assignment.revoke(&BTreeSet::from([1]));
        assert_eq!(assignment.commits(&receipts), BTreeMap::from([(0, 12)]));
        assert_eq!(assignment.unacknowledged(), BTreeMap::from([(0, 10)]));
        // It comes back, with what its other owner has left.
        let again = assignment.hand_out((1, 11), "".into(), Said::default());
        assert_eq!(assignment.commits(&receipts), BTreeMap::from([(0, 12)]));
        assert_eq!(assignment.commits(&[again.receipt]), BTreeMap::from([(1, 12)]));
    }

    #[test]
    fn after_a_rewind_all_is_received_again() {
        let (assignment, receipts) = received(1, 3);
        assignment.forget(&receipts[..1]);
        assert_eq!(assignment.unacknowledged(), BTreeMap::from([(0, 11)]));
        assignment.rewound();
        let again = assignment.hand_out((0, 11), "".into(), Said::default());
        assert!(again.redelivered);
        assert_eq!(assignment.commits(&receipts), BTreeMap::new());
        assert_eq!(assignment.commits(&[again.receipt]), BTreeMap::from([(0, 12)]));
    }
}
