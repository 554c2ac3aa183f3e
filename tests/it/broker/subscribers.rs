//! The contract of `Subscriber`, on every broker.
//!
//! A new broker implements [`Source`] (and [`Fragile`], on a server of the test's own, behind a proxy), and calls
//! `contract!` and `faults!`.

mod behaviour;
mod embedded;
#[cfg(feature = "kafka")]
mod kafka;
mod losses;
#[cfg(feature = "nats")]
mod nats;
mod proxy;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis-streams")]
mod redis_streams;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use oncegate::broker::Publisher;
use oncegate::broker::cloud_events;
use oncegate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};
use oncegate::clock;
use oncegate::outbox::event::Outgoing;
use tokio::time::{sleep, timeout};

use super::PATIENCE;
use super::contract::{LONG, deliver};
use proxy::Proxy;

/// After this time what a member that died had comes again, where the broker has such a time.
const SOON: Duration = Duration::from_secs(2);

/// A broker that has messages.
trait Source {
    /// A publisher to it.
    fn publisher(&self) -> Arc<dyn Publisher>;

    /// A new topic, of which these groups get all that is published from now on.
    async fn topic(&self, groups: &[&str]) -> String;

    /// A new member of a group, which may hold so many messages.
    fn subscriber(&self, topic: &str, group: &str, prefetch: u16) -> Box<dyn Subscriber>;

    /// Whether what nobody has seen may be overtaken when a connection is lost.
    fn keeps_order_through_losses(&self) -> bool;
}

/// Where a source's server is.
struct Site<S> {
    /// Where publishers connect.
    url: String,
    /// Where subscribers connect.
    by_way_of: String,
    /// The server, and what its subscribers connect through; `None`: shared.
    private: Option<(S, Proxy)>,
}

impl<S> Site<S> {
    fn shared(url: impl Into<String>) -> Self {
        let url = url.into();
        Self { by_way_of: url.clone(), url, private: None }
    }

    /// A server of the test's own, on `port`, whose subscribers come through a proxy.
    async fn private(server: S, url: String, port: u16) -> Self {
        let proxy = Proxy::start(port).await;
        let by_way_of = url.replace(&port.to_string(), &proxy.port.to_string());
        Self { url, by_way_of, private: Some((server, proxy)) }
    }

    /// How long a broker may take for something: one that is about to fail is found soon.
    fn limit(&self) -> Duration {
        if self.private.is_some() { SOON } else { LONG }
    }

    fn server(&self) -> &S {
        &self.private.as_ref().expect("a server of the test's own").0
    }

    fn server_mut(&mut self) -> &mut S {
        &mut self.private.as_mut().expect("a server of the test's own").0
    }
}

/// A server's process, which keeps on disk what it has confirmed.
trait Server {
    fn signal(&self, signal: &str);

    /// On the same address.
    fn start_again(&mut self);
}

macro_rules! server {
    ($server:ty) => {
        impl $crate::broker::subscribers::Server for $server {
            fn signal(&self, signal: &str) {
                <$server>::signal(self, signal);
            }

            fn start_again(&mut self) {
                <$server>::start_again(self);
            }
        }
    };
}
use server;

/// A source on a server of the test's own.
trait Fragile: Source {
    type Server: Server;

    fn site(&self) -> &Site<Self::Server>;

    fn site_mut(&mut self) -> &mut Site<Self::Server>;

    /// Waits until it works again.
    async fn works(&self) {}

    /// What its subscribers connect through.
    fn proxy(&self) -> &Proxy {
        &self.site().private.as_ref().expect("a server of the test's own").1
    }

    /// It is gone, without a word.
    fn kill(&self) {
        self.site().server().signal("KILL");
    }

    /// Starts it again on the same address, and waits until it works.
    async fn start_again(&mut self) {
        self.site_mut().server_mut().start_again();
        self.works().await;
    }

    /// It says nothing from now on, and its connections stay open.
    fn pause(&self) {
        self.site().server().signal("STOP");
    }

    /// It goes on.
    fn resume(&self) {
        self.site().server().signal("CONT");
    }
}

/// The contract's tests of the source that `$shared`, an async function, returns.
macro_rules! contract {
    ($shared:ident) => {
        $crate::broker::subscribers::contract! {
            $shared:
            what_is_published_arrives_in_order_with_all_that_it_says
            what_is_not_acknowledged_comes_again_and_what_is_does_not
            a_group_goes_on_where_it_stood
            each_group_gets_everything
            members_share_and_nothing_is_lost_when_one_dies
            a_call_that_is_dropped_loses_nothing
            no_more_is_held_than_allowed
            receipts_of_before_are_passed_over
            thousands_arrive_at_a_slow_acker
        }
    };
    ($shared:ident: $($behaviour:ident)*) => {
        mod contract {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() {
                $crate::broker::subscribers::behaviour::$behaviour(&super::$shared().await).await;
            })*
        }
    };
}
use contract;

/// The tests of failures, each on a source of its own that `$private`, an async function, returns.
macro_rules! faults {
    ($private:ident) => {
        $crate::broker::subscribers::faults! {
            $private:
            what_was_in_hand_when_the_connection_was_cut_comes_again
            all_arrive_over_many_lost_connections
            all_arrive_over_restarts_of_the_broker
            a_broker_that_is_not_there_yet_is_found
            a_broker_that_says_nothing_hangs_no_acknowledgement
        }
    };
    ($private:ident: $($behaviour:ident)*) => {
        mod faults {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() {
                $crate::broker::subscribers::losses::$behaviour(super::$private().await).await;
            })*
        }
    };
}
use faults;

/// What a consumer is to get of `sent`, by its attributes' names, without what its broker adds.
fn assert_same(sent: &Outgoing, received: &Received) {
    let mut wanted: BTreeMap<_, _> = cloud_events::attributes(sent).into_iter().collect();
    assert_eq!(received.id.as_deref(), wanted.remove("id").as_deref());
    for (name, value) in wanted {
        let is = received.attributes.iter().find(|(is, _)| **is == *name);
        assert_eq!(is.map(|(_, is)| &**is), Some(&*value), "{name}");
    }
    let present = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    assert_eq!(received.key.as_deref().map(str::to_owned), present(&sent.event.key));
    assert_eq!(received.content_type.as_deref().map(str::to_owned), present(&sent.event.content_type));
    assert_eq!(received.data, sent.event.data);
    assert!(!received.place.is_empty());
}

/// The next messages, when the broker is there again and has some.
async fn next(subscriber: &mut dyn Subscriber) -> Vec<Received> {
    let deadline = clock::now() + PATIENCE;
    loop {
        let error = match timeout(PATIENCE, subscriber.receive()).await.expect("something comes") {
            Ok(received) => {
                assert!(!received.is_empty());
                return received;
            }
            Err(error) => error,
        };
        assert!(clock::now() < deadline, "nothing comes: {error}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Takes and acknowledges until all `wanted` ids have come. Whatever else comes is returned with them, in order, and
/// copies too.
async fn take(subscriber: &mut dyn Subscriber, wanted: &[String]) -> Vec<Received> {
    let mut missing: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    let mut all = Vec::new();
    while !missing.is_empty() {
        let received = next(subscriber).await;
        for message in &received {
            missing.remove(id(message));
        }
        // After an error they come again.
        let told = subscriber.ack(&receipts(&received)).await;
        assert!(matches!(told, Ok(()) | Err(SubscribeError::Unavailable(_))), "{told:?}");
        all.extend(received);
    }
    all
}

fn id(message: &Received) -> &str {
    message.id.as_deref().expect("an id")
}

fn ids(messages: &[Received]) -> Vec<String> {
    messages.iter().map(|message| id(message).to_owned()).collect()
}

fn receipts(messages: &[Received]) -> Vec<Receipt> {
    messages.iter().map(|message| message.receipt).collect()
}

/// Each is there, as it was sent, and the first copies of a key are in its order.
fn assert_received(sent: &[Outgoing], received: &[Received]) {
    let expected: BTreeMap<_, _> = sent.iter().map(|event| (event.event.id.to_string(), event)).collect();
    let (mut seen, mut orders) = (BTreeSet::new(), BTreeMap::<&str, Vec<i64>>::new());
    for message in received {
        let event = expected[id(message)];
        assert_same(event, message);
        if seen.insert(id(message)) {
            orders.entry(&event.event.key).or_default().push(event.sequence);
        }
    }
    assert_eq!(seen.len(), sent.len(), "some are missing");
    for (key, order) in orders {
        assert!(order.is_sorted(), "{key}: {order:?}");
    }
}

async fn publish(source: &impl Source, events: &[Outgoing]) {
    let publisher = source.publisher();
    deliver(&*publisher, events).await;
    publisher.close().await;
}
