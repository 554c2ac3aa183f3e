//! The embedded queue as a source: the contract but for its members, since a position has one reader, and what only
//! it does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use oncegate::broker::Publisher;
use oncegate::broker::embedded::{Embedded, EmbeddedSubscriber, EmbeddedSubscriberOptions};
use oncegate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};
use oncegate::storage::Store;

use super::super::contract::{events, ids as ids_of};
use super::super::unique;
use super::{Source, contract, next, publish, receipts, take};
use crate::servers::database::{Database, Kind, fresh};

const QUEUE: &str = "default";

/// A database with its queue, and where each topic's groups stand.
struct Ground {
    _database: Database,
    store: Arc<Store>,
    positions: Arc<Mutex<HashMap<(String, String), i64>>>,
}

impl Ground {
    async fn new(kind: Kind) -> Self {
        let (database, store) = fresh(kind).await;
        Self { _database: database, store: Arc::new(store), positions: Arc::default() }
    }
}

/// A reader whose caller keeps its position.
struct Reader {
    subscriber: EmbeddedSubscriber,
    of: (String, String),
    positions: Arc<Mutex<HashMap<(String, String), i64>>>,
}

impl Subscriber for Reader {
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>> {
        self.subscriber.receive()
    }

    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>> {
        async {
            self.subscriber.ack(receipts).await?;
            self.positions.lock().unwrap().insert(self.of.clone(), self.subscriber.position());
            Ok(())
        }
        .boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.subscriber.close()
    }
}

impl Source for Ground {
    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(Embedded::new(QUEUE, self.store.clone()))
    }

    async fn topic(&self, _groups: &[&str]) -> String {
        unique("payments")
    }

    fn subscriber(&self, topic: &str, group: &str, prefetch: u16) -> Box<dyn Subscriber> {
        let of = (topic.to_owned(), group.to_owned());
        let after = self.positions.lock().unwrap().get(&of).copied().unwrap_or(0);
        let poll = Duration::from_millis(20);
        let options = EmbeddedSubscriberOptions {
            after,
            prefetch: prefetch.into(),
            poll,
            ..EmbeddedSubscriberOptions::new(QUEUE, topic)
        };
        let subscriber = EmbeddedSubscriber::new(self.store.clone(), options);
        Box::new(Reader { subscriber, of, positions: Arc::clone(&self.positions) })
    }

    fn keeps_order_through_losses(&self) -> bool {
        true
    }
}

macro_rules! on {
    ($($kind:ident $database:ident)*) => {
        $(mod $database {
            use super::*;

            async fn shared() -> Ground {
                Ground::new(Kind::$kind).await
            }

            contract!(shared:
                what_is_published_arrives_in_order_with_all_that_it_says
                what_is_not_acknowledged_comes_again_and_what_is_does_not
                a_group_goes_on_where_it_stood
                each_group_gets_everything
                a_call_that_is_dropped_loses_nothing
                no_more_is_held_than_allowed
                receipts_of_before_are_passed_over
                thousands_arrive_at_a_slow_acker
            );
        })*
    };
}
on! { Sqlite sqlite Postgres postgres MySql mysql }

/// The position is all that a caller has to keep.
#[tokio::test]
async fn the_position_is_where_everything_before_is_acknowledged() {
    let ground = Ground::new(Kind::Sqlite).await;
    let topic = ground.topic(&[]).await;
    let sent = events(&topic, 4, 1);
    publish(&ground, &sent).await;
    publish(&ground, &events("another topic", 4, 1)).await;
    let options = EmbeddedSubscriberOptions::new(QUEUE, &topic);
    let mut subscriber = EmbeddedSubscriber::new(ground.store.clone(), options.clone());
    assert_eq!(subscriber.position(), 0);
    let received = next(&mut subscriber).await;
    let place = |place: usize| received[place].place.parse::<i64>().unwrap();
    assert_eq!(subscriber.position(), place(0) - 1);
    subscriber.ack(&receipts(&received[1..2])).await.unwrap();
    assert_eq!(subscriber.position(), place(0) - 1);
    subscriber.ack(&receipts(&received[..1])).await.unwrap();
    assert_eq!(subscriber.position(), place(2) - 1);
    let options = EmbeddedSubscriberOptions { after: subscriber.position(), ..options };
    let mut other = EmbeddedSubscriber::new(ground.store.clone(), options);
    take(&mut other, &ids_of(&sent[2..])).await;
    assert_eq!(other.position(), place(3));
}
