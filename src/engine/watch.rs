//! The watchdog over marks: a mark lives as long as its execution, however long that takes.

use std::sync::atomic::Ordering;

use super::Engine;

impl Engine {
    /// Extends the marks of all live executions, in one pipeline.
    pub(super) async fn extend_marks(&self) {
        let flights = self.flights.all();
        let marked = flights.iter().filter(|flight| flight.marked.load(Ordering::Relaxed));
        let marks: Vec<_> = marked.map(|flight| (flight.id, flight.nonce)).collect();
        if marks.is_empty() {
            return;
        }
        if let Err(error) = self.marks.extend(&marks, self.options.mark_ttl).await {
            tracing::debug!(%error, "marks were left to expire");
        }
    }
}
