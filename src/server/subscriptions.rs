//! The subscriptions of a running gateway: what receives their messages, and the relays that deliver them.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio_util::sync::CancellationToken;

use super::pausing::{self, Pause};
use super::routes::{Asking, Routes, fields};
use super::{Background, ServeError, brokers, options};
use crate::broker::embedded::{EmbeddedSubscriber, EmbeddedSubscriberOptions};
use crate::config::{self, Config, HttpUrl, OnUnknown as Configured, Queue, QueueUrl};
use crate::engine::ledger::StoreError;
use crate::engine::policy::{Lookup, OnUnknown, Tombstones};
use crate::engine::switchboard::Switchboard;
use crate::engine::switches::Kind;
use crate::engine::{Engine, Policy};
use crate::entry::fingerprint;
use crate::http::route::Forwarding;
use crate::inbox::alert::{Alerts, Bell};
use crate::inbox::deliverer::Deliverer;
use crate::inbox::heard;
use crate::inbox::order::{AfterGap, Gap};
use crate::inbox::receiver::{Receiver, ReceiverOptions, ReceiverParts};
use crate::inbox::result::DeliveryResult;
use crate::inbox::rules::Rules;
use crate::inbox::source::{Source, Table};
use crate::inbox::store::{Deposits as _, queue_of};
use crate::inbox::subscription::Subscription;
use crate::outbox::relay::{Backoff, Duties, Relay, RelayOptions, Wakes};
use crate::outbox::rule::EventRules;
use crate::outbox::store::{DeadLetter, Late, Outbox, Parking};
use crate::storage::Store;
use crate::upstream::{Upstream, UpstreamOptions};

/// The largest answer of a handler that is kept, for people: what a mark carries, so that a duplicate costs no
/// database.
const RESPONSE_LIMIT: usize = 4096;

/// Deliveries in hand, for each that may be under way: enough to have the next one at hand, and few to be suspected
/// when the process dies.
const WINDOW: usize = 8;

/// What a delivery may take beside the handler's time: its claim, its record, and waiting for either.
const BESIDE_THE_CALL: Duration = Duration::from_secs(60);

/// How often dead letters are counted, and where counting stops.
const WATCH_EVERY: Duration = Duration::from_secs(10);
const WATCH_CAP: u32 = 10_000;

/// How often versions whose time is over are looked for, and how many leave in one transaction.
const FORGET_EVERY: Duration = Duration::from_secs(60);
const FORGET_LIMIT: u32 = 500;

/// A delivery is concluded after its version is on record, and kept for the retention from then on. It leaves a while
/// after that: the reaper looks at some of each lane at a time.
const SENT_BY_THEN: Duration = Duration::from_secs(24 * 3600);

/// The subscriptions, before anything is received.
pub(super) struct Subscriptions {
    store: Arc<Store>,
    ready: Vec<Ready>,
}

struct Ready {
    subscription: Arc<Subscription>,
    lanes: NonZeroU32,
    source: Source,
    bell: Option<Bell>,
    relay: RelayOptions,
    receiver: ReceiverOptions,
    pause: Pause,
}

/// The subscriptions at work.
#[derive(Debug)]
pub(super) struct Subscribed {
    receivers: Background,
    relays: Background,
    duties: Background,
}

impl Subscriptions {
    /// Opens the configured subscriptions.
    pub(super) async fn open(config: &Config, store: &Arc<Store>, routes: &Routes) -> Result<Self, ServeError> {
        let mut ready = Vec::new();
        for configured in &config.subscriptions {
            let building = Building { config, configured, store, routes };
            let name = queue_of(configured.name.as_str());
            let kept = store.open(&name, configured.partitions.get()).await?;
            if kept != configured.partitions.get() {
                tracing::warn!(subscription = %configured.name, configured = configured.partitions.get(), kept, "the subscription keeps the number of partitions that it was opened with");
            }
            let lanes = NonZeroU32::new(kept).unwrap_or(NonZeroU32::MIN);
            let one = building.ready(lanes)?;
            if let Source::Table(Table { subscriber, consumer, .. }) = &one.source {
                let read = subscriber.options();
                store.enlist(&read.queue, &read.topic, consumer).await?;
            }
            ready.push(one);
        }
        Ok(Self { store: Arc::clone(store), ready })
    }

    /// What they want of the engine.
    pub(super) fn policies(&self) -> HashMap<Box<str>, Arc<Policy>> {
        let policies = self.ready.iter().map(|ready| &ready.subscription.policy);
        policies.map(|policy| (policy.route.clone(), Arc::clone(policy))).collect()
    }

    /// `board` with their switches.
    pub(super) fn watched(&self, board: Switchboard) -> Switchboard {
        self.ready.iter().fold(board, |board, Ready { subscription, pause, .. }| {
            let pause = pause.clone();
            let act = move |setting: Option<&str>| pause.set(setting.is_some());
            board.watch(Kind::Subscription, &subscription.name, Box::new(act))
        })
    }

    /// Begins to receive and to deliver.
    pub(super) fn start(self, engine: &Arc<Engine>, wakes: &Wakes) -> Subscribed {
        let mut running = Subscribed {
            receivers: Background::default(),
            relays: Background::default(),
            duties: Background::default(),
        };
        for Ready { subscription, lanes, source, bell, relay, receiver, pause } in self.ready {
            let alerts = Alerts::new(&subscription.name, bell);
            let queue = queue_of(&subscription.name);
            let (outbox, deposits): (Arc<dyn Outbox>, _) = (self.store.clone(), self.store.clone());
            let wake = wakes.of(&queue);
            let (delivering, kept) = (Arc::clone(engine), Arc::clone(&deposits) as Arc<_>);
            let deliverer = Arc::new(Deliverer::new(Arc::clone(&subscription), delivering, kept, alerts.clone()));
            let (of, from, hears) = (queue.clone(), Arc::clone(&outbox), wake.clone());
            let make = move || Relay::new(&of, Arc::clone(&from), deliverer.clone(), hears.clone(), relay.clone());
            running.relays.spawn(|stop| pausing::relay(make, pause, stop));
            let (watched, watching) = (Arc::clone(&outbox), alerts.clone());
            running.duties.spawn(|stop| Duties::new(&queue, lanes.get(), Arc::clone(&outbox)).run(stop));
            running.duties.spawn(|stop| watch(queue, watched, watching, stop));
            if let Some(keep) = remembered(&subscription) {
                let (name, deposits) = (subscription.name.clone(), Arc::clone(&deposits));
                running.duties.spawn(|stop| forget_versions(name, deposits, keep, stop));
            }
            let engine = Arc::clone(engine);
            let parts = ReceiverParts { subscription, engine, deposits, outbox, wake, lanes, alerts };
            running.receivers.spawn(|stop| Receiver::new(source, parts, receiver).run(stop));
        }
        running
    }
}

impl Subscribed {
    /// Receives nothing more, then delivers what is under way and hands the lanes over. The engine must still run.
    pub(super) async fn end(self) {
        self.receivers.end().await;
        self.relays.end().await;
        self.duties.end().await;
    }
}

/// What makes two messages one to a subscription.
#[must_use]
pub fn rules(configured: &config::Subscription) -> Rules {
    Rules {
        key: configured.key.clone(),
        entity: configured.entity.clone(),
        version: configured.version.as_ref().map(|version| version.get().clone()),
        fingerprint: fingerprint::Rules::new(configured.fingerprint.ignore.clone(), Vec::new()),
    }
}

/// How the handler of a subscription is asked what it knows, where that is configured.
///
/// # Errors
/// If it can't be asked as configured.
pub fn lookup(config: &Config, configured: &config::Subscription) -> Result<Option<Arc<dyn Lookup>>, ServeError> {
    let Some(lookup) = &configured.lookup else { return Ok(None) };
    let asking = Asking { forwarding: forwarding(config, configured)?, business_keys_only: false };
    Ok(Some(asking.policy(lookup).lookup))
}

/// How messages go out.
fn forwarding(config: &Config, configured: &config::Subscription) -> Result<Arc<Forwarding>, ServeError> {
    let options = UpstreamOptions {
        connect_timeout: configured.connect_timeout.get(),
        timeout: configured.timeout.get(),
        trust: options::trust(configured.tls.ca.as_ref()),
        ..UpstreamOptions::new(&queue_of(configured.name.as_str()), vec![configured.deliver.origin()])
    };
    Ok(Arc::new(Forwarding {
        upstream: Upstream::new(&options).map_err(|error| wrong(configured, error))?,
        timeout: configured.timeout.get(),
        late_window: config.engine.late_answer.get(),
        key: configured.forward_key,
        key_format: configured.forward_key_format,
        outcomes: heard::outcomes(),
        response_limit: RESPONSE_LIMIT,
        excluded: Vec::new(),
    }))
}

fn wrong(configured: &config::Subscription, text: impl ToString) -> ServeError {
    ServeError::Subscription { subscription: configured.name.to_string(), text: text.to_string() }
}

/// What the configured subscriptions want of the engine, for whoever delivers nothing.
pub(super) fn policies_of(
    config: &Config,
    store: &Arc<Store>,
    routes: &Routes,
) -> Result<HashMap<Box<str>, Arc<Policy>>, ServeError> {
    let policy = |configured| {
        let building = Building { config, configured, store, routes };
        let policy = building.subscription()?.policy;
        Ok((policy.route.clone(), policy))
    };
    config.subscriptions.iter().map(policy).collect()
}

/// Tells people of dead letters, until `stop`.
async fn watch(queue: Box<str>, outbox: Arc<dyn Outbox>, alerts: Alerts, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(WATCH_EVERY)).await.is_some() {
        match outbox.backlog(&queue, WATCH_CAP).await {
            Ok(backlog) => alerts.dead_letters(backlog.parked),
            Err(error) => tracing::debug!(%queue, %error, "dead letters were not counted"),
        }
    }
}

/// How long after its last version an entity is forgotten, if ever: later than the keys of its messages, of which a
/// version is a part, and than the deliveries that were sent, which a person may send again.
fn remembered(subscription: &Subscription) -> Option<Duration> {
    subscription.rules.version.as_ref()?;
    let Policy { retention, tombstones, .. } = &*subscription.policy;
    let longest = tombstones.header?.max(tombstones.business?);
    Some(retention.saturating_add(longest).saturating_add(SENT_BY_THEN))
}

/// Forgets versions whose time is over, until `stop`.
async fn forget_versions(name: Box<str>, deposits: Arc<Store>, keep: Duration, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(FORGET_EVERY)).await.is_some() {
        let forgotten = async {
            while deposits.forget_versions(&name, keep, FORGET_LIMIT).await? == u64::from(FORGET_LIMIT) {}
            Ok::<_, StoreError>(())
        };
        if let Some(Err(error)) = stop.run_until_cancelled(forgotten).await {
            tracing::debug!(subscription = %name, %error, "versions were not forgotten");
        }
    }
}

struct Building<'a> {
    config: &'a Config,
    configured: &'a config::Subscription,
    store: &'a Arc<Store>,
    routes: &'a Routes,
}

impl Building<'_> {
    fn ready(&self, lanes: NonZeroU32) -> Result<Ready, ServeError> {
        let queue = self.config.queue(&self.configured.queue).ok_or_else(|| self.wrong("there is no such queue"))?;
        Ok(Ready {
            subscription: Arc::new(self.subscription()?),
            lanes,
            source: self.source(queue)?,
            bell: self.bell()?,
            relay: self.relay(),
            receiver: ReceiverOptions {
                max_backlog: self.configured.max_backlog.get(),
                max_waiting: self.configured.max_waiting.get(),
                ..ReceiverOptions::default()
            },
            pause: Pause::default(),
        })
    }

    fn wrong(&self, text: impl ToString) -> ServeError {
        wrong(self.configured, text)
    }

    fn subscription(&self) -> Result<Subscription, ServeError> {
        let configured = self.configured;
        let namespace = configured.namespace();
        let forwarding = forwarding(self.config, configured)?;
        Ok(Subscription {
            name: configured.name.as_str().into(),
            topic: (*configured.topic).into(),
            rules: rules(configured),
            gap: configured.gap.as_ref().map(|gap| Gap {
                wait: gap.wait.get(),
                then: match gap.then {
                    config::AfterGap::Apply => AfterGap::Apply,
                    config::AfterGap::DeadLetter => AfterGap::DeadLetter,
                },
            }),
            attempts: configured.attempts.get(),
            on_failure: configured.on_failure,
            policy: Arc::new(self.policy(&forwarding)?),
            forwarding,
            target: target(&configured.deliver).map_err(|error| self.wrong(error))?,
            headers: fields(&configured.headers),
            identity: self.routes.identities.get(namespace.as_str()).cloned().unwrap_or_default(),
        })
    }

    fn policy(&self, forwarding: &Arc<Forwarding>) -> Result<Policy, ServeError> {
        let configured = self.configured;
        Ok(Policy {
            // A rescuer finds it by this: no route's name has a colon.
            route: queue_of(configured.name.as_str()),
            namespace: configured.namespace(),
            retention: configured.retention.get(),
            tombstones: Tombstones { header: configured.tombstone_of(false), business: configured.tombstone_of(true) },
            on_unknown: match (configured.on_unknown, &configured.lookup) {
                (Configured::Hold, _) => OnUnknown::Hold,
                (Configured::Forward, _) => OnUnknown::Forward,
                (Configured::Lookup, Some(lookup)) => {
                    let asking = Asking { forwarding: Arc::clone(forwarding), business_keys_only: false };
                    OnUnknown::Lookup(asking.policy(lookup))
                }
                (Configured::Lookup, None) => return Err(self.wrong("on_unknown = \"lookup\" needs a lookup")),
            },
            events: EventRules::default(),
            budget: configured.timeout.get() + self.config.engine.margin.get(),
        })
    }

    fn source(&self, queue: &Queue) -> Result<Source, ServeError> {
        let configured = self.configured;
        match &queue.url {
            QueueUrl::Embedded => {
                let options = EmbeddedSubscriberOptions {
                    prefetch: configured.prefetch.get(),
                    ..EmbeddedSubscriberOptions::new(queue.name.as_str(), &*configured.topic)
                };
                Ok(Source::Table(Table {
                    subscriber: EmbeddedSubscriber::new(self.store.clone(), options),
                    consumer: configured.group().as_str().into(),
                    deposits: self.store.clone(),
                }))
            }
            QueueUrl::Rabbitmq(_)
            | QueueUrl::Kafka(_)
            | QueueUrl::Nats(_)
            | QueueUrl::Redis(_)
            | QueueUrl::Webhook(_) => brokers::subscriber(queue, configured).map(Source::Broker),
        }
    }

    fn relay(&self) -> RelayOptions {
        let configured = self.configured;
        let (lease, concurrency) = (configured.lease.get(), count(configured.concurrency));
        RelayOptions {
            window_events: concurrency * WINDOW,
            calls: concurrency,
            lease,
            renew: lease / 3,
            attempts: configured.attempts.get(),
            retry: Backoff { first: configured.backoff.first.get(), max: configured.backoff.max.get() },
            keep_sent: configured.retention.get(),
            parking: Parking {
                result: Some(DeliveryResult::Rejected.as_str()),
                dead_letter: configured
                    .dead_letter
                    .as_ref()
                    .map(|topic| DeadLetter { queue: configured.queue.as_str().into(), topic: (**topic).into() }),
            },
            late: Late::Waits,
            publish_limit: configured.timeout.get() + BESIDE_THE_CALL,
            // Beside the listener's, and before what the outbox gets.
            drain: self.config.server.drain_timeout.get() * 2 / 3,
            ..RelayOptions::default()
        }
    }

    fn bell(&self) -> Result<Option<Bell>, ServeError> {
        let Some(alert) = &self.configured.alert else { return Ok(None) };
        // Neither text is shown: such URLs hold secrets.
        let url: HttpUrl = alert.expose().parse().map_err(|error| self.wrong(format!("alert: {error}")))?;
        let name = format!("alert of {}", self.configured.name);
        let upstream = Upstream::new(&UpstreamOptions::new(&name, vec![url.origin()]));
        let upstream = upstream.map_err(|_| self.wrong("alert: the URL can't be used"))?;
        let target = target(&url).map_err(|_| self.wrong("alert: the URL can't be used"))?;
        Ok(Some(Bell { upstream, target }))
    }
}

fn target(url: &HttpUrl) -> Result<Uri, http::uri::InvalidUri> {
    url.target().parse()
}

fn count(number: NonZeroU32) -> usize {
    usize::try_from(number.get()).unwrap_or(usize::MAX)
}
