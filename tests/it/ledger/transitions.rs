use std::time::Duration;

use bytes::Bytes;
use oncegate::engine::instances::Instances as _;
use oncegate::engine::ledger::{Batch, Claimed, FromState, Guarded, Ledger as _, Released, To, Transition};
use oncegate::entry::{Answer, EntryId, InstanceId, Nonce, State};

use super::{Ground, HOUR, completed, expired, response, unknown};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_transition_is_legal_from_its_states_under_its_nonce_only,
    a_late_completion_under_the_same_nonce_settles_an_unknown,
    retention_counts_from_the_completion,
    settling_under_a_new_nonce_fences_the_late_finisher_whose_evidence_is_kept,
    forwarding_again_raises_the_attempt_once,
    answers_survive_byte_for_byte,
    putting_off_a_lookup_does_not_make_an_unknown_younger,
    endless_durations_do_not_overflow,
);

/// Where a row is before the transition that is tried.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Before {
    Absent,
    InProgress,
    Unknown,
    Completed,
    Tombstone,
}

impl Before {
    async fn make(self, ground: &Ground, key: &str) -> (EntryId, Nonce) {
        let claim = ground.claim(key);
        if self == Self::Absent {
            return (claim.id, claim.nonce);
        }
        let row = ground.won(key).await;
        let to = match self {
            Self::Absent | Self::InProgress => return row,
            Self::Unknown => unknown(),
            Self::Completed => completed(row.1, "first"),
            Self::Tombstone => expired(row.1, None),
        };
        assert_eq!(ground.transit(row, FromState::InProgress, to).await, Guarded::Done);
        if self == Self::Tombstone {
            assert_eq!(ground.store.reap(1).await.unwrap().tombstoned, 1);
        }
        row
    }

    fn is_in(self, from: FromState) -> bool {
        match from {
            FromState::InProgress => self == Self::InProgress,
            FromState::Unknown => self == Self::Unknown,
            FromState::Unfinished => self == Self::InProgress || self == Self::Unknown,
        }
    }
}

async fn a_transition_is_legal_from_its_states_under_its_nonce_only(kind: Kind) {
    let ground = Ground::new(kind).await;
    let mut keys = 0;
    for before in [Before::Absent, Before::InProgress, Before::Unknown, Before::Completed, Before::Tombstone] {
        for from in [FromState::InProgress, FromState::Unknown, FromState::Unfinished] {
            for to in 0..3 {
                for is_mine in [true, false] {
                    keys += 1;
                    let (id, nonce) = before.make(&ground, &format!("order-{keys}")).await;
                    let to = match to {
                        0 => To::InProgress { nonce: Nonce::random(), instance: ground.instance },
                        1 => unknown(),
                        _ => completed(Nonce::random(), "second"),
                    };
                    // An Unknown that is asked to be Unknown is as asked.
                    let is_asked_already = is_mine && before == Before::Unknown && matches!(to, To::Unknown { .. });
                    let is_legal = is_mine && before.is_in(from);
                    let case = format!("{before:?} {from:?} {to:?} mine: {is_mine}");
                    let old = ground.read(id).await;
                    let guard = if is_mine { nonce } else { Nonce::random() };
                    let guarded = ground.transit((id, guard), from, to).await;
                    let expected = if is_legal || is_asked_already { Guarded::Done } else { Guarded::Fenced };
                    assert_eq!(guarded, expected, "{case}");
                    if !is_legal {
                        assert_eq!(ground.read(id).await, old, "{case}");
                    }
                }
            }
        }
    }
}

async fn a_late_completion_under_the_same_nonce_settles_an_unknown(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    assert_eq!(ground.transit(row, FromState::InProgress, unknown()).await, Guarded::Done);
    assert_eq!(ground.read(row.0).await.unwrap().state, State::Unknown { next_lookup: None, lookups: 0 });
    for _ in 0..2 {
        let done = ground.transit(row, FromState::Unfinished, completed(row.1, "late")).await;
        assert_eq!(done, Guarded::Done, "applied again it says the same");
    }
    let entry = ground.read(row.0).await.unwrap();
    assert_eq!(entry.nonce, row.1);
    let State::Completed { answer, expires, tombstone_ms } = entry.state else { panic!("{entry:?}") };
    assert_eq!(answer, Answer::Response(response("late").into()));
    assert_eq!(expires, entry.changed_at.after(HOUR));
    assert_eq!(tombstone_ms, Some(3_600_000));
}

/// From the completion on, and whoever reads it or completes it again does not move it.
async fn retention_counts_from_the_completion(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    let mut person = ground.database.stranger().await;
    // It took a minute.
    person.run("UPDATE entries SET created_at = created_at - 60000, started_at = started_at - 60000").await;
    assert_eq!(ground.transit(row, FromState::Unfinished, completed(row.1, "paid")).await, Guarded::Done);
    let entry = ground.read(row.0).await.unwrap();
    let State::Completed { expires, .. } = entry.state else { panic!("{entry:?}") };
    assert!(expires >= entry.started_at.after(HOUR + Duration::from_secs(60)), "{entry:?}");
    // Five seconds later.
    person.run("UPDATE entries SET due_at = due_at - 5000, changed_at = changed_at - 5000").await;
    let old = ground.read(row.0).await;
    assert_eq!(ground.transit(row, FromState::Unfinished, completed(row.1, "paid")).await, Guarded::Done);
    let claim = ground.claim("a");
    ground.apply(Batch { claims: vec![claim.clone(), claim], ..Batch::default() }).await;
    assert_eq!(ground.read(row.0).await, old);
}

async fn settling_under_a_new_nonce_fences_the_late_finisher_whose_evidence_is_kept(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    ground.transit(row, FromState::InProgress, unknown()).await;
    let settled = completed(Nonce::random(), "settled");
    assert_eq!(ground.transit(row, FromState::Unknown, settled).await, Guarded::Done);
    let old = ground.read(row.0).await;
    let late = ground.transit(row, FromState::Unfinished, completed(row.1, "late")).await;
    assert_eq!(late, Guarded::Fenced);
    assert_eq!(ground.release(row, Released::FirstAttempt).await, Guarded::Fenced);
    assert_eq!(ground.read(row.0).await, old);

    ground.store.keep_evidence(row.0, row.1, Bytes::from_static(b"late\xff")).await.unwrap();
    ground.store.keep_evidence(row.0, row.1, Bytes::from_static(b"later")).await.unwrap();
    let evidence = ground.database.literal(b"late\xff");
    let count = format!("SELECT COUNT(*) FROM entries WHERE evidence = {evidence}");
    assert_eq!(ground.database.stranger().await.number(&count).await, 1, "the first stays");
}

async fn forwarding_again_raises_the_attempt_once(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (row, other) = (ground.won("a").await, InstanceId::random());
    ground.store.register(other, "other").await.unwrap();
    ground.transit(row, FromState::InProgress, unknown()).await;
    let again = Nonce::random();
    for _ in 0..2 {
        let to = To::InProgress { nonce: again, instance: other };
        assert_eq!(ground.transit(row, FromState::Unknown, to).await, Guarded::Done);
        let entry = ground.read(row.0).await.unwrap();
        assert_eq!((entry.nonce, entry.origin, entry.attempt), (again, row.1, 2));
        assert_eq!(entry.state, State::InProgress { instance: other });
        assert_eq!(entry.started_at, entry.changed_at);
    }
    assert_eq!(ground.transit(row, FromState::Unfinished, completed(row.1, "old")).await, Guarded::Fenced);
    let mine = (row.0, again);
    assert_eq!(ground.transit(mine, FromState::InProgress, completed(again, "new")).await, Guarded::Done);
    let claimed = ground.apply(super::Batch { claims: vec![ground.claim("a")], ..Default::default() }).await;
    assert!(matches!(claimed.claims[..], [Claimed::Existing(_)]));
}

async fn answers_survive_byte_for_byte(kind: Kind) {
    let ground = Ground::new(kind).await;
    let body: Vec<u8> = (0..400_000_u32).map(|index| (index % 251) as u8).collect();
    let (large, empty, cut) = (ground.won("large").await, ground.won("empty").await, ground.won("cut").await);
    let status_only = To::Completed {
        nonce: cut.1,
        answer: Answer::StatusOnly(599),
        retention: HOUR,
        tombstone: None,
        events: [].into(),
    };
    let transition =
        |row: (EntryId, Nonce), to| Transition { id: row.0, nonce: row.1, from: FromState::InProgress, to };
    let transitions = vec![
        transition(large, completed(large.1, body.clone())),
        transition(empty, completed(empty.1, "")),
        transition(cut, status_only),
    ];
    ground.apply(super::Batch { transitions, ..Default::default() }).await;
    let kept = async |row: (EntryId, Nonce)| match ground.read(row.0).await.unwrap().state {
        State::Completed { answer, tombstone_ms, .. } => (answer, tombstone_ms),
        state => panic!("{state:?}"),
    };
    assert_eq!(kept(large).await, (Answer::Response(response(body).into()), Some(3_600_000)));
    assert_eq!(kept(empty).await, (Answer::Response(response("").into()), Some(3_600_000)));
    assert_eq!(kept(cut).await, (Answer::StatusOnly(599), None));
}

async fn putting_off_a_lookup_does_not_make_an_unknown_younger(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    ground.transit(row, FromState::InProgress, unknown()).await;
    ground.database.stranger().await.run("UPDATE entries SET changed_at = changed_at - 5000").await;
    let old = ground.read(row.0).await.unwrap();
    let put_off = To::Unknown { next_lookup: Some(HOUR), lookups: 3 };
    assert_eq!(ground.transit(row, FromState::Unknown, put_off).await, Guarded::Done);
    let (entry, now) = ground.store.read(row.0).await.unwrap();
    let entry = entry.unwrap();
    assert_eq!((entry.changed_at, entry.started_at), (old.changed_at, old.started_at));
    let State::Unknown { next_lookup: Some(next), lookups: 3 } = entry.state else { panic!("{entry:?}") };
    assert!(next > now && next <= now.after(HOUR));
}

async fn endless_durations_do_not_overflow(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    let answer = Answer::StatusOnly(200);
    let (retention, tombstone) = (Duration::MAX, Some(Duration::MAX));
    let to = To::Completed { nonce: row.1, answer, retention, tombstone, events: [].into() };
    assert_eq!(ground.transit(row, FromState::InProgress, to).await, Guarded::Done);
    assert_eq!(ground.release(row, Released::Forgotten).await, Guarded::Fenced);
}
