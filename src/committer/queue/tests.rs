//! A seeded simulation drives the queue without a runtime: random jobs, random failures, a store kept as a
//! map, and the promise that every job is told, once, what really became of it.

use super::*;
use crate::engine::ledger::{Claim, Release, To, Transition};
use crate::engine::ledger::{FromState, Released};
use crate::entry::Answer;
use crate::entry::fingerprint::SecretId;
use crate::entry::{Fingerprint, Identity, InstanceId, Key, Namespace, Nonce, Scope, StoredResponse};
use crate::outbox::event::{Attributes, Envelope, EventId, NewEvent, OnFailure};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn claim(key: u8) -> Job {
    let identity = Identity {
        namespace: Namespace::new("n").unwrap(),
        scope: Scope::Global,
        key: Key::from_business(&key.to_string()).unwrap(),
    };
    Job::Claim(Claim {
        id: EntryId([key; 32]),
        identity,
        nonce: Nonce([key; 16]),
        instance: InstanceId([0; 16]),
        fingerprint: Fingerprint { version: 1, secret: SecretId([0; 4]), digest: [0; 32] },
        route: "r".into(),
        context: None,
    })
}

fn completion(key: u8) -> Job {
    let response = StoredResponse {
        status: http::StatusCode::CREATED,
        headers: http::HeaderMap::new(),
        body: bytes::Bytes::from_static(b"body"),
    };
    Job::Transition(Transition {
        id: EntryId([key; 32]),
        nonce: Nonce([key; 16]),
        from: FromState::Unfinished,
        to: To::Completed {
            nonce: Nonce([key; 16]),
            answer: Answer::Response(Arc::new(response)),
            retention: Duration::from_secs(1),
            tombstone: None,
            events: Arc::default(),
        },
    })
}

fn announcing(key: u8) -> Job {
    let Job::Transition(mut transition) = completion(key) else { unreachable!("a completion is a transition") };
    if let To::Completed { events, .. } = &mut transition.to {
        *events = Arc::new([event(b"data", None)]);
    }
    Job::Transition(transition)
}

fn event(data: &'static [u8], parked: Option<&str>) -> NewEvent {
    let event = Envelope {
        id: EventId([1; 16]),
        queue: "default".into(),
        topic: "t".into(),
        key: "k".into(),
        kind: "type".into(),
        source: "/s".into(),
        route: "r".into(),
        content_type: "text/plain".into(),
        traceparent: None,
        attributes: Attributes::new(),
        data: bytes::Bytes::from_static(data),
    };
    NewEvent { event, lane: 3, parked: parked.map(Into::into), on_failure: OnFailure::Hold }
}

fn release(key: u8) -> Job {
    Job::Release(Release { id: EntryId([key; 32]), nonce: Nonce([key; 16]), of: Released::FirstAttempt })
}

fn won(batch: &Batch) -> Applied {
    Applied {
        now: Timestamp(1),
        transitions: vec![Guarded::Done; batch.transitions.len()],
        releases: vec![Guarded::Done; batch.releases.len()],
        claims: vec![Claimed::Won; batch.claims.len()],
    }
}

fn queue_of(jobs: Vec<Job>) -> Queue<usize> {
    let mut queue = Queue::new(Limits::default());
    for (waiter, job) in jobs.into_iter().enumerate() {
        queue.submit(job, waiter).unwrap();
    }
    queue
}

#[test]
fn those_who_were_answered_are_expected_back_and_nobody_else_is_waited_for() {
    let mut queue: Queue<u8> = Queue::new(Limits::default());
    assert!(!queue.expect(1), "a single caller waits for nobody");
    assert!(queue.expect(2));
    assert_eq!(queue.submit(claim(1), 1), Ok(Submitted::AmongExpected));
    assert_eq!(queue.submit(completion(2), 2), Ok(Submitted::Last));
    assert!(!queue.expect(2), "they are back already");
    queue.expect_nobody();
    assert_eq!(queue.submit(claim(3), 3), Ok(Submitted::ToBeFlushed));
}

#[test]
fn a_closed_queue_leaves_nobody_waiting() {
    let mut queue: Queue<u8> = Queue::new(Limits::default());
    queue.submit(claim(1), 1).unwrap();
    let flush = queue.next_flush().unwrap();
    queue.submit(completion(2), 2).unwrap();
    assert!(queue.finished(flush.id, Err(StoreError::CommitUnknown(String::new()))).is_empty(), "to be tried again");
    let told: Vec<_> = queue.close().into_iter().map(|(waiter, reply)| (waiter, told(&reply))).collect();
    assert_eq!(told, [(2, "not written"), (1, "unclear")]);
    assert!(queue.is_closed() && queue.is_idle());
    assert!(matches!(queue.submit(claim(3), 3), Err((3, CommitError::NotWritten(_)))));
}

fn told(reply: &Reply) -> &'static str {
    match reply {
        Reply::Failed(CommitError::NotWritten(_)) => "not written",
        Reply::Failed(CommitError::Unclear(_)) => "unclear",
        Reply::Failed(CommitError::Overloaded) | Reply::Claimed(..) | Reply::Guarded(..) => "something else",
    }
}

#[test]
fn what_waits_together_is_one_batch_and_each_gets_its_own_reply() {
    let mut queue = queue_of(vec![claim(1), completion(2), claim(3), release(4)]);
    let flush = queue.next_flush().unwrap();
    assert_eq!((flush.batch.transitions.len(), flush.batch.releases.len(), flush.batch.claims.len()), (1, 1, 2));
    assert!(queue.next_flush().is_none());
    let applied = Applied { claims: vec![Claimed::Won, Claimed::Busy], ..won(&flush.batch) };
    let replies: BTreeMap<usize, Reply> = queue.finished(flush.id, Ok(applied)).into_iter().collect();
    assert!(matches!(replies[&0], Reply::Claimed(Claimed::Won, _)));
    assert!(matches!(replies[&1], Reply::Guarded(Guarded::Done, _)));
    assert!(matches!(replies[&2], Reply::Claimed(Claimed::Busy, _)));
    assert!(matches!(replies[&3], Reply::Guarded(Guarded::Done, _)));
    assert!(queue.is_idle());
}

#[test]
fn a_second_job_of_an_entry_waits_for_the_first_ones_flush() {
    let mut queue = queue_of(vec![claim(1), claim(1), claim(2)]);
    let first = queue.next_flush().unwrap();
    assert_eq!(first.batch.claims.len(), 2);
    assert!(queue.next_flush().is_none(), "the entry is under way, also for a second writer");
    queue.finished(first.id, Ok(won(&first.batch)));
    assert_eq!(queue.next_flush().unwrap().batch.claims.len(), 1);
}

#[test]
fn claims_beyond_the_limit_are_turned_away_and_completions_never_are() {
    let mut queue = Queue::new(Limits { waiting_claims: 1, ..Limits::default() });
    queue.submit(claim(1), 1).unwrap();
    assert_eq!(queue.submit(claim(2), 2), Err((2, CommitError::Overloaded)));
    queue.submit(completion(3), 3).unwrap();
}

#[test]
fn a_batch_is_bounded_in_jobs_and_bytes_but_never_empty() {
    let limits = Limits { batch_jobs: 3, batch_bytes: 1, ..Limits::default() };
    let mut queue = Queue::new(limits);
    for key in 0..5 {
        queue.submit(claim(key), key).unwrap();
    }
    assert_eq!(queue.next_flush().unwrap().batch.len(), 1, "one job always fits");
    let mut queue = Queue::new(Limits { batch_bytes: usize::MAX, ..limits });
    for key in 0..5 {
        queue.submit(claim(key), key).unwrap();
    }
    assert_eq!(queue.next_flush().unwrap().batch.len(), 3);
}

#[test]
fn after_an_unclear_commit_not_available_is_unclear_too() {
    let mut queue = queue_of(vec![claim(1)]);
    let flush = queue.next_flush().unwrap();
    assert!(queue.finished(flush.id, Err(StoreError::CommitUnknown("cut".to_owned()))).is_empty());
    let flush = queue.next_flush().unwrap();
    let replies = queue.finished(flush.id, Err(StoreError::Unavailable("down".to_owned())));
    assert!(matches!(replies[..], [(0, Reply::Failed(CommitError::Unclear(_)))]), "{replies:?}");
}

#[test]
fn a_locked_row_makes_only_its_own_claim_busy() {
    let mut queue = queue_of((0..8).map(claim).collect());
    let mut replies = Vec::new();
    while let Some(flush) = queue.next_flush() {
        let locked = flush.batch.claims.iter().any(|claim| claim.id == EntryId([5; 32]));
        let result = if locked { Err(StoreError::Locked("row".to_owned())) } else { Ok(won(&flush.batch)) };
        replies.extend(queue.finished(flush.id, result));
    }
    for (waiter, reply) in replies {
        assert_eq!(matches!(reply, Reply::Claimed(Claimed::Busy, _)), waiter == 5, "{waiter}: {reply:?}");
    }
}

#[test]
fn what_comes_for_a_locked_entry_keeps_nobody_waiting_until_it_goes_through() {
    let mut queue = queue_of((0..200).map(claim).collect());
    let locked = |flush: &Flush| flush.batch.claims.iter().any(|claim| claim.id == EntryId([5; 32]));
    let mut waits = 0;
    while let Some(flush) = queue.next_flush() {
        let result = match locked(&flush) {
            true => {
                waits += 1;
                Err(StoreError::Locked("row".to_owned()))
            }
            false => Ok(won(&flush.batch)),
        };
        queue.finished(flush.id, result);
    }
    assert!(waits <= 4, "found after {waits} waits");
    for key in [5, 6] {
        queue.submit(claim(key), usize::from(key)).unwrap();
    }
    assert!(queue.has_slow());
    let flush = queue.next_flush().unwrap();
    assert!(!locked(&flush) && flush.batch.len() == 1);
    assert!(queue.next_flush().is_none(), "the locked one is not among the others");
    let slow = queue.next_slow().unwrap();
    assert!(locked(&slow) && slow.batch.len() == 1);
    queue.finished(slow.id, Ok(won(&slow.batch)));
    queue.submit(claim(5), 5).unwrap();
    assert!(!queue.has_slow() && queue.next_slow().is_none(), "it went through");
    assert!(locked(&queue.next_flush().unwrap()));
}

#[test]
fn a_refused_completion_is_kept_without_its_answer_and_its_neighbours_with_theirs() {
    let mut queue = queue_of((0..5).map(completion).collect());
    let mut stored = BTreeMap::new();
    while let Some(flush) = queue.next_flush() {
        let poison = |transition: &Transition| {
            let To::Completed { answer, .. } = &transition.to else { return false };
            transition.id == EntryId([2; 32]) && matches!(answer, Answer::Response(_))
        };
        if flush.batch.transitions.iter().any(poison) {
            queue.finished(flush.id, Err(StoreError::Refused("too large".to_owned())));
            continue;
        }
        for transition in &flush.batch.transitions {
            let To::Completed { answer, .. } = &transition.to else { panic!("only completions were submitted") };
            stored.insert(transition.id.0[0], answer.clone());
        }
        queue.finished(flush.id, Ok(won(&flush.batch)));
    }
    assert_eq!(stored.len(), 5);
    for (key, answer) in stored {
        assert_eq!(matches!(answer, Answer::StatusOnly(201)), key == 2);
    }
}

#[test]
fn a_refused_completion_loses_its_events_data_first_then_its_answer_and_its_events_last() {
    let mut queue = queue_of(vec![announcing(1)]);
    let mut tried = Vec::new();
    let replies = loop {
        let flush = queue.next_flush().unwrap();
        let To::Completed { answer, events, .. } = &flush.batch.transitions[0].to else { panic!("a completion") };
        tried.push((matches!(answer, Answer::Response(_)), events.to_vec()));
        let replies = queue.finished(flush.id, Err(StoreError::Refused("no".to_owned())));
        if !replies.is_empty() {
            break replies;
        }
    };
    let bare = event(b"", Some("the store refused its data"));
    let ladder =
        [(true, vec![event(b"data", None)]), (true, vec![bare.clone()]), (false, vec![bare]), (false, Vec::new())];
    assert_eq!(tried, ladder);
    assert!(matches!(&replies[..], [(0, Reply::Failed(CommitError::NotWritten(_)))]), "{replies:?}");
}

#[test]
fn events_count_in_the_size_of_a_batch() {
    let answer_only = completion(1).weight();
    assert!(announcing(1).weight() > answer_only + b"data".len(), "{answer_only}");
}

/// What the simulated store does with a batch.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Applied,
    Conflict,
    Locked,
    Refused,
    Unavailable,
    LostBeforeCommit,
    LostAfterCommit,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Applied),
        1 => Just(Fate::Conflict),
        1 => Just(Fate::Locked),
        1 => Just(Fate::Refused),
        1 => Just(Fate::Unavailable),
        1 => Just(Fate::LostBeforeCommit),
        1 => Just(Fate::LostAfterCommit),
    ]
}

/// The store keeps the nonce of each entry's first claim; a later one loses (told as `NotAlive` here).
fn apply(store: &mut HashMap<EntryId, Nonce>, batch: &Batch, fate: Fate) -> Result<Applied, StoreError> {
    let mut claims = Vec::new();
    if matches!(fate, Fate::Applied | Fate::LostAfterCommit) {
        for claim in &batch.claims {
            let owner = *store.entry(claim.id).or_insert(claim.nonce);
            claims.push(if owner == claim.nonce { Claimed::Won } else { Claimed::NotAlive });
        }
    }
    let text = "simulated".to_owned();
    match fate {
        Fate::Applied => Ok(Applied { claims, ..won(batch) }),
        Fate::Conflict => Err(StoreError::Conflict(text)),
        Fate::Locked => Err(StoreError::Locked(text)),
        Fate::Refused => Err(StoreError::Refused(text)),
        Fate::Unavailable => Err(StoreError::Unavailable(text)),
        Fate::LostBeforeCommit | Fate::LostAfterCommit => Err(StoreError::CommitUnknown(text)),
    }
}

/// The claim of `key` by the waiter of this number, who has a nonce of its own.
fn claim_of(key: u8, waiter: usize) -> Job {
    let Job::Claim(claim) = claim(key) else { unreachable!("claim() makes claims") };
    Job::Claim(Claim { nonce: nonce_of(waiter), ..claim })
}

fn nonce_of(waiter: usize) -> Nonce {
    Nonce((waiter as u128).to_be_bytes())
}

proptest! {
    #[test]
    fn every_job_is_told_once_and_truly(
        keys in proptest::collection::vec(0u8..20, 1..60),
        fates in proptest::collection::vec(fate(), 1..200),
        writers in 1usize..4,
    ) {
        let mut queue = Queue::new(Limits { batch_jobs: 8, ..Limits::default() });
        for (waiter, key) in keys.iter().enumerate() {
            queue.submit(claim_of(*key, waiter), waiter).unwrap();
        }
        let (mut store, mut told) = (HashMap::new(), HashMap::new());
        let mut fates = fates.into_iter().chain(std::iter::repeat(Fate::Applied));
        while !queue.is_idle() {
            let flushes: Vec<Flush> = (0..writers).map_while(|_| queue.next_flush().or_else(|| queue.next_slow())).collect();
            let mut entries = HashSet::new();
            for claim in flushes.iter().flat_map(|flush| &flush.batch.claims) {
                prop_assert!(entries.insert(claim.id), "an entry is in two batches at once");
            }
            for flush in flushes {
                let result = apply(&mut store, &flush.batch, fates.next().unwrap());
                for (waiter, reply) in queue.finished(flush.id, result) {
                    prop_assert!(told.insert(waiter, reply).is_none(), "told twice");
                }
            }
        }
        prop_assert_eq!(told.len(), keys.len());
        for (waiter, reply) in told {
            let mine = store.get(&EntryId([keys[waiter]; 32])) == Some(&nonce_of(waiter));
            match reply {
                Reply::Claimed(Claimed::Won, _) => prop_assert!(mine),
                Reply::Claimed(_, _) | Reply::Failed(CommitError::NotWritten(_)) => prop_assert!(!mine),
                Reply::Failed(CommitError::Unclear(_)) => {}
                Reply::Failed(CommitError::Overloaded) | Reply::Guarded(..) => prop_assert!(false, "{:?}", reply),
            }
        }
    }
}
