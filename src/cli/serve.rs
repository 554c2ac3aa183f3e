//! `oncegate serve` and `oncegate migrate`.

use oncegate::config::Config;
use oncegate::server::{self, Server};
use oncegate::telemetry;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;

/// A runtime for commands, with its failures in words.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::Failed(format!("no runtime: {error}")))?.block_on(work)
}

/// Runs the gateway until it is told to stop.
pub(super) fn run(config: &Config) -> Result<(), Failure> {
    telemetry::init();
    block_on(async {
        // Listened for before anything is begun, so that an early signal is not lost.
        let stopped = stop_signal()?;
        let server = Server::start(config).await.map_err(|error| Failure::Failed(error.to_string()))?;
        tracing::info!(address = %server.address(), "listening");
        stopped.await;
        tracing::info!("finishing what is in flight");
        server.stop().await;
        Ok(())
    })
}

/// Ready at SIGTERM or SIGINT.
pub(super) fn stop_signal() -> Result<impl Future<Output = ()>, Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::Failed(format!("signals can't be listened for: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Brings the schema up to date.
pub(super) fn migrate(config: &Config) -> Result<(), Failure> {
    telemetry::init();
    block_on(async {
        let store = server::open_store(config).await.map_err(|error| Failure::Failed(error.to_string()))?;
        store.close().await;
        println!("the schema is up to date");
        Ok(())
    })
}
