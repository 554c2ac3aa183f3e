use std::time::Duration;

use oncegate::engine::instances::Instances as _;
use oncegate::engine::ledger::{Batch, FromState, Guarded, Ledger as _, Reaped, To};
use oncegate::entry::{InstanceId, State};

use super::{Ground, HOUR, claim, completed, expired, unknown};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    only_entries_of_dead_instances_become_orphans,
    an_instance_finds_its_own_old_entries_in_progress,
    an_instance_finds_all_that_it_has_in_progress_page_by_page,
    due_lookups_come_longest_due_first,
    reaping_is_bounded_and_touches_nothing_unfinished,
    an_entry_without_tombstone_leaves_at_once,
);

async fn only_entries_of_dead_instances_become_orphans(kind: Kind) {
    let ground = Ground::new(kind).await;
    let dead = InstanceId::random();
    ground.store.register(dead, "dead").await.unwrap();
    let orphans: Vec<_> = (0..5).map(|key| claim(dead, &format!("dead-{key}"))).collect();
    ground.apply(Batch { claims: orphans.clone(), ..Batch::default() }).await;
    let alive = ground.won("alive").await;
    assert_eq!(ground.store.orphan(10).await.unwrap(), 0, "both live");

    let done = (orphans[4].id, orphans[4].nonce);
    ground.transit(done, FromState::InProgress, completed(done.1, "paid")).await;
    ground.store.retire(dead).await.unwrap();
    assert_eq!(ground.store.orphan(3).await.unwrap(), 3, "bounded");
    assert_eq!(ground.store.orphan(3).await.unwrap(), 1);
    assert_eq!(ground.store.orphan(3).await.unwrap(), 0);

    for orphan in &orphans[..4] {
        let (entry, now) = ground.store.read(orphan.id).await.unwrap();
        let entry = entry.unwrap();
        let State::Unknown { next_lookup: Some(next), lookups: 0 } = entry.state else { panic!("{entry:?}") };
        assert!(next <= now, "a lookup is due at once");
        assert_eq!((entry.nonce, entry.attempt), (orphan.nonce, 1), "a late finisher may still complete it");
    }
    assert!(matches!(ground.read(alive.0).await.unwrap().state, State::InProgress { .. }));
    assert!(matches!(ground.read(done.0).await.unwrap().state, State::Completed { .. }));
    let late = (orphans[0].id, orphans[0].nonce);
    let settled = ground.transit(late, FromState::Unfinished, completed(late.1, "late")).await;
    assert_eq!(settled, Guarded::Done);
}

async fn an_instance_finds_its_own_old_entries_in_progress(kind: Kind) {
    let ground = Ground::new(kind).await;
    let other = InstanceId::random();
    ground.store.register(other, "other").await.unwrap();
    let (old, young, finished) = (ground.won("old").await, ground.won("young").await, ground.won("finished").await);
    ground.apply(Batch { claims: vec![claim(other, "other's")], ..Batch::default() }).await;
    ground.transit(finished, FromState::InProgress, completed(finished.1, "")).await;
    let id = ground.database.literal(&young.0.0);
    let age = format!("UPDATE entries SET due_at = due_at - 60000 WHERE id <> {id}");
    ground.database.stranger().await.run(&age).await;

    let found = async |age, limit| {
        let rows = ground.store.in_progress(ground.instance, age, None, limit).await.unwrap();
        rows.into_iter().map(|row| (row.id, row.nonce)).collect::<Vec<_>>()
    };
    assert_eq!(found(Duration::from_secs(50), 10).await, [old]);
    assert_eq!(found(Duration::ZERO, 10).await, [old, young]);
    assert_eq!(found(Duration::ZERO, 1).await, [old]);
    assert_eq!(found(HOUR, 10).await, []);
}

async fn an_instance_finds_all_that_it_has_in_progress_page_by_page(kind: Kind) {
    let ground = Ground::new(kind).await;
    // Claimed at once: their ids alone tell them apart.
    let claims: Vec<_> = (0..7).map(|key| ground.claim(&format!("key-{key}"))).collect();
    ground.apply(Batch { claims: claims.clone(), ..Batch::default() }).await;
    let later = ground.won("later").await;
    let id = ground.database.literal(&later.0.0);
    let age = format!("UPDATE entries SET due_at = due_at - 1000 WHERE id <> {id}");
    ground.database.stranger().await.run(&age).await;

    for limit in [1, 2, 3, 8, 9] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = ground.store.in_progress(ground.instance, Duration::ZERO, after, limit).await.unwrap();
            assert!(page.len() <= limit as usize);
            let Some(last) = page.last() else { break };
            after = Some(*last);
            found.extend(page.into_iter().map(|row| (row.id, row.nonce)));
        }
        assert_eq!(found.last(), Some(&later), "the oldest come first");
        found.sort_unstable_by_key(|(id, _)| *id);
        let mut all: Vec<_> = claims.iter().map(|claim| (claim.id, claim.nonce)).chain([later]).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        assert_eq!(found, all, "{limit} at a time");
    }
}

async fn due_lookups_come_longest_due_first(kind: Kind) {
    let ground = Ground::new(kind).await;
    for (key, next_lookup) in
        [("second", Some(Duration::ZERO)), ("first", Some(Duration::ZERO)), ("not yet", Some(HOUR)), ("never", None)]
    {
        let row = ground.won(key).await;
        ground.transit(row, FromState::InProgress, To::Unknown { next_lookup, lookups: 2 }).await;
    }
    ground.won("in progress").await;
    let text = if kind == Kind::MySql { "CAST('first' AS BINARY)" } else { "'first'" };
    let earlier = format!("UPDATE entries SET due_at = due_at - 1000 WHERE idempotency_key = {text}");
    assert_eq!(ground.database.stranger().await.run(&earlier).await, 1);

    let keys = async |limit| {
        let due = ground.store.due_lookups(limit).await.unwrap();
        assert!(due.iter().all(|lookup| matches!(lookup.entry.state, State::Unknown { lookups: 2, .. })));
        due.into_iter().map(|lookup| lookup.identity.key.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(10).await, ["first", "second"]);
    assert_eq!(keys(1).await, ["first"]);
}

async fn reaping_is_bounded_and_touches_nothing_unfinished(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (in_progress, held) = (ground.won("in progress").await, ground.won("held").await);
    ground.transit(held, FromState::InProgress, unknown()).await;
    let kept = ground.won("kept").await;
    ground.transit(kept, FromState::InProgress, completed(kept.1, "kept")).await;
    for key in 0..5 {
        let row = ground.won(&format!("over-{key}")).await;
        ground.transit(row, FromState::InProgress, expired(row.1, Some(HOUR))).await;
    }
    // Times that lie long back mean nothing for what is unfinished.
    let back = "UPDATE entries SET due_at = 1, changed_at = 1, started_at = 1 WHERE state <= 2";
    ground.database.stranger().await.run(back).await;

    for tombstoned in [2, 2, 1, 0] {
        assert_eq!(ground.store.reap(2).await.unwrap(), Reaped { tombstoned, removed: 0 });
    }
    ground.database.stranger().await.run("UPDATE entries SET due_at = due_at - 3600001 WHERE state = 4").await;
    for removed in [3, 2, 0] {
        assert_eq!(ground.store.reap(3).await.unwrap(), Reaped { tombstoned: 0, removed });
    }
    assert!(matches!(ground.read(in_progress.0).await.unwrap().state, State::InProgress { .. }));
    assert!(matches!(ground.read(held.0).await.unwrap().state, State::Unknown { .. }));
    assert!(matches!(ground.read(kept.0).await.unwrap().state, State::Completed { .. }));
}

async fn an_entry_without_tombstone_leaves_at_once(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (none, forever) = (ground.won("none").await, ground.won("forever").await);
    ground.transit(none, FromState::InProgress, expired(none.1, Some(Duration::ZERO))).await;
    ground.transit(forever, FromState::InProgress, expired(forever.1, None)).await;
    assert_eq!(ground.store.reap(10).await.unwrap(), Reaped { tombstoned: 1, removed: 1 });
    assert_eq!(ground.read(none.0).await, None);
    assert_eq!(ground.read(forever.0).await.unwrap().state, State::Tombstone { until: None });
    assert_eq!(ground.store.reap(10).await.unwrap(), Reaped::default());
}
