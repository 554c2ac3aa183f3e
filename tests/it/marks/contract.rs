//! The contract of `Marks`, on every store.

use std::sync::Arc;
use std::time::Duration;

use oncegate::engine::marks::{Marks, Reserved};
use oncegate::entry::Nonce;
use tokio::task::JoinSet;

use super::{LONG, completed, eventually, in_progress, key, patient, random_id};
use crate::servers::redis::{self, Redis};

/// Long enough to act before it is over, short enough to wait for its end.
const SHORT: Duration = Duration::from_secs(1);

macro_rules! on_every_store {
    ($($behaviour:ident)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() { super::$behaviour(super::patient("memory:")).await; })*
        }
        mod redis_single {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() { super::$behaviour(super::patient(&super::redis::single().url)).await; })*
        }
        mod redis_cluster {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() { super::$behaviour(super::patient(&super::redis::cluster().url)).await; })*
        }
        mod redis_sentinel {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() { super::$behaviour(super::patient(&super::redis::sentinels().url)).await; })*
        }
    };
}

on_every_store! {
    of_many_callers_exactly_one_acquires_and_the_others_are_told_of_it
    the_same_execution_may_reserve_twice
    a_mark_vanishes_when_its_time_is_over
    a_completion_needs_my_nonce_or_no_mark_and_has_a_time_of_its_own
    a_release_needs_my_nonce
    a_stale_owner_never_touches_the_new_owners_mark
    an_extension_needs_my_nonce_and_a_mark_in_progress
    many_marks_are_extended_at_once
    a_life_of_zero_is_no_error
}

async fn of_many_callers_exactly_one_acquires_and_the_others_are_told_of_it(marks: Arc<dyn Marks>) {
    for _ in 0..10 {
        let id = random_id();
        let mut callers = JoinSet::new();
        for _ in 0..64 {
            let (marks, mark) = (Arc::clone(&marks), in_progress());
            callers.spawn(async move { (marks.reserve(id, &mark, LONG).await.unwrap(), mark) });
        }
        let answers = callers.join_all().await;
        let winners: Vec<_> = answers.iter().filter(|(answer, _)| *answer == Reserved::Acquired).collect();
        let [(_, winner)] = winners[..] else { panic!("{} winners", winners.len()) };
        for (answer, _) in answers.iter().filter(|(_, mark)| mark != winner) {
            assert_eq!(*answer, Reserved::Existing(winner.clone()));
        }
        assert_eq!(marks.get(id).await, Ok(Some(winner.clone())));
    }
}

async fn the_same_execution_may_reserve_twice(marks: Arc<dyn Marks>) {
    let (id, mark) = (random_id(), in_progress());
    assert_eq!(marks.get(id).await, Ok(None));
    for _ in 0..2 {
        assert_eq!(marks.reserve(id, &mark, LONG).await, Ok(Reserved::Acquired));
    }
    let done = completed(&mark);
    assert_eq!(marks.complete(id, &done, LONG).await, Ok(true));
    assert_eq!(marks.reserve(id, &mark, LONG).await, Ok(Reserved::Existing(done)), "it is done");
}

async fn a_mark_vanishes_when_its_time_is_over(marks: Arc<dyn Marks>) {
    let (short, long, mark) = (random_id(), random_id(), in_progress());
    assert_eq!(marks.reserve(long, &mark, LONG).await, Ok(Reserved::Acquired));
    assert_eq!(marks.reserve(short, &mark, SHORT).await, Ok(Reserved::Acquired));
    assert_eq!(marks.get(short).await, Ok(Some(mark.clone())));
    eventually("the mark vanishes", async || marks.get(short).await == Ok(None)).await;
    assert_eq!(marks.reserve(short, &in_progress(), LONG).await, Ok(Reserved::Acquired));
    assert_eq!(marks.get(long).await, Ok(Some(mark)));
}

async fn a_completion_needs_my_nonce_or_no_mark_and_has_a_time_of_its_own(marks: Arc<dyn Marks>) {
    let (id, mine, other) = (random_id(), in_progress(), in_progress());
    assert_eq!(marks.reserve(id, &mine, LONG).await, Ok(Reserved::Acquired));
    assert_eq!(marks.complete(id, &completed(&other), LONG).await, Ok(false));
    assert_eq!(marks.get(id).await, Ok(Some(mine.clone())));
    assert_eq!(marks.complete(id, &completed(&mine), SHORT).await, Ok(true));
    assert_eq!(marks.get(id).await, Ok(Some(completed(&mine))), "the response survives, byte for byte");
    eventually("the completed mark vanishes", async || marks.get(id).await == Ok(None)).await;
    assert_eq!(marks.complete(id, &completed(&other), LONG).await, Ok(true), "the mark was gone");
    assert_eq!(marks.get(id).await, Ok(Some(completed(&other))));
}

async fn a_release_needs_my_nonce(marks: Arc<dyn Marks>) {
    let (id, mark) = (random_id(), in_progress());
    assert_eq!(marks.release(id, mark.nonce).await, Ok(false), "there is none");
    assert_eq!(marks.reserve(id, &mark, LONG).await, Ok(Reserved::Acquired));
    assert_eq!(marks.release(id, Nonce::random()).await, Ok(false));
    assert_eq!(marks.get(id).await, Ok(Some(mark.clone())));
    assert_eq!(marks.release(id, mark.nonce).await, Ok(true));
    assert_eq!(marks.get(id).await, Ok(None));
}

async fn a_stale_owner_never_touches_the_new_owners_mark(marks: Arc<dyn Marks>) {
    let (id, stale, new) = (random_id(), in_progress(), in_progress());
    assert_eq!(marks.reserve(id, &stale, SHORT).await, Ok(Reserved::Acquired));
    eventually("the first mark vanishes", async || marks.reserve(id, &new, LONG).await == Ok(Reserved::Acquired)).await;
    for present in [new.clone(), completed(&new)] {
        assert_eq!(marks.complete(id, &present, LONG).await, Ok(true));
        assert_eq!(marks.complete(id, &completed(&stale), LONG).await, Ok(false));
        assert_eq!(marks.release(id, stale.nonce).await, Ok(false));
        assert_eq!(marks.get(id).await, Ok(Some(present)));
    }
}

async fn an_extension_needs_my_nonce_and_a_mark_in_progress(marks: Arc<dyn Marks>) {
    let [mine, other, done, absent] = std::array::from_fn(|_| (random_id(), in_progress()));
    for (id, mark) in [&mine, &other, &done] {
        assert_eq!(marks.reserve(*id, mark, SHORT).await, Ok(Reserved::Acquired));
    }
    assert_eq!(marks.complete(done.0, &completed(&done.1), SHORT).await, Ok(true));
    let extended =
        [(other.0, Nonce::random()), (done.0, done.1.nonce), (absent.0, absent.1.nonce), (mine.0, mine.1.nonce)];
    assert_eq!(marks.extend(&extended, LONG).await, Ok(()));
    for (id, _) in [other, done, absent] {
        eventually("a mark not extended vanishes", async || marks.get(id).await == Ok(None)).await;
    }
    // It was set before those that are gone.
    assert_eq!(marks.get(mine.0).await, Ok(Some(mine.1)));
}

async fn many_marks_are_extended_at_once(marks: Arc<dyn Marks>) {
    let (control, mark) = (random_id(), in_progress());
    let life = SHORT * 4;
    let ids: Vec<_> = (0..600).map(|_| (random_id(), mark.nonce)).collect();
    for (id, _) in &ids {
        assert_eq!(marks.reserve(*id, &mark, life).await, Ok(Reserved::Acquired));
    }
    assert_eq!(marks.reserve(control, &mark, life).await, Ok(Reserved::Acquired));
    assert_eq!(marks.extend(&ids, LONG).await, Ok(()));
    eventually("the control vanishes", async || marks.get(control).await == Ok(None)).await;
    for (id, _) in ids {
        assert_eq!(marks.get(id).await, Ok(Some(mark.clone())));
    }
    assert_eq!(marks.extend(&[], LONG).await, Ok(()));
}

async fn a_life_of_zero_is_no_error(marks: Arc<dyn Marks>) {
    let (id, mark) = (random_id(), in_progress());
    assert_eq!(marks.reserve(id, &mark, Duration::ZERO).await, Ok(Reserved::Acquired));
    assert!(marks.complete(id, &completed(&mark), Duration::ZERO).await.is_ok());
    eventually("the mark vanishes", async || marks.get(id).await == Ok(None)).await;
}

/// A value of a later version, or of somebody else: the database decides on this key, and on no other.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_value_is_unavailable_and_spoils_no_other_key() {
    let (single, cluster, sentinels) = (redis::single(), redis::cluster(), redis::sentinels());
    let stores = [(&single.url, single), (&cluster.url, &cluster.nodes[0]), (&sentinels.url, &sentinels.master)];
    for (url, server) in stores {
        let marks = patient(url);
        let (text, list, free) = (random_id(), random_id(), random_id());
        server.cli(&["SET", &key(text), "not a mark"]);
        server.cli(&["RPUSH", &key(list), "not even a string"]);
        let mark = in_progress();
        // More often than the failures that would open the breaker.
        for _ in 0..10 {
            for id in [text, list] {
                assert!(marks.reserve(id, &mark, LONG).await.is_err());
                assert!(marks.get(id).await.is_err());
            }
            assert_eq!(marks.complete(text, &completed(&mark), LONG).await, Ok(false), "it is not mine");
            assert_eq!(marks.release(text, mark.nonce).await, Ok(false));
            assert!(marks.complete(list, &completed(&mark), LONG).await.is_err());
            assert!(marks.release(list, mark.nonce).await.is_err());
        }
        assert_eq!(marks.extend(&[(text, mark.nonce), (list, mark.nonce), (free, mark.nonce)], LONG).await, Ok(()));
        assert_eq!(marks.reserve(free, &mark, LONG).await, Ok(Reserved::Acquired));
        assert_eq!(server.cli(&["GET", &key(text)]), "not a mark");
    }
}

/// A crash between setting a mark and giving it a life can't leave one for ever: on a server where no life can be given
/// later, each has one.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_is_set_and_given_its_end_at_once() {
    let server = Redis::start();
    server.cli(&["ACL", "SETUSER", "default", "-expire", "-pexpire", "-expireat", "-pexpireat"]);
    let (marks, id, mark) = (patient(&server.url), random_id(), in_progress());
    let has_an_end = || server.cli(&["PTTL", &key(id)]).parse::<i64>().unwrap() > 0;
    assert_eq!(marks.reserve(id, &mark, LONG).await, Ok(Reserved::Acquired));
    assert!(has_an_end());
    assert_eq!(marks.complete(id, &completed(&mark), LONG).await, Ok(true));
    assert!(has_an_end());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mark_in_redis_has_an_end() {
    let server = redis::single();
    let marks = patient(&server.url);
    let (id, mark) = (random_id(), in_progress());
    let assert_life = |most: Duration| {
        let left: u128 = server.cli(&["PTTL", &key(id)]).parse().unwrap();
        assert!(left > 0 && left <= most.as_millis(), "{left} ms");
    };
    assert_eq!(marks.reserve(id, &mark, LONG).await, Ok(Reserved::Acquired));
    assert_life(LONG);
    assert_eq!(marks.extend(&[(id, mark.nonce)], LONG / 2).await, Ok(()));
    assert_life(LONG / 2);
    assert_eq!(marks.complete(id, &completed(&mark), LONG / 4).await, Ok(true));
    assert_life(LONG / 4);
}
