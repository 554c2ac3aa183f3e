use oncegate::engine::ledger::StoreError;
use oncegate::inbox::store::{Deposits as _, Version};

use super::{Ground, HOUR};
use crate::deliveries::{SUBSCRIPTION, delivery};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    versions_only_grow,
    entities_and_subscriptions_are_apart,
    of_many_at_once_the_highest_stays,
    a_digest_that_is_too_long_is_refused,
    old_ones_are_forgotten_and_newer_ones_are_not,
    one_is_remembered_while_an_older_one_may_still_be_delivered,
);

fn version(number: i64, digest: &[u8]) -> Version {
    Version { number, digest: digest.into() }
}

async fn versions_only_grow(kind: Kind) {
    let ground = Ground::new(kind).await;
    let read = async || ground.store.version("points", "order-7").await.unwrap();
    assert_eq!(read().await, None);
    let on_record = [
        (version(-5, b"a"), version(-5, b"a")),
        (version(2, &[0, 255]), version(2, &[0, 255])),
        (version(2, &[0, 255]), version(2, &[0, 255])),
        (version(2, b"other"), version(2, &[0, 255])),
        (version(1, b"late"), version(2, &[0, 255])),
        (version(i64::MAX, b""), version(i64::MAX, b"")),
    ];
    for (given, expected) in on_record {
        assert_eq!(ground.store.advance("points", "order-7", &given).await.unwrap(), expected, "{given:?}");
        assert_eq!(read().await, Some(expected));
    }
}

async fn entities_and_subscriptions_are_apart(kind: Kind) {
    let ground = Ground::new(kind).await;
    for (number, (subscription, entity)) in (1..).zip([("points", "a"), ("points", "A"), ("stock", "a")]) {
        ground.store.advance(subscription, entity, &version(number, b"")).await.unwrap();
    }
    for (number, (subscription, entity)) in (1..).zip([("points", "a"), ("points", "A"), ("stock", "a")]) {
        assert_eq!(ground.store.version(subscription, entity).await.unwrap(), Some(version(number, b"")));
    }
}

async fn of_many_at_once_the_highest_stays(kind: Kind) {
    let ground = Ground::new(kind).await;
    let other = ground.database.open();
    let advance = async |store: &oncegate::storage::Store, number: i64| loop {
        match store.advance("points", "order-7", &version(number, b"")).await {
            Ok(on_record) => return assert!(on_record.number >= number, "{on_record:?} after {number}"),
            Err(StoreError::Conflict(_) | StoreError::Locked(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    for round in 0..10 {
        tokio::join!(advance(&ground.store, round * 2), advance(&other, round * 2 + 1));
    }
    assert_eq!(ground.store.version("points", "order-7").await.unwrap(), Some(version(19, b"")));
}

async fn a_digest_that_is_too_long_is_refused(kind: Kind) {
    let ground = Ground::new(kind).await;
    let refused = ground.store.advance("points", "order-7", &version(1, &[0; 65])).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
}

async fn old_ones_are_forgotten_and_newer_ones_are_not(kind: Kind) {
    let ground = Ground::new(kind).await;
    for entity in ["a", "b", "c", "renewed"] {
        ground.store.advance("points", entity, &version(1, b"")).await.unwrap();
        ground.store.advance("stock", entity, &version(1, b"")).await.unwrap();
    }
    ground.database.stranger().await.run("UPDATE versions SET changed_at = changed_at - 7200000").await;
    ground.store.advance("points", "renewed", &version(2, b"")).await.unwrap();
    assert_eq!(ground.store.forget_versions("points", HOUR * 3, 9).await.unwrap(), 0);
    assert_eq!(ground.store.forget_versions("points", HOUR, 2).await.unwrap(), 2);
    assert_eq!(ground.store.forget_versions("points", HOUR, 2).await.unwrap(), 1);
    assert_eq!(ground.store.version("points", "b").await.unwrap(), None);
    assert_eq!(ground.store.version("points", "renewed").await.unwrap(), Some(version(2, b"")));
    assert_eq!(ground.store.version("stock", "a").await.unwrap(), Some(version(1, b"")), "another one's");
}

async fn one_is_remembered_while_an_older_one_may_still_be_delivered(kind: Kind) {
    let ground = Ground::new(kind).await;
    let known = async |entity: &str| ground.store.version(SUBSCRIPTION, entity).await.unwrap().is_some();
    let entities = ["parked", "discarded", "waiting", "needed", "sent", "another's"];
    for entity in entities {
        ground.store.advance(SUBSCRIPTION, entity, &version(2, b"")).await.unwrap();
    }
    let kept: Vec<_> = entities[..5].iter().map(|entity| delivery(entity, entity, b"{}")).collect();
    ground.deposit(&kept).await;
    let mut stranger = ground.database.stranger().await;
    for (entity, state) in [("parked", 4), ("discarded", 6), ("waiting", 3), ("needed", 5), ("sent", 5)] {
        stranger.run(&format!("UPDATE events SET state = {state} WHERE event_key = '{entity}'")).await;
    }
    stranger.run("UPDATE versions SET changed_at = changed_at - 7200000").await;
    ground.store.still_newer(SUBSCRIPTION, "needed").await.unwrap();
    assert_eq!(ground.store.forget_versions(SUBSCRIPTION, HOUR, 9).await.unwrap(), 2);
    for entity in ["parked", "discarded", "waiting", "needed"] {
        assert!(known(entity).await, "{entity}");
    }
    assert!(!known("sent").await && !known("another's").await);
    // Those that stay are in nobody's way.
    assert_eq!(ground.store.forget_versions(SUBSCRIPTION, HOUR, 1).await.unwrap(), 0);
    stranger.run("DELETE FROM events").await;
    assert_eq!(ground.store.forget_versions(SUBSCRIPTION, HOUR, 9).await.unwrap(), 3);
}
