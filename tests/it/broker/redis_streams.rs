//! Redis Streams: the contract on each topology, and what only Redis does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{AsyncConnectionConfig, Value, cmd};
use oncegate::broker::redis_streams::{RedisStreams, RedisStreamsOptions};
use oncegate::broker::{CONFIRMED, PublishError, Publisher};
use oncegate::redis::Servers;

use super::confirms::{Wired, confirms};
use super::contract::{
    Breakable, Broker, LONG, Received, SHORT, assert_delivered, contract, events, faults, works_again,
};
use super::{event, eventually, unique};
use crate::servers::redis::{self as servers, Cluster, Redis, Sentinels};
use crate::servers::wire::Wire;

/// Streams on some Redis.
struct Streams {
    url: String,
    /// Where the entries are read: the server, or one of the cluster.
    read: String,
    /// `None`: shared.
    server: Option<Redis>,
    /// What publishers reach it over, if it is not the server itself.
    wire: Option<Wire>,
}

impl Streams {
    fn on(url: &str, read: &str) -> Self {
        Self { url: url.to_owned(), read: read.to_owned(), server: None, wire: None }
    }
}

mod single {
    use super::*;

    async fn shared() -> Streams {
        let server = servers::single();
        Streams::on(&server.url, &server.url)
    }

    /// On disk before it is confirmed.
    async fn private() -> Streams {
        let port = crate::servers::process::free_port();
        let server = Redis::start_on(port, &["--appendonly", "yes", "--appendfsync", "always"]);
        Streams {
            server: Some(server),
            ..Streams::on(&format!("redis://127.0.0.1:{port}"), &format!("redis://127.0.0.1:{port}"))
        }
    }

    async fn wired() -> Streams {
        let streams = private().await;
        let wire = Wire::to(streams.server.as_ref().unwrap().port).await;
        Streams { url: format!("redis://127.0.0.1:{}", wire.port), wire: Some(wire), ..streams }
    }

    contract!(shared);
    faults!(private);
    confirms!(wired);
}

mod cluster {
    use super::*;

    async fn shared() -> Streams {
        let cluster = servers::cluster();
        Streams::on(&cluster.url, &cluster.nodes[0].url)
    }

    contract!(shared);
}

mod sentinel {
    use super::*;

    async fn shared() -> Streams {
        let sentinels = servers::sentinels();
        Streams::on(&sentinels.url, &sentinels.master.url)
    }

    contract!(shared);
}

impl Broker for Streams {
    fn publisher(&self, time_limit: Duration) -> Arc<dyn Publisher> {
        Arc::new(RedisStreams::new(RedisStreamsOptions { time_limit, ..RedisStreamsOptions::new(&self.url) }).unwrap())
    }

    async fn topic(&self) -> String {
        unique("payments")
    }

    async fn received(&self, topic: &str) -> Vec<Received> {
        received(&self.read, topic).await
    }

    /// A key with something else.
    async fn dead_end(&self) -> Option<String> {
        let topic = unique("no-stream");
        cli(&self.read, &["SET", &topic, "x"]);
        Some(topic)
    }

    fn too_many_bytes(&self) -> Option<usize> {
        None
    }
}

impl Breakable for Streams {
    async fn kill(&mut self) {
        self.server.as_ref().unwrap().signal("KILL");
    }

    async fn start_again(&mut self) {
        self.server.as_mut().unwrap().start_again();
    }

    async fn pause(&self) {
        self.server.as_ref().unwrap().signal("STOP");
    }

    async fn resume(&self) {
        self.server.as_ref().unwrap().signal("CONT");
    }
}

impl Wired for Streams {
    fn wire(&self) -> &Wire {
        self.wire.as_ref().unwrap()
    }
}

/// As `redis-cli -c` does: of a cluster, from the node that has it.
fn cli(url: &str, args: &[&str]) -> String {
    crate::servers::process::run(std::process::Command::new("redis-cli").args(["-e", "-c", "-u", url]).args(args))
}

/// The node of a cluster that has a key, by asking and being sent on.
async fn received(url: &str, topic: &str) -> Vec<Received> {
    let mut url = url.to_owned();
    let deadline = oncegate::clock::now() + LONG;
    loop {
        match range(&url, topic).await {
            Ok(entries) => return read(entries),
            Err(error) => match error.redirect_node() {
                Some((node, _)) => url = format!("redis://{node}"),
                // It has just been started again, and reads its file.
                None => assert!(oncegate::clock::now() < deadline, "{error}"),
            },
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn range(url: &str, topic: &str) -> Result<Value, deadpool_redis::redis::RedisError> {
    let client = deadpool_redis::redis::Client::open(url)?;
    // By default half a second: on a busy machine some hundred entries take longer, however often they are asked for.
    let patient = AsyncConnectionConfig::new().set_connection_timeout(Some(LONG)).set_response_timeout(Some(LONG));
    let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
    cmd("XRANGE").arg(topic).arg("-").arg("+").query_async(&mut connection).await
}

fn read(entries: Value) -> Vec<Received> {
    let Value::Array(entries) = entries else { panic!("{entries:?}") };
    let bytes = |value: &Value| match value {
        Value::BulkString(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    let text = |value: &Value| String::from_utf8(bytes(value)).unwrap();
    let entry = |entry: Value| {
        let Value::Array(entry) = entry else { panic!("{entry:?}") };
        let Value::Array(fields) = &entry[1] else { panic!("{entry:?}") };
        let (last, attributes) = fields.as_chunks::<2>().0.split_last().unwrap();
        assert_eq!(text(&last[0]), "data");
        let mut attributes: BTreeMap<_, _> = attributes.iter().map(|[name, value]| (text(name), text(value))).collect();
        let content_type = attributes.remove("datacontenttype").unwrap();
        Received { attributes, content_type, data: bytes(&last[1]) }
    };
    entries.into_iter().map(entry).collect()
}

/// 1 MiB is the least that the server takes for this.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_found_among_its_neighbours() {
    let server = Redis::start_on(crate::servers::process::free_port(), &["--proto-max-bulk-len", "1mb"]);
    let streams = Streams::on(&server.url, &server.url);
    let (publisher, topic) = (streams.publisher(LONG), streams.topic().await);
    let mut sent = events(&topic, 21, 3);
    sent[10].event.data = vec![b'x'; (1 << 20) + 1].into();
    let calls: Vec<_> = sent.iter().map(|event| publisher.publish(event.clone())).collect();
    let mut told = futures_util::future::join_all(calls).await;
    let large = told.remove(10);
    assert!(matches!(&large, Err(PublishError::Never(reason)) if reason.contains("1048576")), "{large:?}");
    assert_eq!(told, vec![CONFIRMED; 20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_keeps_about_as_many_as_it_is_told_to() {
    let server = servers::single();
    let options = |max_len| RedisStreamsOptions { max_len, time_limit: LONG, ..RedisStreamsOptions::new(&server.url) };
    let (topic, endless) = (unique("payments"), unique("payments"));
    for (topic, max_len, number) in [(&topic, 100, 100..=300), (&endless, 0, 2_000..=2_000)] {
        let publisher = RedisStreams::new(options(max_len)).unwrap();
        let calls: Vec<_> = events(topic, 2_000, 3).into_iter().map(|event| publisher.publish(event)).collect();
        for call in calls {
            assert_eq!(call.await, CONFIRMED);
        }
        let kept = received(&server.url, topic).await.len();
        assert!(number.contains(&kept), "{kept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_is_unavailable_until_it_has_some() {
    let server = Redis::start();
    let streams = Streams::on(&server.url, &server.url);
    let (publisher, topic) = (streams.publisher(LONG), streams.topic().await);
    works_again(&*publisher, &topic).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let result = publisher.publish(event(&topic, "k", 0)).await;
    assert!(matches!(&result, Err(PublishError::Unavailable(reason)) if reason.contains("OOM")), "{result:?}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(publisher.publish(event(&topic, "k", 1)).await, CONFIRMED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirm_waits_for_replicas_where_it_is_told_to() {
    let sentinels = Sentinels::start();
    for url in [&sentinels.master.url, &sentinels.url] {
        let options = RedisStreamsOptions { wait_replicas: 1, time_limit: LONG, ..RedisStreamsOptions::new(url) };
        let (publisher, topic) = (RedisStreams::new(options).unwrap(), unique("payments"));
        let sent = events(&topic, 100, 3);
        let calls: Vec<_> = sent.iter().map(|event| publisher.publish(event.clone())).collect();
        for call in calls {
            assert_eq!(call.await, CONFIRMED);
        }
        assert_delivered(&sent, &received(&sentinels.replica.url, &topic).await);
    }
    let two =
        RedisStreamsOptions { wait_replicas: 2, time_limit: SHORT, ..RedisStreamsOptions::new(&sentinels.master.url) };
    let result = RedisStreams::new(two).unwrap().publish(event(&unique("payments"), "k", 0)).await;
    let told = matches!(&result, Err(PublishError::Unavailable(reason)) if reason.contains("1 of 2 replicas"));
    assert!(told, "{result:?}");
    sentinels.master.cli(&["CONFIG", "SET", "min-replicas-to-write", "2"]);
    let result = Streams::on(&sentinels.master.url, "").publisher(LONG).publish(event("payments", "k", 0)).await;
    assert!(matches!(&result, Err(PublishError::Unavailable(reason)) if reason.contains("NOREPLICAS")), "{result:?}");
}

/// In a cluster without replicas: the answer comes from the node that has the stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_asked_for_replicas_too() {
    let url = &servers::cluster().url;
    let options = RedisStreamsOptions { wait_replicas: 1, time_limit: SHORT, ..RedisStreamsOptions::new(url) };
    let result = RedisStreams::new(options).unwrap().publish(event(&unique("payments"), "k", 0)).await;
    let told = matches!(&result, Err(PublishError::Unavailable(reason)) if reason.contains("0 of 1 replicas"));
    assert!(told, "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_events_go_to_the_new_master() {
    let sentinels = Sentinels::start();
    let streams = Streams::on(&sentinels.url, &sentinels.replica.url);
    let (publisher, topic) = (streams.publisher(SHORT), streams.topic().await);
    works_again(&*publisher, &topic).await;
    // It promotes nobody before it has found that the replica is well.
    eventually("the sentinel agrees", async || sentinels.fail_over()).await;
    eventually("the replica is the master", async || sentinels.has_failed_over()).await;
    works_again(&*publisher, &topic).await;
    let sent = events(&streams.topic().await, 50, 3);
    for event in &sent {
        assert_eq!(publisher.publish(event.clone()).await, CONFIRMED);
    }
    assert_delivered(&sent, &streams.received(&sent[0].event.topic).await);
}

/// The server that it is connected to becomes a replica, with the connection open.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_unavailable_and_another_connection_is_opened() {
    let (server, other) = (Redis::start(), Redis::start());
    let streams = Streams::on(&server.url, &server.url);
    let (publisher, topic) = (streams.publisher(LONG), streams.topic().await);
    works_again(&*publisher, &topic).await;
    let connections = || {
        let info = server.cli(&["INFO", "stats"]);
        let number = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        number.trim().parse::<u32>().unwrap()
    };
    server.cli(&["REPLICAOF", "127.0.0.1", &other.port.to_string()]);
    let (before, mut questions) = (connections(), 0);
    eventually("it opens another connection", async || {
        let result = publisher.publish(event(&topic, "k", 0)).await;
        let told = matches!(&result, Err(PublishError::Unavailable(reason)) if reason.contains("read only replica"));
        assert!(told, "{result:?}");
        questions += 1;
        connections() > before + questions
    })
    .await;
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    works_again(&*publisher, &topic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_moves_in_a_cluster_is_followed_in_order() {
    let cluster = Cluster::start();
    let streams = Streams::on(&cluster.url, &cluster.nodes[0].url);
    let publisher = streams.publisher(LONG);
    let topic = streams.topic().await;
    let slot = cluster.slot(&topic);
    works_again(&*publisher, &streams.topic().await).await;
    cluster.move_slot(slot, (Cluster::first_owner(slot) + 1) % 3);
    let sent = events(&topic, 500, 5);
    let calls: Vec<_> = sent.iter().map(|event| publisher.publish(event.clone())).collect();
    let results = futures_util::future::join_all(calls).await;
    if results.iter().any(Result::is_err) {
        // Not all at once is allowed, some out of order is not.
        assert!(results.iter().all(|result| matches!(result, Err(PublishError::Unavailable(_)))), "{results:?}");
        for event in &sent {
            eventually("it is followed", async || publisher.publish(event.clone()).await.is_ok()).await;
        }
    }
    assert_delivered(&sent, &streams.received(&topic).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_a_user_with_a_password() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let (server, certificate) = Redis::start_with_tls("geheim");
    let servers = |user: Option<&str>, password: &str| Servers {
        url: server.url.clone(),
        user: user.map(str::to_owned),
        password: Some(password.to_owned()),
        authorities: Some(std::fs::read(&certificate).unwrap()),
        ..Servers::default()
    };
    let publish = async |servers: Servers| {
        let options = RedisStreamsOptions { servers, time_limit: LONG, ..RedisStreamsOptions::new("") };
        RedisStreams::new(options).unwrap().publish(event("payments", "k", 0)).await
    };
    assert_eq!(publish(servers(None, "geheim")).await, CONFIRMED);
    assert_eq!(publish(servers(Some("default"), "geheim")).await, CONFIRMED);
    for wrong in [servers(None, "guess"), Servers { authorities: None, ..servers(None, "geheim") }] {
        let result = publish(wrong).await;
        assert!(matches!(&result, Err(PublishError::Unavailable(reason)) if !reason.contains("geheim")), "{result:?}");
    }
}
