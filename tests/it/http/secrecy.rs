//! What logs and metrics must not tell, however much they are asked to.

use std::net::SocketAddr;

use serde_json::json;

use super::client::Call;
use super::eventually;
use super::issuer::{AUDIENCE, ISSUER, Signer, bearer, now};
use super::upstream::{Gate, Received, Step, Upstream, answer};
use crate::servers::process::{Process, ServerDir, free_port};

/// In every key, body and credential of this test.
const SECRET: &str = "geheim";

/// Does what the body says.
fn script(_: usize, request: &Received) -> Vec<Step> {
    let body = String::from_utf8_lossy(&request.body);
    match &*request.method {
        "GET" => answer("200 OK", &[("x-answer", "geheim")], "{\"status\":\"geheim\"}"),
        _ if body.contains("fails") => vec![Step::Close],
        _ if body.contains("hangs") => vec![Step::Wait(Gate::new())],
        _ => answer("201 Created", &[("x-answer", "geheim"), ("set-cookie", "id=geheim")], "{\"paid\":\"geheim\"}"),
    }
}

/// Callers are who an edge says they are.
const BY_HEADER: &str = r#"
    auth.mode = "header"
    auth.header = { trusted = ["127.0.0.0/8"], subject_header = "x-subject" }
"#;

/// A gateway that logs all it can.
struct Talkative {
    gateway: Process,
    public: SocketAddr,
    admin: SocketAddr,
}

impl Talkative {
    async fn start(upstream: &Upstream, auth: &str) -> Self {
        let (public, admin) = (SocketAddr::from(([127, 0, 0, 1], free_port())), ([127, 0, 0, 1], free_port()).into());
        let dir = ServerDir::new("gateway", None);
        let file = dir.path().join("oncegate.toml");
        std::fs::write(&file, config(&dir.path().join("oncegate.db"), upstream, (public, admin), auth)).unwrap();
        let mut command = dir.command(env!("CARGO_BIN_EXE_oncegate"));
        command
            .arg("serve")
            .arg("--config")
            .arg(&file)
            .env("RUST_LOG", "trace")
            .env("SECRET", SECRET.repeat(6))
            .env("TOKEN_SECRET", SECRET.repeat(7));
        let gateway = Process::start(dir, &command, "KILL");
        let is_up = || async { tokio::net::TcpStream::connect(public).await.is_ok() };
        eventually(is_up, |is_up| *is_up).await;
        let ready = || Call::new(public, "GET", "/readyz").send();
        eventually(ready, |answer| answer.status == 200).await;
        Self { gateway, public, admin }
    }

    /// Fails if any of `secrets` is in the log or in the metrics.
    async fn tells_nothing_of(&self, secrets: &[&str]) {
        let metrics = Call::new(self.admin, "GET", "/metrics").send().await;
        let (metrics, log) = (String::from_utf8(metrics.body.to_vec()).unwrap(), self.gateway.log());
        assert!(metrics.contains("oncegate_requests_total") && log.contains("\"level\":\"TRACE\""));
        let is_telling = |line: &&str| secrets.iter().any(|secret| line.contains(secret));
        let telling: Vec<_> = log.lines().chain(metrics.lines()).filter(is_telling).collect();
        assert!(telling.is_empty(), "{telling:#?}");
    }
}

fn config(
    store: &std::path::Path,
    upstream: &Upstream,
    (public, admin): (SocketAddr, SocketAddr),
    auth: &str,
) -> String {
    format!(
        r#"
        server.listen = "{public}"
        server.admin_listen = "{admin}"
        server.status_endpoint = "anyone"
        store.url = "sqlite://{store}"
        secrets.fingerprint = ["env:SECRET"]
        secrets.token = ["env:TOKEN_SECRET"]
        {auth}
        [[upstreams]]
        name = "up"
        urls = ["{upstream}"]
        connect_timeout = "300ms"
        timeout = "300ms"
        [[routes]]
        name = "pay"
        match = "POST /pay"
        upstream = "up"
        [routes.idempotency]
        key = ["body:/order_no", "header"]
        token = "accepted"
        forward_key = "raw"
        on_unknown = "lookup"
        [routes.idempotency.lookup]
        request = "GET /by/{{subject}}/{{forwarded_key}}"
        headers = {{ authorization = "env:SECRET" }}
        first = "100ms"
        [routes.idempotency.lookup.completed_when]
        equals = {{ "/status" = "geheim" }}
        [[routes.events]]
        name = "paid"
        type = "com.example.paid"
        topic = "payments"
        data = "both"
        "#,
        store = store.display(),
        upstream = upstream.url(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_bodies_and_credentials_are_in_no_log_and_no_metric() {
    let upstream = Upstream::start(script).await;
    let talkative = Talkative::start(&upstream, BY_HEADER).await;
    let public = talkative.public;
    let pay = |key: &str, body: &str| {
        let call = Call::new(public, "POST", "/pay?token=geheim").field("idempotency-key", key);
        let call = call.field("authorization", "Bearer geheim").field("cookie", "id=geheim");
        call.field("x-subject", SECRET).body(body.to_owned()).send()
    };
    for (key, body, status) in [
        ("geheim-1", "{\"card\":\"geheim\"}", 201),
        ("geheim-1", "{\"card\":\"geheim\"}", 201),
        ("geheim-1", "{\"card\":\"geheim 2\"}", 422),
        ("geheim-2", "{\"order_no\":\"geheim-3\"}", 201),
        ("geheim-4", "{\"card\":\"geheim fails\"}", 502),
        ("geheim-5", "{\"card\":\"geheim hangs\"}", 504),
        ("geheim-5", "{\"card\":\"geheim other\"}", 422),
        (&"geheim".repeat(50), "{}", 400),
        ("geheim, 6", "{}", 400),
        ("geheim-7", "geheim", 201),
    ] {
        let told = pay(key, body).await;
        assert_eq!(told.status, status, "{key} {body}");
        let text = String::from_utf8_lossy(&told.body).into_owned();
        let is_problem = told.field("content-type") == Some("application/problem+json");
        assert!(!is_problem || !text.contains(SECRET), "{text}");
    }
    for key in ["geheim-4", "geheim-5"] {
        let state = || {
            let target = format!("/idempotency/requests/{key}?namespace=pay");
            Call::new(public, "GET", &target).field("x-subject", SECRET).send()
        };
        eventually(state, |state| state.json()["state"] == "completed").await;
    }
    talkative.tells_nothing_of(&[SECRET]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_in_no_log_and_no_metric() {
    let upstream = Upstream::start(script).await;
    let jwt = format!(
        "auth = {{ mode = \"jwt\", jwt = {{ issuer = \"{ISSUER}\", audience = \"{AUDIENCE}\", algorithms = [\"HS256\"], \
         secret = [\"env:SECRET\"] }} }}"
    );
    let talkative = Talkative::start(&upstream, &jwt).await;
    let issuer = Signer::hs256(&SECRET.repeat(6));
    let access = issuer.token(SECRET, json!({}));
    let call = |target: &str, access: &str, body: &str| {
        bearer(Call::new(talkative.public, "POST", target).body(body.to_owned()), access)
    };

    let bound = "{\"route\":\"pay\",\"card\":\"geheim\"}";
    let issued = call("/idempotency/tokens", &access, bound).send().await;
    assert_eq!(issued.status, 201, "{issued:?}");
    let token = issued.json()["token"].as_str().unwrap().to_owned();
    let forged = format!("{}AAAA", &token[..token.len() - 4]);
    let card = "{\"card\":\"geheim\"}";
    for (access, key, body, status) in [
        (&access, &token, card, 201),
        (&access, &token, card, 201),
        (&access, &token, "{\"card\":\"geheim 2\"}", 403),
        (&access, &forged, card, 403),
        (&issuer.token("other", json!({})), &token, card, 403),
        (&issuer.token(SECRET, json!({ "exp": now() - 900 })), &token, card, 401),
        (&Signer::hs256(&"other".repeat(8)).token(SECRET, json!({})), &token, card, 401),
        (&format!("{access}.x"), &token, card, 401),
    ] {
        let told = call("/pay", access, body).field("idempotency-key", key).send().await;
        assert_eq!(told.status, status, "{told:?}");
    }
    let signature = |token: &str| token.rsplit('.').next().unwrap().to_owned();
    let payload = access.split('.').nth(1).unwrap();
    talkative.tells_nothing_of(&[SECRET, &signature(&access), payload, &signature(&token), &forged]).await;
}
