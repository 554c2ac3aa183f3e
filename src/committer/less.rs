//! What is left out of a completion that the store refuses as it is, step by step, so that the outcome is recorded
//! in any case:
//!
//! 1. the data of its events, which then wait for a person: the answer is what a client may still need;
//! 2. its answer: only the status is kept;
//! 3. its events. Not reached while the names of events are checked before; logged as an error and counted.

use std::sync::Arc;

use bytes::Bytes;

use crate::engine::ledger::To;
use crate::entry::Answer;
use crate::outbox::event::NewEvent;

/// Whether there is less to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Less {
    /// Something was left out.
    Tryable,
    /// Nothing can be left out.
    Nothing,
}

const REFUSED: &str = "the store refused its data";

/// Leaves the next thing out of a completion that is written by itself; says whether there was one.
pub(crate) fn leave_out(to: &mut To) -> bool {
    less(to) == Less::Tryable
}

/// Leaves the next thing out of `to`.
pub(super) fn less(to: &mut To) -> Less {
    let To::Completed { answer, events, .. } = to else { return Less::Nothing };
    if events.iter().any(|event| !is_bare(event)) {
        *events = events.iter().map(bare).collect();
    } else if let Answer::Response(response) = answer {
        *answer = Answer::StatusOnly(response.status.as_u16());
    } else if !events.is_empty() {
        for NewEvent { event, .. } in events.iter() {
            let (id, route, queue) = (event.id, &event.route, &event.queue);
            tracing::error!(%id, %route, %queue, "event is lost: the store takes it in no form");
            metrics::counter!("oncegate_events_lost_total", "route" => route.to_string()).increment(1);
        }
        *events = Arc::default();
    } else {
        return Less::Nothing;
    }
    Less::Tryable
}

fn is_bare(event: &NewEvent) -> bool {
    event.event.data.is_empty() && event.parked.as_deref() == Some(REFUSED)
}

fn bare(event: &NewEvent) -> NewEvent {
    let mut bare = NewEvent { parked: Some(REFUSED.into()), ..event.clone() };
    bare.event.data = Bytes::new();
    bare
}
