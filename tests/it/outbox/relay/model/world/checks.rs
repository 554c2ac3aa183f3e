//! What must hold at every step.

use super::*;

impl World {
    pub(super) fn check_sent(&mut self, index: usize, position: i64, epoch: i64) {
        let confirms = self.processes[index].confirms.iter();
        let confirms = confirms.filter(|(ticket, _)| ticket.position == position && ticket.lane.epoch == epoch);
        // The one of its last call: calls end in any order.
        let receipt = confirms.map(|(_, receipt)| *receipt).max();
        let receipt = receipt.unwrap_or_else(|| panic!("{position} is sent without a confirm"));
        for (earlier, story) in self.before(position) {
            let row = &self.table.rows[&earlier];
            let is_over = match row.state {
                State::Sent | State::Discarded => true,
                State::Parked => row.holds == OnFailure::Skip,
                State::Ready | State::Retrying { .. } | State::Early { .. } | State::Waiting => false,
            };
            assert!(is_over || story.was_skipped, "{position} is sent before {earlier}: {row:?}");
            let is_ordered = story.sent_by.is_none_or(|sent_by| sent_by < receipt);
            assert!(is_ordered || story.was_skipped, "{position} reached the broker before {earlier}: {story:?}");
        }
        self.stories.get_mut(&position).unwrap().sent_by = Some(receipt);
    }

    pub(super) fn check_parked(&mut self, position: i64, reason: &str) {
        let story = self.stories.get_mut(&position).unwrap();
        match story.nature {
            // Processes of this world end for other reasons too, again and again. Its neighbours alone don't do it.
            Nature::Good | Nature::Later(_) | Nature::Early(_) | Nature::Away(_) => {
                assert!(reason.contains("died"), "{position}: {reason}");
                assert!(story.neighbours_deaths < process::options().crash_attempts, "{position}: {story:?}");
            }
            Nature::Refused(_) => assert!(reason.contains("full"), "{position}: {reason}"),
            Nature::Never => assert!(reason.contains("never"), "{position}: {reason}"),
            Nature::Deadly => assert!(reason.contains("died"), "{position}: {reason}"),
        }
        story.was_skipped |= story.holds == OnFailure::Skip;
    }

    /// One that came early may wait for any other one of its key: it is not tried while one stops the key.
    pub(super) fn check_turn_of_early(&self, index: usize, ticket: &Ticket) {
        let row = &self.table.rows[&ticket.position];
        let is_its_turn = self.table.holds(self.processes[index].relay, ticket.lane) && row.came_early;
        if self.ordering == Ordering::OneByOne && is_its_turn {
            let mut others = self.table.rows.iter().filter(|(_, other)| other.key == row.key && other.in_line);
            assert!(others.next().is_none(), "{} is tried while its key is stopped", ticket.position);
        }
    }

    /// The events of the key that come before the one at `position`.
    pub(super) fn before(&self, position: i64) -> impl Iterator<Item = (i64, &Story)> + '_ {
        let (key, begun) = (self.stories[&position].key, self.stories[&position].begun);
        let earlier = self.stories.range(..position);
        let earlier =
            earlier.filter(move |(_, story)| story.key == key && story.committed.is_some_and(|at| at < begun));
        earlier.map(|(position, story)| (*position, story))
    }

    pub(super) fn check_attempts(&self) {
        for (position, row) in &self.table.rows {
            let made = match row.state {
                State::Ready => row.counted + u32::from(row.epoch.is_some()),
                State::Sent | State::Parked => row.counted + 1,
                State::Retrying { .. } | State::Early { .. } | State::Waiting | State::Discarded => row.counted,
            };
            assert!(row.attempts == made || row.state == State::Discarded, "{position}: {row:?}");
        }
    }

    pub(super) fn check_bounds(&self) {
        for process in &self.processes {
            let (events, bytes) = (process.machine.in_hand(), process.machine.in_hand_bytes());
            assert!(events <= WINDOW, "{events} events in hand");
            let most = WINDOW_BYTES + WINDOW * 1024;
            assert!(bytes <= most, "{bytes} bytes in hand, of {BYTES} each");
        }
    }
}
