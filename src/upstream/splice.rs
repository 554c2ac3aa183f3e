//! Joins two upgraded connections, as for WebSocket.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

/// What the client's connection holds while it lives, such as its place among the bounded ones; an extension of a
/// request that asks for an upgrade.
#[derive(Clone)]
pub struct Held(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

/// The client's side of an upgrade.
pub(super) struct Client {
    pub(super) upgrade: OnUpgrade,
    pub(super) held: Option<Held>,
}

/// Copies bytes between the two until both directions have ended, in a task of its own: the request that
/// asked for the upgrade is over once its 101 is on the way.
pub(super) fn splice(client: Client, upstream: OnUpgrade) {
    let Client { upgrade: client, held } = client;
    tokio::spawn(async move {
        let _held = held;
        let joined = match tokio::try_join!(client, upstream) {
            Ok((client, upstream)) => copy(client, upstream).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = joined {
            tracing::debug!(%error, "upgraded connection ended early");
        }
    });
}

async fn copy(client: hyper::upgrade::Upgraded, upstream: hyper::upgrade::Upgraded) -> std::io::Result<()> {
    copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream)).await?;
    Ok(())
}
