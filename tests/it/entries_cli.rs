//! `oncegate entries`, as a person runs it: through a gateway, and on the database, on SQLite.

use serde_json::Value;

use crate::servers::command::Console;
use crate::servers::database::{Database, Kind, fresh};
use crate::servers::process::free_port;

/// A database with entries, and the configuration that names it.
struct Ground {
    database: Database,
    console: Console,
    admin: u16,
}

const UNKNOWN: i64 = 2;
const COMPLETED: i64 = 3;

impl Ground {
    async fn new() -> Self {
        let (database, store) = fresh(Kind::Sqlite).await;
        store.close().await;
        let admin = free_port();
        let config = format!(
            r#"
            server = {{ listen = "127.0.0.1:0", admin_listen = "127.0.0.1:{admin}", admin_token = "file:{{dir}}/token" }}
            store.url = "{}"
            secrets.fingerprint = ["file:{{dir}}/secret"]
            [[upstreams]]
            name = "up"
            urls = ["http://127.0.0.1:1"]
            [[routes]]
            name = "pay"
            match = "POST /pay"
            upstream = "up"
            idempotency = {{ key = ["header"] }}
            [[routes.events]]
            name = "paid"
            type = "com.example.paid"
            topic = "payments"
            "#,
            database.url
        );
        Self { console: Console::new(&config), database, admin }
    }

    async fn entry(&self, id: u8, state: i64, route: &str) {
        let literal = |byte: u8, length: usize| self.database.literal(&vec![byte; length]);
        let (row, nonce, fingerprint) = (literal(id, 32), literal(id, 16), literal(1, 37));
        let status = if state == COMPLETED { "201" } else { "NULL" };
        let sql = format!(
            "INSERT INTO entries (id, namespace, scope, idempotency_key, route, state, nonce, origin, attempt, instance, \
             fingerprint, context, status, lookups, created_at, started_at, changed_at, due_at) VALUES ({row}, '{route}', \
             'global', 'order-{id}', '{route}', {state}, {nonce}, {nonce}, 1, {nonce}, {fingerprint}, x'68', {status}, 0, \
             1000, 1000, {id}000, 9000000000000)"
        );
        self.database.stranger().await.run(&sql).await;
    }

    async fn count(&self, of: &str) -> i64 {
        self.database.stranger().await.number(&format!("SELECT COUNT(*) FROM {of}")).await
    }

    fn text(&self, arguments: &[&str]) -> String {
        self.console.text(&[&["entries"], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.console.json(&[&["entries"], arguments].concat())
    }

    fn code(&self, arguments: &[&str]) -> Option<i32> {
        self.console.code(&[&["entries"], arguments].concat())
    }
}

fn hex(id: u8) -> String {
    format!("{id:02x}").repeat(32)
}

/// The same through a gateway and on the database.
#[tokio::test]
async fn entries_are_listed_shown_and_settled() {
    for how in [None, Some("--direct")] {
        let ground = Ground::new().await;
        for (id, state, route) in [(1, UNKNOWN, "pay"), (2, UNKNOWN, "pay"), (3, UNKNOWN, "pay"), (4, COMPLETED, "pay")]
        {
            ground.entry(id, state, route).await;
        }
        let _gateway = match how {
            None => Some(ground.console.serve(ground.admin)),
            Some(_) => None,
        };
        let with = |arguments: &[&'static str]| arguments.iter().copied().chain(how).collect::<Vec<_>>();
        let listed = ground.json(&with(&["list"]));
        let ids: Vec<_> = listed["entries"].as_array().unwrap().iter().map(|entry| entry["id"].clone()).collect();
        assert_eq!(ids, [hex(1), hex(2), hex(3)]);
        let table = ground.text(&with(&["list", "--state", "completed"]));
        assert!(table.contains(&hex(4)) && table.contains("order-4") && !table.contains(&hex(1)), "{table}");
        assert_eq!(ground.text(&with(&["list", "--route", "other"])), "no entries\n");
        assert_eq!(ground.json(&with(&["list", "--older-than", "1h", "--limit", "1"]))["entries"][0]["id"], hex(1));

        let id = hex(1);
        let shown = ground.json(&[&["show", &id], &with(&[])[..]].concat());
        let version = shown["version"].as_str().unwrap();
        let settle = [&["settle", &id, "--seen", version, "--reason", "the bank says so"], &with(&[])[..]].concat();
        let completed = ["--completed", "--status", "201", "--header", "x-by: hand", "--body", "{\"paid\":true}"];
        let text = ground.text(&[&settle[..], &completed].concat());
        assert!(text.starts_with(&format!("{id}: completed\nevent ")), "{text}");
        let page = ground.text(&[&["show", &id, "--data"], &with(&[])[..]].concat());
        for said in ["state          completed", "x-by: hand", "{\"paid\":true}", "by ann", "the bank says so", "paid"]
        {
            assert!(page.contains(said), "{said} in {page}");
        }
        assert_eq!(ground.count("events").await, 1);
        // Somebody else has decided since.
        assert_eq!(ground.code(&[&settle[..], &["--not-executed"]].concat()), Some(3));

        let all = with(&["settle", "--all", "--route", "pay", "--not-executed", "--reason", "a broken terminal"]);
        let text = ground.text(&all);
        assert!(text.contains("would be not_executed: 2, left alone: 0") && text.contains("--yes"), "{text}");
        assert_eq!(ground.count("entries").await, 4);
        let text = ground.text(&[&all[..], &["--yes"]].concat());
        assert!(text.ends_with("not_executed: 2, left alone: 0\n"), "{text}");
        assert_eq!((ground.count("entries").await, ground.count("entry_actions").await), (2, 3));
        let decided = ground.json(&with(&["decisions"]));
        assert_eq!(decided["decisions"][0]["authority"], how.map_or("token", |_| "database"));
        assert!(ground.text(&with(&["decisions"])).contains("a broken terminal"));
    }
}

#[tokio::test]
async fn exit_codes_tell_what_was_wrong() {
    let ground = Ground::new().await;
    ground.entry(1, UNKNOWN, "pay").await;
    ground.entry(2, UNKNOWN, "gone").await;
    let (one, two) = (hex(1), hex(2));
    let version = |id: &str| ground.json(&["show", id, "--direct"])["version"].as_str().unwrap().to_owned();
    let (one_seen, two_seen) = (version(&one), version(&two));
    let word = ["--reason", "x", "--direct"];
    let code = |arguments: &[&str]| ground.code(&[arguments, &word].concat());
    assert_eq!(ground.code(&["show", &hex(7), "--direct"]), Some(3), "there is none");
    assert_eq!(code(&["settle", &one, "--seen", &"0".repeat(32), "--not-executed"]), Some(3), "it is another one");
    let completed = ["--completed", "--status", "200"];
    assert_eq!(code(&[&["settle", &two, "--seen", &two_seen], &completed[..]].concat()), Some(3), "a route of before");
    assert_eq!(code(&["settle", &one, "--seen", &one_seen, "--completed", "--status", "500"]), Some(2));
    for wrong in [
        &["settle", &one, "--not-executed"][..],
        &["settle", &one, "--seen", &one_seen],
        &["settle", &one, "--seen", &one_seen, "--not-executed", "--status", "200"],
        &["settle", &one, "--seen", &one_seen, "--completed"],
        &["settle", &one, "--seen", &one_seen, "--not-executed", "--key", "order-1"],
        &["settle", "--all", "--not-executed"],
        &["settle", "--not-executed"],
        &["settle", "no-id", "--seen", &one_seen, "--not-executed"],
    ] {
        assert_eq!(code(wrong), Some(2), "{wrong:?}");
    }
    assert_eq!(ground.count("entry_actions").await, 0);
    assert_eq!(ground.code(&["list"]), Some(1), "no gateway answers");
    assert_eq!(ground.code(&["list", "--admin", "http://127.0.0.1:1"]), Some(1));
    assert_eq!(ground.code(&["list", "--state", "lost", "--direct"]), Some(2));
    assert_eq!(code(&["settle", &two, "--seen", &two_seen, "--not-executed"]), Some(0));
}
