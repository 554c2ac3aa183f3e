//! Which message a returned one is.
//!
//! The broker returns a message before it confirms it. The client attaches returned messages to confirms in the
//! order in which it happens to work them off, so one may sit on a neighbour's confirm: on one that was worked off
//! earlier, or on one of the same multiple confirm. By its id and its routing key it finds its owner. A confirm without a returned
//! message is final: all that had been returned by then sits on confirms worked off before it. One with a
//! *neighbour's* is not, since its own may sit on a later confirm of the same frame; the client is asked something
//! then, and when it has the answer, that frame has been worked off.

use std::collections::HashMap;

use lapin::message::BasicReturnMessage;
use lapin::types::ShortString;
use lapin::{Confirmation, Error};

use crate::outbox::event::EventId;

/// Tells a message from those under way with it: of two copies of an event, one may have gone elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) id: EventId,
    pub(super) key: ShortString,
}

/// What came of a message, as the client tells it.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Where it stands in the order of the calls.
    pub(super) place: u64,
    pub(super) who: Who,
    pub(super) result: Result<Confirmation, Error>,
}

/// What came of a message.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) place: u64,
    pub(super) who: Who,
    pub(super) answer: Answer,
}

/// What the broker said of a message, but for its return.
#[derive(Debug)]
pub(super) enum Answer {
    /// It is responsible for the message now, or has returned it.
    Confirmed,
    /// It could not take it.
    Nack,
    /// It says no more.
    Failed(Error),
}

/// Returned messages whose confirms are not worked off: why, by their ids.
#[derive(Debug, Default)]
pub(super) struct Returns(HashMap<(String, String), String>);

impl Returns {
    /// Notes what sits on the outcome, and says whether that is a neighbour's.
    pub(super) fn note(&mut self, outcome: Outcome) -> (Settled, bool) {
        let (answer, returned) = match outcome.result {
            Ok(Confirmation::Ack(returned)) => (Answer::Confirmed, returned),
            Ok(Confirmation::Nack(returned)) => (Answer::Nack, returned),
            // Not without having asked for confirms.
            Ok(Confirmation::NotRequested) => (Answer::Nack, None),
            Err(error) => (Answer::Failed(error), None),
        };
        let owner = returned.map(|returned| self.keep(&returned));
        let foreign = owner.is_some_and(|owner| owner != named(&outcome.who));
        (Settled { place: outcome.place, who: outcome.who, answer }, foreign)
    }

    fn keep(&mut self, returned: &BasicReturnMessage) -> (String, String) {
        let id = returned.properties.message_id().as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default();
        let owner = (id, returned.routing_key.as_str().to_owned());
        self.0.insert(owner.clone(), format!("{} {}", returned.reply_code, returned.reply_text));
        owner
    }

    /// Why the message was returned, if it was.
    pub(super) fn take(&mut self, who: &Who) -> Option<String> {
        // Mostly there are none, and nothing to spell.
        if self.0.is_empty() { None } else { self.0.remove(&named(who)) }
    }
}

fn named(who: &Who) -> (String, String) {
    (who.id.to_string(), who.key.as_str().to_owned())
}
