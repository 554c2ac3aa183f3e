//! Where keys come from, how they are spelled, and what is refused.

use super::client::rest;
use super::gateway::Gateway;
use super::upstream::Upstream;
use crate::servers::database::Kind;

#[tokio::test]
async fn both_spellings_of_a_header_are_one_key() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = gateway.pay("abc").send().await;
    assert_eq!(first.told(), (201, "{\"payment\":1}", Some("false")));
    assert_eq!(first.field("idempotency-key"), Some("\"abc\""));
    gateway.pay("\"abc\"").send().await.is_replay_of(&first);
    let body = "content-type: application/json\r\ncontent-length: 12\r\nconnection: close\r\n\r\n{\"amount\":1}";
    let spelled = format!("POST /pay HTTP/1.1\r\nhost: a\r\nIdempotency-KEY: abc\r\n{body}");
    let raw = rest(&mut gateway.raw(spelled).await).await;
    assert!(raw.contains("idempotent-replayed: true"), "a client sends the name as it likes: {raw}");
    for other in ["ABC", "abc.", "\"a\\\"bc\"", "\"abc \""] {
        assert_eq!(gateway.pay(other).send().await.status, 201, "{other}");
    }
    assert_eq!(upstream.count(), 5);
}

#[tokio::test]
async fn keys_compare_byte_for_byte_in_every_database() {
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::MySql] {
        let upstream = Upstream::counting().await;
        let gateway = Gateway::on(kind, &upstream, &[]).await;
        for (number, key) in ["a", "A", "\"a \"", "\" a\"", "a_", "a%", "0", "00"].into_iter().enumerate() {
            let first = gateway.pay(key).send().await;
            assert_eq!(first.told().1, format!("{{\"payment\":{}}}", number + 1), "{kind:?} {key}");
            gateway.pay(key).send().await.is_replay_of(&first);
        }
    }
}

#[tokio::test]
async fn what_is_no_key_is_refused_before_the_store_is_asked_and_nothing_runs() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::on(Kind::Postgres, &upstream, &[]).await;
    // Whoever as much as reads an entry waits.
    let mut stranger = gateway.database.stranger().await;
    stranger.run("BEGIN; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE").await;
    let long = "k".repeat(256);
    let table = [
        "",
        " ",
        "\"\"",
        "a, b",
        "a,b",
        "\"a\", \"b\"",
        "\"a",
        "a\"",
        "\"a\\n\"",
        "\"a\";p=1",
        "a b",
        "a;b",
        "caf\u{e9}",
        &long,
    ];
    for value in table {
        gateway.pay(value).send().await.is_problem(400, "key-invalid");
    }
    gateway.pay("a").field("idempotency-key", "a").send().await.is_problem(400, "key-invalid");
    gateway.post("/pay").send().await.is_problem(400, "key-missing");
    assert_eq!(upstream.count(), 0);
    stranger.run("ROLLBACK").await;
    assert_eq!(gateway.pay(&long[1..]).send().await.status, 201, "255 bytes are a key");
}

#[tokio::test]
async fn a_business_number_is_one_key_as_integer_and_string() {
    let upstream = Upstream::counting().await;
    let ignore = (".fingerprint.ignore", "[\"/order_no\"]");
    let gateway = Gateway::start(&upstream, &[(".key", "[\"body:/order_no\"]"), ignore]).await;
    let order = |body: &str| gateway.post("/pay").body(body.to_owned());
    let first = order("{\"order_no\":42}").send().await;
    assert_eq!((first.status, first.field("idempotency-key")), (201, Some("\"42\"")));
    order("{\"order_no\":\"42\"}").send().await.is_replay_of(&first);
    for body in
        ["{\"order_no\":null}", "{\"order_no\":\"\"}", "{\"order_no\":[42]}", "{\"order_no\":true}", "{}", "", "42"]
    {
        order(body).send().await.is_problem(400, "key-missing");
    }
    for body in ["{\"order_no\":1,\"order_no\":1}", "{\"order_no\":1,\"order\\u005fno\":2}"] {
        order(body).send().await.is_problem(400, "bad-request");
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn query_and_path_segments_are_sources() {
    let upstream = Upstream::counting().await;
    let route = "
        [[routes]]
        name = 'order'
        match = 'PUT /orders/{no}'
        upstream = 'up'
        idempotency = { key = ['path:no'] }
    ";
    let gateway = Gateway::with_routes(&upstream, route, &[(".key", "[\"query:no\"]")]).await;
    for target in ["/orders/7%2D1", "/orders/7-2"] {
        let first = gateway.call("PUT", target).send().await;
        assert_eq!(first.told(), (201, &*format!("{{\"payment\":{}}}", upstream.count()), Some("false")));
        gateway.call("PUT", target).send().await.is_replay_of(&first);
    }
    let first = gateway.post("/pay?x=1&no=%37").send().await;
    assert_eq!(first.field("idempotency-key"), Some("\"7\""));
    gateway.post("/pay?no=7&x=1").send().await.is_replay_of(&first);
    gateway.post("/pay?x=1").send().await.is_problem(400, "key-missing");
    gateway.post("/pay?no=1&no=2").send().await.is_problem(400, "bad-request");
}

#[tokio::test]
async fn the_first_source_that_is_present_is_the_key() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".key", "[[\"body:/shop\", \"body:/no\"], \"header\"]")]).await;
    let order = |key: &str, body: &str| gateway.pay(key).body(body.to_owned());
    let first = order("click-1", "{\"shop\":1,\"no\":7}").send().await;
    assert_eq!(first.status, 201);
    order("click-2", "{\"shop\":1,\"no\":7}").send().await.is_replay_of(&first);
    let parts_of_a_composite_never_meet =
        ["{\"shop\":\"1\",\"no\":\"77\"}", "{\"shop\":\"17\",\"no\":7}", "{\"shop\":7,\"no\":1}"];
    for (number, body) in parts_of_a_composite_never_meet.into_iter().enumerate() {
        assert_eq!(order("click-3", body).send().await.status, 201, "{body}");
        assert_eq!(upstream.count(), number + 2);
    }
    let by_header = order("click-4", "{\"shop\":1}").send().await;
    assert_eq!(by_header.field("idempotency-key"), Some("\"click-4\""));
    order("a, b", "{\"shop\":1,\"no\":7}").send().await.is_problem(400, "key-invalid");
}

#[tokio::test]
async fn namespaces_keep_keys_apart_unless_routes_share_one() {
    let upstream = Upstream::counting().await;
    let route = |name: &str, namespace: &str| {
        format!(
            "[[routes]]\nname = '{name}'\nmatch = 'POST /{name}'\nupstream = 'up'\n\
             idempotency = {{ key = ['header'], namespace = '{namespace}' }}\n"
        )
    };
    let routes = format!("{}{}{}", route("a", "shared"), route("b", "shared"), route("c", "own"));
    let gateway = Gateway::with_routes(&upstream, &routes, &[]).await;
    let send = |path: &str| gateway.post(path).field("idempotency-key", "k").send();
    assert_eq!(send("/a").await.status, 201);
    assert_eq!(send("/c").await.status, 201);
    send("/b").await.is_problem(422, "key-reused");
    assert_eq!(send("/pay").await.status, 201);
    assert_eq!(upstream.count(), 3);
}
