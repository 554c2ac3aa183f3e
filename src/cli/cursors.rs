//! `oncegate cursors`: how far subscriptions have come in embedded queues.

use clap::{Args, Subcommand};
use oncegate::inbox::store::{ConsumerId, Deposits as _, Standing};
use oncegate::outbox::lane::DEFAULT_QUEUE;
use oncegate::server;
use serde_json::json;

use super::desk::{Format, Output};
use super::out::say;
use super::serve::block_on;
use super::{Configured, Failure, failed};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Cursors {
    /// Lists them: who reads which topic, and how many messages it has not taken (at most 10000 are counted).
    List(List),
    /// Forgets one, of a subscription that is gone: what only it had not taken leaves when its time is over. One that is
    /// still there begins anew at the oldest message; what it has handled is a duplicate.
    Forget(Forget),
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    configured: Configured,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Forget {
    #[command(flatten)]
    configured: Configured,
    /// The queue, by name.
    #[arg(long, default_value = DEFAULT_QUEUE)]
    queue: String,
    /// The topic.
    #[arg(long)]
    topic: String,
    /// Whose it is: the subscription's group, which is its name unless that is set.
    #[arg(long)]
    consumer: String,
}

impl Cursors {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(list) => block_on(list.run()),
            Self::Forget(forget) => block_on(forget.run()),
        }
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let store = server::open_store(&self.configured.load()?).await.map_err(failed)?;
        let standings = store.standings().await.map_err(failed)?;
        store.close().await;
        match self.format.output {
            Output::Text => standings.iter().for_each(|standing| say!("{}", line(standing))),
            Output::Json => {
                let rows = standings.iter().map(|Standing { id, position, left }| {
                    let ConsumerId { queue, topic, consumer } = id;
                    json!({ "queue": queue, "topic": topic, "consumer": consumer, "position": position, "left": left })
                });
                say!("{}", json!(rows.collect::<Vec<_>>()));
            }
        }
        Ok(())
    }
}

fn line(standing: &Standing) -> String {
    let ConsumerId { queue, topic, consumer } = &standing.id;
    format!("{queue}  {topic}  {consumer}: {} not taken", standing.left)
}

impl Forget {
    async fn run(self) -> Result<(), Failure> {
        let store = server::open_store(&self.configured.load()?).await.map_err(failed)?;
        let Self { queue, topic, consumer, .. } = self;
        let id = ConsumerId { queue: queue.into(), topic: topic.into(), consumer: consumer.into() };
        let is_forgotten = store.forget_cursor(&id).await.map_err(failed)?;
        store.close().await;
        if !is_forgotten {
            return Err(Failure::NotAll("there is no such cursor".to_owned()));
        }
        say!("forgotten");
        Ok(())
    }
}
