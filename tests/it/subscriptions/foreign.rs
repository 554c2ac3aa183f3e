//! Messages of producers that say little of themselves, or nonsense.

use super::handler::Behaviour::Works;
use super::queue::Broker;
use super::world::World;
use crate::servers::database::Kind;
use crate::servers::redis;

const KEY: &str = "body:/order_no";

impl World {
    /// A message whose fields are these, and nothing else.
    fn add(&self, fields: &[(&str, &str)]) {
        let mut add = vec!["XADD", &*self.queue.topic, "*"];
        add.extend(fields.iter().flat_map(|(name, value)| [*name, *value]));
        redis::single().cli(&add);
    }
}

/// Never one key for all that have none, and none is cut.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_id_that_can_be_a_key_each_message_waits_for_a_person() {
    let world = World::with(Kind::Sqlite, Broker::Redis, "key = 'id'\ndead_letter = '{topic}.dead'").await;
    let long = "x".repeat(256);
    let data = ("data", r#"{"order_no":"A-1"}"#);
    let about = |id| [("specversion", "1.0"), ("id", id), ("source", "/s"), ("type", "t"), data];
    world.add(&[data]);
    world.add(&[data]);
    world.add(&about(""));
    world.add(&about(&long));
    world.add(&about("m-1"));
    world.add(&about(&"x".repeat(255)));
    let deliveries = world.over(6).await;
    let told: Vec<_> = deliveries.iter().map(|one| (&*one.result, &*one.reason)).collect();
    let missing = ("rejected", r#"it has no key: none of ["id"] is there"#);
    let too_long = ("rejected", "id: the key is longer than 255 bytes");
    assert_eq!(told[..4], [missing, missing, missing, too_long]);
    assert_eq!((told[4].0, told[5].0), ("applied", "applied"));
    assert_eq!(world.handler.calls("A-1"), 2);
    let sql = format!("SELECT COUNT(*) FROM events WHERE topic = '{}.dead'", world.queue.topic);
    assert_eq!(world.database.stranger().await.number(&sql).await, 4, "each has its dead letter");
}

/// A message is never refused for its trace.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_is_missing_or_wrong_is_replaced() {
    let world = World::with(Kind::Sqlite, Broker::Redis, &format!("key = '{KEY}'")).await;
    world.handler.behave_always([Works]);
    let traces = ["", "nonsense", "00-00000000000000000000000000000000-0000000000000000-01", "99-4bf92f3577b34da6"];
    for (number, trace) in traces.into_iter().enumerate() {
        let data = format!(r#"{{"order_no":"A-{number}"}}"#);
        let id = format!("m-{number}");
        let about = [("specversion", "1.0"), ("id", &*id), ("source", "/s"), ("type", "t")];
        world.add(&[&about[..], &[("traceparent", trace), ("data", &data)]].concat());
    }
    world.add(&[("data", r#"{"order_no":"A-4"}"#)]);
    let deliveries = world.over(5).await;
    assert!(deliveries.iter().all(|delivery| delivery.result == "applied"), "{deliveries:?}");
    for number in 0..5 {
        let requests = world.handler.requests(&format!("A-{number}"));
        let trace = requests[0].field("traceparent").unwrap().to_owned();
        let parts: Vec<&str> = trace.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 32, 16, 2], "{trace}");
        assert!(parts[0] == "00" && parts[1].bytes().any(|byte| byte != b'0'), "{trace}");
        assert_eq!(requests.iter().filter(|one| one.field("traceparent") == Some(&trace)).count(), 1);
    }
}
