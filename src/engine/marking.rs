//! Marks kept in line with the record: a mark lives as long as its execution, however long that takes, and
//! then says "done" or goes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Engine;
use super::marks::{Mark, MarkState};
use crate::entry::{Answer, Entry, EntryId, Nonce, State};

/// How long a completed mark lasts at most: it only has to cover the time in which clients retry; the
/// ledger remembers the rest.
const DONE_MARK: Duration = Duration::from_secs(3600);

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

    /// Makes the mark say what is on record under `nonce`: done, or nothing.
    pub(super) async fn align_mark(&self, id: EntryId, nonce: Nonce, record: Option<&Entry>) {
        let result = match record.and_then(|entry| self.done_mark(entry)) {
            Some((mark, ttl)) => self.marks.complete(id, &mark, ttl).await,
            None => self.marks.release(id, nonce).await,
        };
        if let Err(error) = result {
            tracing::debug!(entry = ?id, %error, "mark was left to expire");
        }
    }

    fn done_mark(&self, entry: &Entry) -> Option<(Mark, Duration)> {
        let State::Completed { answer, expires, .. } = &entry.state else { return None };
        let response = match answer {
            Answer::Response(response) if response.encoded_len() <= self.options.mark_response_limit => {
                Some(response.encode())
            }
            Answer::Response(_) | Answer::StatusOnly(_) => None,
        };
        let state = MarkState::Completed { expires: *expires, response };
        // A second less than the answer lives, so that no mark outlives its entry.
        let ttl = expires.since(self.database_now()).saturating_sub(Duration::from_secs(1)).min(DONE_MARK);
        (!ttl.is_zero()).then_some((Mark { nonce: entry.nonce, fingerprint: entry.fingerprint, state }, ttl))
    }
}
