//! What a retry of a completed request gets.

use super::gateway::Gateway;
use super::upstream::{Step, Upstream, answer, send};
use crate::servers::database::Kind;

#[tokio::test]
async fn a_replay_has_the_status_bytes_and_fields_of_the_first_answer() {
    let statuses = [
        ("201 Created", "\0\u{ff}bytes"),
        ("204 No Content", ""),
        ("302 Found", "x"),
        ("304 Not Modified", ""),
        ("402 Payment Required", "no"),
        ("422 Unprocessable", "{}"),
    ];
    for (status, body) in statuses {
        let fields = [("location", "/p/1"), ("etag", "\"1\""), ("link", "</a>"), ("x-one", "1"), ("link", "</b>")];
        let upstream = Upstream::always(answer(status, &fields, body)).await;
        let gateway = Gateway::start(&upstream, &[]).await;
        let first = gateway.pay("k").send().await;
        let again = gateway.pay("k").send().await;
        again.is_replay_of(&first);
        assert!(status.starts_with(&again.status.to_string()));
        assert_eq!(again.body, body);
        for answer in [&first, &again] {
            let links: Vec<_> = answer.fields.get_all("link").iter().collect();
            assert_eq!(links, ["</a>", "</b>"], "{status}");
            assert_eq!((answer.field("location"), answer.field("etag")), (Some("/p/1"), Some("\"1\"")));
        }
        for name in ["content-length", "content-type", "transfer-encoding"] {
            assert_eq!(again.field(name), first.field(name), "{status} {name}");
            let is_bare = status.starts_with("204") || status.starts_with("304");
            assert!(!is_bare || first.field(name).is_none(), "{status} has got a {name}");
        }
        assert_eq!(upstream.count(), 1, "{status}");
    }
}

#[tokio::test]
async fn without_a_cache_small_answers_are_replayed_from_their_marks() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::on(Kind::Postgres, &upstream, &[("cache.bytes", "0B")]).await;
    let first = gateway.pay("k").send().await;
    let mut stranger = gateway.database.stranger().await;
    stranger.run("BEGIN; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE").await;
    gateway.pay("k").send().await.is_replay_of(&first);
    stranger.run("ROLLBACK").await;
}

#[tokio::test]
async fn a_value_that_is_no_text_is_replayed_as_it_came() {
    let bytes = b"HTTP/1.1 200 OK\r\nx-name: caf\xe9\r\ncontent-length: 2\r\n\r\nok";
    let upstream = Upstream::always(vec![send(&bytes[..])]).await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = gateway.pay("k").send().await;
    let again = gateway.pay("k").send().await;
    again.is_replay_of(&first);
    assert_eq!(again.fields["x-name"].as_bytes(), b"caf\xe9");
}

#[tokio::test]
async fn what_belongs_to_the_first_exchange_is_not_replayed() {
    let of_the_exchange = [
        ("set-cookie", "a=1"),
        ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("server", "x"),
        ("www-authenticate", "Basic"),
        ("x-request-id", "theirs"),
        ("ratelimit-remaining", "1"),
        ("access-control-allow-origin", "https://a"),
        ("x-secret", "1"),
    ];
    let upstream = Upstream::always(answer("200 OK", &of_the_exchange, "ok")).await;
    let gateway = Gateway::start(&upstream, &[(".replay_exclude_headers", "[\"x-secret\"]")]).await;
    let first = gateway.pay("k").send().await;
    assert_eq!(first.field("set-cookie"), Some("a=1"), "the first caller gets it");
    let again = gateway.pay("k").send().await;
    again.is_replay_of(&first);
    for (name, value) in of_the_exchange {
        assert_ne!(again.field(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn fields_of_one_connection_reach_nobody() {
    let bytes =
        "HTTP/1.1 200 OK\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\ncontent-length: 2\r\n\r\nok";
    let upstream = Upstream::always(vec![send(bytes)]).await;
    let gateway = Gateway::start(&upstream, &[]).await;
    for _ in 0..2 {
        let answer = gateway.pay("k").send().await;
        assert_eq!((answer.field("x-hop"), answer.field("keep-alive")), (None, None));
    }
}

#[tokio::test]
async fn a_replay_says_until_when_it_is_kept() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".retention", "1h")]).await;
    let first = gateway.pay("k").send().await;
    let again = gateway.pay("k").send().await;
    let expires = |text: Option<&str>| httpdate::parse_http_date(text.unwrap()).unwrap();
    let kept_until = expires(again.field("idempotency-key-expires"));
    let left = kept_until.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let now = expires(again.field("date")).duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert!((3590..=3601).contains(&(left - now)), "{left} - {now}");
    assert_eq!(again.field("idempotency-key-expires"), first.field("idempotency-key-expires"));
    assert_eq!(again.field("idempotency-key"), Some("\"k\""));
}

#[tokio::test]
async fn a_replay_survives_a_restart() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = gateway.pay("k").send().await;
    let gateway = Gateway::again(gateway.stop().await, &upstream.url(), "", &[]).await;
    gateway.pay("k").send().await.is_replay_of(&first);
    gateway.pay("k").body("{\"amount\":2}").send().await.is_problem(422, "key-reused");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn an_interim_answer_is_not_the_answer() {
    let bytes = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let upstream = Upstream::always(vec![send(bytes), Step::Close]).await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = gateway.pay("k").send().await;
    assert_eq!(first.told(), (200, "ok", Some("false")));
    gateway.pay("k").send().await.is_replay_of(&first);
}
