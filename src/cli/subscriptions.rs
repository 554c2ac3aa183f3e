//! `oncegate subscriptions`: whether they deliver, and pausing them while gateways run.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Failure;
use super::admin::{Ask, Reach, segment};
use super::desk::{Format, print};
use super::desk_text::{at, line, list_of, word};
use super::routes::{Decisions, Why, switched};
use super::serve::block_on;

/// What can be done with subscriptions.
#[derive(Debug, Subcommand)]
pub(super) enum Subscriptions {
    /// Lists them: whether they deliver, who has paused them, or what is wrong with the handler.
    List(List),
    /// Lists who has paused and resumed which, the latest first.
    Decisions(Decisions),
    /// Delivers nothing of one, at all gateways, until it is resumed.
    Pause(Turn),
    /// Delivers again.
    Resume(Turn),
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Turn {
    #[command(flatten)]
    reach: Reach,
    /// The subscription's name.
    name: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    format: Format,
}

impl Subscriptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(list) => block_on(list.run()),
            Self::Decisions(decisions) => block_on(decisions.run("subscription")),
            Self::Pause(turn) => block_on(turn.run("pause")),
            Self::Resume(turn) => block_on(turn.run("resume")),
        }
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let listed = self.reach.ask(Ask::get("/subscriptions".to_owned())).await?;
        print(&self.format, &listed, table);
        Ok(())
    }
}

impl Turn {
    async fn run(self, what: &str) -> Result<(), Failure> {
        let Why { reason, actor } = self.why;
        let body = json!({ "reason": reason, "actor": actor });
        let told = self.reach.ask(Ask::post(format!("/subscriptions/{}/{what}", segment(&self.name)), body)).await?;
        print(&self.format, &told, |told| {
            let now = if told["switched"].is_null() { "resumed" } else { "paused" };
            format!("{}: {now} (was {})\n", word(&told["name"]), word(&told["was"]))
        });
        Ok(())
    }
}

fn table(page: &Value) -> String {
    let mut text = String::new();
    let subscriptions = list_of(&page["subscriptions"]);
    match subscriptions.is_empty() {
        true => line!(text, "no subscriptions"),
        false => line!(text, "{:24}  {:10}  {:12}  topic", "subscription", "state", "queue"),
    }
    for one in subscriptions {
        let trouble = match one["trouble"]["reason"].as_str() {
            Some(_) => format!("  (since {}: {})", at(&one["trouble"]["since_ms"]), word(&one["trouble"]["reason"])),
            None => String::new(),
        };
        let (name, state, queue, topic) =
            (word(&one["name"]), word(&one["state"]), word(&one["queue"]), word(&one["topic"]));
        line!(text, "{name:24}  {state:10}  {queue:12}  {topic}{}{trouble}", switched(one));
    }
    text
}
