//! All relays of a process.

use std::fmt;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Duties, Relay, RelayOptions, Wakes};
use crate::broker::Publisher;
use crate::outbox::store::Outbox;

/// A queue that is relayed in this process.
#[derive(Clone)]
pub struct Relayed {
    /// Its name.
    pub queue: Box<str>,
    /// How many lanes it has, as it was [opened](Outbox::open).
    pub lanes: u32,
    /// What publishes its events.
    pub publisher: Arc<dyn Publisher>,
    /// How.
    pub options: RelayOptions,
}

/// The relays of a process at work, and the duties around them. Dropped, they leave what a crash would.
pub struct Relays {
    relays: JoinSet<()>,
    stop_relays: CancellationToken,
    duties: JoinSet<()>,
    stop_duties: CancellationToken,
    publishers: Vec<Arc<dyn Publisher>>,
}

impl Relays {
    /// Begins to publish `queues`. Must be called on a runtime.
    #[must_use]
    pub fn start(outbox: &Arc<dyn Outbox>, queues: Vec<Relayed>, wakes: Wakes) -> Self {
        let (mut relays, mut duties) = (JoinSet::new(), JoinSet::new());
        let (stop_relays, stop_duties) = (CancellationToken::new(), CancellationToken::new());
        let mut publishers = Vec::new();
        for Relayed { queue, lanes, publisher, options } in queues {
            let wake = wakes.of(&queue);
            let relay = Relay::new(&queue, Arc::clone(outbox), Arc::clone(&publisher), wake, options);
            relays.spawn(relay.run(stop_relays.clone()));
            duties.spawn(Duties::new(&queue, lanes, Arc::clone(outbox)).run(stop_duties.clone()));
            publishers.push(publisher);
        }
        let (outbox, stop) = (Arc::clone(outbox), stop_duties.clone());
        duties.spawn(async move {
            stop.run_until_cancelled(wakes.listen(&*outbox)).await;
        });
        Self { relays, stop_relays, duties, stop_duties, publishers }
    }

    /// Publishes what is under way, hands the lanes over, and closes the brokers' connections.
    pub async fn end(mut self) {
        self.stop_relays.cancel();
        while self.relays.join_next().await.is_some() {}
        for publisher in self.publishers {
            publisher.close().await;
        }
        self.stop_duties.cancel();
        while self.duties.join_next().await.is_some() {}
    }
}

impl fmt::Debug for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relayed").field("queue", &self.queue).field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relays").field("count", &self.publishers.len()).finish_non_exhaustive()
    }
}
