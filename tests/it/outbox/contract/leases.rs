use std::collections::BTreeMap;
use std::time::Duration;

use oncegate::outbox::desk::{Desk as _, Seen};
use oncegate::outbox::store::{Lane, Leased, MAX_LANES, Outbox as _, RelayId, Taking};
use oncegate::storage::Store;

use super::{Ground, HOUR, QUEUE};
use crate::servers::database::{Kind, fresh, on_each_database};

on_each_database!(
    the_database_decides_how_many_lanes_there_are,
    processes_that_open_a_queue_at_once_agree,
    a_queue_is_opened_while_somebody_renews_his_lease,
    one_relay_takes_everything_and_each_taking_is_a_new_epoch,
    lanes_are_shared_out_fairly_and_handed_over,
    nothing_is_taken_from_the_living,
    an_expired_lane_that_nobody_took_keeps_its_epoch,
    a_relay_that_leaves_does_not_count,
    a_release_of_a_lane_that_somebody_else_has_changes_nothing,
    relays_that_begin_at_once_never_share_a_lane,
    relays_that_have_ended_are_forgotten,
    what_is_in_a_relays_way_is_seen_while_it_is_there,
);

async fn lease(store: &Store, relay: RelayId) -> Leased {
    store.lease(QUEUE, relay, HOUR, Taking::Share, None).await.unwrap()
}

fn numbers(lanes: &[Lane]) -> Vec<u32> {
    lanes.iter().map(|lane| lane.number).collect()
}

async fn the_database_decides_how_many_lanes_there_are(kind: Kind) {
    let (database, store) = fresh(kind).await;
    assert_eq!(store.open("few", 3).await.unwrap(), 3);
    for wanted in [32, 1, 3] {
        assert_eq!(store.open("few", wanted).await.unwrap(), 3, "whoever is configured otherwise follows");
    }
    assert_eq!(database.stranger().await.number("SELECT COUNT(*) FROM lanes").await, 3);
    assert_eq!(store.open("none", 0).await.unwrap(), 1);
    assert_eq!(store.open("many", MAX_LANES + 1).await.unwrap(), MAX_LANES);
    let leased = store.lease("few", RelayId::random(), HOUR, Taking::Share, None).await.unwrap();
    assert_eq!((leased.lanes, numbers(&leased.held)), (3, vec![0, 1, 2]));
}

async fn processes_that_open_a_queue_at_once_agree(kind: Kind) {
    let (database, store) = fresh(kind).await;
    let stores: Vec<_> = (0..4).map(|_| database.open()).collect();
    let open = async |store: &Store, wanted| loop {
        if let Ok(lanes) = store.open(QUEUE, wanted).await {
            return lanes;
        }
    };
    let opened = tokio::join!(open(&stores[0], 2), open(&stores[1], 3), open(&stores[2], 5), open(&stores[3], 7));
    let lanes = store.open(QUEUE, 1).await.unwrap();
    assert_eq!(opened, (lanes, lanes, lanes, lanes));
    assert_eq!(database.stranger().await.number("SELECT COUNT(*) FROM lanes").await, i64::from(lanes));
}

/// Who is stopped in the middle of a renewal keeps nobody from starting.
async fn a_queue_is_opened_while_somebody_renews_his_lease(kind: Kind) {
    if kind == Kind::Sqlite {
        // Its one lock is the file's.
        return;
    }
    let ground = Ground::new(kind).await;
    let mut renewing = ground.database.stranger().await;
    renewing.run("BEGIN").await;
    renewing.run("UPDATE lanes SET expires_at = expires_at + 1").await;
    assert_eq!(ground.store.open(QUEUE, 1).await.unwrap(), 4);
    renewing.run("ROLLBACK").await;
}

async fn one_relay_takes_everything_and_each_taking_is_a_new_epoch(kind: Kind) {
    let Ground { store, .. } = Ground::new(kind).await;
    let (one, other) = (RelayId::random(), RelayId::random());
    let first = lease(&store, one).await;
    assert_eq!((first.lanes, first.relays, first.share), (4, 1, 4));
    assert_eq!(first.held, [0, 1, 2, 3].map(|number| Lane { number, epoch: 1 }));
    assert_eq!(lease(&store, one).await.held, first.held, "asked again, nothing is taken anew");
    store.retire(QUEUE, one).await.unwrap();
    assert_eq!(lease(&store, other).await.held, [0, 1, 2, 3].map(|number| Lane { number, epoch: 2 }));
}

async fn lanes_are_shared_out_fairly_and_handed_over(kind: Kind) {
    let (_database, store) = fresh(kind).await;
    store.open(QUEUE, 7).await.unwrap();
    let relays = [RelayId::random(), RelayId::random(), RelayId::random()];
    let mut held = BTreeMap::new();
    // A relay that is above its share lets go of what is too much, as the relay does once it is drained.
    let mut round = async |relays: &[RelayId]| {
        for relay in relays {
            let Leased { held: lanes, share, .. } = lease(&store, *relay).await;
            let (keep, excess) = lanes.split_at(lanes.len().min(share as usize));
            store.release(QUEUE, *relay, excess).await.unwrap();
            held.insert(*relay, numbers(keep));
        }
        let mut counts: Vec<_> = relays.iter().map(|relay| held[relay].len()).collect();
        counts.sort_unstable();
        let mut all: Vec<u32> = relays.iter().flat_map(|relay| held[relay].clone()).collect();
        all.sort_unstable();
        (counts, all)
    };
    assert_eq!(round(&relays[..1]).await, (vec![7], (0..7).collect()));
    round(&relays[..2]).await;
    assert_eq!(round(&relays[..2]).await, (vec![3, 4], (0..7).collect()));
    round(&relays).await;
    round(&relays).await;
    assert_eq!(round(&relays).await, (vec![1, 3, 3], (0..7).collect()), "no share is above seven thirds, rounded up");
    store.retire(QUEUE, relays[2]).await.unwrap();
    round(&relays[..2]).await;
    assert_eq!(round(&relays[..2]).await, (vec![3, 4], (0..7).collect()));
}

/// Whose time is over is told by the database's clock: relays have none to say.
async fn nothing_is_taken_from_the_living(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (owner, other) = (RelayId::random(), RelayId::random());
    let held = lease(&ground.store, owner).await.held;
    assert_eq!(lease(&ground.store, other).await.held, []);
    let now = lease(&ground.store, other).await.now.0;
    ground.run(&format!("UPDATE lanes SET expires_at = {} WHERE lane <= 1", now - 1)).await;
    ground.run(&format!("UPDATE lanes SET expires_at = {} WHERE lane = 2", now + 60_000)).await;
    assert_eq!(lease(&ground.store, other).await.held, [0, 1].map(|number| Lane { number, epoch: 2 }));
    assert_eq!(lease(&ground.store, owner).await.held, held[2..], "the other two are lost");
}

async fn an_expired_lane_that_nobody_took_keeps_its_epoch(kind: Kind) {
    let ground = Ground::new(kind).await;
    let owner = RelayId::random();
    let held = lease(&ground.store, owner).await.held;
    ground.run("UPDATE lanes SET expires_at = 1").await;
    assert_eq!(lease(&ground.store, owner).await.held, held);
    assert_eq!(lease(&ground.store, RelayId::random()).await.held, [], "and is renewed");
}

async fn a_relay_that_leaves_does_not_count(kind: Kind) {
    let Ground { store, .. } = Ground::new(kind).await;
    let (leaving, staying) = (RelayId::random(), RelayId::random());
    let held = lease(&store, leaving).await.held;
    assert_eq!(lease(&store, staying).await.share, 2);
    let renewed = store.lease(QUEUE, leaving, HOUR, Taking::Nothing, None).await.unwrap();
    assert_eq!(renewed.held, held, "what it has it keeps until it is drained");
    assert_eq!(lease(&store, staying).await.share, 4);
    store.release(QUEUE, leaving, &held[..3]).await.unwrap();
    let renewed = store.lease(QUEUE, leaving, HOUR, Taking::Nothing, None).await.unwrap();
    assert_eq!(renewed.held, held[3..], "it takes nothing");
    assert_eq!(numbers(&lease(&store, staying).await.held), [0, 1, 2]);
}

async fn a_release_of_a_lane_that_somebody_else_has_changes_nothing(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (late, owner) = (RelayId::random(), RelayId::random());
    let lost = lease(&ground.store, late).await.held;
    ground.run("UPDATE lanes SET expires_at = 1").await;
    ground.run("UPDATE relays SET expires_at = 1").await;
    let held = lease(&ground.store, owner).await.held;
    ground.store.release(QUEUE, late, &lost).await.unwrap();
    ground.store.release(QUEUE, owner, &lost).await.unwrap();
    assert_eq!(lease(&ground.store, late).await.held, [], "neither relay nor epoch alone is enough");
    assert_eq!(lease(&ground.store, owner).await.held, held);
}

async fn relays_that_begin_at_once_never_share_a_lane(kind: Kind) {
    let (database, store) = fresh(kind).await;
    store.open(QUEUE, 12).await.unwrap();
    let begin = async |store: Store| {
        let relay = RelayId::random();
        for _ in 0..20 {
            // A conflict or a lock is no answer; the next call is.
            if let Ok(leased) = store.lease(QUEUE, relay, HOUR, Taking::Share, None).await {
                return leased.held;
            }
        }
        panic!("no answer");
    };
    let (one, two, three) = tokio::join!(begin(database.open()), begin(database.open()), begin(database.open()));
    let mut all: Vec<u32> = [one, two, three].concat().iter().map(|lane| lane.number).collect();
    all.sort_unstable();
    assert_eq!(all, (0..12).collect::<Vec<_>>());
}

async fn relays_that_have_ended_are_forgotten(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (ended, recent, alive) = (RelayId::random(), RelayId::random(), RelayId::random());
    for relay in [ended, recent] {
        ground.store.lease(QUEUE, relay, Duration::from_secs(1), Taking::Share, None).await.unwrap();
    }
    let now = lease(&ground.store, alive).await.now.0;
    let over = |relay: RelayId, by: i64| {
        let id = ground.database.literal(&relay.0);
        format!("UPDATE relays SET expires_at = {} WHERE id = {id}", now - by)
    };
    ground.run(&over(ended, 120_000)).await;
    ground.run(&over(recent, 1)).await;
    let leased = lease(&ground.store, alive).await;
    assert_eq!((leased.relays, leased.share), (1, 4));
    assert_eq!(ground.number("SELECT COUNT(*) FROM relays").await, 2);
}

async fn what_is_in_a_relays_way_is_seen_while_it_is_there(kind: Kind) {
    let Ground { store, database: _database } = Ground::new(kind).await;
    store.open("audit", 1).await.unwrap();
    let (one, other, third) = (RelayId::random(), RelayId::random(), RelayId::random());
    let renew = async |queue: &str, relay, trouble: Option<&str>| {
        store.lease(queue, relay, HOUR, Taking::Share, trouble).await.unwrap();
        let seen = store.relays().await.unwrap();
        let of = |seen: &Seen| (seen.queue.to_string(), seen.trouble.as_ref().map(|(reason, _)| reason.to_string()));
        (seen.iter().map(of).collect::<Vec<_>>(), seen.iter().find_map(|seen| Some(seen.trouble.as_ref()?.1)))
    };
    let row = |queue: &str, reason: Option<&str>| (queue.to_owned(), reason.map(str::to_owned));
    assert_eq!(renew("audit", third, None).await.0, [row("audit", None)]);
    let (seen, since) = renew(QUEUE, one, Some("no such user\0 \u{fc}")).await;
    let told = Some("no such user\u{fffd} \u{fc}");
    assert_eq!(seen, [row("audit", None), row(QUEUE, told)], "also at its first lease");
    assert!(since.is_some());
    let (seen, still) = renew(QUEUE, one, Some("gone")).await;
    assert_eq!((seen, still), (vec![row("audit", None), row(QUEUE, Some("gone"))], since), "the same outage");
    let (mut seen, _) = renew(QUEUE, other, None).await;
    seen.sort();
    assert_eq!(seen, [row("audit", None), row(QUEUE, None), row(QUEUE, Some("gone"))]);
    assert_eq!(renew(QUEUE, one, None).await, (vec![row("audit", None), row(QUEUE, None), row(QUEUE, None)], None));
    assert!(renew(QUEUE, other, Some("gone")).await.1 >= since);
    store.retire(QUEUE, other).await.unwrap();
    store.retire(QUEUE, one).await.unwrap();
    store.lease("audit", third, HOUR, Taking::Nothing, Some("leaving")).await.unwrap();
    assert_eq!(store.relays().await.unwrap(), []);
}
