//! `oncegate entries`: requests whose outcome nobody knows, and all others; and what people decide about them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use http::header::IF_MATCH;
use oncegate::config::Period;
use oncegate::engine::desk::{MAX_LISTED, Stage};
use oncegate::entry::EntryId;
use serde_json::{Value, json};

use super::admin::{Ask, Reach, target};
use super::desk::{Format, print};
use super::entries_text as text;
use super::serve::block_on;
use super::{Failure, failed};

/// What can be done with entries.
#[derive(Debug, Subcommand)]
pub(super) enum Entries {
    /// Lists those whose outcome is unknown, the oldest first; or those of another state; or all of a key.
    List(List),
    /// Shows everything about one: its attempts, its answer, its events, and what people have decided about it.
    Show(Show),
    /// Gives those whose outcome is unknown one: what they were answered, or that they were not executed.
    Settle(Box<Settle>),
    /// Lists what people have decided, the latest first.
    Decisions(Decisions),
}

#[derive(Debug, Args)]
struct Filters {
    /// Of this namespace.
    #[arg(long)]
    namespace: Option<String>,
    /// Of this route.
    #[arg(long)]
    route: Option<String>,
    /// Of this scope: global, tenant:NAME, subject:NAME.
    #[arg(long)]
    scope: Option<String>,
    /// Of this key.
    #[arg(long)]
    key: Option<String>,
    /// In their state for at least so long, such as 10m.
    #[arg(long)]
    older_than: Option<Period>,
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    filters: Filters,
    /// In this state: in_progress, unknown, completed or tombstone.
    #[arg(long, value_parser = stage)]
    state: Option<Stage>,
    /// Only those that an answer came for after they had been settled.
    #[arg(long)]
    late_answer: bool,
    /// Most to list.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LISTED)))]
    limit: u32,
    /// What comes after a page: its `next`.
    #[arg(long)]
    after: Option<String>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    reach: Reach,
    /// The id: 64 hexadecimal digits.
    #[arg(value_parser = entry_id)]
    id: EntryId,
    /// Shows headers and bodies as well, which may be nobody's business.
    #[arg(long)]
    data: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Settle {
    #[command(flatten)]
    reach: Reach,
    /// The id.
    #[arg(value_parser = entry_id, required_unless_present = "all", conflicts_with = "all", requires = "seen")]
    id: Option<EntryId>,
    /// The version of the entry that you have seen, as `show` tells it: whatever has happened since, nothing is done.
    #[arg(long, value_name = "VERSION", conflicts_with = "all")]
    seen: Option<String>,
    /// All unknown ones that the filters find, the oldest first. Only says which, unless there is --yes.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filters: Filters,
    /// With --all: at most so many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LISTED)))]
    limit: u32,
    /// With --all: does it.
    #[arg(long, requires = "all")]
    yes: bool,
    #[command(flatten)]
    outcome: OutcomeArgs,
    /// Why; kept on record.
    #[arg(long)]
    reason: String,
    /// Who you are; kept on record.
    #[arg(long, env = "USER")]
    actor: String,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
#[group(skip)]
struct OutcomeArgs {
    /// It was not executed: its key is new again, and the next retry is sent.
    #[arg(long, conflicts_with = "completed", required_unless_present = "completed")]
    not_executed: bool,
    /// It was executed: retries are answered with --status, --header and --body, and its events are sent.
    #[arg(long, requires = "status")]
    completed: bool,
    /// Of the answer: 200 to 499.
    #[arg(long, requires = "completed")]
    status: Option<u16>,
    /// Of the answer, as `name: value`. May be repeated.
    #[arg(long, requires = "completed", value_parser = header)]
    header: Vec<(String, String)>,
    /// The answer's body.
    #[arg(long, requires = "completed", conflicts_with = "body_file")]
    body: Option<String>,
    /// A file that holds it.
    #[arg(long, requires = "completed")]
    body_file: Option<PathBuf>,
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

fn entry_id(text: &str) -> Result<EntryId, String> {
    EntryId::from_hex(text).ok_or_else(|| "an id has 64 hexadecimal digits".to_owned())
}

fn stage(text: &str) -> Result<Stage, String> {
    let known = || Stage::ALL.map(Stage::as_str).join(", ");
    Stage::ALL.into_iter().find(|stage| stage.as_str() == text).ok_or_else(|| format!("one of {}", known()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write `name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl Entries {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(list) => block_on(list.run()),
            Self::Show(show) => block_on(show.run()),
            Self::Settle(settle) => block_on(settle.run()),
            Self::Decisions(decisions) => block_on(decisions.run()),
        }
    }
}

impl Filters {
    fn named(&self) -> Vec<(&'static str, Value)> {
        let texts =
            [("namespace", &self.namespace), ("route", &self.route), ("scope", &self.scope), ("key", &self.key)];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, json!(text.as_ref()?))));
        // Rounded up: what is a little younger is left alone.
        let age = self.older_than.map(|age| ("older_than_seconds", json!(age.get().as_millis().div_ceil(1000))));
        texts.chain(age).collect()
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let mut parameters = self.filters.named();
        parameters.extend(self.state.map(|state| ("state", json!(state.as_str()))));
        parameters.extend(self.late_answer.then_some(("late_answer", json!(true))));
        parameters.extend(self.after.as_ref().map(|after| ("after", json!(after))));
        parameters.push(("limit", json!(self.limit)));
        let listed = self.reach.ask(Ask::get(target("/entries", &parameters))).await?;
        print(&self.format, &listed, text::table);
        Ok(())
    }
}

impl Show {
    async fn run(self) -> Result<(), Failure> {
        let parameters = [("data", json!(self.data))];
        let shown = self.reach.ask(Ask::get(target(&format!("/entries/{}", self.id.to_hex()), &parameters))).await?;
        print(&self.format, &shown, text::story);
        Ok(())
    }
}

impl Decisions {
    async fn run(self) -> Result<(), Failure> {
        let mut parameters = vec![("limit", json!(self.limit))];
        parameters.extend(self.before.map(|before| ("before", json!(before))));
        let decided = self.reach.ask(Ask::get(target("/decisions", &parameters))).await?;
        print(&self.format, &decided, text::decisions);
        Ok(())
    }
}

impl Settle {
    async fn run(self) -> Result<(), Failure> {
        let mut body = json!({ "reason": self.reason, "actor": self.actor });
        body["outcome"] = json!(if self.outcome.completed { "completed" } else { "not_executed" });
        if let Some(response) = self.outcome.response()? {
            body["response"] = response;
        }
        let filter = self.filters.named();
        let Some(id) = self.id else {
            body["filter"] = Value::Object(filter.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
            body["limit"] = json!(self.limit);
            body["dry_run"] = json!(!self.yes);
            let settled = self.reach.ask(Ask::post("/entries/settle".to_owned(), body)).await?;
            print(&self.format, &settled, text::many_settled);
            return Ok(());
        };
        if !filter.is_empty() {
            return Err(Failure::Wrong("filters are for --all, not for an id".to_owned()));
        }
        let mut ask = Ask::post(format!("/entries/{}/settle", id.to_hex()), body);
        ask.headers.extend(self.seen.as_ref().map(|seen| (IF_MATCH, format!("\"{seen}\""))));
        let settled = self.reach.ask(ask).await?;
        print(&self.format, &settled, text::settled);
        Ok(())
    }
}

impl OutcomeArgs {
    fn response(&self) -> Result<Option<Value>, Failure> {
        let Some(status) = self.status else { return Ok(None) };
        let mut response = json!({ "status": status, "headers": self.header });
        if let Some(file) = &self.body_file {
            let bytes = std::fs::read(file).map_err(|error| failed(format!("{}: {error}", file.display())))?;
            match String::from_utf8(bytes) {
                Ok(text) => response["body"] = json!(text),
                Err(binary) => {
                    use base64::Engine as _;
                    let encoded = base64::engine::general_purpose::STANDARD.encode(binary.as_bytes());
                    response["body_base64"] = json!(encoded);
                }
            }
        } else if let Some(body) = &self.body {
            response["body"] = json!(body);
        }
        Ok(Some(response))
    }
}
