//! `oncegate routes`: in which mode they are, and switching it while gateways run.

use clap::{Args, Subcommand};
use oncegate::engine::desk::MAX_LISTED;
use serde_json::{Value, json};

use super::Failure;
use super::admin::{Ask, Reach, segment, target};
use super::desk::{Format, print};
use super::desk_text::{at, line, list_of, word};
use super::serve::block_on;

/// What can be done with routes.
#[derive(Debug, Subcommand)]
pub(super) enum Routes {
    /// Lists them, each with its mode, and who has switched it.
    List(List),
    /// Lists who has switched which, the latest first.
    Decisions(Decisions),
    /// Switches one, at all gateways: enforce, observe (guards nothing), replay_only (a kill switch), or configured.
    Mode(Mode),
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Mode {
    #[command(flatten)]
    reach: Reach,
    /// The route's name.
    name: String,
    /// What it is to be in from now on.
    #[arg(value_parser = ["enforce", "observe", "replay_only", "configured"])]
    mode: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Decisions {
    #[command(flatten)]
    reach: Reach,
    /// Most to list.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LISTED)))]
    limit: u32,
    /// Only those before this number: the last one of the page before.
    #[arg(long)]
    before: Option<i64>,
    #[command(flatten)]
    format: Format,
}

/// Who turns a switch, and why.
#[derive(Debug, Args)]
pub(super) struct Why {
    /// Why; kept on record.
    #[arg(long)]
    pub(super) reason: String,
    /// Who you are; kept on record.
    #[arg(long, env = "USER")]
    pub(super) actor: String,
}

impl Routes {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(list) => block_on(list.run()),
            Self::Decisions(decisions) => block_on(decisions.run("route")),
            Self::Mode(mode) => block_on(mode.run()),
        }
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let listed = self.reach.ask(Ask::get("/routes".to_owned())).await?;
        print(&self.format, &listed, table);
        Ok(())
    }
}

impl Mode {
    async fn run(self) -> Result<(), Failure> {
        let Why { reason, actor } = self.why;
        let body = json!({ "mode": self.mode, "reason": reason, "actor": actor });
        let told = self.reach.ask(Ask::post(format!("/routes/{}/mode", segment(&self.name)), body)).await?;
        print(&self.format, &told, |told| {
            format!("{}: {} (was {})\n", word(&told["name"]), word(&told["mode"]), word(&told["was"]))
        });
        Ok(())
    }
}

impl Decisions {
    pub(super) async fn run(self, kind: &str) -> Result<(), Failure> {
        let mut parameters = vec![("kind", json!(kind)), ("limit", json!(self.limit))];
        parameters.extend(self.before.map(|before| ("before", json!(before))));
        let decided = self.reach.ask(Ask::get(target("/switches", &parameters))).await?;
        print(&self.format, &decided, turns);
        Ok(())
    }
}

fn turns(page: &Value) -> String {
    let mut text = String::new();
    let turns = list_of(&page["switches"]);
    if turns.is_empty() {
        line!(text, "no decisions");
    }
    for turn in turns {
        let (number, name, was, to) =
            (word(&turn["number"]), word(&turn["name"]), word(&turn["was"]), word(&turn["to"]));
        let (at, actor, authority) = (at(&turn["at_ms"]), word(&turn["actor"]), word(&turn["authority"]));
        line!(text, "{number:>8}  {name}: {to} (was {was}), {at}, by {actor} ({authority}): {}", word(&turn["reason"]));
    }
    if let Some(next) = page["next"].as_i64() {
        line!(text, "more: --before {next}");
    }
    text
}

fn table(page: &Value) -> String {
    let mut text = String::new();
    let routes = list_of(&page["routes"]);
    match routes.is_empty() {
        true => line!(text, "no routes"),
        false => line!(text, "{:24}  {:11}  {:11}  match", "route", "mode", "configured"),
    }
    for route in routes {
        let mode = |name: &str| if route[name].is_null() { "-".to_owned() } else { word(&route[name]) };
        let (name, now, configured) = (word(&route["name"]), mode("mode"), mode("configured_mode"));
        line!(text, "{name:24}  {now:11}  {configured:11}  {}{}", word(&route["match"]), switched(route));
    }
    text
}

/// Who has switched it, if anybody has.
pub(super) fn switched(of: &Value) -> String {
    let switched = &of["switched"];
    if switched.is_null() {
        return String::new();
    }
    let (to, actor, authority) = (word(&switched["to"]), word(&switched["actor"]), word(&switched["authority"]));
    format!("  ({to} since {}, by {actor} ({authority}): {})", at(&switched["at_ms"]), word(&switched["reason"]))
}
