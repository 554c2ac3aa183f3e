use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oncegate::engine::instances::Instances as _;
use oncegate::engine::ledger::{
    Batch, Claim, Claimed, FromState, Guarded, Ledger as _, Release, Released, StoreError, To, Transition,
};
use oncegate::entry::{Answer, InstanceId, Key, Nonce, Scope, State};

use super::{Ground, claim, completed, response, unknown};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    the_first_claim_wins_and_the_second_sees_the_whole_entry,
    of_many_claims_at_once_one_wins_each_key,
    keys_and_scopes_are_kept_byte_for_byte,
    a_claim_applied_twice_is_won_twice,
    a_claim_whose_row_a_rescuer_made_unknown_is_not_won_again,
    claims_of_a_dead_or_unheard_of_instance_write_nothing,
    an_item_that_can_not_be_stored_refuses_the_batch_and_writes_nothing,
    three_hundred_items_of_all_kinds_get_their_own_results,
    an_entry_that_can_not_be_read_is_told_and_its_neighbours_are_claimed,
);

fn claims(claims: impl Into<Vec<Claim>>) -> Batch {
    Batch { claims: claims.into(), ..Batch::default() }
}

async fn the_first_claim_wins_and_the_second_sees_the_whole_entry(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (first, second) = (ground.claim("order-1"), ground.claim("order-1"));
    let applied = ground.apply(claims([first.clone()])).await;
    assert!(matches!(applied.claims[..], [Claimed::Won]), "{applied:?}");
    let won_at = applied.now;

    let applied = ground.apply(claims([second])).await;
    let [Claimed::Existing(entry)] = &applied.claims[..] else { panic!("{applied:?}") };
    assert_eq!(entry.id, first.id);
    assert_eq!((entry.nonce, entry.origin, entry.attempt), (first.nonce, first.nonce, 1));
    assert_eq!(entry.fingerprint, first.fingerprint);
    assert_eq!(entry.state, State::InProgress { instance: ground.instance });
    assert_eq!((entry.started_at, entry.changed_at), (won_at, won_at));
    assert_eq!(ground.read(first.id).await.as_ref(), Some(&**entry));

    let answer = completed(first.nonce, "paid");
    ground.transit((first.id, first.nonce), FromState::Unfinished, answer).await;
    let applied = ground.apply(claims([ground.claim("order-1")])).await;
    let [Claimed::Existing(entry)] = &applied.claims[..] else { panic!("{applied:?}") };
    let State::Completed { answer: Answer::Response(kept), .. } = &entry.state else { panic!("{entry:?}") };
    assert_eq!(**kept, response("paid"));
}

async fn of_many_claims_at_once_one_wins_each_key(kind: Kind) {
    const GATEWAYS: usize = 6;
    const KEYS: usize = 20;
    let ground = Ground::new(kind).await;
    let barrier = Arc::new(tokio::sync::Barrier::new(GATEWAYS));
    let mut gateways = tokio::task::JoinSet::new();
    for gateway in 0..GATEWAYS {
        let (store, instance, barrier) = (ground.database.open(), ground.instance, Arc::clone(&barrier));
        gateways.spawn(async move {
            // Each in another order, one half of the keys per batch.
            let keys = (0..KEYS).map(|key| format!("order-{}", (key + gateway * 7) % KEYS));
            let all: Vec<_> = keys.map(|key| claim(instance, &key)).collect();
            barrier.wait().await;
            let mut results = Vec::new();
            for half in all.chunks(KEYS / 2) {
                let batch = claims(half);
                let applied = loop {
                    match store.apply(&batch).await {
                        Err(StoreError::Conflict(_) | StoreError::Locked(_)) => {}
                        applied => break applied.unwrap(),
                    }
                };
                results.extend(half.iter().map(|claim| (claim.id, claim.nonce)).zip(applied.claims));
            }
            results
        });
    }
    let results: Vec<_> = gateways.join_all().await.into_iter().flatten().collect();

    let mut winners = HashMap::new();
    for ((id, nonce), claimed) in &results {
        if matches!(claimed, Claimed::Won) {
            assert_eq!(winners.insert(*id, *nonce), None, "two winners");
        }
    }
    assert_eq!(winners.len(), KEYS);
    for ((id, _), claimed) in &results {
        match claimed {
            Claimed::Won => {}
            Claimed::Existing(entry) => assert_eq!(Some(&entry.nonce), winners.get(id)),
            other => panic!("{other:?}"),
        }
    }
}

async fn keys_and_scopes_are_kept_byte_for_byte(kind: Kind) {
    let ground = Ground::new(kind).await;
    let mut all = Vec::new();
    for (scope, key) in [("acme", "A"), ("acme", "a"), ("acme", "a "), ("acme ", "a"), ("acme", "\u{e4}"), ("ac", "'?")]
    {
        let mut claim = ground.claim("x");
        claim.identity.scope = Scope::tenant(scope).unwrap();
        claim.identity.key = Key::from_business(key).unwrap();
        claim.id = claim.identity.id();
        all.push(claim);
    }
    let applied = ground.apply(claims(all.clone())).await;
    assert!(applied.claims.iter().all(|claimed| matches!(claimed, Claimed::Won)), "{applied:?}");

    for claim in &all {
        let due = To::Unknown { next_lookup: Some(Duration::ZERO), lookups: 0 };
        ground.transit((claim.id, claim.nonce), FromState::InProgress, due).await;
    }
    let due = ground.store.due_lookups(100).await.unwrap();
    assert_eq!(due.len(), all.len());
    for claim in &all {
        let lookup = due.iter().find(|lookup| lookup.entry.id == claim.id).unwrap();
        assert_eq!((&lookup.identity, &lookup.route), (&claim.identity, &claim.route));
        assert_eq!(lookup.context, Ok(claim.context.clone()));
    }
}

async fn a_claim_applied_twice_is_won_twice(kind: Kind) {
    let ground = Ground::new(kind).await;
    let batch = claims([ground.claim("a"), ground.claim("b")]);
    for _ in 0..2 {
        let applied = ground.apply(batch.clone()).await;
        assert!(matches!(applied.claims[..], [Claimed::Won, Claimed::Won]), "{applied:?}");
    }
    assert_eq!(ground.read(batch.claims[0].id).await.unwrap().attempt, 1);
}

async fn a_claim_whose_row_a_rescuer_made_unknown_is_not_won_again(kind: Kind) {
    let ground = Ground::new(kind).await;
    let claim = ground.claim("a");
    ground.apply(claims([claim.clone()])).await;
    ground.transit((claim.id, claim.nonce), FromState::InProgress, unknown()).await;
    let applied = ground.apply(claims([claim])).await;
    assert!(matches!(applied.claims[..], [Claimed::Existing(_)]), "{applied:?}");
}

async fn claims_of_a_dead_or_unheard_of_instance_write_nothing(kind: Kind) {
    let ground = Ground::new(kind).await;
    let dead = InstanceId::random();
    ground.store.register(dead, "dead").await.unwrap();
    ground.store.retire(dead).await.unwrap();
    let batch = claims([claim(dead, "a"), ground.claim("b"), claim(InstanceId::random(), "c")]);
    let applied = ground.apply(batch.clone()).await;
    assert!(matches!(applied.claims[..], [Claimed::NotAlive, Claimed::Won, Claimed::NotAlive]), "{applied:?}");
    assert_eq!(ground.read(batch.claims[0].id).await, None);

    // What it won while it lived, it still won.
    let existing = ground.apply(claims([claim(dead, "b")])).await;
    assert!(matches!(existing.claims[..], [Claimed::Existing(_)]), "{existing:?}");
}

async fn an_item_that_can_not_be_stored_refuses_the_batch_and_writes_nothing(kind: Kind) {
    let ground = Ground::new(kind).await;
    let old = ground.won("old").await;
    let good = ground.claim("good");
    let mut poison = ground.claim("poison");
    poison.route = "r".repeat(256).into();
    let transition = Transition { id: old.0, nonce: old.1, from: FromState::Unfinished, to: unknown() };
    let batch = Batch { transitions: vec![transition], claims: vec![good.clone(), poison], ..Batch::default() };
    let refused = ground.store.apply(&batch).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(ground.read(good.id).await, None);
    assert!(matches!(ground.read(old.0).await.unwrap().state, State::InProgress { .. }));
    assert!(matches!(ground.apply(claims([good])).await.claims[..], [Claimed::Won]), "the store goes on");
}

/// Larger than a statement, and every kind has items that hit and items that do not.
async fn three_hundred_items_of_all_kinds_get_their_own_results(kind: Kind) {
    const EACH: usize = 300;
    let ground = Ground::new(kind).await;
    let set_up: Vec<_> = (0..2 * EACH).map(|key| ground.claim(&format!("old-{key}"))).collect();
    ground.apply(claims(set_up.clone())).await;
    let (first, second) = set_up.split_at(EACH);

    let is_fenced = |index: usize| index % 3 == 1;
    let nonce = |index: usize, claim: &Claim| if is_fenced(index) { Nonce::random() } else { claim.nonce };
    let transitions = first.iter().enumerate().map(|(index, claim)| Transition {
        id: claim.id,
        nonce: nonce(index, claim),
        from: FromState::Unfinished,
        to: completed(Nonce::random(), format!("paid {index}")),
    });
    let releases = second.iter().enumerate().map(|(index, claim)| Release {
        id: claim.id,
        nonce: nonce(index, claim),
        // One whose row was made by another claim than it names is gone for it; a settled one is fenced.
        of: if is_fenced(index) { Released::Settled } else { Released::FirstAttempt },
    });
    // Every other one has an entry that this batch does not touch.
    let taken = |index: usize| is_fenced(index);
    let new = (0..EACH).map(|index| {
        let key = if taken(index) { format!("old-{}", EACH + index) } else { format!("new-{index}") };
        ground.claim(&key)
    });
    let releases: Vec<_> = releases.enumerate().filter(|(index, _)| !taken(*index)).map(|(_, one)| one).collect();
    let batch = Batch { transitions: transitions.collect(), releases, claims: new.collect() };

    for round in 0..2 {
        let applied = ground.apply(batch.clone()).await;
        assert_eq!(applied.transitions.len(), EACH);
        for (index, guarded) in applied.transitions.iter().enumerate() {
            assert_eq!(*guarded == Guarded::Fenced, is_fenced(index), "transition {index} in round {round}");
        }
        assert!(applied.releases.iter().all(|guarded| *guarded == Guarded::Done), "round {round}");
        for (index, claimed) in applied.claims.iter().enumerate() {
            assert_eq!(matches!(claimed, Claimed::Existing(_)), taken(index), "claim {index}: {claimed:?}");
            assert_eq!(matches!(claimed, Claimed::Won), !taken(index), "claim {index}: {claimed:?}");
        }
    }
    for index in [0, 2, 297, 299] {
        let entry = ground.read(first[index].id).await.unwrap();
        let State::Completed { answer: Answer::Response(kept), .. } = entry.state else { panic!("{entry:?}") };
        assert_eq!(*kept, response(format!("paid {index}")), "each row has its own answer");
    }
}

async fn an_entry_that_can_not_be_read_is_told_and_its_neighbours_are_claimed(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.won("of a newer version").await;
    assert_eq!(
        ground.database.stranger().await.run("UPDATE entries SET state = 3, status = 201, due_at = NULL").await,
        1
    );
    let applied = ground.apply(claims(["of a newer version", "new"].map(|key| ground.claim(key)))).await;
    assert!(matches!(applied.claims[..], [Claimed::Unreadable, Claimed::Won]), "{applied:?}");
}
