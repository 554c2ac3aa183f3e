//! `oncegate deliveries` and `oncegate reconcile`, as a person runs them, on SQLite.

use std::process::Output;

use oncegate::entry::{EntryId, Identity, Key, Namespace, Scope};
use oncegate::outbox::event::EventId;
use serde_json::Value;

use crate::servers::command::Console;
use crate::servers::database::{Database, Kind, fresh};

const PARKED: i64 = 4;
const SENT: i64 = 5;

/// A database with deliveries, and the configuration that names it.
struct Ground {
    database: Database,
    console: Console,
}

/// A delivery in the database.
struct Row<'a> {
    id: EventId,
    queue: &'a str,
    state: i64,
    /// What it is ordered by.
    key: &'a str,
    business_key: &'a str,
    result: Option<&'a str>,
}

impl Ground {
    async fn new() -> Self {
        let (database, store) = fresh(Kind::Sqlite).await;
        store.close().await;
        Self { console: Console::of_database(&database.url), database }
    }

    async fn row(&self, row: Row<'_>) {
        let Row { id, queue, state, key, business_key, result } = row;
        let (id, entry) = (self.database.literal(&id.0), self.database.literal(&entry(queue, business_key).0));
        let result = result.map_or("NULL".to_owned(), |word| format!("'{word}'"));
        let attributes = format!(r#"{{"oncegate-key":"{business_key}","oncegate-message":"m-1","subject":"s"}}"#);
        let sql = format!(
            "INSERT INTO events (id, queue, lane, event_key, state, holds, attempts, created_at, changed_at, reason, \
             result, entry, route, topic, type, source, content_type, attributes, data) VALUES ({id}, '{queue}', 0, \
             '{key}', {state}, 1, 7, 1000, 3500, 'the handler answered 422', {result}, {entry}, 'award-points', \
             'payments', 'com.example.paid', '/payments', 'application/json', '{attributes}', x'7b7d')"
        );
        self.run_sql(&sql).await;
    }

    async fn delivery(&self, id: u8, state: i64, key: &str, result: Option<&str>) {
        let id = EventId([id; 16]);
        self.row(Row { id, queue: "sub:award-points", state, key, business_key: key, result }).await;
    }

    /// One more subscription.
    fn configure(&self, name: &str, topic: &str) {
        self.console.configure(&format!(
            "[[subscriptions]]\nname = '{name}'\ntopic = '{topic}'\nkey = 'body:/no'\ndeliver = 'http://127.0.0.1:1/'\n"
        ));
    }

    async fn run_sql(&self, sql: &str) {
        self.database.stranger().await.run(sql).await;
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Output {
        self.console.run(&[&[command], arguments].concat())
    }

    fn text(&self, arguments: &[&str]) -> String {
        self.console.text(&[&["deliveries"], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.console.json(&[&["deliveries"], arguments].concat())
    }

    fn listed(&self, arguments: &[&str]) -> Vec<String> {
        let listed = self.json(&[&["list"], arguments].concat());
        listed.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    }
}

fn entry(queue: &str, key: &str) -> EntryId {
    let namespace = Namespace::from_stored(queue);
    Identity { namespace, scope: Scope::Global, key: Key::from_business(key).unwrap() }.id()
}

fn hex(id: u8) -> String {
    format!("{id:02x}").repeat(16)
}

#[tokio::test]
async fn deliveries_are_listed_with_what_came_of_them() {
    let ground = Ground::new().await;
    assert_eq!(ground.text(&["list"]), "no deliveries\n");
    ground.delivery(1, PARKED, "order-1", Some("rejected")).await;
    ground.delivery(2, SENT, "order-2", Some("applied")).await;
    ground.delivery(3, 7, "order-3", None).await;
    let other = Row {
        id: EventId([4; 16]),
        queue: "sub:stock",
        state: SENT,
        key: "entity-1",
        business_key: "order-4",
        result: Some("stale"),
    };
    ground.row(other).await;
    let event = Row {
        id: EventId([5; 16]),
        queue: "default",
        state: PARKED,
        key: "order-1",
        business_key: "order-1",
        result: None,
    };
    ground.row(event).await;

    let table = ground.text(&["list"]);
    assert!(table.contains("rejected") && table.contains("award-points") && table.contains("2500 ms"), "{table}");
    assert!(table.contains("early") && table.contains("deferred") && !table.contains(&hex(5)), "{table}");
    assert_eq!(ground.listed(&[]), [hex(3), hex(1)]);
    assert_eq!(ground.listed(&["--result", "rejected"]), [hex(1)]);
    assert_eq!(ground.listed(&["--result", "applied"]), [hex(2)]);
    assert_eq!(ground.listed(&["--state", "sent"]), [hex(4), hex(2)]);
    assert_eq!(ground.listed(&["--state", "sent", "--subscription", "stock"]), [hex(4)]);
    assert_eq!(ground.listed(&["--state", "sent", "--subscription", "stock", "--key", "order-4"]), [hex(4)]);
    assert_eq!(ground.listed(&["--state", "sent", "--key", "entity-1"]), [hex(4)]);
    assert!(ground.listed(&["--state", "sent", "--subscription", "stock", "--key", "order-2"]).is_empty());

    let events = String::from_utf8(ground.run("events", &["list"]).stdout).unwrap();
    assert!(events.contains(&hex(5)) && !events.contains(&hex(1)), "{events}");

    let shown = ground.json(&["show", &hex(4)]);
    let facts = [&shown["result"], &shown["business_key"], &shown["message"], &shown["subscription"]];
    assert_eq!(facts, ["stale", "order-4", "m-1", "stock"]);
    assert_eq!(
        (&shown["elapsed_ms"], &shown["created_at_ms"], &shown["attempts"]),
        (&2500.into(), &1000.into(), &7.into())
    );
    assert_eq!(shown["attributes"]["subject"], "s");
    let page = ground.text(&["show", &hex(4)]);
    assert!(page.contains("first seen") && page.contains("order-4") && page.contains("2500 ms"), "{page}");
}

/// Its entry is of key and version, and it is ordered by its shop.
#[tokio::test]
async fn deliveries_with_versions_are_found_by_their_business_key() {
    let ground = Ground::new().await;
    for (id, business_key) in (1..).zip(["order-1", "order-2", "order-1"]) {
        let id = EventId([id; 16]);
        let row = Row { id, queue: "sub:stock", state: SENT, key: "shop", business_key, result: Some("applied") };
        ground.row(row).await;
    }
    ground.run_sql("UPDATE events SET entry = randomblob(32)").await;
    for more in [&["--subscription", "stock"][..], &[]] {
        let asked = [&["--state", "sent", "--key", "order-1"], more].concat();
        assert_eq!(ground.listed(&asked), [hex(3), hex(1)], "{more:?}");
    }
    assert_eq!(ground.listed(&["--state", "sent", "--key", "shop"]).len(), 3);
    assert!(ground.listed(&["--state", "sent", "--key", "order"]).is_empty());
}

#[tokio::test]
async fn cursors_are_listed_and_forgotten() {
    let ground = Ground::new().await;
    for (consumer, position) in [("points", 0), ("stock", 2)] {
        let values = format!("('default', 'payments', '{consumer}', {position})");
        ground.run_sql(&format!("INSERT INTO cursors (queue, topic, consumer, position) VALUES {values}")).await;
    }
    for id in 1..=3 {
        let columns = "queue, id, topic, message_key, content_type, attributes, data, created_at";
        let values = format!("'default', 'm-{id}', 'payments', 'k', '', '{{}}', x'', 0");
        ground.run_sql(&format!("INSERT INTO messages ({columns}) VALUES ({values})")).await;
    }
    let text = |arguments: &[&str]| String::from_utf8(ground.run("cursors", arguments).stdout).unwrap();
    assert_eq!(text(&["list"]), "default  payments  points: 3 not taken\ndefault  payments  stock: 1 not taken\n");
    let forget = ["forget", "--topic", "payments", "--consumer", "points"];
    assert_eq!(ground.run("cursors", &forget).status.code(), Some(0));
    assert_eq!(ground.run("cursors", &forget).status.code(), Some(3), "there is none any more");
    let json: Value = serde_json::from_str(&text(&["list", "--output", "json"])).unwrap();
    assert_eq!(
        (json.as_array().unwrap().len(), &json[0]["consumer"], &json[0]["left"]),
        (1, &"stock".into(), &1.into())
    );
}

#[tokio::test]
async fn deliveries_are_redriven_and_given_up() {
    let ground = Ground::new().await;
    for id in 1..=3 {
        ground.delivery(id, PARKED, &format!("order-{id}"), Some("conflict")).await;
    }
    let all = ["--all", "--subscription", "award-points", "--result", "conflict", "--limit", "2", "--reason", "fixed"];
    let retried = ground.json(&[&["retry"], &all[..]].concat());
    assert_eq!(retried["changed"].as_array().unwrap().len(), 2);
    assert_eq!(ground.listed(&["--state", "ready"]), [hex(2), hex(1)]);
    assert_eq!(ground.json(&["show", &hex(1)])["result"], Value::Null, "what came of it is not known any more");
    ground.text(&["discard", &hex(3), "--reason", "a test"]);
    assert_eq!(ground.listed(&["--state", "discarded"]), [hex(3)]);
    let rejected = ["retry", "--all", "--result", "conflict", "--reason", "again"];
    assert!(ground.json(&rejected)["changed"].as_array().unwrap().is_empty(), "what a person has given up stays so");
    assert_eq!(ground.listed(&["--result", "conflict"]), [hex(3)], "a list shows it");
    for wrong in [
        &["retry", &hex(1), "--subscription", "award-points", "--reason", "x"][..],
        &["list", "--result", "deferred"],
        &["list", "--queue", "default"],
    ] {
        assert_eq!(ground.run("deliveries", wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[tokio::test]
async fn what_was_not_received_is_named_and_told_by_the_exit_code() {
    let ground = Ground::new().await;
    let published = |id: u8| {
        let id = hex(id);
        format!(
            "INSERT INTO messages (queue, id, topic, message_key, content_type, attributes, data, created_at) VALUES \
             ('default', '{id}', 'payments', 'k', 'application/json', '{{\"source\":\"/payments\"}}', x'7b7d', \
             (unixepoch() - 600) * 1000)"
        )
    };
    ground.run_sql(&published(1)).await;
    let id = EventId::of_delivery("award-points", "/payments", &hex(1), b"{}");
    let queue = "sub:award-points";
    ground.row(Row { id, queue, state: SENT, key: "k", business_key: "k", result: Some("applied") }).await;
    let compare = ["--topic", "payments", "--subscription", "award-points"];
    let output = ground.run("reconcile", &compare);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("award-points: 1 expected, 0 missing; 1 applied; dead letters: 0"), "{text}");

    ground.run_sql(&published(2)).await;
    let output = ground.run("reconcile", &compare);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains(&format!("not received: {}", hex(2))) && !text.contains(&hex(1)), "{text}");
    let output = ground.run("reconcile", &[&compare[..], &["--output", "json"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["messages"], &json["subscriptions"][0]["missing"]["first"][0]), (&2.into(), &hex(2).into()));
    ground.configure("award-points", "payments");
    ground.configure("stock", "shipments");
    let output = ground.run("reconcile", &["--topic", "payments", "--output", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let compared = json["subscriptions"].as_array().unwrap();
    assert_eq!((compared.len(), &compared[0]["subscription"]), (1, &"award-points".into()), "all of the topic");
    for wrong in
        [&["--topic", "refunds"][..], &[&compare[..], &["--queue", "other"]].concat(), &["--subscription", "x"]]
    {
        assert_eq!(ground.run("reconcile", wrong).status.code(), Some(2), "{wrong:?}");
    }
}
