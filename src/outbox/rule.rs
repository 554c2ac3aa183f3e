//! EventRules: what a route announces once its requests are completed. Pure; the same entry and answer make the same
//! events whoever completes it, and whenever.
//!
//! What a rule asks for and can't have never costs a response, and never loses the event ([`Unmet`]):
//!
//! | it can't have | the event |
//! |---|---|
//! | its key | is ordered by the entry's id |
//! | a value that a pointer should lead to | says `null` there |
//! | the whole request or response | waits for a person |
//! | the decision whether its condition holds | waits for a person |
//! | a queue that takes so much | waits for a person |

use std::num::NonZeroU32;
use std::sync::Arc;

use super::data::Data;
use super::event::{Attributes, Envelope, EventId, NewEvent, OnFailure};
use super::key::EventKey;
use super::lane::{DEFAULT_QUEUE, Lanes, UnknownQueue, lane_of};
use super::seed::{Asked, Seed, is_encoded};
use super::status::Statuses;
use super::unmet::Unmet;
use crate::entry::json::{self, Unreadable};
use crate::entry::{Answer, EntryId, Key, Nonce, Pointer, StoredResponse};

/// The largest event that a queue takes unless it is configured otherwise: below the 1 MB of Kafka and NATS, with
/// room for the envelope.
pub const DEFAULT_EVENT_BYTES: usize = 900 << 10;

/// One event of a route: when there is one, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRule {
    /// Tells the events of a route apart, and makes their ids: another name is another event.
    pub name: Box<str>,
    /// CloudEvents `type`.
    pub kind: Box<str>,
    /// CloudEvents `source`; `None` is `/` and the route's name.
    pub source: Option<Box<str>>,
    /// Which completed requests it announces.
    pub when: When,
    /// The queue that it goes to.
    pub queue: Box<str>,
    /// Where in the queue.
    pub topic: Box<str>,
    /// What it is ordered by.
    pub key: EventKey,
    /// What it says.
    pub data: Data,
    /// What becomes of later events of its key should it fail for good.
    pub on_failure: OnFailure,
    /// The largest data that its queue takes.
    pub max_bytes: usize,
}

/// Which completed requests are announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    status: Statuses,
    /// Values of the JSON response by pointer, each as its meaning: all must hold.
    equals: Vec<(Pointer, Option<Vec<u8>>)>,
}

/// A completed entry whose events are to be made.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The entry.
    pub entry: EntryId,
    /// The nonce of the claim that created it.
    pub origin: Nonce,
    /// Its idempotency key.
    pub key: &'a Key,
    /// What its claim kept of the request; `None` where an older gateway claimed it.
    pub seed: Option<&'a Seed>,
}

/// What a completed entry announces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Emission {
    /// In the order of the configuration.
    pub events: Vec<NewEvent>,
    /// What could not be had, by the event's name.
    pub unmet: Vec<(Box<str>, Unmet)>,
}

/// All rules of a route.
#[derive(Debug, Clone, Default)]
pub struct EventRules {
    route: Box<str>,
    rules: Arc<[(EventRule, NonZeroU32)]>,
}

impl EventRule {
    /// The rule for an event `name` of CloudEvents type `kind` to `topic` of the default queue, with every default:
    /// of each request that ended with a 2xx, ordered by the idempotency key, saying what the response said.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, kind: impl Into<Box<str>>, topic: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            source: None,
            when: When::default(),
            queue: DEFAULT_QUEUE.into(),
            topic: topic.into(),
            key: EventKey::default(),
            data: Data::default(),
            on_failure: OnFailure::default(),
            max_bytes: DEFAULT_EVENT_BYTES,
        }
    }
}

/// Every 2xx.
impl Default for When {
    fn default() -> Self {
        Self { status: (200..300).collect(), equals: Vec::new() }
    }
}

/// Whether a condition holds.
enum Holds {
    Yes,
    No,
    Undecided(Unmet),
}

impl When {
    /// Requests whose response has one of `status`, and these values at these pointers. Values are compared by
    /// meaning: 100 and 1e2 are one number.
    #[must_use]
    pub fn new(status: Statuses, equals: impl IntoIterator<Item = (Pointer, serde_json::Value)>) -> Self {
        let meaning = |value: serde_json::Value| json::meaning(value.to_string().as_bytes());
        Self { status, equals: equals.into_iter().map(|(pointer, value)| (pointer, meaning(value))).collect() }
    }

    fn holds(&self, status: u16, response: Result<&StoredResponse, Unmet>) -> Holds {
        if !self.status.contains(status) {
            return Holds::No;
        }
        let mut holds = Holds::Yes;
        for (pointer, expected) in &self.equals {
            match response.and_then(|response| meaning_at(response, pointer)) {
                Ok(Some(found)) if expected.as_ref() == Some(&found) => {}
                Ok(Some(_) | None) => return Holds::No,
                Err(unmet) => holds = Holds::Undecided(unmet),
            }
        }
        holds
    }
}

fn meaning_at(response: &StoredResponse, pointer: &Pointer) -> Result<Option<Vec<u8>>, Unmet> {
    match json::excerpt(&response.body, pointer) {
        Ok(Some(found)) => json::meaning(found.as_bytes()).map(Some).ok_or(Unmet::ResponseAmbiguous),
        Ok(None) => Ok(None),
        Err(Unreadable::NotJson) => Err(Unmet::ResponseNotJson),
        Err(Unreadable::Ambiguous) => Err(Unmet::ResponseAmbiguous),
    }
}

impl EventRules {
    /// The rules of `route`.
    ///
    /// # Errors
    /// If one names a queue that `lanes` does not have.
    pub fn new(route: &str, rules: Vec<EventRule>, lanes: &Lanes) -> Result<Self, UnknownQueue> {
        let resolve = |rule: EventRule| lanes.of(&rule.queue).map(|lanes| (rule, lanes));
        Ok(Self { route: route.into(), rules: rules.into_iter().map(resolve).collect::<Result<_, _>>()? })
    }

    /// Whether nothing is announced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether an event of this name is announced.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.rules.iter().any(|(rule, _)| *rule.name == *name)
    }

    /// The names of all events.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|(rule, _)| &*rule.name)
    }

    /// Whether any event says something of the response, or is decided by what is in it.
    #[must_use]
    pub fn read_response(&self) -> bool {
        let reads = |rule: &EventRule| {
            let in_key = matches!(rule.key, EventKey::Response(_));
            in_key || rule.data.needs_response() || !rule.when.equals.is_empty()
        };
        self.rules.iter().any(|(rule, _)| reads(rule))
    }

    /// What the events need of a request, to be stored with its claim. `fresh` makes a trace for a request that was
    /// sent without one.
    #[must_use]
    pub fn seed(&self, asked: &Asked<'_>, fresh: [u8; 24]) -> Seed {
        Seed::of(self.rules.iter().map(|(rule, _)| rule), asked, fresh)
    }

    /// The events of an entry that is completed with `answer`.
    #[must_use]
    pub fn emit(&self, subject: &Subject<'_>, answer: &Answer) -> Emission {
        let mut emission = Emission::default();
        for (rule, lanes) in self.rules.iter() {
            let Some((event, unmet)) = rule.emit(&self.route, *lanes, subject, answer) else { continue };
            emission.events.push(event);
            emission.unmet.extend(unmet.into_iter().map(|unmet| (rule.name.clone(), unmet)));
        }
        emission
    }
}

impl EventRule {
    fn emit(
        &self,
        route: &str,
        lanes: NonZeroU32,
        subject: &Subject<'_>,
        answer: &Answer,
    ) -> Option<(NewEvent, Vec<Unmet>)> {
        let response = readable(answer);
        let mut unmet = Vec::new();
        match self.when.holds(answer.status(), response) {
            Holds::Yes => {}
            Holds::No => return None,
            Holds::Undecided(why) => unmet.push(why),
        }
        let key = self.key.of(&self.name, subject.key, subject.seed, response.ok()).unwrap_or_else(|| {
            unmet.push(Unmet::Key);
            subject.entry.to_hex().into()
        });
        let rendered = self.data.render(subject.seed, response);
        unmet.extend(rendered.unmet.iter().filter(|new| !unmet.contains(new)).copied().collect::<Vec<_>>());
        if rendered.content.bytes.len() > self.max_bytes {
            unmet.push(Unmet::TooLarge);
        }
        let event = Envelope {
            id: EventId::of(subject.origin, &self.name),
            queue: self.queue.clone(),
            topic: self.topic.clone(),
            kind: self.kind.clone(),
            source: self.source.clone().unwrap_or_else(|| default_source(route)),
            route: route.into(),
            content_type: rendered.content.content_type,
            traceparent: subject.seed.and_then(Seed::traceparent).map(Into::into),
            attributes: Attributes::new(),
            data: rendered.content.bytes,
            key,
        };
        let lane = lane_of(&event.key, lanes);
        let parked = unmet.iter().find_map(|unmet| unmet.parks()).map(Into::into);
        Some((NewEvent { event, lane, parked, on_failure: self.on_failure }, unmet))
    }
}

/// The CloudEvents `source` of a route's events that name none.
pub(crate) fn default_source(route: &str) -> Box<str> {
    format!("/{route}").into()
}

/// The response, if it can be read here.
fn readable(answer: &Answer) -> Result<&StoredResponse, Unmet> {
    match answer {
        Answer::Response(response) if is_encoded(&response.headers) => Err(Unmet::ResponseEncoded),
        Answer::Response(response) => Ok(response),
        Answer::StatusOnly(_) => Err(Unmet::ResponseNotKept),
    }
}

#[cfg(test)]
mod tests;
