//! What makes a request with a known key the same request.

use super::client::Call;
use super::gateway::{Gateway, Settings};
use super::upstream::Upstream;

/// Sends `first`, then each of the others, which must be the same request, or none.
async fn compare(settings: Settings<'_>, first: impl Fn(&Gateway) -> Call, others: &[(bool, &dyn Fn(Call) -> Call)]) {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, settings).await;
    let answer = first(&gateway).send().await;
    assert_eq!(answer.status, 201);
    for (number, (same, change)) in others.iter().enumerate() {
        let again = change(first(&gateway)).send().await;
        if *same {
            assert_eq!(again.told(), (201, "{\"payment\":1}", Some("true")), "number {number}");
        } else {
            assert_eq!(again.problem(), (422, "key-reused".to_owned()), "number {number}");
        }
    }
    assert_eq!(upstream.count(), 1);
}

async fn compare_bodies(settings: Settings<'_>, first: &'static str, others: &[(bool, &'static str)]) {
    let bodies: Vec<_> = others.iter().map(|&(same, body)| (same, move |call: Call| call.body(body))).collect();
    let others: Vec<(bool, &dyn Fn(Call) -> Call)> = bodies.iter().map(|(same, change)| (*same, change as _)).collect();
    compare(settings, |gateway| gateway.pay("k").body(first), &others).await;
}

#[tokio::test]
async fn json_counts_by_its_meaning() {
    let table = [
        (true, " { \"b\" : [ 1 , { \"d\":2,\"c\":\"\u{e9}\" } ] ,\n\t\"a\" : 100 } "),
        (true, "{\"a\":1e2,\"b\":[1.0,{\"c\":\"\\u00e9\",\"d\":20e-1}]}"),
        (false, "{\"a\":100.0000000000000001,\"b\":[1,{\"c\":\"\u{e9}\",\"d\":2}]}"),
        (false, "{\"a\":\"100\",\"b\":[1,{\"c\":\"\u{e9}\",\"d\":2}]}"),
        (false, "{\"a\":100,\"b\":[{\"c\":\"\u{e9}\",\"d\":2},1]}"),
        (false, "{\"a\":100,\"b\":[1,{\"c\":\"e\u{301}\",\"d\":2}]}"),
        (false, "{\"a\":100,\"b\":[1,{\"c\":\"\u{e9}\",\"d\":2}],\"e\":null}"),
        (false, ""),
    ];
    compare_bodies(&[], "{\"a\":100,\"b\":[1,{\"c\":\"\u{e9}\",\"d\":2}]}", &table).await;
}

/// Before anything is taken out of the request for the upstream.
#[tokio::test]
async fn what_was_received_counts_and_not_what_is_forwarded() {
    let first = |gateway: &Gateway| gateway.pay("k").field("connection", "x-hop").field("x-hop", "1");
    let (same, other) = (|call: Call| call, |call: Call| call.replace("x-hop", "2"));
    compare(&[(".fingerprint.headers", "[\"x-hop\"]")], first, &[(true, &same), (false, &other)]).await;
}

#[tokio::test]
async fn the_content_types_parameters_do_not_count() {
    let typed = |kind: &'static str| move |call: Call| call.replace("content-type", kind).body("{\"a\": 1}");
    let (charset, other, text) =
        (typed("application/json; charset=utf-8"), typed("Application/Problem+JSON"), typed("text/plain"));
    let first = |gateway: &Gateway| gateway.pay("k").body("{\"a\":1}");
    compare(&[], first, &[(true, &charset), (true, &other), (false, &text)]).await;
}

#[tokio::test]
async fn numbers_compare_by_their_exact_value() {
    compare_bodies(&[], "{\"a\":9007199254740993}", &[(false, "{\"a\":9007199254740992}")]).await;
    let table = [(true, "{\"a\":1E999999999}"), (false, "{\"a\":1e999999998}"), (false, "{\"a\":-1e999999999}")];
    compare_bodies(&[], "{\"a\":1e999999999}", &table).await;
    compare_bodies(&[], "{\"a\":0}", &[(true, "{\"a\":0e9}"), (true, "{\"a\":0.00}"), (false, "{\"a\":1e-400}")]).await;
}

#[tokio::test]
async fn a_duplicate_member_makes_a_body_count_by_its_bytes() {
    let table = [
        (true, "{\"a\":1,\"a\":2}"),
        (false, "{\"a\":2,\"a\":1}"),
        (false, "{ \"a\":1,\"a\":2}"),
        (false, "{\"a\":2}"),
    ];
    compare_bodies(&[], "{\"a\":1,\"a\":2}", &table).await;
}

#[tokio::test]
async fn ignored_pointers_do_not_count() {
    let table = [
        (true, "{\"a\":1,\"at\":2,\"deep\":{\"n\":\"y\",\"b\":1}}"),
        (true, "{\"a\":1,\"deep\":{\"b\":1}}"),
        (false, "{\"a\":2,\"at\":1,\"deep\":{\"n\":\"x\",\"b\":1}}"),
        (false, "{\"a\":1,\"at\":1,\"deep\":{\"n\":\"x\",\"b\":2}}"),
    ];
    let ignore = (".fingerprint.ignore", "[\"/at\", \"/deep/n\"]");
    compare_bodies(&[ignore], "{\"a\":1,\"at\":1,\"deep\":{\"n\":\"x\",\"b\":1}}", &table).await;
}

#[tokio::test]
async fn what_is_no_json_counts_by_its_bytes() {
    let text = |call: Call| call.body("{\"a\": 1}");
    let first = |gateway: &Gateway| {
        gateway.call("POST", "/pay").field("idempotency-key", "k").field("content-encoding", "gzip").body("{\"a\":1}")
    };
    compare(&[], first, &[(true, &|call| call), (false, &text)]).await;
}

#[tokio::test]
async fn the_querys_order_does_not_count_and_its_values_do() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let pay = |query: &str| gateway.post(&format!("/pay{query}")).field("idempotency-key", "k").send();
    let first = pay("?b=2&a=1&a=%20x").await;
    for same in ["?a=1&b=2&a=%20x", "?%61=%31&b=2&a=%20%78"] {
        pay(same).await.is_replay_of(&first);
    }
    for other in ["?a=%20x&a=1&b=2", "?a=1&a=%20x", "", "?a=1&a=%20x&b=3", "?a=1&a=%20x&b=2&c"] {
        pay(other).await.is_problem(422, "key-reused");
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn method_and_selected_fields_count_and_others_do_not() {
    let settings = [(".fingerprint.headers", "[\"x-currency\"]")];
    let first = |gateway: &Gateway| gateway.pay("k").field("x-currency", "EUR").field("user-agent", "a");
    // Credentials are renewed between two attempts.
    let more = |call: Call| {
        call.field("x-time", "1").field("user-agent", "b").field("authorization", "Bearer b").field("cookie", "b=1")
    };
    let other = |call: Call| call.field("x-currency", "USD");
    compare(&settings, first, &[(true, &|call| call), (true, &more), (false, &other)]).await;
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    assert_eq!(gateway.pay("k").send().await.status, 201);
    let put = gateway.call("PUT", "/pay").body("{\"amount\":1}").field("idempotency-key", "k");
    put.send().await.is_problem(422, "key-reused");
}

#[tokio::test]
async fn multipart_counts_by_its_parts() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let form = |boundary: &str, value: &str| {
        let body =
            format!("--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n{value}\r\n--{boundary}--\r\n");
        let kind = format!("multipart/form-data; boundary={boundary}");
        gateway.typed("/pay", &kind).field("idempotency-key", "k").body(body).send()
    };
    let first = form("one", "1").await;
    assert_eq!(first.status, 201);
    form("two", "1").await.is_replay_of(&first);
    form("one", "2").await.is_problem(422, "key-reused");
}
