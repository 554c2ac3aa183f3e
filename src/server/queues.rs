//! The queues of a running gateway: their lanes, and the relays that publish what the outbox holds for them.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::brokers::publisher;
use super::{Background, ServeError};
use crate::broker::embedded::{Behind, Messages};
use crate::config::{Config, Queue, QueueUrl};
use crate::engine::OnEvents;
use crate::outbox::lane::Lanes;
use crate::outbox::relay::{RelayOptions, Relayed, Relays, Wake, Wakes};
use crate::outbox::store::Outbox;
use crate::storage::Store;

/// The queues, before anything is published.
pub(super) struct Queues {
    outbox: Arc<dyn Outbox>,
    queues: Vec<Relayed>,
    embedded: Vec<Kept>,
    pub(super) wakes: Wakes,
    pub(super) lanes: Lanes,
}

/// An embedded queue: how long it keeps its messages, and where they are.
struct Kept {
    queue: Box<str>,
    keep: Duration,
    messages: Arc<dyn Messages>,
}

/// The relays at work, and what tidies up after them.
#[derive(Debug)]
pub(super) struct Publishing {
    relays: Relays,
    trims: Background,
}

/// How often old messages of an embedded queue are looked for, and how many leave at once.
const TRIM_EVERY: Duration = Duration::from_secs(60);
const TRIM_LIMIT: u32 = 500;

impl Queues {
    /// Opens the configured queues: the store's number of lanes wins over the configured one.
    pub(super) async fn open(config: &Config, store: &Arc<Store>) -> Result<Self, ServeError> {
        let outbox: Arc<dyn Outbox> = store.clone();
        let (mut queues, mut embedded, mut lanes) = (Vec::new(), Vec::new(), Vec::new());
        for queue in config.all_queues().filter(|queue| is_used(config, queue)) {
            let name: Box<str> = queue.name.as_str().into();
            let count = outbox.open(&name, queue.partitions.get()).await?;
            if count != queue.partitions.get() {
                tracing::warn!(queue = %name, configured = queue.partitions.get(), kept = count, "the queue keeps the number of partitions that it was opened with");
            }
            if let Some(count) = NonZeroU32::new(count) {
                lanes.push((name.clone(), count));
            }
            let messages: Arc<dyn Messages> = store.clone();
            if matches!(queue.url, QueueUrl::Embedded) {
                let (queue, keep) = (name.clone(), queue.retention.get());
                embedded.push(Kept { queue, keep, messages: Arc::clone(&messages) });
            }
            let (publisher, options) = (publisher(queue, messages)?, options(config, queue));
            queues.push(Relayed { queue: name, lanes: count, publisher, options });
        }
        Ok(Self { outbox, queues, embedded, wakes: Wakes::default(), lanes: lanes.into_iter().collect() })
    }

    /// What the engine calls after a commit that carried events.
    pub(super) fn on_events(&self) -> OnEvents {
        let wakes: Vec<Wake> = self.queues.iter().map(|queue| self.wakes.of(&queue.queue)).collect();
        OnEvents::new(move || wakes.iter().for_each(Wake::committed))
    }

    /// Begins to publish.
    pub(super) fn publish(self) -> Publishing {
        let mut trims = Background::default();
        for Kept { queue, keep, messages } in self.embedded {
            trims.spawn(|stop| trim(queue, keep, messages, stop));
        }
        Publishing { relays: Relays::start(&self.outbox, self.queues, self.wakes), trims }
    }
}

impl Publishing {
    /// Publishes what is under way, hands the lanes over, and closes the brokers' connections.
    pub(super) async fn end(self) {
        self.relays.end().await;
        self.trims.end().await;
    }
}

/// The lanes of the configured queues, for whoever writes events and publishes none.
pub(super) async fn lanes(config: &Config, store: &Arc<Store>) -> Result<Lanes, ServeError> {
    let mut lanes = Vec::new();
    for queue in config.all_queues().filter(|queue| is_used(config, queue)) {
        let count = Outbox::open(&**store, queue.name.as_str(), queue.partitions.get()).await?;
        lanes.extend(NonZeroU32::new(count).map(|count| (queue.name.as_str().into(), count)));
    }
    Ok(lanes.into_iter().collect())
}

/// Whether anything goes there, by this configuration or by somebody who has configured it for others. The queue that
/// nobody has mentioned is not asked for events for ever.
pub(super) fn is_used(config: &Config, queue: &Queue) -> bool {
    let named = config.routes.iter().flat_map(|route| &route.events).any(|event| event.queue == queue.name);
    // A subscription's dead letters go back to its queue.
    let read = config.subscriptions.iter().any(|subscription| subscription.queue == queue.name);
    named || read || *queue != Queue::default()
}

fn options(config: &Config, queue: &Queue) -> RelayOptions {
    let lease = queue.lease.get();
    RelayOptions {
        lease,
        renew: lease / 3,
        attempts: queue.attempts.get(),
        keep_sent: queue.keep_sent.get(),
        // A stop has its time-out in all, and the relays come last.
        drain: config.server.drain_timeout.get() / 3,
        ..RelayOptions::default()
    }
}

/// Removes old messages of an embedded queue until `stop`.
async fn trim(queue: Box<str>, keep: Duration, messages: Arc<dyn Messages>, stop: CancellationToken) {
    let trimming = async {
        let mut told = HashSet::new();
        loop {
            match messages.trim(&queue, keep, TRIM_LIMIT).await {
                Ok(trimmed) if trimmed.removed >= u64::from(TRIM_LIMIT) => continue,
                Ok(trimmed) => told = tell_behind(&queue, trimmed.behind, &told),
                Err(error) => tracing::warn!(queue = %queue, %error, "old messages were not removed"),
            }
            tokio::time::sleep(TRIM_EVERY).await;
        }
    };
    stop.run_until_cancelled(trimming).await;
}

/// Tells once of each consumer that keeps old messages, for as long as it does.
fn tell_behind(queue: &str, behind: Vec<Behind>, told: &HashSet<Behind>) -> HashSet<Behind> {
    for one in behind.iter().filter(|one| !told.contains(*one)) {
        let Behind { topic, consumer } = one;
        tracing::error!(
            %queue, %topic, %consumer,
            "messages that are older than the queue's retention are kept, since a subscription has not taken them: it \
             stands still or is gone (`oncegate cursors forget` lets those of one that is gone leave)"
        );
    }
    behind.into_iter().collect()
}
