//! The contract of `engine::identities`, on each database.

use oncegate::engine::identities::Identities as _;
use oncegate::entry::Namespace;

use crate::servers::database::{Kind, fresh, on_each_database};

on_each_database!(
    the_first_description_stays_until_an_operator_accepts_another,
    descriptions_are_compared_byte_for_byte,
);

async fn the_first_description_stays_until_an_operator_accepts_another(kind: Kind) {
    let (database, store) = fresh(kind).await;
    let payments = Namespace::new("payments").unwrap();
    assert_eq!(store.load_all().await.unwrap(), []);

    let first = store.record_new(&payments, "key=header").await.unwrap();
    assert_eq!((first.description.as_str(), first.reason.as_deref()), ("key=header", None));
    assert!(first.accepted_at.0 > 0);

    let other = database.open().record_new(&payments, "key=body").await.unwrap();
    assert_eq!(other, first, "whoever comes second is told what is on record");

    store.accept(&payments, "key=body", "order numbers since May").await.unwrap();
    let all = database.open().load_all().await.unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].description, "key=body");
    assert_eq!(all[0].reason.as_deref(), Some("order numbers since May"));
    assert!(all[0].accepted_at >= first.accepted_at);
}

async fn descriptions_are_compared_byte_for_byte(kind: Kind) {
    let (_database, store) = fresh(kind).await;
    let names = ["points", "Points", "points.b"].map(|name| Namespace::new(name).unwrap());
    for name in &names {
        store.record_new(name, "caf\u{e9} ").await.unwrap();
    }
    store.accept(&names[1], "other", "why not").await.unwrap();
    let mut all = store.load_all().await.unwrap();
    all.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    let read: Vec<_> = all.iter().map(|one| (one.namespace.as_str(), one.description.as_str())).collect();
    assert_eq!(read, [("Points", "other"), ("points", "caf\u{e9} "), ("points.b", "caf\u{e9} ")]);
}
