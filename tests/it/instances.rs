//! The contract of `engine::instances`, on each database, and what differs on SQLite.

use std::time::Duration;

use oncegate::engine::instances::{Instances as _, Peer, Renewed};
use oncegate::engine::ledger::StoreError;
use oncegate::entry::InstanceId;
use oncegate::storage::Store;

use crate::servers::database::{Database, Kind, fresh, on_each_database};
use crate::servers::mariadb::MariaDb;

on_each_database!(
    a_renewal_raises_the_counter_and_names_the_others,
    an_expired_instance_never_revives,
    an_instance_is_expired_only_if_its_counter_is_as_observed,
    ended_instances_are_forgotten_in_time,
    gateways_that_start_at_once_migrate_once,
    a_store_is_durable_and_writable,
);

async fn peers(store: &Store, id: InstanceId) -> Vec<Peer> {
    match store.renew(id).await.unwrap() {
        Renewed::Alive { now, peers } => {
            assert!(now.0 > 1_500_000_000_000, "milliseconds by the database's clock");
            peers
        }
        Renewed::Expired => panic!("expired"),
    }
}

/// An instance whose process is gone: its store is dropped, and with it its lock file where there is one.
async fn gone(store: Store) -> InstanceId {
    let id = InstanceId::random();
    store.register(id, "gone").await.unwrap();
    store.close().await;
    id
}

async fn a_renewal_raises_the_counter_and_names_the_others(kind: Kind) {
    let (database, store) = fresh(kind).await;
    let (me, other, other_store) = (InstanceId::random(), InstanceId::random(), database.open());
    store.register(me, "me").await.unwrap();
    assert_eq!(peers(&store, me).await, []);
    other_store.register(other, "other").await.unwrap();
    assert_eq!(peers(&store, me).await, [Peer { id: other, renewals: 0, dead: false }]);
    assert_eq!(peers(&other_store, other).await, [Peer { id: me, renewals: 2, dead: false }]);
    assert_eq!(peers(&store, me).await, [Peer { id: other, renewals: 1, dead: false }]);
    other_store.retire(other).await.unwrap();
    assert_eq!(peers(&store, me).await, []);
    assert_eq!(other_store.renew(other).await.unwrap(), Renewed::Expired);
}

async fn an_expired_instance_never_revives(kind: Kind) {
    let (database, store) = fresh(kind).await;
    let me = InstanceId::random();
    store.register(me, "me").await.unwrap();
    let gone = gone(database.open()).await;
    let peer = peers(&store, me).await[0];
    assert_eq!((peer.id, peer.dead), (gone, kind == Kind::Sqlite), "only a file lock tells at once");
    assert!(store.expire(peer).await.unwrap());
    assert!(!store.expire(peer).await.unwrap(), "once");
    let again = database.open();
    assert_eq!(again.renew(gone).await.unwrap(), Renewed::Expired);
    assert!(matches!(again.register(gone, "again").await, Err(StoreError::Refused(_))));
    assert_eq!(again.renew(gone).await.unwrap(), Renewed::Expired);
}

async fn an_instance_is_expired_only_if_its_counter_is_as_observed(kind: Kind) {
    let (database, store) = fresh(kind).await;
    let (me, other, other_store) = (InstanceId::random(), InstanceId::random(), database.open());
    store.register(me, "me").await.unwrap();
    other_store.register(other, "other").await.unwrap();
    let observed = peers(&store, me).await[0];
    peers(&other_store, other).await;
    assert!(!store.expire(observed).await.unwrap(), "it has renewed since");

    let observed = peers(&store, me).await[0];
    let is_expired = store.expire(observed).await.unwrap();
    // On SQLite a process that holds its lock is alive, however long its counter rests.
    assert_eq!(is_expired, kind != Kind::Sqlite);
    assert_eq!(other_store.renew(other).await.unwrap() == Renewed::Expired, is_expired);
}

async fn ended_instances_are_forgotten_in_time(kind: Kind) {
    let (database, store) = fresh(kind).await;
    let (me, ended) = (InstanceId::random(), InstanceId::random());
    store.register(me, "me").await.unwrap();
    store.register(ended, "ended").await.unwrap();
    store.retire(ended).await.unwrap();
    assert_eq!(store.forget(Duration::from_secs(60)).await.unwrap(), 0, "too young");

    // An entry in progress keeps its instance.
    let mut stranger = database.stranger().await;
    let owner = database.literal(&ended.0);
    let (id, nonce, fingerprint) = (database.literal(&[1; 32]), database.literal(&[1; 16]), database.literal(&[0; 37]));
    stranger
        .run(&format!(
            "INSERT INTO entries (id, namespace, scope, idempotency_key, route, state, nonce, origin, attempt, \
             instance, fingerprint, lookups, created_at, started_at, changed_at, due_at) \
             VALUES ({id}, 'n', 'global', 'k', 'r', 1, {nonce}, {nonce}, 1, {owner}, {fingerprint}, 0, 1, 1, 1, 1)"
        ))
        .await;
    assert_eq!(store.forget(Duration::ZERO).await.unwrap(), 0);
    stranger.run("DELETE FROM entries").await;
    assert_eq!(store.forget(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(stranger.number("SELECT COUNT(*) FROM instances").await, 1);
    assert_eq!(peers(&store, me).await, []);
}

async fn gateways_that_start_at_once_migrate_once(kind: Kind) {
    let database = Database::create(kind).await;
    let mut gateways = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let store = database.open();
        gateways.spawn(async move { store.migrate().await });
    }
    for migrated in gateways.join_all().await {
        migrated.unwrap();
    }
    database.open().register(InstanceId::random(), "me").await.unwrap();
}

async fn a_store_is_durable_and_writable(kind: Kind) {
    let (_database, store) = fresh(kind).await;
    assert_eq!(store.check_durability().await.unwrap(), []);
    store.ping().await.unwrap();
    store.close().await;
    assert!(matches!(store.ping().await, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn a_weak_setting_of_postgres_is_named() {
    let (database, _store) = fresh(Kind::Postgres).await;
    let name = database.url.rsplit('/').next().unwrap();
    database.stranger().await.run(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
    let weak = database.open().check_durability().await.unwrap();
    assert_eq!(weak.len(), 1);
    assert_eq!((weak[0].setting, weak[0].value.as_str()), ("synchronous_commit", "off"));
}

#[tokio::test]
async fn a_weak_setting_of_mariadb_is_named() {
    let server = MariaDb::start(&["--innodb-flush-log-at-trx-commit=2", "--log-bin", "--sync-binlog=0"]);
    let database = Database::create_on(Kind::MySql, &server.base_url).await;
    let weak = database.open().check_durability().await.unwrap();
    let named: Vec<_> = weak.iter().map(|weakness| (weakness.setting, weakness.value.as_str())).collect();
    assert_eq!(named, [("innodb_flush_log_at_trx_commit", "2"), ("sync_binlog", "0")]);
}

#[tokio::test]
async fn the_lock_files_of_forgotten_instances_are_removed() {
    let (database, store) = fresh(Kind::Sqlite).await;
    let id = InstanceId::random();
    store.register(id, "me").await.unwrap();
    let path = format!("{}.instances/{id}.lock", database.url.strip_prefix("sqlite://").unwrap());
    assert!(std::fs::exists(&path).unwrap());
    store.retire(id).await.unwrap();
    assert_eq!(store.forget(Duration::ZERO).await.unwrap(), 1);
    assert!(!std::fs::exists(&path).unwrap());
}

#[test]
fn a_database_in_memory_or_of_another_kind_is_refused() {
    for url in ["sqlite::memory:", "sqlite://:memory:", "sqlite://x?mode=memory", "oracle://x", "payments.db"] {
        assert!(Store::open(&oncegate::storage::StoreOptions::new(url)).is_err(), "{url}");
    }
}
