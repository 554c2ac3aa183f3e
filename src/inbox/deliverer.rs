//! Delivers what the receiver has kept: the publisher of a subscription's relay.
//!
//! A delivery's way, with what a crash right after each step leaves. Whoever takes the row up next begins at the
//! first one.
//!
//! | # | step | a crash after it leaves |
//! |---|---|---|
//! | 1 | the message is understood; an older version than the applied one ends here, as stale | nothing |
//! | 2 | the engine claims its key, durably | an entry in progress of a dead instance: Unknown once the lease is over, and settled as `on_unknown` says |
//! | 3 | the handler is called | the same |
//! | 4 | its answer is recorded in the ledger: done, or released | the finished entry: the next try is told the first answer, and delivers nothing |
//! | 5 | the entity's version is advanced | the same, and the version says so too |
//! | 6 | the relay's turn concludes the row | the finished delivery |
//!
//! What comes of it:
//!
//! | found | result | the relay |
//! |---|---|---|
//! | done, and this delivery did it | applied | sent |
//! | done before, by another delivery | duplicate | sent |
//! | older than what was applied | stale | sent |
//! | another message of the same key, or version | conflict | parked |
//! | the handler refuses it for good, or too often; it can't be understood | rejected | parked |
//! | the handler refuses it for now | deferred | again, the attempt counts, its key stops |
//! | nobody knows what became of it | deferred | `forward`: the same, though one with a version is never parked for it; else again, nothing counts, its key stops |
//! | its key is in progress elsewhere | in_progress_elsewhere | again, nothing counts, its key stops |
//! | it is early | deferred | again, nothing counts, its key goes on |
//! | nothing can be delivered now | | all is given back, and one probes |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::alert::{Alerts, Sign};
use super::heard::Heard;
use super::order::{Applied, Place, place};
use super::result::DeliveryResult;
use super::rules::Understood;
use super::store::{Deposits, Version, attribute};
use super::subscription::Subscription;
use super::{meters, request};
use crate::broker::{Confirmed, Ordering, PublishError, Published, Publisher};
use crate::engine::policy::OnUnknown;
use crate::engine::{Arrival, Arrived, Engine, Reason, Recorded, Verdict};
use crate::entry::source::Said;
use crate::entry::{Comparison, Fingerprint, Scope};
use crate::http::outgoing;
use crate::http::reply::Reply;
use crate::outbox::event::{Envelope, Outgoing};
use crate::problem::Situation;

/// Delivers a subscription's messages. See the [module](self).
#[derive(Clone)]
pub struct Deliverer(Arc<Inner>);

struct Inner {
    subscription: Arc<Subscription>,
    engine: Arc<Engine>,
    deposits: Arc<dyn Deposits>,
    alerts: Alerts,
    meters: meters::Results,
}

/// What came of a delivery, this time.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// It is over. A later version of its entity may have waited for it.
    Over(DeliveryResult, Option<i64>),
    /// It is over for us: a person decides.
    Judged(DeliveryResult, String),
    /// The handler did not take it, and may.
    Again(String),
    /// Nobody knows what an earlier call came to, and it may be called again: the handler honours the key.
    Unknown(String),
    /// It can't be now.
    NotNow(DeliveryResult, String),
    /// It waits for another one of its key.
    Early(String),
    /// Nothing can be delivered now.
    Away(String),
}

impl fmt::Debug for Deliverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliverer").field("subscription", &self.0.subscription.name).finish_non_exhaustive()
    }
}

impl Deliverer {
    /// Delivers the messages of `subscription`.
    #[must_use]
    pub fn new(
        subscription: Arc<Subscription>,
        engine: Arc<Engine>,
        deposits: Arc<dyn Deposits>,
        alerts: Alerts,
    ) -> Self {
        let meters = meters::Results::new(&subscription.name);
        Self(Arc::new(Inner { subscription, engine, deposits, alerts, meters }))
    }
}

impl Publisher for Deliverer {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let came = inner.deliver(&event).await.for_the_last_time(&event, &inner.subscription);
            if let Some(result) = came.result() {
                inner.meters.count(result);
            }
            came.into_published()
        })
    }

    fn ordering(&self) -> Ordering {
        Ordering::OneByOne
    }

    /// The engine's drain awaits what is under way.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Inner {
    async fn deliver(&self, outgoing: &Outgoing) -> Came {
        let subscription = &self.subscription;
        if !subscription.identity.holds() {
            return self.nobody(Sign::Refuses, "its messages would get another identity than on record: put the configuration back, or accept the change (oncegate identity accept)".to_owned());
        }
        let event = &outgoing.event;
        let understood = match subscription.rules.understand(&said(event), &event.content_type, &event.data) {
            Ok(understood) => understood,
            Err(unusable) => return Came::Judged(DeliveryResult::Rejected, unusable.to_string()),
        };
        let Understood { key, line, version, meaning, .. } = understood;
        let arrival = self.engine.arrival(&subscription.policy, Scope::Global, &key, meaning, Duration::ZERO);
        let fingerprint = arrival.fingerprint;
        if let Some(number) = version
            && let Some(came) = self.out_of_order(number, line.as_str(), &arrival, outgoing).await
        {
            return came;
        }
        let call = outgoing::Outgoing {
            forwarding: Arc::clone(&subscription.forwarding),
            key: key.key,
            parts: request::head(subscription, event),
            body: event.data.clone(),
        };
        let arrived = self.engine.arrive(arrival, move |attempt| Box::pin(call.execute(attempt))).await;
        match (self.came_of(arrived, outgoing), version) {
            (Came::Over(result, _), Some(number)) => {
                self.advance(Came::Over(result, self.next(number)), line.as_str(), number, fingerprint).await
            }
            (came, _) => came,
        }
    }

    /// What becomes of a version whose turn it is not; `None`: it is.
    async fn out_of_order(&self, number: i64, entity: &str, arrival: &Arrival, outgoing: &Outgoing) -> Option<Came> {
        let applied = match self.deposits.version(&self.subscription.name, entity).await {
            Ok(applied) => applied,
            Err(error) => return Some(Came::Away(format!("versions can't be read: {error}"))),
        };
        let last = applied.as_ref().map_or(0, |applied| applied.number);
        let applied = applied.map(|applied| Applied {
            number: applied.number,
            comparison: match Fingerprint::decode(&applied.digest) {
                Some(stored) => self.engine.secrets().compare(&arrival.meaning, &stored),
                None => Comparison::Incomparable,
            },
        });
        let age = self.engine.database_now().since(outgoing.time);
        Some(match place(number, applied, self.subscription.gap, age) {
            Place::Turn => return None,
            Place::Stale => match self.deposits.still_newer(&self.subscription.name, entity).await {
                Ok(()) => Came::Over(DeliveryResult::Stale, None),
                Err(error) => Came::Away(format!("versions can't be written: {error}")),
            },
            Place::Duplicate => Came::Over(done(outgoing), self.next(number)),
            Place::Conflict => Came::Judged(
                DeliveryResult::Conflict,
                format!("version {number} was applied before, with another content"),
            ),
            Place::Early => Came::Early(format!("version {number} waits for those after {last}")),
            Place::Missing => {
                let reason = format!("version {number} came, and those after {last} did not in time");
                Came::Judged(DeliveryResult::Rejected, reason)
            }
            Place::Incomparable => incomparable(),
        })
    }

    /// What the engine's word means for the delivery.
    fn came_of(&self, arrived: Arrived<Reply>, outgoing: &Outgoing) -> Came {
        match arrived {
            Arrived::Told(verdict) => told(&verdict, outgoing),
            Arrived::Executed { answer: Reply::Answer(response), recorded } => {
                self.answered(response.status(), recorded)
            }
            Arrived::Executed { answer: Reply::Problem(problem), .. } => match problem.situation() {
                Situation::UpstreamUnreachable => self.nobody(Sign::Away, "the handler can't be reached".to_owned()),
                Situation::UpstreamFailed => self.unknown("the connection was lost after the handler was called"),
                Situation::UpstreamTimeout => self.unknown("the handler did not answer in time"),
                _ => Came::Away("this process was suspended for too long".to_owned()),
            },
        }
    }

    fn answered(&self, status: http::StatusCode, recorded: Recorded) -> Came {
        let said = format!("the handler answered {status}");
        let heard = Heard::of(status);
        if heard != Heard::Nobody {
            self.alerts.found(Sign::Well, "");
        }
        match (heard, recorded) {
            (Heard::Done, Recorded::Completed(_)) => Came::Over(DeliveryResult::Applied, None),
            // The next try is told what is on record by then.
            (Heard::Done, Recorded::Released | Recorded::Unknown | Recorded::Streaming | Recorded::Nothing) => {
                Came::NotNow(DeliveryResult::Deferred, format!("{said}, which is not on record yet"))
            }
            (Heard::Again, Recorded::Unknown | Recorded::Nothing) => Came::Unknown(earlier_is_unknown(&said)),
            (Heard::Again, _) => Came::Again(said),
            // Parked, it would let a newer version go on, and what is unknown may come after that one.
            (Heard::Never, Recorded::Unknown | Recorded::Nothing) if self.subscription.rules.version.is_some() => {
                Came::NotNow(DeliveryResult::Deferred, earlier_is_unknown(&said))
            }
            (Heard::Never, Recorded::Unknown) => Came::Judged(DeliveryResult::Rejected, earlier_is_unknown(&said)),
            (Heard::Never, _) => Came::Judged(DeliveryResult::Rejected, said),
            (Heard::Nobody, _) => self.nobody(Sign::Refuses, said),
        }
    }

    fn nobody(&self, sign: Sign, reason: String) -> Came {
        self.alerts.found(sign, &reason);
        Came::Away(reason)
    }

    /// Nobody knows what became of the call. Where the handler honours the key, it is called again, and that counts:
    /// it may choke on just this message.
    fn unknown(&self, reason: &str) -> Came {
        match self.subscription.policy.on_unknown {
            OnUnknown::Forward => Came::Unknown(format!("{reason}: its outcome is unknown")),
            OnUnknown::Hold | OnUnknown::Lookup(_) => {
                Came::NotNow(DeliveryResult::Deferred, format!("{reason}: its outcome is unknown"))
            }
        }
    }

    /// Which version waits for `number`, if any does.
    fn next(&self, number: i64) -> Option<i64> {
        self.subscription.gap.and_then(|_| number.checked_add(1))
    }

    /// Before the delivery is concluded, so that no older version can come in between. Where it fails, the next try
    /// finds the delivery done, and advances.
    async fn advance(&self, came: Came, entity: &str, number: i64, fingerprint: Fingerprint) -> Came {
        let version = Version { number, digest: fingerprint.encode().into() };
        match self.deposits.advance(&self.subscription.name, entity, &version).await {
            Ok(_) => came,
            Err(error) => {
                Came::NotNow(DeliveryResult::Deferred, format!("done, but its version is not on record yet: {error}"))
            }
        }
    }
}

fn earlier_is_unknown(said: &str) -> String {
    format!("{said}; what an earlier call came to is unknown")
}

/// What is done already: by this delivery, if it was in somebody's hands before.
fn done(outgoing: &Outgoing) -> DeliveryResult {
    if outgoing.tried { DeliveryResult::Applied } else { DeliveryResult::Duplicate }
}

fn told(verdict: &Verdict, outgoing: &Outgoing) -> Came {
    match verdict {
        Verdict::Replay { .. } | Verdict::NotKept { .. } | Verdict::Expired => Came::Over(done(outgoing), None),
        Verdict::InProgress { .. } => {
            Came::NotNow(DeliveryResult::InProgressElsewhere, "its key is in progress elsewhere".to_owned())
        }
        Verdict::Held { .. } => {
            Came::NotNow(DeliveryResult::Deferred, "the outcome of an earlier call is unknown, and held".to_owned())
        }
        Verdict::Mismatch => Came::Judged(DeliveryResult::Conflict, "its key stands for another message".to_owned()),
        Verdict::Unavailable(Reason::Incomparable) => incomparable(),
        Verdict::Unavailable(Reason::Sealed) => {
            let reason = "the answer on record is sealed under a key that is not configured here";
            Came::NotNow(DeliveryResult::Deferred, reason.to_owned())
        }
        Verdict::Unavailable(Reason::Store) => Came::Away("the store can't be reached".to_owned()),
        Verdict::Unavailable(Reason::Overload) => Came::Away("too many requests wait to be recorded".to_owned()),
        Verdict::Unavailable(Reason::Lease) => Came::Away("this process has just come back from a pause".to_owned()),
    }
}

/// Neither a conflict nor a second call would be right.
fn incomparable() -> Came {
    let reason = "the fingerprint on record was made under a secret that is not configured here";
    Came::NotNow(DeliveryResult::Deferred, reason.to_owned())
}

/// What a kept message offers to the rules.
fn said(event: &Envelope) -> Said<'_> {
    let id = event.attributes.get(attribute::MESSAGE).map(|id| &**id);
    Said { id, attributes: &event.attributes, data: &event.data }
}

impl Came {
    /// The same, where this try was the last one that is allowed. One with a version whose outcome is unknown goes on
    /// being tried, with pauses that grow: given up, it would let a newer version pass, whose effect it may still
    /// overwrite.
    fn for_the_last_time(self, outgoing: &Outgoing, subscription: &Subscription) -> Self {
        let attempts = subscription.attempts;
        let is_last = outgoing.attempts >= attempts;
        match self {
            Self::Unknown(reason) if is_last && subscription.rules.version.is_some() => Self::NotNow(
                DeliveryResult::Deferred,
                format!("{reason}, {attempts} times; newer versions wait for it"),
            ),
            Self::Again(reason) | Self::Unknown(reason) if is_last => {
                Self::Judged(DeliveryResult::Rejected, format!("{reason}, {attempts} times"))
            }
            other => other,
        }
    }

    fn result(&self) -> Option<DeliveryResult> {
        match self {
            Self::Over(result, _) | Self::Judged(result, _) | Self::NotNow(result, _) => Some(*result),
            Self::Again(_) | Self::Unknown(_) | Self::Early(_) => Some(DeliveryResult::Deferred),
            Self::Away(_) => None,
        }
    }

    fn into_published(self) -> Published {
        Err(match self {
            Self::Over(result, frees) => return Ok(Confirmed { result: Some(result.as_str()), frees }),
            Self::Judged(result, reason) => PublishError::Judged { result: result.as_str(), reason },
            Self::Again(reason) | Self::Unknown(reason) => PublishError::Refused(reason),
            Self::NotNow(_, reason) => PublishError::Later(reason),
            Self::Early(reason) => PublishError::Early(reason),
            Self::Away(reason) => PublishError::Unavailable(reason),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::clock::Timestamp;
    use crate::entry::StoredResponse;
    use crate::inbox::subscription::fixture::subscription;
    use crate::outbox::event::EventId;

    fn outgoing(attempts: u32, tried: bool) -> Outgoing {
        let event = Envelope {
            id: EventId([1; 16]),
            queue: "sub:points".into(),
            topic: "t".into(),
            key: "k".into(),
            kind: "".into(),
            source: "".into(),
            route: "points".into(),
            content_type: "".into(),
            traceparent: None,
            attributes: BTreeMap::new(),
            data: Bytes::new(),
        };
        Outgoing { event, sequence: 1, epoch: 1, time: Timestamp(0), attempts, tried, redrives: 0 }
    }

    #[test]
    fn what_is_done_was_done_by_this_delivery_only_if_it_was_tried_before() {
        let response =
            StoredResponse { status: http::StatusCode::OK, headers: http::HeaderMap::new(), body: Bytes::new() };
        let replay = Verdict::Replay { response: Arc::new(response), expires: Timestamp(1) };
        for verdict in [replay, Verdict::NotKept { status: 200, expires: Timestamp(1) }, Verdict::Expired] {
            assert_eq!(told(&verdict, &outgoing(1, false)), Came::Over(DeliveryResult::Duplicate, None), "{verdict:?}");
            assert_eq!(told(&verdict, &outgoing(1, true)), Came::Over(DeliveryResult::Applied, None), "{verdict:?}");
        }
    }

    #[test]
    fn what_the_engine_tells_is_again_never_or_nobody() {
        let second = Duration::from_secs(1);
        let published = |verdict: Verdict| told(&verdict, &outgoing(1, false)).into_published().unwrap_err();
        assert!(matches!(published(Verdict::InProgress { retry_after: second }), PublishError::Later(_)));
        assert!(matches!(published(Verdict::Held { retry_after: second }), PublishError::Later(_)));
        assert!(matches!(published(Verdict::Mismatch), PublishError::Judged { result: "conflict", .. }));
        assert!(matches!(published(Verdict::Unavailable(Reason::Incomparable)), PublishError::Later(_)));
        for reason in [Reason::Store, Reason::Overload, Reason::Lease] {
            assert!(matches!(published(Verdict::Unavailable(reason)), PublishError::Unavailable(_)), "{reason:?}");
        }
    }

    #[test]
    fn the_last_refusal_is_a_rejection() {
        // Three attempts are allowed.
        let points = subscription(r#""body:/no""#);
        let again = || Came::Again("the handler answered 503".to_owned());
        assert_eq!(again().for_the_last_time(&outgoing(2, true), &points), again());
        let rejected = Came::Judged(DeliveryResult::Rejected, "the handler answered 503, 3 times".to_owned());
        assert_eq!(again().for_the_last_time(&outgoing(3, true), &points), rejected);
        let later = || Came::NotNow(DeliveryResult::Deferred, String::new());
        assert_eq!(later().for_the_last_time(&outgoing(9, true), &points), later(), "only refusals count");
    }

    #[test]
    fn a_version_whose_outcome_is_unknown_is_never_given_up() {
        let unknown = || Came::Unknown("no answer in time".to_owned());
        let mut points = subscription(r#""body:/no""#);
        let rejected = Came::Judged(DeliveryResult::Rejected, "no answer in time, 3 times".to_owned());
        assert_eq!(unknown().for_the_last_time(&outgoing(3, true), &points), rejected);
        points.rules.version = Some("body:/version".parse().unwrap());
        assert_eq!(unknown().for_the_last_time(&outgoing(2, true), &points), unknown(), "until then it counts");
        let last = unknown().for_the_last_time(&outgoing(3, true), &points);
        assert!(matches!(last, Came::NotNow(DeliveryResult::Deferred, _)), "{last:?}");
        let refused = Came::Again("the handler answered 503".to_owned()).for_the_last_time(&outgoing(3, true), &points);
        assert!(matches!(refused, Came::Judged(DeliveryResult::Rejected, _)), "what had no effect: {refused:?}");
    }
}
