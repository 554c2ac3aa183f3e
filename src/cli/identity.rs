//! `oncegate identity`: what gives requests their identity, as the database remembers it.

use clap::{Args, Subcommand};
use oncegate::engine::identities::Identities as _;
use oncegate::entry::Namespace;
use oncegate::server;

use super::out::say;
use super::serve::block_on;
use super::{Configured, Failure, failed};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Identity {
    /// Shows, per namespace, what is on record and what is configured.
    List(Configured),
    /// Records what is configured now. Every earlier key of the namespace becomes new: requests that
    /// were made under it can be executed again. Running gateways take it up within seconds.
    Accept(Accept),
}

#[derive(Debug, Args)]
pub(super) struct Accept {
    #[command(flatten)]
    configured: Configured,
    /// The namespace whose change is accepted.
    namespace: String,
    /// Why; kept with the record.
    #[arg(long)]
    reason: String,
}

impl Identity {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(configured) => block_on(list(&configured)),
            Self::Accept(accept) => block_on(accept.run()),
        }
    }
}

async fn list(configured: &Configured) -> Result<(), Failure> {
    let config = configured.load()?;
    let store = server::open_store(&config).await.map_err(failed)?;
    let on_record = store.load_all().await.map_err(failed)?;
    for (namespace, description) in config.identities() {
        let recorded = on_record.iter().find(|described| described.namespace.as_str() == namespace);
        match recorded {
            None => say!("{namespace}: new\n  configured: {description}"),
            Some(recorded) if recorded.description == description => {
                say!("{namespace}: as on record\n  {description}")
            }
            Some(recorded) => {
                say!(
                    "{namespace}: CHANGED, closed until accepted\n  on record:  {}\n  configured: {description}",
                    recorded.description
                );
            }
        }
    }
    store.close().await;
    Ok(())
}

impl Accept {
    async fn run(self) -> Result<(), Failure> {
        let config = self.configured.load()?;
        let identities = config.identities();
        let Some(description) = identities.get(&self.namespace) else {
            return Err(Failure::Wrong(format!("no route has the namespace {}", self.namespace)));
        };
        let store = server::open_store(&config).await.map_err(failed)?;
        store.accept(&Namespace::from_stored(&self.namespace), description, &self.reason).await.map_err(failed)?;
        store.close().await;
        say!("{}: accepted\n  {description}", self.namespace);
        Ok(())
    }
}
