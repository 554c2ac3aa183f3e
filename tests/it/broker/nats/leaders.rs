//! Streams whose leaders are gone, and copies that a stream knows.

use async_nats::jetstream::stream::Placement;
use oncegate::clock;
use oncegate::outbox::event::Outgoing;

use super::super::PATIENCE;
use super::*;
use crate::servers::process::free_port;

/// A server that is one of three.
struct Node {
    name: String,
    server: Nats,
}

/// Three servers that know each other.
fn cluster() -> Vec<Node> {
    let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let routes: Vec<String> = ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
    let routes = routes.join(", ");
    let nodes = ports.iter().map(|port| {
        let name = format!("n{port}");
        let cluster = format!("cluster {{ name: c, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}");
        let server = Nats::start_with(&format!("server_name: {name}\nserver_tags: [\"{name}\"]\n{cluster}\n"), &[]);
        Node { name, server }
    });
    nodes.collect()
}

/// A stream of one replica on that node.
async fn stream_on(node: &Node, js: &Context) -> String {
    let name = unique("events");
    let placement = Some(Placement { cluster: None, tags: vec![node.name.clone()] });
    let config = Config { name: name.clone(), subjects: vec![name.clone()], placement, ..Config::default() };
    // Nobody manages streams before the nodes have found each other.
    eventually("a stream is made", async || js.get_or_create_stream(config.clone()).await.is_ok()).await;
    name
}

/// To who publishes, it looks like a subject that no stream takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_a_leader_costs_no_attempt_and_holds_no_other_up() {
    let mut nodes = cluster();
    let js = jetstream::new(async_nats::connect(&nodes[0].server.url).await.unwrap());
    let (ill, well) = (stream_on(&nodes[1], &js).await, stream_on(&nodes[2], &js).await);
    let publisher = NatsPublisher::new(options(&nodes[0].server.url, LONG)).unwrap();
    let sent = event(&ill, "k", 1);
    assert_eq!(publisher.publish(event(&ill, "k", 0)).await, CONFIRMED);
    nodes[1].server.signal("KILL");
    let mut known = false;
    let deadline = clock::now() + PATIENCE;
    while !known {
        assert!(clock::now() < deadline, "nobody says that the stream exists");
        match publisher.publish(sent.clone()).await {
            Err(PublishError::TopicUnavailable(reason)) => known = reason.contains("has no leader"),
            // It was with the node that is gone.
            Err(PublishError::Unavailable(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(publisher.publish(event(&well, "k", 2)).await, CONFIRMED);
    let nobody = publisher.publish(event(&unique("nobody"), "k", 3)).await;
    assert!(matches!(nobody, Err(PublishError::Refused(_))), "{nobody:?}");
    nodes[1].server.start_again();
    eventually("it is taken", async || publisher.publish(sent.clone()).await == CONFIRMED).await;
}

#[tokio::test]
async fn what_a_person_wants_to_be_sent_again_is_stored_again_though_the_stream_knows_it() {
    let server = shared().await;
    let (topic, publisher) = (server.topic().await, server.publisher(LONG));
    let first = event(&topic, "k", 1);
    for (redrives, stored) in [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3)] {
        assert_eq!(publisher.publish(Outgoing { redrives, ..first.clone() }).await, CONFIRMED);
        let received = server.received(&topic).await;
        assert_eq!(received, vec![Received::expected(&first); stored], "{redrives}: the same event");
    }
}

/// The stream keeps no message that was consumed, but its id.
#[tokio::test]
async fn what_is_tried_again_after_it_was_consumed_is_confirmed_and_not_stored_again() {
    let server = shared().await;
    let topic = server.stream(Config { retention: RetentionPolicy::WorkQueue, ..Config::default() }).await;
    let (publisher, event) = (server.publisher(LONG), event(&topic, "k", 1));
    assert_eq!(publisher.publish(event.clone()).await, CONFIRMED);
    let stream = server.js.get_stream(&topic).await.unwrap();
    let config = pull::Config { durable_name: Some("worker".to_owned()), ..pull::Config::default() };
    let consumer = stream.get_or_create_consumer("worker", config).await.unwrap();
    let message = consumer.messages().await.unwrap().next().await.unwrap().unwrap();
    message.double_ack().await.unwrap();
    assert_eq!(publisher.publish(event.clone()).await, CONFIRMED);
    assert_eq!(server.js.get_stream(&topic).await.unwrap().cached_info().state.messages, 0);
}
