//! What happens now, as it is shown and as it is told.

use oncegate::inbox::result::DeliveryResult;
use oncegate::telemetry::series::RESULTS;
use serde_json::{Value, json};

use super::{start, visit};
use crate::http::client::Call;
use crate::http::eventually;
use crate::http::operators::{admin, get};
use crate::http::upstream::{Upstream, created};
use crate::servers::browser::Browser;
use crate::servers::database::{Database, Kind};
use crate::servers::process::{Process, ServerDir, free_port};

/// A gateway in a process of its own: what is counted is counted for a whole process.
struct Alone {
    process: Process,
    public: u16,
    admin: u16,
}

impl Alone {
    async fn start(upstream: &Upstream) -> (Self, Database) {
        let database = Database::create(Kind::Sqlite).await;
        let (dir, public, admin) = (ServerDir::new("gateway", None), free_port(), free_port());
        let config = format!(
            r#"
            server = {{ listen = "127.0.0.1:{public}", admin_listen = "127.0.0.1:{admin}" }}
            store.url = "{}"
            secrets.fingerprint = ["env:SECRET"]
            [[upstreams]]
            name = "up"
            urls = ["{}"]
            [[routes]]
            name = "pay"
            match = "POST /pay"
            upstream = "up"
            idempotency = {{ key = ["header"] }}
            "#,
            database.url,
            upstream.url()
        );
        let path = dir.path().join("oncegate.toml");
        std::fs::write(&path, config).unwrap();
        let mut command = dir.command(env!("CARGO_BIN_EXE_oncegate"));
        command.arg("serve").arg("--config").arg(&path).env("SECRET", "0123456789abcdef0123456789abcdef");
        let process = Process::start(dir, &command, "TERM").wait_for_port(admin).wait_for_port(public);
        (Self { process, public, admin }, database)
    }

    async fn pay(&self, key: &str, amount: u32) -> u16 {
        let to = ([127, 0, 0, 1], self.public).into();
        let call = Call::new(to, "POST", "/pay").field("idempotency-key", key);
        call.body(format!("{{\"amount\":{amount}}}")).send().await.status
    }

    /// The sums of the series.
    async fn sums(&self) -> Value {
        let url = format!("http://127.0.0.1:{}/stats?seconds=600", self.admin);
        let told = std::process::Command::new("curl").args(["-sS", &url]).output().unwrap();
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        let series = told["series"].as_array().unwrap();
        let sum = |kind: &str| series.iter().map(|point| point["requests"][kind].as_u64().unwrap()).sum::<u64>();
        let latency = series.iter().any(|point| point["latency_ms"]["p99"].as_f64().is_some_and(|took| took > 0.0));
        json!([sum("first"), sum("replayed"), sum("mismatch"), sum("unknown"), latency])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_move_when_requests_come() {
    let upstream = Upstream::start(|number, _| created(number)).await;
    let (gateway, _database) = Alone::start(&upstream).await;
    let page = Browser::start(1_200, 1_600);
    page.open(&format!("http://127.0.0.1:{}/console", gateway.admin));
    page.wait_until("the charts", |text| text.contains("Latency"));
    let drawn = |line: u32| {
        format!(
            "[...document.querySelectorAll('#requests .picture .l{line}')].some(one => /,(?!120)[0-9]/.test(one.getAttribute('points')))"
        )
    };
    // Counted from the first look on.
    page.wait_for("return document.querySelector('#requests .picture .l0') !== null");
    assert_eq!(page.run(&format!("return {} || {}", drawn(0), drawn(1))), false, "nothing has come yet");
    for (key, amount, status) in [("a", 1, 201), ("b", 1, 201), ("a", 1, 201), ("a", 2, 422)] {
        assert_eq!(gateway.pay(key, amount).await, status);
    }
    // The page is not loaded again.
    page.run("window.same = true");
    page.wait_for(&format!("return window.same && {} && {} && {}", drawn(0), drawn(1), drawn(3)));
    page.wait_for("return document.querySelector('#latency .picture .l1') !== null");
    assert_eq!(page.run(&format!("return {}", drawn(4))), false, "nothing is unknown");
    eventually(|| gateway.sums(), |sums| *sums == json!([2, 1, 1, 0, true])).await;
    // A gateway that has gone is said to have.
    assert_eq!(gateway.process.stop(), Some(0));
    page.wait_until("no answer", |text| text.contains("does not answer"));
}

#[tokio::test]
async fn what_happens_now_is_told_to_operators_only_and_bounded() {
    let (gateway, _upstream) = start().await;
    visit(&gateway, "/stats").send().await.is_problem(401, "unauthenticated");
    super::lose(&gateway, "lost").await;
    let told = eventually(|| get(&gateway, "/stats?seconds=1"), |told| told["waiting"]["unknown"] == 1).await;
    assert!(told["waiting"]["oldest_unknown_seconds"].as_f64().unwrap() >= 0.0, "{told}");
    assert_eq!((&told["waiting"]["parked_events"], &told["every_ms"]), (&json!(0), &json!(1_000)));
    assert!(told["series"].as_array().unwrap().len() <= 1, "{told}");
    for wrong in ["seconds=0", "seconds=601", "seconds=x", "second=1"] {
        admin(&gateway, "GET", &format!("/stats?{wrong}")).send().await.is_problem(400, "order-invalid");
    }
}

#[test]
fn the_series_knows_all_results_by_their_names() {
    assert_eq!(RESULTS, DeliveryResult::ALL.map(DeliveryResult::as_str));
}
