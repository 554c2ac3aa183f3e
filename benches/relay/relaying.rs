//! A relay in this process, on a runtime of its own, whose confirms are told with their time.

use std::sync::Arc;
use std::thread::JoinHandle;

use futures_util::future::BoxFuture;
use oncegate::broker::{Ordering, Published, Publisher};
use oncegate::clock::{self, Instant};
use oncegate::outbox::event::{EventId, Outgoing};
use oncegate::outbox::lane::DEFAULT_QUEUE;
use oncegate::outbox::relay::{Relay, RelayOptions, Wake, Wakes};
use oncegate::storage::{Store, StoreOptions};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// An event that the broker has confirmed.
pub(crate) struct Confirmed {
    pub(crate) number: i64,
    /// When the publisher was called.
    pub(crate) called: Instant,
    pub(crate) confirmed: Instant,
}

pub(crate) struct Relaying {
    /// What a commit of this process calls.
    pub(crate) wake: Wake,
    pub(crate) confirmed: mpsc::UnboundedReceiver<Confirmed>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Relaying {
    pub(crate) fn start(url: &str, broker: Arc<dyn Publisher>) -> Self {
        let (wakes, stop) = (Wakes::default(), CancellationToken::new());
        let wake = wakes.of(DEFAULT_QUEUE);
        let (tell, confirmed) = mpsc::unbounded_channel();
        let store = Arc::new(Store::open(&StoreOptions::new(url)).unwrap());
        let publisher = Arc::new(Watched { broker, tell });
        let relay = Relay::new(DEFAULT_QUEUE, store.clone(), publisher, wake.clone(), RelayOptions::default());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let relay = runtime.spawn(relay.run(stopped));
            let listening = runtime.spawn(async move { wakes.listen(&*store).await });
            runtime.block_on(relay).unwrap();
            listening.abort();
        });
        Self { wake, confirmed, stop, thread: Some(thread) }
    }
}

impl Drop for Relaying {
    fn drop(&mut self) {
        self.stop.cancel();
        self.thread.take().map(JoinHandle::join).transpose().unwrap();
    }
}

/// A broker's publisher whose confirms are told.
struct Watched {
    broker: Arc<dyn Publisher>,
    tell: mpsc::UnboundedSender<Confirmed>,
}

impl Publisher for Watched {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        let (number, called, tell) = (number(event.event.id), clock::now(), self.tell.clone());
        let publishing = self.broker.publish(event);
        Box::pin(async move {
            let result = publishing.await;
            if result.is_ok() {
                // Whoever wants to know no more has gone.
                tell.send(Confirmed { number, called, confirmed: clock::now() }).ok();
            }
            result
        })
    }

    fn ordering(&self) -> Ordering {
        self.broker.ordering()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.broker.close()
    }
}

/// The second half of the id, as `crate::ground` makes it.
fn number(EventId(id): EventId) -> i64 {
    let [.., a, b, c, d, e, f, g, h] = id;
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}
