//! Marks are hints: whatever they say or do not say, the answers stay right.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use oncegate::clock;
use oncegate::engine::marks::{Mark, MarkState, Marks, Reserved, Unavailable};
use oncegate::engine::{Arrival, Arrived, Options};
use oncegate::entry::{EntryId, Nonce};

use super::upstream::{Upstream, completed, not_executed, response};
use super::{
    HOUR, Setup, assert_held, assert_in_progress, assert_mismatch, assert_replay, gateway, id, memory, request, two,
};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(without_marks_everything_is_still_right, a_lost_commit_is_held_and_never_executed);

/// A mark in progress of somebody who never comes back for it.
pub(super) async fn leave_mark(marks: &dyn Marks, of: &Arrival) -> Nonce {
    let mark = Mark { nonce: Nonce::random(), fingerprint: of.fingerprint, state: MarkState::InProgress };
    assert_eq!(marks.reserve(of.id, &mark, HOUR).await, Ok(Reserved::Acquired));
    mark.nonce
}

async fn leave_done(marks: &dyn Marks, of: &Arrival, answer: Option<Bytes>) {
    let state = MarkState::Completed { expires: clock::wall().after(HOUR), response: answer };
    let mark = Mark { nonce: Nonce::random(), fingerprint: of.fingerprint, state };
    assert_eq!(marks.complete(of.id, &mark, HOUR).await, Ok(true));
}

/// A mark store that is down.
struct Down;

fn down<T: Send + 'static>() -> BoxFuture<'static, Result<T, Unavailable>> {
    ready(Err(Unavailable("down".to_owned()))).boxed()
}

impl Marks for Down {
    fn reserve<'a>(&'a self, _: EntryId, _: &'a Mark, _: Duration) -> BoxFuture<'a, Result<Reserved, Unavailable>> {
        down()
    }

    fn get(&self, _: EntryId) -> BoxFuture<'_, Result<Option<Mark>, Unavailable>> {
        down()
    }

    fn complete<'a>(&'a self, _: EntryId, _: &'a Mark, _: Duration) -> BoxFuture<'a, Result<bool, Unavailable>> {
        down()
    }

    fn release(&self, _: EntryId, _: Nonce) -> BoxFuture<'_, Result<bool, Unavailable>> {
        down()
    }

    fn extend<'a>(&'a self, _: &'a [(EntryId, Nonce)], _: Duration) -> BoxFuture<'a, Result<(), Unavailable>> {
        down()
    }
}

async fn without_marks_everything_is_still_right(kind: Kind) {
    let (_database, first, second) = two(kind, || Setup { marks: Arc::new(Down), ..Setup::default() }).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = first.send(request("a", "1"), run);
    held.begun().await;
    first.house.marks_step().await;
    for gateway in [&first, &second] {
        assert_in_progress(&gateway.arrive(request("a", "1"), upstream.never()).await);
        assert_mismatch(&gateway.arrive(request("a", "2"), upstream.never()).await);
    }
    held.ends(not_executed());
    sent.await.unwrap();
    assert!(matches!(second.arrive(request("a", "1"), upstream.pays()).await, Arrived::Executed { .. }));
    assert_replay(&first.arrive(request("a", "1"), upstream.never()).await, "paid");
    second.arrive(request("b", "1"), upstream.loses_it()).await;
    assert_held(&first.arrive(request("b", "1"), upstream.never()).await);
    assert_eq!(upstream.calls(), 3);
}

async fn a_lost_commit_is_held_and_never_executed(kind: Kind) {
    let marks = memory();
    let (_database, gateway) = gateway(kind, Setup { marks: marks.clone(), ..Setup::default() }).await;
    let upstream = Upstream::default();
    leave_done(&*marks, &request("a", "1"), None).await;
    for _ in 0..3 {
        assert_held(&gateway.arrive(request("a", "1"), upstream.never()).await);
        assert!(gateway.is_unknown("a").await);
    }
    // The mark that remembers the answer is as good as the ledger.
    leave_done(&*marks, &request("b", "1"), Some(response("paid").encode())).await;
    assert_mismatch(&gateway.arrive(request("b", "2"), upstream.never()).await);
    assert_replay(&gateway.arrive(request("b", "1"), upstream.never()).await, "paid");
    assert_eq!(upstream.calls(), 0);
}

#[tokio::test]
async fn a_mark_in_progress_answers_without_the_ledger_until_it_is_gone() {
    let marks = memory();
    let (_database, gateway) = gateway(Kind::Sqlite, Setup { marks: marks.clone(), ..Setup::default() }).await;
    let nonce = leave_mark(&*marks, &request("a", "1")).await;
    let upstream = Upstream::default();
    gateway.store.close().await;
    assert_in_progress(&gateway.arrive(request("a", "1"), upstream.never()).await);
    marks.release(id("a"), nonce).await.unwrap();
    let told = gateway.arrive(request("a", "1"), upstream.never()).await;
    assert!(matches!(told, Arrived::Told(oncegate::engine::Verdict::Unavailable(_))), "{told:?}");
    assert_eq!(upstream.calls(), 0);
}

#[tokio::test]
async fn the_watchdog_keeps_the_mark_of_a_slow_execution_and_only_that() {
    let marks = memory();
    let options = Options { mark_ttl: Duration::from_millis(300), ..Options::default() };
    let (_database, gateway) = gateway(Kind::Sqlite, Setup { marks: marks.clone(), options, ..Setup::default() }).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gateway.send(request("a", "1"), run);
    let nonce = held.begun().await.nonce;
    let orphan = request("b", "1");
    let mark = Mark { nonce: Nonce::random(), fingerprint: orphan.fingerprint, state: MarkState::InProgress };
    marks.reserve(orphan.id, &mark, Duration::from_millis(300)).await.unwrap();
    super::until("the orphan's mark is gone", || async {
        gateway.house.marks_step().await;
        marks.get(orphan.id).await.unwrap().is_none()
    })
    .await;
    let kept = marks.get(id("a")).await.unwrap().expect("extended");
    assert_eq!((kept.nonce, kept.state), (nonce, MarkState::InProgress));
    held.ends(completed("paid"));
    sent.await.unwrap();
    super::until("the mark says done", || async {
        let mark = marks.get(id("a")).await.unwrap();
        mark.is_none_or(|mark| matches!(mark.state, MarkState::Completed { .. }))
    })
    .await;
}

#[tokio::test]
async fn a_mark_that_says_done_replays_in_another_gateway_without_its_ledger() {
    let marks = memory();
    let (_database, first, second) = two(Kind::Sqlite, || Setup { marks: marks.clone(), ..Setup::default() }).await;
    let upstream = Upstream::default();
    first.arrive(request("a", "1"), upstream.pays()).await;
    super::until("the mark says done", || async {
        let mark = marks.get(id("a")).await.unwrap();
        mark.is_some_and(|mark| matches!(mark.state, MarkState::Completed { response: Some(_), .. }))
    })
    .await;
    second.store.close().await;
    assert_replay(&second.arrive(request("a", "1"), upstream.never()).await, "paid");
    assert_eq!(upstream.calls(), 1);
}
