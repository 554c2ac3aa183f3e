//! `[[subscriptions]]`: messages of a queue, delivered to a handler and handled effectively once.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, de};

use super::lookup::Lookup;
use super::policy::{OnUnknown, Tombstone};
use super::value::{FieldName, FieldValue, HttpUrl, Name, Period, Secret};
use crate::entry::source::MessageSource;
use crate::entry::{KeySources, Namespace, Pointer};
use crate::http::route::{ForwardFormat, ForwardKey};
use crate::inbox::store::queue_of;
use crate::outbox::event::OnFailure;
use crate::outbox::lane::{DEFAULT_LANES, DEFAULT_QUEUE};

/// One of `[[subscriptions]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    /// What logs, metrics and records call it. Its keys are in a namespace of its own, `sub:` and this: another name
    /// makes every message new.
    pub name: Name,
    /// The queue, by name. Default `default`, the one of `[queue]`.
    #[serde(default = "queue")]
    pub queue: Name,
    /// Which messages of the queue: a topic, a queue's name, a subject or a stream, by the kind of broker.
    pub topic: String,
    /// Who shares the messages: each goes to one of the processes of a group. Default the subscription's name.
    #[serde(default)]
    pub group: Option<Name>,
    /// Where the business key comes from, the first source present wins: `"body:/pointer"`, `"attribute:name"`, and
    /// `"id"` as the last resort; an inner list is a composite. No default: what makes two messages one is the
    /// owner's decision.
    pub key: KeySources<MessageSource>,
    /// Where messages are posted to. Default none.
    pub deliver: HttpUrl,
    /// Fields sent along, such as `authorization`. Default none.
    #[serde(default)]
    pub headers: BTreeMap<FieldName, FieldValue>,
    /// TLS of an `https` handler. Default: the public certificate authorities.
    #[serde(default)]
    pub tls: HandlerTls,
    /// How long a connection to the handler may take. Default 1 s, as an upstream's.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: Period,
    /// How long the handler may take. Default 10 s: then the outcome is Unknown; bounded by the lease.
    #[serde(default = "timeout")]
    pub timeout: Period,
    /// The number that grows with each state of an entity, a plain integer. With it, messages carry whole states: an
    /// older one is not delivered after a newer one. Default none.
    #[serde(default)]
    pub version: Option<OneSource>,
    /// Whose versions they are, and what messages are ordered by. Default none: the business key.
    #[serde(default)]
    pub entity: Option<KeySources<MessageSource>>,
    /// What a version means that is not the next one. Default "ignore": it is delivered.
    #[serde(default, deserialize_with = "gap")]
    pub gap: Option<Gap>,
    /// How often a message is delivered that the handler refuses, before it is dead-lettered. Default 8: with the
    /// default back-off some two minutes, and `oncegate deliveries retry` for what comes later.
    #[serde(default = "attempts")]
    pub attempts: NonZeroU32,
    /// The pauses between these.
    #[serde(default)]
    pub backoff: Backoff,
    /// Deliveries at the same time, in each process. Default 16: each is a request that the handler works on.
    #[serde(default = "concurrency")]
    pub concurrency: NonZeroU32,
    /// What becomes of a delivery whose outcome is unknown. Default "hold".
    #[serde(default)]
    pub on_unknown: OnUnknown,
    /// How the handler is asked, with `on_unknown = "lookup"`. Default none.
    #[serde(default)]
    pub lookup: Option<Lookup>,
    /// The key that the handler sees. Default "derived".
    #[serde(default)]
    pub forward_key: ForwardKey,
    /// How that key is spelled. Default "bare".
    #[serde(default)]
    pub forward_key_format: ForwardFormat,
    /// The topic of the same queue that gets a copy of each message that can't be handled. Default none: they only
    /// wait for a person.
    #[serde(default)]
    pub dead_letter: Option<String>,
    /// What becomes of later messages of a key when one of it is dead-lettered. Default "skip": they go on.
    #[serde(default = "skip")]
    pub on_failure: OnFailure,
    /// What counts as the same message.
    #[serde(default)]
    pub fingerprint: MessageFingerprint,
    /// How long a record of what was handled is kept, with its answer. Default 7 d: longer than a broker that was
    /// down sends things again.
    #[serde(default = "retention")]
    pub retention: Period,
    /// How much longer a key is remembered. Default: for ever where it is a business key, else 30 days.
    #[serde(default)]
    pub tombstone: Option<Tombstone>,
    /// Above so many messages that could be delivered, no more are received: the rest waits in the broker. Default
    /// 10,000.
    #[serde(default = "max_backlog")]
    pub max_backlog: NonZeroU32,
    /// Above so many messages that wait for another one of their key, no more are received either: what one key that
    /// stands still may cost before it stops the others. Default 1,000,000, some gigabytes at most.
    #[serde(default = "max_waiting")]
    pub max_waiting: NonZeroU32,
    /// The most messages that are received and not yet kept. Default 256: one commit keeps them.
    #[serde(default = "prefetch")]
    pub prefetch: NonZeroU32,
    /// Into how many parts its messages are split, each worked by one process at a time. Default 32. Only the first
    /// process sets it.
    #[serde(default = "partitions")]
    pub partitions: NonZeroU32,
    /// How long a process has a part for itself without renewing. Default 15 s: what a crash delays its messages.
    #[serde(default = "lease")]
    pub lease: Period,
    /// A URL that is posted to when the subscription needs a person. A secret, since such URLs are. Default none.
    #[serde(default)]
    pub alert: Option<Secret>,
}

/// `[subscriptions.tls]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerTls {
    /// PEM file of authorities trusted besides the public ones. Default none.
    pub ca: Option<PathBuf>,
}

/// `fingerprint` of a subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MessageFingerprint {
    /// JSON pointers to members that do not count, such as the time at which it was sent. Default none.
    pub ignore: Vec<Pointer>,
}

/// `backoff` of a subscription: pauses that double, each cut by up to a half.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// The first pause. Default 1 s: most trouble is a restart.
    pub first: Period,
    /// The longest. Default 5 m.
    pub max: Period,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Period::secs(1), max: Period::secs(300) }
    }
}

/// What a version that is not the next one waits for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// How long the missing ones are waited for.
    pub wait: Period,
    /// What then.
    pub then: AfterGap,
}

/// What becomes of a message whose predecessor did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterGap {
    /// It is delivered.
    Apply,
    /// It is dead-lettered.
    DeadLetter,
}

/// One source, written as a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneSource(MessageSource);

impl OneSource {
    /// The source.
    #[must_use]
    pub fn get(&self) -> &MessageSource {
        &self.0
    }
}

impl<'de> Deserialize<'de> for OneSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::value::from_text(deserializer, "a source such as \"body:/version\"").map(Self)
    }
}

impl Subscription {
    /// The namespace of its keys. No route's name has a colon.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        Namespace::from_stored(&queue_of(self.name.as_str()))
    }

    /// Who shares its messages.
    #[must_use]
    pub fn group(&self) -> &Name {
        self.group.as_ref().unwrap_or(&self.name)
    }

    /// How long a key is remembered after its answer; `None` is for ever. `business`: whether it is a business key.
    #[must_use]
    pub fn tombstone_of(&self, business: bool) -> Option<Duration> {
        Tombstone::resolve(self.tombstone, business)
    }

    /// What gives its messages their identity, in words that are stored: their form never changes.
    #[must_use]
    pub fn identity(&self) -> String {
        match &self.version {
            Some(OneSource(version)) => format!("keys={} version={version} scope=global", self.key),
            None => format!("keys={} scope=global", self.key),
        }
    }

    /// The longest that a message may be tried for, from its arrival to its dead letter.
    #[must_use]
    pub fn horizon(&self) -> Duration {
        let mut pause = self.backoff.first.get();
        let mut sum = self.gap.as_ref().map_or(Duration::ZERO, |gap| gap.wait.get());
        for number in 1..=self.attempts.get() {
            sum = sum.saturating_add(self.timeout.get());
            if pause >= self.backoff.max.get() {
                let left = self.attempts.get() - number;
                let each = self.backoff.max.get().saturating_add(self.timeout.get());
                return sum.saturating_add(each.saturating_mul(left));
            }
            if number < self.attempts.get() {
                sum = sum.saturating_add(pause);
            }
            pause = pause.saturating_mul(2);
        }
        sum
    }
}

fn gap<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Gap>, D::Error> {
    let value = toml::Value::deserialize(deserializer)?;
    match value.as_str() {
        Some("ignore") => Ok(None),
        None if value.is_table() => Gap::deserialize(value).map(Some).map_err(plainly),
        Some(_) | None => Err(D::Error::custom(format_args!(
            "`{value}`: a gap is \"ignore\" or {{ wait = \"30s\", then = \"apply\" }}"
        ))),
    }
}

fn plainly<E: de::Error>(error: toml::de::Error) -> E {
    E::custom(error.message())
}

fn queue() -> Name {
    Name::from_static(DEFAULT_QUEUE)
}

fn connect_timeout() -> Period {
    Period::secs(1)
}

fn timeout() -> Period {
    Period::secs(10)
}

fn attempts() -> NonZeroU32 {
    super::at_least_one(8)
}

fn concurrency() -> NonZeroU32 {
    super::at_least_one(16)
}

fn skip() -> OnFailure {
    OnFailure::Skip
}

fn retention() -> Period {
    Period::days(7)
}

fn max_backlog() -> NonZeroU32 {
    super::at_least_one(10_000)
}

fn max_waiting() -> NonZeroU32 {
    super::at_least_one(1_000_000)
}

fn prefetch() -> NonZeroU32 {
    super::at_least_one(256)
}

fn partitions() -> NonZeroU32 {
    DEFAULT_LANES
}

fn lease() -> Period {
    Period::secs(15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(rest: &str) -> Result<Subscription, String> {
        let text = format!("name = 's'\ntopic = 't'\nkey = 'body:/no'\ndeliver = 'http://a/points'\n{rest}");
        toml::from_str(&text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_gap_is_ignored_or_waited_for() {
        assert_eq!(subscription("").unwrap().gap, None);
        assert_eq!(subscription("gap = 'ignore'").unwrap().gap, None);
        let wait = subscription("gap = { wait = '30s', then = 'dead_letter' }").unwrap().gap;
        assert_eq!(wait, Some(Gap { wait: Period::secs(30), then: AfterGap::DeadLetter }));
        for (written, told) in [
            ("'wait'", "\"ignore\" or"),
            ("30", "\"ignore\" or"),
            ("{ wait = '30s' }", "missing field `then`"),
            ("{ wait = '30', then = 'apply' }", "a duration is an integer"),
            ("{ wait = '30s', then = 'apply', more = 1 }", "unknown field `more`"),
        ] {
            let error = subscription(&format!("gap = {written}")).unwrap_err();
            assert!(error.contains(told), "{written}: {error}");
        }
    }

    #[test]
    fn its_namespace_and_group_are_its_own() {
        let one = subscription("").unwrap();
        assert_eq!((one.namespace().as_str(), one.group().as_str()), ("sub:s", "s"));
        assert_eq!(subscription("group = 'g'").unwrap().group().as_str(), "g");
    }

    #[test]
    fn an_identity_is_its_keys_and_the_version_that_is_a_part_of_them() {
        assert_eq!(subscription("").unwrap().identity(), r#"keys=["body:/no"] scope=global"#);
        let versions = subscription("version = 'attribute:sequence'\nentity = 'body:/no'\nretention = '1d'").unwrap();
        assert_eq!(versions.identity(), r#"keys=["body:/no"] version=attribute:sequence scope=global"#);
    }

    #[test]
    fn the_horizon_is_all_pauses_and_all_tries() {
        let horizon = |rest: &str| subscription(rest).unwrap().horizon().as_secs();
        assert_eq!(horizon("attempts = 1"), 10);
        assert_eq!(horizon("attempts = 3"), 3 * 10 + 1 + 2);
        assert_eq!(horizon("attempts = 5\nbackoff = { first = '1s', max = '4s' }"), 5 * 10 + 1 + 2 + 4 + 4);
        assert_eq!(horizon("attempts = 2\nbackoff = { first = '8s', max = '4s' }"), 2 * 10 + 4);
        assert_eq!(horizon("attempts = 1\ngap = { wait = '30s', then = 'apply' }"), 40);
        assert!(horizon("attempts = 4294967295") > 1_000_000_000, "at once, however many");
    }
}
