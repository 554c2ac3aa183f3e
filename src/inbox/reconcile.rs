//! Whether everything that was published to a topic was received, and what came of it: compared by ids, from what
//! this database has on record.
//!
//! It knows what the outbox sent and, where the queue is embedded, what the queue has. What others published to a
//! broker elsewhere it can't know.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::intake::{entry, identify};
use super::result::DeliveryResult;
use super::rules::{Rules, Understood};
use super::store::queue_of;
use crate::clock::{Timestamp, millis};
use crate::engine::ledger::StoreError;
use crate::entry::fingerprint::{Comparison, Secrets};
use crate::entry::source::Said;
use crate::entry::{EntryId, Fingerprint, Namespace};
use crate::outbox::desk::State;
use crate::outbox::event::{Attributes, EventId};

/// Messages that are compared at a time: a few hundred kilobytes each at most, and one question per subscription.
const PAGE: u32 = 128;

/// Most ids of missing ones that are named; all are counted.
pub const MAX_NAMED: usize = 100;

/// What is on record.
///
/// Implementations pass the suite in `tests/it/inbox/reconcile.rs`.
pub trait Records: Send + Sync {
    /// The database's time.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>>;

    /// Up to `limit` of what was published to the topic, after position `after`, in order.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn published<'a>(
        &'a self,
        range: &'a Range,
        place: Place,
        after: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Published>, StoreError>>;

    /// Which of the messages with these ids an embedded queue has.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn kept<'a>(&'a self, queue: &'a str, ids: &'a [Box<str>]) -> BoxFuture<'a, Result<Vec<Box<str>>, StoreError>>;

    /// What became of the deliveries, or copies, with these ids that are there.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn fates<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<HashMap<EventId, Fate>, StoreError>>;

    /// What those of the entries with these ids meant that are completed.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn completed<'a>(&'a self, ids: &'a [EntryId]) -> BoxFuture<'a, Result<HashMap<EntryId, Fingerprint>, StoreError>>;
}

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The queue.
    pub queue: Box<str>,
    /// The topic.
    pub topic: Box<str>,
    /// From when on.
    pub from: Timestamp,
    /// Until before when.
    pub until: Timestamp,
}

/// Where something was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// By the outbox.
    Outbox,
    /// In an embedded queue, by whomever.
    Queue,
}

/// Something that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Its position there.
    pub position: i64,
    /// Where it stands, in the outbox; in a queue, it is sent.
    pub state: State,
    /// CloudEvents `id`.
    pub id: Box<str>,
    /// CloudEvents `datacontenttype`.
    pub content_type: Box<str>,
    /// Its other attributes, as whoever receives it is told.
    pub attributes: Attributes,
    /// What it says.
    pub data: Bytes,
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// Where it stands.
    pub state: State,
    /// What came of it.
    pub result: Option<Box<str>>,
    /// How often a person has had it tried again.
    pub redrives: u32,
}

/// What to compare.
#[derive(Debug, Clone)]
pub struct Question {
    /// The queue.
    pub queue: Box<str>,
    /// Whether it is embedded in this database.
    pub place: Place,
    /// The topic.
    pub topic: Box<str>,
    /// Who should have received it.
    pub subscriptions: Vec<Box<str>>,
    /// What makes two messages one to them, as far as is known: to one that is not here, each message is another one.
    pub rules: BTreeMap<Box<str>, Rules>,
    /// What compares the meaning of two messages of a key. Without, each is taken for another one.
    pub secrets: Option<Secrets>,
    /// From so long ago on.
    pub since: Duration,
    /// Until so long ago: what is younger may be on its way.
    pub until: Duration,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// From when on.
    pub from: Timestamp,
    /// Until before when.
    pub until: Timestamp,
    /// Events of the outbox, by their state.
    pub events: BTreeMap<&'static str, u64>,
    /// Messages that an embedded queue has.
    pub messages: Option<u64>,
    /// Events that were sent, but that the embedded queue does not have.
    pub lost: Missing,
    /// What each subscription made of what was published.
    pub subscriptions: Vec<Received>,
}

/// What a subscription made of what was published.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Received {
    /// Its name.
    pub subscription: Box<str>,
    /// Messages that it should have.
    pub expected: u64,
    /// By their result; those without are counted by their state.
    pub results: BTreeMap<Box<str>, u64>,
    /// Of the parked ones, those with a copy among the dead letters.
    pub dead_letters: u64,
    /// Messages that it has not received.
    pub missing: Missing,
}

/// What is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Missing {
    /// How many.
    pub count: u64,
    /// The first of them, by the ids of their messages.
    pub first: Vec<Box<str>>,
}

impl Missing {
    pub(super) fn add(&mut self, id: &str) {
        self.count += 1;
        if self.first.len() < MAX_NAMED {
            self.first.push(id.into());
        }
    }
}

impl Report {
    /// Whether nothing is missing anywhere.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost.count == 0 && self.subscriptions.iter().all(|received| received.missing.count == 0)
    }
}

/// Compares.
///
/// # Errors
/// If the database can't be asked.
pub async fn reconcile(records: &dyn Records, question: &Question) -> Result<Report, StoreError> {
    let now = records.now().await?;
    let ago = |time: Duration| Timestamp(now.0.saturating_sub(millis(time)));
    let (queue, topic) = (question.queue.clone(), question.topic.clone());
    let range = Range { queue, topic, from: ago(question.since), until: ago(question.until) };
    let received = |name: &str| Received { subscription: name.into(), ..Received::default() };
    let mut report = Report {
        from: range.from,
        until: range.until,
        events: BTreeMap::new(),
        messages: None,
        lost: Missing::default(),
        subscriptions: question.subscriptions.iter().map(|name| received(name)).collect(),
    };
    let places = match question.place {
        Place::Outbox => &[Place::Outbox][..],
        Place::Queue => &[Place::Outbox, Place::Queue],
    };
    for place in places {
        let mut after = 0;
        loop {
            let page = records.published(&range, *place, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.position;
            match place {
                Place::Outbox => count_events(records, question, &page, &mut report).await?,
                Place::Queue => *report.messages.get_or_insert(0) += page.len() as u64,
            }
            // Where there is a queue, it has all that was sent, and what others published.
            if *place == question.place {
                for received in &mut report.subscriptions {
                    compare(records, question, received, &page).await?;
                }
            }
        }
    }
    Ok(report)
}

/// Counts events of the outbox, and looks for the sent ones in their queue.
async fn count_events(
    records: &dyn Records,
    question: &Question,
    page: &[Published],
    report: &mut Report,
) -> Result<(), StoreError> {
    for event in page {
        *report.events.entry(event.state.as_str()).or_default() += 1;
    }
    if question.place == Place::Queue {
        let sent: Vec<Box<str>> = page.iter().filter(|event| is_sent(event)).map(|event| event.id.clone()).collect();
        let kept = records.kept(&question.queue, &sent).await?;
        sent.iter().filter(|id| !kept.contains(id)).for_each(|id| report.lost.add(id));
    }
    Ok(())
}

fn is_sent(event: &Published) -> bool {
    event.state == State::Sent
}

async fn compare(
    records: &dyn Records,
    question: &Question,
    received: &mut Received,
    page: &[Published],
) -> Result<(), StoreError> {
    let expected: Vec<Expected<'_>> = page
        .iter()
        .filter(|event| is_sent(event))
        .map(|event| Expected::of(event, &received.subscription, question.rules.get(&received.subscription)))
        .collect();
    let ids: Vec<EventId> = expected.iter().map(|expected| expected.id).collect();
    let fates = records.fates(&ids).await?;
    received.expected += expected.len() as u64;
    let mut without_row = Vec::new();
    for expected in expected {
        match fates.get(&expected.id) {
            Some(fate) => *received.results.entry(word(fate)).or_default() += 1,
            None => without_row.push(expected),
        }
    }
    let entries: Vec<EntryId> = without_row.iter().filter_map(Expected::entry).collect();
    let completed = if entries.is_empty() { HashMap::new() } else { records.completed(&entries).await? };
    for expected in without_row {
        let done = expected.entry().and_then(|entry| completed.get(&entry));
        match done.is_some_and(|done| expected.means(done, question.secrets.as_ref())) {
            // It was acknowledged at once: cache or mark knew that it was done.
            true => *received.results.entry(DeliveryResult::Duplicate.as_str().into()).or_default() += 1,
            false => received.missing.add(&expected.event.id),
        }
    }
    let parked = fates.iter().filter(|(_, fate)| fate.state == State::Parked);
    let copies: Vec<EventId> = parked.map(|(id, fate)| id.dead_letter(fate.redrives)).collect();
    received.dead_letters += records.fates(&copies).await?.len() as u64;
    Ok(())
}

/// A message that a subscription should have.
struct Expected<'a> {
    id: EventId,
    event: &'a Published,
    /// Where its rules are known, and it can be handled.
    understood: Option<(EntryId, Understood)>,
}

impl<'a> Expected<'a> {
    fn of(event: &'a Published, subscription: &str, rules: Option<&Rules>) -> Self {
        let Published { id: message, content_type, attributes, data, .. } = event;
        let Some(rules) = rules else {
            let source = attributes.get("source").map(|source| &**source).unwrap_or_default();
            let id = EventId::of_delivery(subscription, source, message, data);
            return Self { id, event, understood: None };
        };
        let said = Said { id: Some(message), attributes, data };
        let (id, understood) = identify(subscription, rules, message, &said, content_type, data);
        let namespace = Namespace::from_stored(&queue_of(subscription));
        let understood = understood.ok().map(|understood| (entry(&namespace, &understood.key.key), understood));
        Self { id, event, understood }
    }

    fn entry(&self) -> Option<EntryId> {
        self.understood.as_ref().map(|(entry, _)| *entry)
    }

    /// Whether it says the same as the one that was handled.
    fn means(&self, handled: &Fingerprint, secrets: Option<&Secrets>) -> bool {
        let Some(((_, understood), secrets)) = self.understood.as_ref().zip(secrets) else { return false };
        secrets.compare(&understood.meaning, handled) == Comparison::Same
    }
}

/// A result, or the state of what has none.
fn word(fate: &Fate) -> Box<str> {
    match (&fate.result, fate.state) {
        (Some(result), _) => result.clone(),
        (None, State::Retrying | State::Early) => DeliveryResult::Deferred.as_str().into(),
        (None, state) => state.as_str().into(),
    }
}
