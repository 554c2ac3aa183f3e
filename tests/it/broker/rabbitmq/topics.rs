//! Queues of one broker that do not fare alike.

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
