//! `oncegate routes` and `oncegate subscriptions`, as a person runs them: through a gateway, and on the database.

use crate::servers::command::Console;
use crate::servers::database::{Kind, fresh};
use crate::servers::process::free_port;

const CONFIG: &str = r#"
    server = { listen = "127.0.0.1:0", admin_listen = "127.0.0.1:{port}", admin_token = "file:{dir}/token" }
    store.url = "{url}"
    secrets.fingerprint = ["file:{dir}/secret"]
    [[upstreams]]
    name = "up"
    urls = ["http://127.0.0.1:1"]
    [[routes]]
    name = "pay"
    match = "POST /pay"
    upstream = "up"
    idempotency = { key = ["header"] }
    [[routes]]
    name = "show"
    match = "GET /pay"
    upstream = "up"
    [[subscriptions]]
    name = "award-points"
    topic = "payments"
    key = "body:/no"
    deliver = "http://127.0.0.1:1/points"
"#;

#[tokio::test]
async fn routes_and_subscriptions_are_listed_and_switched() {
    for how in [None, Some("--direct")] {
        let (database, store) = fresh(Kind::Sqlite).await;
        store.close().await;
        let port = free_port();
        let console = Console::new(&CONFIG.replace("{port}", &port.to_string()).replace("{url}", &database.url));
        let _gateway = how.is_none().then(|| console.serve(port));
        let with = |words: &[&'static str]| words.iter().copied().chain(how).collect::<Vec<_>>();
        let listed = console.text(&with(&["routes", "list"]));
        let rows: Vec<_> = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(rows[1..], [["pay", "enforce", "enforce", "POST", "/pay"], ["show", "-", "-", "GET", "/pay"]]);
        let told = console.text(&with(&["routes", "mode", "pay", "replay_only", "--reason", "double bookings"]));
        assert_eq!(told, "pay: replay_only (was configured)\n");
        let listed = console.text(&with(&["routes", "list"]));
        let by = how.map_or("token", |_| "database");
        assert!(
            listed.contains(&format!("by ann ({by}): double bookings")) && listed.contains("replay_only"),
            "{listed}"
        );
        let told = console.json(&with(&["routes", "mode", "pay", "configured", "--reason", "x", "--actor", "bob"]));
        assert_eq!([&told["was"], &told["mode"]], ["replay_only", "enforce"]);
        let turns = console.text(&with(&["routes", "decisions"]));
        assert!(
            turns.contains("pay: configured (was replay_only)") && turns.contains("pay: replay_only (was configured)"),
            "{turns}"
        );
        assert_eq!(console.text(&with(&["subscriptions", "decisions"])), "no decisions\n");

        let told = console.text(&with(&["subscriptions", "pause", "award-points", "--reason", "twice"]));
        assert_eq!(told, "award-points: paused (was configured)\n");
        let listed = console.text(&with(&["subscriptions", "list"]));
        assert!(listed.contains("award-points") && listed.contains("paused since"), "{listed}");
        assert_eq!(console.json(&with(&["subscriptions", "list"]))["subscriptions"][0]["state"], "paused");
        let told = console.text(&with(&["subscriptions", "resume", "award-points", "--reason", "mended"]));
        assert_eq!(told, "award-points: resumed (was paused)\n");
        assert_eq!(database.stranger().await.number("SELECT COUNT(*) FROM switch_actions").await, 4);
        for (words, code) in [
            (&["routes", "mode", "other", "observe", "--reason", "x"][..], 3),
            (&["routes", "mode", "show", "observe", "--reason", "x"], 2),
            (&["routes", "mode", "pay", "off", "--reason", "x"], 2),
            (&["routes", "mode", "pay", "observe"], 2),
            (&["subscriptions", "pause", "other", "--reason", "x"], 3),
            (&["subscriptions", "pause", "award-points", "--reason", " "], 2),
        ] {
            assert_eq!(console.code(&with(words)), Some(code), "{words:?}");
        }
        assert_eq!(console.code(&["routes", "list", "--admin", "http://127.0.0.1:1"]), Some(1));
    }
}
