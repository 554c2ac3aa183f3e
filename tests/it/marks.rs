//! Marks: the contract on every store, and what happens when a store fails.

mod contract;
mod faults;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oncegate::clock::{self, Timestamp};
use oncegate::engine::marks::{Mark, MarkState, Marks};
use oncegate::entry::fingerprint::SecretId;
use oncegate::entry::{EntryId, Fingerprint, Nonce};
use oncegate::marks::{MarksOptions, connect};

/// Long enough never to expire in a test.
const LONG: Duration = Duration::from_secs(600);

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store whose time limit a busy machine does not exceed.
fn patient(url: &str) -> Arc<dyn Marks> {
    connect(&MarksOptions { url: url.into(), time_limit: Duration::from_secs(10), ..MarksOptions::default() }).unwrap()
}

fn random_id() -> EntryId {
    let (Nonce(first), Nonce(second)) = (Nonce::random(), Nonce::random());
    EntryId(std::array::from_fn(|place| if place < 16 { first[place] } else { second[place - 16] }))
}

/// The key under which a store with the default prefix has `id`.
fn key(id: EntryId) -> String {
    format!("oncegate:{{{}}}", id.to_hex())
}

/// A mark in progress by a new execution.
fn in_progress() -> Mark {
    let fingerprint = Fingerprint { version: 1, secret: SecretId([2; 4]), digest: [3; 32] };
    Mark { nonce: Nonce::random(), fingerprint, state: MarkState::InProgress }
}

/// The same execution's mark, completed with a response of any bytes.
fn completed(mark: &Mark) -> Mark {
    let response = Some(Bytes::from((0..=255).collect::<Vec<u8>>()));
    let state = MarkState::Completed { expires: Timestamp(1_700_000_000_123), response };
    Mark { state, ..mark.clone() }
}

/// Asks until `done`, a little apart. Panics when patience ends.
async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !done().await {
        assert!(clock::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
