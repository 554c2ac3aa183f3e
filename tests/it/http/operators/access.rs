//! Who may do what operators do.

use serde_json::{Value, json};

use super::{ADMIN, RAW, TOKEN, admin, forgetful, lose, not_executed, settle, start};
use crate::http::client::{Call, rest};
use crate::http::gateway::Gateway;
use crate::http::issuer::{RULES, Signer, bearer};
use crate::http::upstream::Upstream;
use crate::servers::database::Kind;

#[tokio::test]
async fn operators_show_the_token_and_monitoring_need_not() {
    let upstream = forgetful().await;
    let gateway = start(Kind::Sqlite, &upstream, &[RAW]).await;
    let entry = lose(&gateway, "lost").await;
    let asked = |target: &str| Call::new(gateway.admin(), "GET", target);
    for target in ["/entries", "/decisions", &format!("/entries/{}", entry["id"].as_str().unwrap())] {
        let refused = asked(target).send().await;
        refused.is_problem(401, "unauthenticated");
        assert_eq!(refused.field("www-authenticate"), Some("Bearer realm=\"oncegate\""));
        asked(target).field("authorization", "Bearer wrong").send().await.is_problem(401, "unauthenticated");
        assert_eq!(asked(target).field("authorization", TOKEN).send().await.status, 200);
    }
    let order = |name: &str, value: &str| settle(&gateway, &entry, &not_executed()).replace(name, value);
    order("authorization", "Bearer wrong").send().await.is_problem(401, "unauthenticated");
    for open in ["/healthz", "/readyz", "/metrics", "/problems/not-settled"] {
        assert_eq!(asked(open).send().await.status, 200, "{open}");
    }
    // On the public listener there is nothing of it.
    gateway.call("GET", "/entries").field("authorization", TOKEN).send().await.is_problem(404, "no-route");
    admin(&gateway, "GET", "/nothing").send().await.is_problem(404, "no-route");
    admin(&gateway, "DELETE", "/entries").send().await.is_problem(405, "method-not-allowed");

    // A page of somebody else's, in a browser that has the token.
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("content-type", "text/plain"),
    ] {
        order(name, value).send().await.is_problem(403, "forbidden");
    }
    gateway.pay("lost").send().await.is_problem(409, "outcome-unknown");
    let own = order("origin", "http://gateway.test").replace("sec-fetch-site", "same-origin");
    assert_eq!(own.send().await.status, 200);
}

/// Whatever is documented for operators is served, and to nobody else.
#[tokio::test]
async fn every_endpoint_wants_the_token_and_no_page_of_others() {
    let upstream = Upstream::counting().await;
    let gateway = start(Kind::Sqlite, &upstream, &[]).await;
    let document = admin(&gateway, "GET", "/openapi.json").send().await.json();
    let mut count = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let ways = operation["security"].as_array().into_iter().flatten();
            if !ways.into_iter().any(|way| way.get("operator").is_some()) {
                continue;
            }
            count += 1;
            let target = path.replace("{id}", &"ab".repeat(16)).replace("{name}", "pay");
            let call = Call::new(gateway.admin(), &method.to_uppercase(), &target);
            call.send().await.is_problem(401, "unauthenticated");
            gateway
                .call(&method.to_uppercase(), &target)
                .field("authorization", TOKEN)
                .send()
                .await
                .is_problem(404, "no-route");
            let told =
                admin(&gateway, &method.to_uppercase(), &target).field("sec-fetch-site", "cross-site").send().await;
            match method.as_str() {
                "get" => assert!(told.status == 200 || told.status == 404, "{target}: {told:?}"),
                _ => told.is_problem(403, "forbidden"),
            }
        }
    }
    assert!(count >= 18, "{count}");
}

#[tokio::test]
async fn without_a_token_this_machine_is_answered_under_its_own_names() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &ADMIN[..1]).await;
    // A page whose name leads here: its browser sends that name.
    Call::new(gateway.admin(), "GET", "/entries").send().await.is_problem(403, "forbidden");
    let mut own = tokio::net::TcpStream::connect(gateway.admin()).await.unwrap();
    let request = format!("GET /entries HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", gateway.admin());
    tokio::io::AsyncWriteExt::write_all(&mut own, request.as_bytes()).await.unwrap();
    let told = rest(&mut own).await;
    let body: Value = serde_json::from_str(told.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert!(told.starts_with("HTTP/1.1 200") && body["entries"].is_array(), "{told}");
}

#[tokio::test]
async fn an_address_that_others_reach_is_never_served_without_a_token() {
    let upstream = Upstream::counting().await;
    let database = crate::servers::database::Database::create(Kind::Sqlite).await;
    let open = [("server.admin_listen", "0.0.0.0:0")];
    let config = crate::http::gateway::configure(&database, &upstream.url(), "", &open);
    let error = oncegate::server::Server::start(&config).await.err().unwrap().to_string();
    assert!(error.contains("server.admin_token"), "{error}");
}

#[tokio::test]
async fn an_access_token_that_grants_it_lets_in_and_names_who_acts() {
    let upstream = forgetful().await;
    let by_secret = [("auth.jwt.algorithms", "[\"HS256\"]"), ("auth.jwt.secret", "[\"env:SECRET\"]")];
    let settings = [&ADMIN[..1], RULES, &by_secret[..], &[RAW]].concat();
    let gateway = Gateway::start(&upstream, &settings).await;
    let issuer = Signer::hs256("a secret of at least thirty-two bytes");
    assert_eq!(issuer.by(gateway.pay("lost"), "shop").send().await.status, 502);
    let ask = || Call::new(gateway.admin(), "GET", "/entries");
    ask().send().await.is_problem(401, "unauthenticated");
    bearer(ask(), "nonsense").send().await.is_problem(401, "unauthenticated");
    for scope in ["", "payments:write", "oncegate:administrator"] {
        let refused = bearer(ask(), &issuer.token("ann", json!({ "scope": scope }))).send().await;
        refused.is_problem(403, "forbidden");
        assert!(refused.field("www-authenticate").unwrap().contains("insufficient_scope"), "{refused:?}");
    }
    let token = issuer.token("ann", json!({ "scope": "payments:read oncegate:admin" }));
    let page = bearer(ask(), &token).send().await.json();
    let entry = &page["entries"][0];
    assert_eq!((&entry["scope"], &entry["key"]), (&json!("subject:shop"), &json!("lost")));
    let order = |word: &Value| {
        let call = Call::new(gateway.admin(), "POST", &format!("/entries/{}/settle", entry["id"].as_str().unwrap()));
        let seen = format!("\"{}\"", entry["version"].as_str().unwrap());
        bearer(call, &token).field("if-match", seen).body(word.to_string())
    };
    // Nobody acts under another one's name.
    order(&not_executed()).send().await.is_problem(400, "order-invalid");
    assert_eq!(order(&json!({ "outcome": "not_executed", "reason": "x" })).send().await.status, 200);
    let decided = bearer(Call::new(gateway.admin(), "GET", "/decisions"), &token).send().await.json();
    let decision = &decided["decisions"][0];
    assert_eq!((&decision["actor"], &decision["authority"]), (&json!("ann"), &json!("access token")));
}
