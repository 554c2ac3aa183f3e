//! What `oncegate events` and `oncegate deliveries` have in common: rows of the work table, and what a person decides
//! about them. Directly on the database.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use oncegate::outbox::desk::{Acted, Action, Desk as _, Filter, Listed, MAX_LISTED, Mode, Of, Order, State, Which};
use oncegate::outbox::event::EventId;
use oncegate::server;

use super::desk_text as text;
use super::serve::block_on;
use super::trouble::Troubles;
use super::{Configured, Failure, failed};

/// How long what is discarded is kept for people.
const KEEP_DISCARDED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Gives up, for people.
const DISCARD: Action = Action::Discard { keep: KEEP_DISCARDED };

/// Which rows a command is about.
pub(super) trait Filters: Args {
    /// What they are.
    const OF: Of;

    /// Those that the command line names.
    fn filter(&self) -> Filter;
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
            Self::Show(show) => block_on(show.run()),
            Self::Retry(act) => block_on(act.run(Action::Retry)),
            Self::Discard(act) => block_on(act.run(DISCARD)),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct List<F: Filters> {
    #[command(flatten)]
    configured: Configured,
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
    configured: Configured,
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
    configured: Configured,
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

fn event_id(text: &str) -> Result<EventId, String> {
    let wrong = || "an id has 32 hexadecimal digits".to_owned();
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let id = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
    Ok(EventId(id.to_be_bytes()))
}

/// A state as people write it.
pub(super) fn state(text: &str) -> Result<State, String> {
    let known = || State::ALL.map(State::as_str).join(", ");
    State::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| format!("one of {}", known()))
}

impl<F: Filters> List<F> {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let store = server::open_store(&self.configured.load()?).await.map_err(failed)?;
        let mut filter = self.filters.filter();
        if filter.result.is_some() && filter.states.is_empty() {
            filter.states = vec![State::Parked, State::Sent, State::Discarded];
        }
        let listed = store.list(&filter, self.before, self.limit).await.map_err(failed)?;
        let troubles = Troubles::new(&store.relays().await.map_err(failed)?, &listed);
        store.close().await;
        match self.format.output {
            Output::Text => print!("{}{}", text::table(F::OF, &listed), troubles.lines()),
            Output::Json => println!("{}", text::json_list(&listed, &troubles)),
        }
        Ok(())
    }
}

impl Show {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let store = server::open_store(&self.configured.load()?).await.map_err(failed)?;
        let shown = store.show(self.id).await.map_err(failed)?;
        let relays = store.relays().await.map_err(failed)?;
        let troubles = Troubles::new(&relays, shown.as_ref().map(|shown| &shown.listed));
        store.close().await;
        let Some(shown) = shown else {
            return Err(Failure::NotAll(format!("there is no {}", self.id)));
        };
        match self.format.output {
            Output::Text => print!("{}", text::page(&shown, &troubles, self.data)),
            Output::Json => println!("{}", text::json_page(&shown, &troubles, self.data)),
        }
        Ok(())
    }
}

impl<F: Filters> Act<F> {
    pub(super) async fn run(self, action: Action) -> Result<(), Failure> {
        let order = self.order(action)?;
        let store = server::open_store(&self.configured.load()?).await.map_err(failed)?;
        let acted = store.act(&order).await.map_err(failed)?;
        store.close().await;
        match self.format.output {
            Output::Text => print!("{}", text::acted(&order, &acted)),
            Output::Json => println!("{}", text::json_acted(&order, &acted)),
        }
        self.all_done(&acted)
    }

    fn order(&self, action: Action) -> Result<Order, Failure> {
        let mut filter = self.filters.filter();
        let is_filtered = filter != Filter { of: F::OF, ..Filter::default() };
        if !self.all && is_filtered {
            return Err(Failure::Wrong("filters are for --all, not for ids".to_owned()));
        }
        if filter.states.is_empty() {
            filter.states.push(State::Parked);
        }
        let to = if self.all { Which::All { filter, limit: self.limit } } else { Which::Ids(self.ids.clone()) };
        let mode = if self.dry_run { Mode::DryRun } else { Mode::Carry };
        Ok(Order { action, to, reason: self.reason.as_str().into(), mode })
    }

    /// Who names ids wants to know that one was left alone.
    fn all_done(&self, acted: &Acted) -> Result<(), Failure> {
        if self.all {
            return Ok(());
        }
        let is_left = |id: &&EventId| {
            let id = id.to_string();
            !acted.changed.iter().any(|event: &Listed| *event.id == *id)
        };
        match self.ids.iter().filter(is_left).count() {
            0 => Ok(()),
            left => Err(Failure::NotAll(format!("{left} of them are not there, in flight, or not in such a state"))),
        }
    }
}
