//! Clients that go, gateways that stop, and stores that are closed to them.

use std::io::Write as _;

use oncegate::engine::identities::Identities as _;
use oncegate::entry::Namespace;
use oncegate::server::open_store;
use tokio::net::TcpStream;

use super::client::rest;
use super::gateway::{Gateway, Settings, configure};
use super::upstream::{Gate, Step, Upstream, after, created};
use super::{eventually, in_time};

/// What `Gateway::pay("k")` sends.
const PAYMENT: &str = "POST /pay HTTP/1.1\r\nhost: gateway.test\r\ncontent-type: application/json\r\n\
                       idempotency-key: k\r\ncontent-length: 12\r\n\r\n{\"amount\":1}";

#[tokio::test]
async fn a_client_that_hangs_up_cancels_nothing() {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let upstream = Upstream::start(move |number, _| after(&waited_for, created(number))).await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let stream = gateway.raw(PAYMENT).await;
    upstream.reached(1).await;
    drop(stream);
    gateway.pay("k").send().await.is_problem(409, "processing");
    gate.cancel();
    let retry = eventually(|| gateway.pay("k").send(), |answer| answer.status != 409).await;
    assert_eq!(retry.told(), (201, "{\"payment\":1}", Some("true")));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_stopping_gateway_finishes_what_is_in_flight() {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let upstream = Upstream::start(move |number, _| after(&waited_for, created(number))).await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let (addr, first, again) = (gateway.addr, gateway.pay("k").send(), gateway.pay("k"));
    let first = tokio::spawn(first);
    upstream.reached(1).await;
    let stopping = tokio::spawn(gateway.stop());
    drop(eventually(|| TcpStream::connect(addr), Result::is_err).await);
    assert!(!stopping.is_finished());
    gate.cancel();
    let first = first.await.unwrap();
    assert_eq!(first.told(), (201, "{\"payment\":1}", Some("false")));
    let database = in_time(stopping).await.unwrap();
    let gateway = Gateway::again(database, &upstream.url(), "", &[]).await;
    again.at(gateway.addr).send().await.is_replay_of(&first);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_balancer_is_told_before_a_stopping_gateway_refuses_anything() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[("server.drain_delay", "20s"), ("server.drain_timeout", "40s")]).await;
    let (addr, ready, pay) = (gateway.addr, gateway.call("GET", "/readyz"), gateway.pay("k"));
    assert_eq!(ready.clone().send().await.status, 200);
    let stopping = tokio::spawn(gateway.stop());
    let draining = eventually(|| ready.clone().send(), |answer| answer.status != 200).await;
    assert_eq!(draining.status, 503);
    assert_eq!(pay.send().await.told(), (201, "{\"payment\":1}", Some("false")));
    drop(TcpStream::connect(addr).await.unwrap());
    assert!(!stopping.is_finished());
    stopping.abort();
}

#[tokio::test]
async fn what_outlasts_the_drain_time_is_cut_off_and_never_sent_again() {
    let upstream = Upstream::always(vec![Step::Wait(Gate::new())]).await;
    let gateway = Gateway::start(&upstream, &[("server.drain_timeout", "300ms")]).await;
    let mut client = gateway.raw(PAYMENT).await;
    upstream.reached(1).await;
    let database = in_time(gateway.stop()).await;
    assert_eq!(rest(&mut client).await, "");
    let gateway = Gateway::again(database, &upstream.url(), "", &[]).await;
    assert_eq!(gateway.pay("k").send().await.status, 409);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_namespace_whose_identity_changed_is_closed_until_an_operator_accepts() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = gateway.pay("k").send().await;
    let changed: Settings<'_> = &[(".key", "[\"body:/amount\"]")];
    let gateway = Gateway::again(gateway.stop().await, &upstream.url(), "", changed).await;
    let closed = gateway.pay("k").send().await;
    closed.is_problem(503, "unavailable");
    assert_eq!(closed.field("retry-after"), Some("60"));
    assert_eq!(upstream.count(), 1);
    // Put back, it is open.
    let gateway = Gateway::again(gateway.stop().await, &upstream.url(), "", &[]).await;
    gateway.pay("k").send().await.is_replay_of(&first);
    let gateway = Gateway::again(gateway.stop().await, &upstream.url(), "", changed).await;
    gateway.pay("k").send().await.is_problem(503, "unavailable");
    let config = configure(&gateway.database, &upstream.url(), "", changed);
    let store = open_store(&config).await.unwrap();
    store.accept(&Namespace::new("pay").unwrap(), &config.identities()["pay"], "a test").await.unwrap();
    let open = eventually(|| gateway.pay("k").send(), |answer| answer.status != 503).await;
    assert_eq!(open.told(), (201, "{\"payment\":2}", Some("false")));
}

#[tokio::test]
async fn what_was_recorded_under_a_secret_that_is_not_here_is_neither_run_nor_refused() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = gateway.pay("k").send().await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"another secret of at least thirty-two bytes").unwrap();
    let new = format!("\"file:{}\"", file.path().display());
    let (alone, rotated) = (format!("[{new}]"), format!("[{new}, \"env:SECRET\"]"));
    let gateway = Gateway::again(gateway.stop().await, &upstream.url(), "", &[("secrets.fingerprint", &alone)]).await;
    for body in ["{\"amount\":1}", "{\"amount\":2}"] {
        let told = gateway.pay("k").body(body).send().await;
        told.is_problem(503, "unavailable");
        assert_eq!(told.field("retry-after"), Some("60"));
    }
    let gateway = Gateway::again(gateway.stop().await, &upstream.url(), "", &[("secrets.fingerprint", &rotated)]).await;
    gateway.pay("k").send().await.is_replay_of(&first);
    gateway.pay("k").body("{\"amount\":2}").send().await.is_problem(422, "key-reused");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn while_nothing_can_be_recorded_nothing_is_forwarded() {
    let upstream = Upstream::counting().await;
    let brief: Settings<'_> = &[("store.statement_timeout", "300ms"), ("store.lock_timeout", "100ms")];
    let gateway = Gateway::start(&upstream, brief).await;
    let first = gateway.pay("old").send().await;
    let mut stranger = gateway.database.stranger().await;
    stranger.run("BEGIN IMMEDIATE").await;
    let refused = gateway.pay("new").send().await;
    refused.is_problem(503, "unavailable");
    assert!(refused.field("retry-after").is_some());
    assert_eq!(gateway.call("GET", "/readyz").send().await.status, 503);
    gateway.pay("old").send().await.is_replay_of(&first);
    assert_eq!(upstream.count(), 1);
    stranger.run("ROLLBACK").await;
    let again = eventually(|| gateway.pay("new").send(), |answer| answer.status != 503).await;
    assert_eq!(again.told(), (201, "{\"payment\":2}", Some("false")));
}
