//! Queues of one broker that do not fare alike.

use futures_util::future::join_all;

use super::super::contract::{deliver, publish_all};
use super::*;

/// Its process stands still, as it does without a majority. More wait for it than RabbitMQ lets wait on a connection
/// (32): it reads nothing more there.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_confirms_nothing_holds_no_other_up() {
    let rabbit = Rabbit { topology: of_kind(QueueKind::Quorum), ..private().await };
    let (publisher, ill, well) = (rabbit.publisher(SHORT), rabbit.topic().await, rabbit.topic().await);
    works_again(&*publisher, &ill).await;
    works_again(&*publisher, &well).await;
    let process = |what: &str| {
        rabbit.node().ctl(&["eval", &format!("sys:{what}(whereis(list_to_atom(\"%2F_{ill}\"))).")]);
    };
    process("suspend");
    let sent = events(&ill, 200, 5);
    let results = publish_all(&*publisher, &sent).await;
    assert!(matches!(results[0], Err(PublishError::TopicUnavailable(_))), "{:?}", results[0]);
    eventually("it is apart", async || {
        let result = publisher.publish(event(&well, "k", 0)).await;
        assert!(matches!(result, CONFIRMED | Err(PublishError::Unavailable(_))), "{result:?}");
        result == CONFIRMED
    })
    .await;
    for round in 0..2 {
        let (mut waiting, mut others) = (Box::pin(publish_all(&*publisher, &sent)), 0);
        let results = loop {
            tokio::select! {
                biased;
                results = &mut waiting => break results,
                result = publisher.publish(event(&well, "k", 1)) => {
                    assert_eq!(result, CONFIRMED, "{round}");
                    others += 1;
                }
            }
        };
        for result in results {
            assert!(matches!(result, Err(PublishError::TopicUnavailable(_))), "{result:?}");
        }
        assert!(others > 10, "{others}");
    }
    process("resume");
    deliver(&*publisher, &sent).await;
    let all: Vec<_> = rabbit.received(&ill).await;
    let of_these = |received: &Received| sent.iter().any(|event| event.event.id.to_string() == received.id());
    assert_delivered(&sent, &all.into_iter().filter(of_these).collect::<Vec<_>>());
}

/// Both are returned, or one: the return of the one is not taken for the other's.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_copies_under_way_each_has_its_own_return() {
    let rabbit = shared().await;
    let topic = rabbit.topic().await;
    works_again(&*rabbit.publisher(LONG), &topic).await;
    let given = RabbitMqOptions { topology: Topology::Given, ..rabbit.options() };
    let publisher = RabbitMq::new(given).unwrap();
    for round in 0..50 {
        let kept = event(&topic, "k", round);
        let mut lost = kept.clone();
        lost.event.topic = unique("nowhere").into();
        // A person has mended where it goes while the first try still was under way.
        let calls = match round % 2 {
            0 => [publisher.publish(lost), publisher.publish(kept)],
            _ => [publisher.publish(kept), publisher.publish(lost)],
        };
        let mut results = join_all(calls).await;
        if round % 2 == 1 {
            results.reverse();
        }
        assert!(matches!(results[0], Err(PublishError::Refused(_))), "{round}: {results:?}");
        assert_eq!(results[1], CONFIRMED, "{round}");
    }
}
