//! What `oncegate events` and `oncegate deliveries` have in common: rows of the work table, and what a person decides
//! about them.

use clap::{Args, Subcommand, ValueEnum};
use oncegate::outbox::desk::{MAX_LISTED, State};
use oncegate::outbox::event::EventId;
use serde_json::{Map, Value, json};

use super::Failure;
use super::admin::{Ask, WorkReach, target};
use super::desk_text as text;
use super::out::{say, tell};
use super::serve::block_on;

/// Which rows a command is about.
pub(super) trait Filters: Args {
    /// What they are called, by people and by the operators' endpoints.
    const MANY: &'static str;

    /// Those that the command line names.
    fn named(&self) -> Vec<(&'static str, Value)>;
}

/// The filters among `texts` that were given.
pub(super) fn named<'a>(
    texts: impl IntoIterator<Item = (&'static str, &'a Option<String>)>,
) -> impl Iterator<Item = (&'static str, Value)> {
    texts.into_iter().filter_map(|(name, text)| Some((name, json!(text.as_ref()?))))
}

/// States as a filter.
pub(super) fn states(states: &[State]) -> Option<(&'static str, Value)> {
    let words: Vec<_> = states.iter().map(|state| state.as_str()).collect();
    (!words.is_empty()).then(|| ("state", json!(words.join(","))))
}

/// What can be done with rows of the work table.
#[derive(Debug, Subcommand)]
pub(super) enum Rows<F: Filters> {
    /// Lists those that are not done, the newest first; or those that the filters name. Below them, why nothing of
    /// their queues is taken now, if it is not.
    List(List<F>),
    /// Shows everything about one.
    Show(Show),
    /// Sends again: parked ones, or those that --state names, also if they were sent. Each keeps its id, and its
    /// attempts begin anew.
    Retry(Act<F>),
    /// Gives up: they are never sent, and those of their key that waited behind them go on.
    Discard(Act<F>),
}

impl<F: Filters> Rows<F> {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(list) => block_on(list.run()),
            Self::Show(show) => block_on(show.run(F::MANY)),
            Self::Retry(act) => block_on(act.run("retry")),
            Self::Discard(act) => block_on(act.run("discard")),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct List<F: Filters> {
    #[command(flatten)]
    reach: WorkReach,
    #[command(flatten)]
    filters: F,
    /// Most to list.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LISTED)))]
    limit: u32,
    /// Only those before this position: the last one of the page before.
    #[arg(long)]
    before: Option<i64>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    reach: WorkReach,
    /// The id: 32 hexadecimal digits.
    #[arg(value_parser = event_id)]
    id: EventId,
    /// Shows the data as well, which may be nobody's business.
    #[arg(long)]
    data: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Act<F: Filters> {
    #[command(flatten)]
    reach: WorkReach,
    /// The ids.
    #[arg(value_parser = event_id, required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<EventId>,
    /// All that the filters find, the oldest first: parked ones, unless --state says otherwise.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filters: F,
    /// With --all: at most so many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LISTED)))]
    limit: u32,
    /// Only says what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Why; kept on record with each.
    #[arg(long)]
    reason: String,
    /// Who you are; kept on record with each.
    #[arg(long, env = "USER", default_value = "unnamed")]
    actor: String,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Format {
    /// How to print.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub(super) output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Text,
    Json,
}

/// Prints what was told.
pub(super) fn print(format: &Format, value: &Value, told: impl FnOnce(&Value) -> String) {
    match format.output {
        Output::Text => tell!("{}", told(value)),
        Output::Json => say!("{value}"),
    }
}

fn event_id(text: &str) -> Result<EventId, String> {
    EventId::from_hex(text).ok_or_else(|| "an id has 32 hexadecimal digits".to_owned())
}

/// A state as people write it.
pub(super) fn state(text: &str) -> Result<State, String> {
    let known = || State::ALL.map(State::as_str).join(", ");
    State::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| format!("one of {}", known()))
}

impl<F: Filters> List<F> {
    async fn run(self) -> Result<(), Failure> {
        let mut parameters = self.filters.named();
        parameters.extend(self.before.map(|before| ("after", json!(before))));
        parameters.push(("limit", json!(self.limit)));
        let listed = self.reach.ask(Ask::get(target(&format!("/{}", F::MANY), &parameters))).await?;
        match self.format.output {
            Output::Text => tell!("{}", text::list(F::MANY, &listed)),
            Output::Json => say!("{}", listed[F::MANY]),
        }
        Ok(())
    }
}

impl Show {
    async fn run(self, many: &str) -> Result<(), Failure> {
        let parameters = [("data", json!(self.data))];
        let shown = self.reach.ask(Ask::get(target(&format!("/{many}/{}", self.id), &parameters))).await?;
        print(&self.format, &shown, text::page);
        Ok(())
    }
}

impl<F: Filters> Act<F> {
    async fn run(self, action: &str) -> Result<(), Failure> {
        let body = self.body()?;
        let acted = self.reach.ask(Ask::post(format!("/{}/{action}", F::MANY), body)).await?;
        print(&self.format, &acted, text::acted);
        match self.ids.len().saturating_sub(text::list_of(&acted["changed"]).len()) {
            // Who names ids wants to know that one was left alone.
            left @ 1.. if !self.all => {
                Err(Failure::NotAll(format!("{left} of them are not there, in flight, or not in such a state")))
            }
            _ => Ok(()),
        }
    }

    fn body(&self) -> Result<Value, Failure> {
        let filter = self.filters.named();
        let mut body = json!({ "reason": self.reason, "actor": self.actor, "dry_run": self.dry_run });
        if self.all {
            body["filter"] =
                filter.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into();
            body["limit"] = json!(self.limit);
            return Ok(body);
        }
        if !filter.is_empty() {
            return Err(Failure::Wrong("filters are for --all, not for ids".to_owned()));
        }
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        body["ids"] = ids.iter().map(ToString::to_string).collect();
        Ok(body)
    }
}
