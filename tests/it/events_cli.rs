//! `oncegate events`, as a person runs it, on SQLite.

use serde_json::Value;

use crate::servers::command::Console;
use crate::servers::database::{Database, Kind, fresh};
use crate::servers::process::{Process, free_port};

/// A database with events, and the configuration that names it.
struct Ground {
    database: Database,
    console: Console,
}

/// The states that the events of [`Ground::new`] are in.
const PARKED: i64 = 4;
const SENT: i64 = 5;

impl Ground {
    async fn new() -> Self {
        let (database, store) = fresh(Kind::Sqlite).await;
        store.close().await;
        Self { console: Console::of_database(&database.url), database }
    }

    /// The same with a gateway that has no queue, and where it answers operators.
    async fn with_gateway() -> (Self, String, Process) {
        let ground = Self::new().await;
        let port = free_port();
        let text = std::fs::read_to_string(ground.console.config()).unwrap();
        let server = format!("[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:{port}\"\n");
        std::fs::write(ground.console.config(), server + &text).unwrap();
        let gateway = ground.console.serve(port);
        (ground, format!("http://127.0.0.1:{port}"), gateway)
    }

    async fn event(&self, id: u8, state: i64, key: &str) {
        let (id, entry) = (self.database.literal(&[id; 16]), self.database.literal(&[9; 32]));
        let sql = format!(
            "INSERT INTO events (id, queue, lane, event_key, state, holds, attempts, created_at, changed_at, reason, \
             entry, route, topic, type, source, content_type, data) VALUES ({id}, 'default', 0, '{key}', {state}, 1, \
             7, 1000, 1000, 'too large', {entry}, 'create-payment', 'payments', 'com.example.paid', '/payments', \
             'application/json', x'7b7d')"
        );
        self.database.stranger().await.run(&sql).await;
    }

    async fn state(&self, id: u8) -> i64 {
        let id = self.database.literal(&[id; 16]);
        self.database.stranger().await.number(&format!("SELECT state FROM events WHERE id = {id}")).await
    }

    fn text(&self, arguments: &[&str]) -> String {
        self.console.text(&[&["events"], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.console.json(&[&["events"], arguments].concat())
    }

    fn code(&self, arguments: &[&str]) -> Option<i32> {
        self.console.code(&[&["events"], arguments].concat())
    }
}

fn hex(id: u8) -> String {
    format!("{id:02x}").repeat(16)
}

fn ids(events: &Value) -> Vec<&str> {
    events.as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn events_are_listed_and_shown() {
    let ground = Ground::new().await;
    assert_eq!(ground.text(&["list"]), "no events\n");
    ground.event(1, PARKED, "order-1").await;
    ground.event(2, SENT, "order-2").await;
    ground.event(3, PARKED, "order-3\u{1b}[2J").await;

    let table = ground.text(&["list"]);
    assert!(table.contains(&hex(1)) && table.contains("order-1") && table.contains("com.example.paid: too large"));
    assert!(!table.contains(&hex(2)) && !table.contains('\u{1b}'), "{table}");
    assert_eq!(ids(&ground.json(&["list"])), [hex(3), hex(1)]);
    assert_eq!(ids(&ground.json(&["list", "--state", "sent", "--state", "parked", "--limit", "2"])), [hex(3), hex(2)]);
    assert_eq!(ids(&ground.json(&["list", "--key", "order-1", "--queue", "default"])), [hex(1)]);
    assert!(ids(&ground.json(&["list", "--route", "other"])).is_empty());

    let page = ground.text(&["show", &hex(1)]);
    assert!(page.contains("too large") && page.contains("create-payment") && !page.contains("{}"), "{page}");
    assert!(ground.text(&["show", &hex(1), "--data"]).ends_with("\n{}\n"));
    let shown = ground.json(&["show", &hex(1).to_uppercase(), "--data"]);
    assert_eq!((&shown["state"], &shown["attempts"], &shown["data"]), (&"parked".into(), &7.into(), &"{}".into()));
    assert_eq!(ground.json(&["show", &hex(1)])["data"], Value::Null);
}

#[tokio::test]
async fn why_nothing_is_taken_is_told_with_what_waits() {
    const READY: i64 = 1;
    let ground = Ground::new().await;
    ground.event(1, READY, "order-1").await;
    ground.event(2, SENT, "order-2").await;
    let table = ground.text(&["list"]);
    assert!(table.ends_with("\ndefault: no process publishes it now\n"), "{table}");
    let relay = async |id: u8, expires_at: &str, rest: &str| {
        let id = ground.database.literal(&[id; 16]);
        let sql = format!(
            "INSERT INTO relays (id, queue, expires_at, troubled_at, trouble) VALUES ({id}, 'default', {expires_at}, {rest})"
        );
        ground.database.stranger().await.run(&sql).await;
    };
    relay(1, "1", "500, 'of one that is gone'").await;
    relay(2, "9000000000000", "NULL, NULL").await;
    let table = ground.text(&["list"]);
    assert!(table.contains("order-1") && !table.contains("default:"), "{table}");
    relay(3, "9000000000000", "86400000, 'no such\nuser'").await;
    relay(4, "9000000000000", "86401000, 'later'").await;
    let told = "the broker is not available since Fri, 02 Jan 1970 00:00:00 GMT, says 2 of 3 processes: no such user";
    let table = ground.text(&["list"]);
    assert!(table.ends_with(&format!("\ndefault: {told}\n")), "{table}");
    assert!(!ground.text(&["list", "--state", "sent"]).contains("default:"), "nothing of these waits");
    assert_eq!(ground.json(&["list"])[0]["waits"], told);
    assert!(ground.text(&["show", &hex(1)]).contains(&format!("\nwaits          {told}\n")));
    assert_eq!(ground.json(&["show", &hex(2)])["waits"], Value::Null);
}

#[tokio::test]
async fn events_are_retried_and_discarded() {
    let ground = Ground::new().await;
    for id in 1..=4 {
        ground.event(id, PARKED, &format!("order-{id}")).await;
    }
    ground.event(5, SENT, "order-5").await;
    let all = ["--all", "--state", "parked", "--queue", "default", "--limit", "2", "--reason", "the topic is there"];
    let tried = ground.json(&[&["retry"], &all[..], &["--dry-run"]].concat());
    assert_eq!((ids(&tried["changed"]), &tried["dry_run"]), (vec![&*hex(1), &*hex(2)], &true.into()));
    assert_eq!(ground.state(1).await, PARKED);
    let text = ground.text(&[&["retry"], &all[..]].concat());
    assert!(text.ends_with("retry: 2, left alone: 0\n"), "{text}");
    assert_eq!((ground.state(1).await, ground.state(2).await, ground.state(3).await), (1, 1, PARKED));

    ground.text(&["discard", &hex(3), &hex(1), "--reason", "a test payment"]);
    assert_eq!((ground.state(3).await, ground.state(1).await), (6, 6));
    let shown = ground.json(&["show", &hex(1)]);
    let actions: Vec<_> = shown["actions"].as_array().unwrap().iter().map(|taken| &taken["action"]).collect();
    assert_eq!(actions, ["retry", "discard"]);
    ground.text(&["retry", "--all", "--reason", "parked is what is meant"]);
    assert_eq!((ground.state(4).await, ground.state(5).await), (1, SENT));
}

/// What is told through a gateway is what is told on the database, but for who let them.
#[tokio::test]
async fn a_gateway_that_is_named_is_asked() {
    let (ground, url, gateway) = Ground::with_gateway().await;
    for id in 1..=3 {
        ground.event(id, PARKED, &format!("order-{id}")).await;
    }
    let through = ["--admin", &url];
    let with = |arguments: &[&str]| [arguments, &through[..]].concat().join(" ");
    let json = |arguments: &[&str]| ground.json(&with(arguments).split(' ').collect::<Vec<_>>());
    let text = |arguments: &[&str]| ground.text(&with(arguments).split(' ').collect::<Vec<_>>());
    for arguments in
        [&["list"][..], &["list", "--limit", "1"], &["list", "--topic", "refunds"], &["show", &hex(2), "--data"]]
    {
        assert_eq!(json(arguments), ground.json(arguments), "{arguments:?}");
        assert_eq!(text(arguments), ground.text(arguments), "{arguments:?}");
    }
    assert_eq!(ids(&json(&["list", "--topic", "payments", "--limit", "2"])), [hex(3), hex(2)]);
    assert_eq!(json(&["retry", &hex(1), "--reason", "x"])["changed"].as_array().unwrap().len(), 1);
    ground.text(&["discard", &hex(1), "--reason", "y", "--direct"]);
    let page = text(&["show", &hex(1)]);
    assert!(page.contains("by ann (machine): x\n") && page.contains("by ann (database): y\n"), "{page}");
    let before = json(&["list", "--limit", "1"])[0]["position"].to_string();
    assert_eq!(ids(&json(&["list", "--before", &before])), [hex(2)]);
    let absent = with(&["show", &hex(7)]);
    assert_eq!(ground.code(&absent.split(' ').collect::<Vec<_>>()), Some(3));
    drop(gateway);
    assert_eq!(ground.code(&absent.split(' ').collect::<Vec<_>>()), Some(1));
    assert_eq!(ids(&ground.json(&["list"])), [hex(3), hex(2)], "the database is asked as before");
}

#[tokio::test]
async fn exit_codes_tell_what_was_wrong() {
    let ground = Ground::new().await;
    ground.event(1, PARKED, "order-1").await;
    ground.event(2, SENT, "order-2").await;
    assert_eq!(ground.code(&["show", &hex(7)]), Some(3), "there is none");
    assert_eq!(ground.code(&["discard", &hex(1), &hex(2), "--reason", "x"]), Some(3), "a sent one is sent");
    assert_eq!((ground.state(1).await, ground.state(2).await), (6, SENT));
    for wrong in [
        &["show", "no-id"][..],
        &["retry", "--reason", "which?"],
        &["retry", &hex(1)],
        &["retry", &hex(1), "--all", "--reason", "x"],
        &["list", "--state", "lost"],
        &["list", "--limit", "0"],
        &["list", "--set", "store.url=nonsense"],
    ] {
        assert_eq!(ground.code(wrong), Some(2), "{wrong:?}");
    }
    assert_eq!(ground.code(&["list", "--set", "store.url=sqlite:///dev/null/none.db"]), Some(1));
}
