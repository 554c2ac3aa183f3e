//! Redis Streams as a source: the contract on each topology, and what only Redis does.

use std::sync::Arc;
use std::time::Duration;

use oncegate::broker::Publisher;
use oncegate::broker::redis_streams::{
    RedisStreams, RedisStreamsOptions, RedisStreamsSubscriber, RedisStreamsSubscriberOptions,
};
use oncegate::broker::subscriber::{SubscribeError, Subscriber};
use oncegate::redis::Servers;

use super::super::contract::{LONG, events, ids as ids_of};
use super::super::{event, eventually, unique};
use super::{Fragile, Proxy, SOON, Site, Source, contract, faults, ids, next, publish, receipts, server, take};
use crate::servers::redis::{self as servers, Redis};

/// Streams on some Redis.
struct Streams {
    site: Site<Redis>,
}

impl Streams {
    fn on(url: &str) -> Self {
        Self { site: Site::shared(url) }
    }

    fn options(&self, url: &str) -> RedisStreamsOptions {
        RedisStreamsOptions { time_limit: self.site.limit(), ..RedisStreamsOptions::new(url) }
    }

    fn subscription(&self, topic: &str, group: &str) -> RedisStreamsSubscriberOptions {
        let options = RedisStreamsSubscriberOptions::new(self.options(&self.site.by_way_of), topic, group);
        RedisStreamsSubscriberOptions { idle: SOON, ..options }
    }
}

mod single {
    use super::*;

    async fn shared() -> Streams {
        Streams::on(&servers::single().url)
    }

    /// On disk before it is confirmed.
    async fn private() -> Streams {
        let port = crate::servers::process::free_port();
        let server = Redis::start_on(port, &["--appendonly", "yes", "--appendfsync", "always"]);
        let url = server.url.clone();
        Streams { site: Site::private(server, url, port).await }
    }

    contract!(shared);
    faults!(private);
}

mod cluster {
    use super::*;

    async fn shared() -> Streams {
        Streams::on(&servers::cluster().url)
    }

    contract!(shared);
}

mod sentinel {
    use super::*;

    async fn shared() -> Streams {
        Streams::on(&servers::sentinels().url)
    }

    contract!(shared:
        what_is_published_arrives_in_order_with_all_that_it_says
        what_is_not_acknowledged_comes_again_and_what_is_does_not
    );
}

impl Source for Streams {
    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(RedisStreams::new(self.options(&self.site.url)).unwrap())
    }

    async fn topic(&self, _groups: &[&str]) -> String {
        unique("payments")
    }

    fn subscriber(&self, topic: &str, group: &str, prefetch: u16) -> Box<dyn Subscriber> {
        let options = RedisStreamsSubscriberOptions { prefetch: prefetch.into(), ..self.subscription(topic, group) };
        Box::new(RedisStreamsSubscriber::new(options).unwrap())
    }

    fn keeps_order_through_losses(&self) -> bool {
        true
    }
}

server!(Redis);

impl Fragile for Streams {
    type Server = Redis;

    fn site(&self) -> &Site<Redis> {
        &self.site
    }

    fn site_mut(&mut self) -> &mut Site<Redis> {
        &mut self.site
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_behind_in_good_order_need_not_grow_idle() {
    let streams = Streams::on(&servers::single().url);
    let topic = unique("payments");
    let sent = events(&topic, 30, 1);
    publish(&streams, &sent).await;
    let hour = Duration::from_secs(3600);
    let patient = RedisStreamsSubscriberOptions { idle: hour, prefetch: 10, ..streams.subscription(&topic, "points") };
    let mut leaving = RedisStreamsSubscriber::new(patient.clone()).unwrap();
    let in_hand = next(&mut leaving).await;
    assert_eq!(leaving.ack(&receipts(&in_hand[..3])).await, Ok(()));
    leaving.close().await;
    let mut other = RedisStreamsSubscriber::new(patient.clone()).unwrap();
    let received = take(&mut other, &ids_of(&sent[3..])).await;
    assert_eq!(ids(&received), ids_of(&sent[3..]), "in order, each once");
    other.close().await;
    // With nothing pending, the names are gone as well: of the first, once it had nothing any more.
    let server = servers::single();
    let consumers = || server.cli(&["XINFO", "CONSUMERS", &topic, "points"]);
    assert_eq!(consumers().matches("oncegate-").count(), 1, "{}", consumers());
}

/// The server answers a call that nobody waits for any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_lost_is_asked_for_again() {
    let streams = Streams::on(&servers::single().url);
    let topic = unique("payments");
    let hour = Duration::from_secs(3600);
    let patient = RedisStreamsSubscriberOptions { idle: hour, ..streams.subscription(&topic, "points") };
    let mut subscriber = RedisStreamsSubscriber::new(patient).unwrap();
    let server = servers::single();
    let waits =
        || server.cli(&["CLIENT", "LIST"]).lines().any(|line| line.contains("flags=b") && line.contains("xreadgroup"));
    for sent in events(&topic, 5, 1).chunks(1) {
        let looks = eventually("the server has the call", async || waits());
        tokio::select! {
            received = subscriber.receive() => panic!("{received:?}"),
            () = looks => {}
        }
        publish(&streams, sent).await;
        take(&mut subscriber, &ids_of(sent)).await;
    }
    subscriber.close().await;
}

/// After a lost connection too.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_pending_in_our_name_comes_first() {
    let streams = Streams::on(&servers::single().url);
    let proxy = Proxy::start(servers::single().port).await;
    let by_way_of = format!("redis://127.0.0.1:{}", proxy.port);
    let streams = Streams { site: Site { by_way_of, ..streams.site } };
    let topic = unique("payments");
    let sent = events(&topic, 30, 1);
    publish(&streams, &sent).await;
    let hour = Duration::from_secs(3600);
    let patient = RedisStreamsSubscriberOptions { idle: hour, prefetch: 10, ..streams.subscription(&topic, "points") };
    let mut subscriber = RedisStreamsSubscriber::new(patient).unwrap();
    let in_hand = next(&mut subscriber).await;
    proxy.cut();
    assert!(subscriber.ack(&receipts(&in_hand)).await.is_err());
    let received = take(&mut subscriber, &ids_of(&sent)).await;
    assert_eq!(ids(&received), ids_of(&sent));
    subscriber.close().await;
}

/// Names are only removed with nothing in them.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_something_pending_stays() {
    let streams = Streams::on(&servers::single().url);
    let topic = unique("payments");
    let sent = events(&topic, 3, 1);
    publish(&streams, &sent).await;
    let mut subscriber = streams.subscriber(&topic, "points", 10);
    next(&mut *subscriber).await;
    subscriber.close().await;
    let pending = servers::single().cli(&["XPENDING", &topic, "points"]);
    assert!(pending.starts_with('3'), "{pending}");
    take(&mut *streams.subscriber(&topic, "points", 10), &ids_of(&sent)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_lost_is_made_again_and_its_trimmed_entries_are_let_go() {
    let streams = Streams::on(&servers::single().url);
    let (topic, server) = (unique("payments"), servers::single());
    let sent = events(&topic, 20, 1);
    publish(&streams, &sent[..10]).await;
    let mut subscriber = streams.subscriber(&topic, "points", 5);
    let in_hand = next(&mut *subscriber).await;
    // Its answer is lost, and then the entries are.
    drop(tokio::time::timeout(Duration::from_millis(1), subscriber.receive()).await);
    subscriber.close().await;
    server.cli(&["XTRIM", &topic, "MAXLEN", "7"]);
    let received = take(&mut *subscriber, &ids_of(&sent[3..10])).await;
    assert!(received.len() >= 7 && in_hand.len() == 5, "{}", received.len());
    let pending = server.cli(&["XPENDING", &topic, "points"]);
    assert!(pending.starts_with('0'), "{pending}");

    let (told, _) = tokio::join!(subscriber.receive(), async { server.cli(&["DEL", &topic]) });
    assert!(matches!(&told, Err(SubscribeError::Unavailable(_))), "{told:?}");
    publish(&streams, &sent[10..]).await;
    take(&mut *subscriber, &ids_of(&sent[10..])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn something_else_under_the_key_is_refused() {
    let streams = Streams::on(&servers::single().url);
    let topic = unique("no-stream");
    servers::single().cli(&["SET", &topic, "x"]);
    let told = streams.subscriber(&topic, "points", 10).receive().await;
    assert!(matches!(&told, Err(SubscribeError::Refused(reason)) if reason.contains("WRONGTYPE")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_messages_come_from_the_new_master() {
    let sentinels = servers::Sentinels::start();
    let streams = Streams::on(&sentinels.url);
    let topic = unique("payments");
    let sent = events(&topic, 20, 1);
    publish(&streams, &sent[..10]).await;
    let mut subscriber = streams.subscriber(&topic, "points", 5);
    take(&mut *subscriber, &ids_of(&sent[..10])).await;
    eventually("the sentinel agrees", async || sentinels.fail_over()).await;
    eventually("the replica is the master", async || sentinels.has_failed_over()).await;
    publish(&streams, &sent[10..]).await;
    take(&mut *subscriber, &ids_of(&sent[10..])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_a_user_with_a_password() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let (server, certificate) = Redis::start_with_tls("geheim");
    let options = |password: &str, authorities: Option<Vec<u8>>| RedisStreamsOptions {
        servers: Servers {
            url: server.url.clone(),
            password: Some(password.to_owned()),
            authorities,
            ..Servers::default()
        },
        time_limit: LONG,
        ..RedisStreamsOptions::new("")
    };
    let certificate = std::fs::read(&certificate).unwrap();
    let sent = event("payments", "k", 0);
    let right = options("geheim", Some(certificate.clone()));
    assert_eq!(RedisStreams::new(right.clone()).unwrap().publish(sent.clone()).await, oncegate::broker::CONFIRMED);
    let receive = async |connection: RedisStreamsOptions| {
        let options = RedisStreamsSubscriberOptions::new(connection, "payments", "points");
        RedisStreamsSubscriber::new(options).unwrap().receive().await
    };
    super::assert_same(&sent, &receive(right).await.unwrap()[0]);
    let told = receive(options("guess", Some(certificate))).await;
    assert!(matches!(&told, Err(SubscribeError::Refused(reason)) if !reason.contains("geheim")), "{told:?}");
    let told = receive(options("geheim", None)).await;
    assert!(matches!(&told, Err(SubscribeError::Unavailable(_))), "{told:?}");
}
