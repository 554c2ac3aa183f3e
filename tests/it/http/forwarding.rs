//! What reaches the upstream, and which requests the guard lets by.

use super::gateway::{Gateway, Settings};
use super::upstream::Upstream;

#[tokio::test]
async fn the_upstream_gets_the_key_in_one_spelling() {
    let table = [("raw", "bare", "a-b.c"), ("raw", "quoted", "\"a-b.c\"")];
    for (forward, format, expected) in table {
        for spelling in ["a-b.c", "\"a-b.c\""] {
            let upstream = Upstream::counting().await;
            let gateway =
                Gateway::start(&upstream, &[(".forward_key", forward), (".forward_key_format", format)]).await;
            gateway.pay(spelling).field("oncegate-attempt", "9").send().await;
            let seen = upstream.last();
            assert_eq!(seen.field("idempotency-key"), Some(expected));
            assert_eq!(seen.field("oncegate-attempt"), Some("1"), "the client's own counts for nothing");
        }
    }
}

#[tokio::test]
async fn a_derived_key_is_stable_and_tells_nothing() {
    let mut keys = Vec::new();
    for (format, key) in [("bare", "k"), ("bare", "k"), ("quoted", "k"), ("bare", "l")] {
        let upstream = Upstream::counting().await;
        let gateway = Gateway::start(&upstream, &[(".forward_key_format", format)]).await;
        gateway.pay(key).send().await;
        keys.push(upstream.last().field("idempotency-key").unwrap().to_owned());
    }
    assert_eq!(keys[0], keys[1], "on another database too");
    assert_eq!(keys[2], format!("\"{}\"", keys[0]));
    assert_ne!(keys[0], keys[3]);
    assert!(keys[0].len() == 64 && keys[0].chars().all(|c| c.is_ascii_hexdigit()), "{}", keys[0]);
}

#[tokio::test]
async fn a_key_from_the_body_is_forwarded_as_a_header() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".key", "[\"body:/amount\"]"), (".forward_key", "raw")]).await;
    gateway.post("/pay").send().await;
    assert_eq!(upstream.last().field("idempotency-key"), Some("1"));
    assert_eq!(upstream.last().body, b"{\"amount\":1}");
}

#[tokio::test]
async fn the_request_arrives_as_it_was_sent() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let call = gateway.post("/pay?b=%20&a=1").field("idempotency-key", "k").body(&b"{ \"a\":\xff}"[..]);
    let call = call.field("x-two", "1").field("x-two", "2").field("connection", "x-hop").field("x-hop", "1");
    let answer = call.field("x-request-id", "mine").field("x-http-method-override", "DELETE").send().await;
    assert_eq!(answer.status, 201);
    let seen = upstream.last();
    assert_eq!((&*seen.method, &*seen.target, &seen.body[..]), ("POST", "/pay?b=%20&a=1", &b"{ \"a\":\xff}"[..]));
    let two: Vec<_> = seen.fields.iter().filter(|(name, _)| name == "x-two").map(|(_, value)| &**value).collect();
    assert_eq!(two, ["1", "2"]);
    assert_eq!((seen.field("x-hop"), seen.field("x-http-method-override")), (None, None));
    assert_eq!((seen.field("x-request-id"), seen.field("x-forwarded-for")), (Some("mine"), Some("127.0.0.1")));
    assert_eq!(seen.field("x-forwarded-host"), Some("gateway.test"));
    assert_eq!(seen.field("host"), Some(&*upstream.addr.to_string()));
}

#[tokio::test]
async fn safe_methods_pass_whatever_their_key() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    for method in ["GET", "HEAD", "OPTIONS"] {
        for key in ["k", "not, a key"] {
            let before = upstream.count();
            let answer = gateway.call(method, "/pay").field("idempotency-key", key).send().await;
            assert_eq!((answer.status, answer.field("idempotent-replayed")), (201, None), "{method}");
            assert_eq!(upstream.count(), before + 1);
            assert_eq!(upstream.last().field("idempotency-key"), Some(key));
        }
    }
    for method in ["PUT", "PATCH", "DELETE"] {
        let answer = gateway.call(method, "/pay").field("idempotency-key", method).send().await;
        assert_eq!((answer.status, answer.field("idempotent-replayed")), (201, Some("false")), "{method}");
    }
}

#[tokio::test]
async fn without_a_key_a_request_passes_where_none_is_required() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".required", "false")]).await;
    for payment in 1..=2 {
        let answer = gateway.post("/pay").send().await;
        assert_eq!(answer.told(), (201, &*format!("{{\"payment\":{payment}}}"), None));
        assert_eq!(upstream.last().body, b"{\"amount\":1}");
    }
    gateway.pay("a, b").send().await.is_problem(400, "key-invalid");
    let first = gateway.pay("k").send().await;
    gateway.pay("k").send().await.is_replay_of(&first);
}

#[tokio::test]
async fn a_route_that_observes_alters_nothing() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".mode", "observe")]).await;
    for payment in 1..=2 {
        let answer = gateway.pay("k").send().await;
        assert_eq!(answer.told(), (201, &*format!("{{\"payment\":{payment}}}"), None));
        assert_eq!(answer.field("idempotency-key"), None);
        assert_eq!(upstream.last().field("idempotency-key"), Some("k"));
        assert_eq!(upstream.last().field("oncegate-attempt"), None);
    }
    for call in [gateway.pay("a, b"), gateway.post("/pay")] {
        assert_eq!(call.send().await.status, 201);
    }
    // What was observed is not taken for what was guarded.
    let gateway = Gateway::again(gateway.stop().await, &upstream.url(), "", &[]).await;
    assert_eq!(gateway.pay("k").send().await.told(), (201, "{\"payment\":5}", Some("false")));
}

#[tokio::test]
async fn a_route_that_is_switched_off_only_replays() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = gateway.pay("old").send().await;
    let paused: Settings<'_> = &[(".mode", "replay_only"), (".required", "false")];
    let gateway = Gateway::again(gateway.stop().await, &upstream.url(), "", paused).await;
    gateway.pay("old").send().await.is_replay_of(&first);
    gateway.pay("old").body("{\"amount\":2}").send().await.is_problem(422, "key-reused");
    let new = gateway.pay("new").send().await;
    new.is_problem(503, "route-paused");
    assert!(new.field("retry-after").is_some());
    gateway.post("/pay").send().await.is_problem(503, "route-paused");
    assert_eq!(upstream.count(), 1);
}
