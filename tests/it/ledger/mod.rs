//! The contract of `engine::ledger`, on each database.

mod callers;
mod claims;
mod desk;
mod emission;
mod faults;
mod releases;
mod sweeps;
mod transitions;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use oncegate::engine::instances::Instances as _;
use oncegate::engine::ledger::{
    Applied, Batch, Claim, Claimed, FromState, Guarded, Ledger as _, Release, Released, To, Transition,
};
use oncegate::entry::fingerprint::SecretId;
use oncegate::entry::{
    Answer, Entry, EntryId, Fingerprint, Identity, InstanceId, Key, Namespace, Nonce, Scope, StoredResponse,
};
use oncegate::storage::Store;

use crate::servers::database::{Database, Kind};

const HOUR: Duration = Duration::from_secs(3600);

/// A database, a store on it and a live instance.
struct Ground {
    database: Database,
    store: Store,
    instance: InstanceId,
}

impl Ground {
    async fn new(kind: Kind) -> Self {
        Self::on(Database::create(kind).await).await
    }

    async fn on(database: Database) -> Self {
        let store = database.open();
        store.migrate().await.unwrap();
        let instance = InstanceId::random();
        store.register(instance, "test").await.unwrap();
        Self { database, store, instance }
    }

    fn claim(&self, key: &str) -> Claim {
        claim(self.instance, key)
    }

    /// Applies a batch that must succeed.
    async fn apply(&self, batch: Batch) -> Applied {
        self.store.apply(&batch).await.unwrap()
    }

    /// Claims `key`, which must be won, and returns its row.
    async fn won(&self, key: &str) -> (EntryId, Nonce) {
        let claim = self.claim(key);
        let target = (claim.id, claim.nonce);
        let applied = self.apply(Batch { claims: vec![claim], ..Batch::default() }).await;
        assert!(matches!(applied.claims[..], [Claimed::Won]), "{applied:?}");
        target
    }

    async fn transit(&self, (id, nonce): (EntryId, Nonce), from: FromState, to: To) -> Guarded {
        let transitions = vec![Transition { id, nonce, from, to }];
        self.apply(Batch { transitions, ..Batch::default() }).await.transitions[0]
    }

    async fn release(&self, (id, nonce): (EntryId, Nonce), of: Released) -> Guarded {
        let releases = vec![Release { id, nonce, of }];
        self.apply(Batch { releases, ..Batch::default() }).await.releases[0]
    }

    async fn read(&self, id: EntryId) -> Option<Entry> {
        self.store.read(id).await.unwrap().0
    }
}

fn claim(instance: InstanceId, key: &str) -> Claim {
    let identity = Identity {
        namespace: Namespace::new("payments").unwrap(),
        scope: Scope::tenant("acme").unwrap(),
        key: Key::from_business(key).unwrap(),
    };
    Claim {
        id: identity.id(),
        identity,
        nonce: Nonce::random(),
        instance,
        fingerprint: Fingerprint { version: 1, secret: SecretId([1, 2, 3, 4]), digest: [9; 32] },
        route: "create-payment".into(),
        context: Some(Bytes::from_static(b"\x00context\xff")),
    }
}

fn response(body: impl Into<Bytes>) -> StoredResponse {
    let mut headers = HeaderMap::new();
    headers.append("link", HeaderValue::from_static("</a>"));
    headers.append("link", HeaderValue::from_bytes(b"caf\xe9").unwrap());
    StoredResponse { status: StatusCode::CREATED, headers, body: body.into() }
}

fn completed(nonce: Nonce, body: impl Into<Bytes>) -> To {
    let answer = Answer::Response(response(body).into());
    To::Completed { nonce, answer, retention: HOUR, tombstone: Some(HOUR), events: [].into() }
}

/// Completed, and its answer's time over at once.
fn expired(nonce: Nonce, tombstone: Option<Duration>) -> To {
    let answer = Answer::StatusOnly(201);
    To::Completed { nonce, answer, retention: Duration::ZERO, tombstone, events: [].into() }
}

const fn unknown() -> To {
    To::Unknown { next_lookup: None, lookups: 0 }
}
