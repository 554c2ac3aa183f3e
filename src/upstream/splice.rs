//! Joins two upgraded connections, as for WebSocket.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

/// Copies bytes between the two until both directions have ended, in a task of its own: the request that
/// asked for the upgrade is over once its 101 is on the way.
pub(super) fn splice(client: OnUpgrade, upstream: OnUpgrade) {
    tokio::spawn(async move {
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
