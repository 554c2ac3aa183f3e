//! What must hold at the end of a schedule.

use oncegate::outbox::event::OnFailure;

use super::{Row, State, World};

impl World {
    pub(super) fn unfinished(&self) -> Option<(i64, &Row)> {
        let holds = |row: &Row| row.state == State::Parked && row.holds == OnFailure::Hold;
        let is_held =
            |position: i64, key: u8| self.table.rows.range(..position).any(|(_, row)| row.key == key && holds(row));
        let is_over = |position: i64, row: &Row| match row.state {
            State::Sent | State::Discarded | State::Parked => true,
            State::Waiting => is_held(position, row.key),
            // Whoever stops its key may be whom it waits for.
            State::Early { .. } => is_held(i64::MAX, row.key),
            State::Ready | State::Retrying { .. } => false,
        };
        let mut rows = self.table.rows.iter().map(|(position, row)| (*position, row));
        rows.find(|(position, row)| !is_over(*position, row))
    }

    pub(super) fn check_first_receipts(&self) {
        for (position, story) in &self.stories {
            let Some((first, _)) = story.receipts.first() else { continue };
            for (earlier, before) in self.before(*position) {
                if let [(receipt, true)] = before.receipts[..]
                    && before.sent_by == Some(receipt)
                    && before.calls == 1
                    && !before.was_skipped
                {
                    assert!(receipt < *first, "{position} came before {earlier}: {before:?} {story:?}");
                }
            }
        }
    }
}
