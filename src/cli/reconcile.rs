//! `oncegate reconcile`: whether everything that was published was received, and what came of it.

use std::sync::Arc;

use clap::Args;
use oncegate::config::{Config, Period, QueueUrl, Subscription};
use oncegate::engine::policy::Lookup;
use oncegate::inbox::effects::{self, Effects};
use oncegate::inbox::reconcile::{MAX_NAMED, Missing, Place, Question, Report, reconcile};
use oncegate::outbox::lane::DEFAULT_QUEUE;
use oncegate::server::{self, subscription_rules};
use serde_json::{Value, json};

use super::desk::{Format, Output};
use super::desk_text::{date, one_line};
use super::out::{say, tell};
use super::serve::block_on;
use super::{Configured, Failure, failed};

/// Compares what was published to a topic with what subscriptions made of it, and names what is missing.
///
/// It knows what this database has on record: what the outbox sent, what an embedded queue has, what subscriptions
/// received. Ask for no longer ago than all three are kept. What a configured subscription passed over as a duplicate, by
/// its key, is not missing.
#[derive(Debug, Args)]
pub(super) struct Reconcile {
    #[command(flatten)]
    configured: Configured,
    /// The queue, by name.
    #[arg(long, default_value = DEFAULT_QUEUE)]
    queue: String,
    /// The topic.
    #[arg(long)]
    topic: String,
    /// A subscription that should have received it; may be repeated. Default: all that are configured for the topic.
    #[arg(long)]
    subscription: Vec<String>,
    /// What was published since so long ago.
    #[arg(long, default_value = "24h")]
    since: Period,
    /// Only what was published before so long ago: what is younger may be on its way.
    #[arg(long, default_value = "1m")]
    until: Period,
    /// Asks each handler, by its subscription's lookup, whether it has what is on record as applied. Nothing is mended.
    #[arg(long)]
    effects: bool,
    #[command(flatten)]
    format: Format,
}

impl Reconcile {
    pub(super) fn run(self) -> Result<(), Failure> {
        block_on(self.compare())
    }

    async fn compare(self) -> Result<(), Failure> {
        let config = self.configured.load()?;
        let question = Question {
            queue: self.queue.as_str().into(),
            place: place(&config, &self.queue)?,
            topic: self.topic.as_str().into(),
            subscriptions: self.subscriptions(&config)?,
            since: self.since.get(),
            until: self.until.get(),
            rules: config.subscriptions.iter().map(|one| (one.name.as_str().into(), subscription_rules(one))).collect(),
            secrets: server::secrets(&config).ok(),
        };
        let store = server::open_store(&config).await.map_err(failed)?;
        let report = reconcile(&*store, &question).await.map_err(failed)?;
        let mut effects = Vec::new();
        if self.effects {
            for (name, lookup) in lookups(&config, &question.subscriptions)? {
                let time = (report.from, report.until);
                effects.push(effects::ask(&*store, &*lookup, &name, time).await.map_err(failed)?);
            }
        }
        store.close().await;
        match self.format.output {
            Output::Text => tell!("{}{}", text(&question, &report), effects_text(&effects)),
            Output::Json => say!("{}", json(&report, &effects)),
        }
        match report.is_whole() && effects.iter().all(Effects::are_there) {
            true => Ok(()),
            false => Err(Failure::NotAll("something is missing".to_owned())),
        }
    }

    /// Those that are named, or all of the topic.
    fn subscriptions(&self, config: &Config) -> Result<Vec<Box<str>>, Failure> {
        if !self.subscription.is_empty() {
            return Ok(self.subscription.iter().map(|name| name.as_str().into()).collect());
        }
        let of_topic = |one: &&Subscription| one.queue.as_str() == self.queue && one.topic == self.topic;
        let found = config.subscriptions.iter().filter(of_topic);
        let found: Vec<Box<str>> = found.map(|one| one.name.as_str().into()).collect();
        if found.is_empty() {
            let text = format!(
                "no subscription is configured for topic {:?} of queue {:?}: name one with --subscription",
                self.topic, self.queue
            );
            return Err(Failure::Wrong(text));
        }
        Ok(found)
    }
}

/// Where the queue's messages are.
fn place(config: &Config, name: &str) -> Result<Place, Failure> {
    let queue = config.all_queues().find(|queue| queue.name.as_str() == name);
    let queue = queue.ok_or_else(|| Failure::Wrong(format!("there is no queue called {name:?}")))?;
    Ok(if queue.url == QueueUrl::Embedded { Place::Queue } else { Place::Outbox })
}

/// How handlers are asked, by their subscriptions.
type Lookups = Vec<(Box<str>, Arc<dyn Lookup>)>;

/// Of those that have one.
fn lookups(config: &Config, subscriptions: &[Box<str>]) -> Result<Lookups, Failure> {
    let mut lookups = Vec::new();
    for one in config.subscriptions.iter().filter(|one| subscriptions.iter().any(|name| **name == *one.name.as_str())) {
        let lookup = server::subscription_lookup(config, one).map_err(failed)?;
        lookups.extend(lookup.map(|lookup| (Box::from(one.name.as_str()), lookup)));
    }
    match lookups.is_empty() {
        true => Err(Failure::Wrong("no handler can be asked: none of these subscriptions has a lookup".to_owned())),
        false => Ok(lookups),
    }
}

fn effects_text(effects: &[Effects]) -> String {
    let mut lines = Vec::new();
    for Effects { subscription, asked, absent, undecided } in effects {
        let (missing, unclear) = (absent.count, undecided.count);
        let name = one_line(subscription);
        lines.push(format!(
            "{name}: the handler was asked for {asked} applied, {missing} it does not have, {unclear} it can't tell"
        ));
        lines.extend(named("applied, and not with the handler", absent));
        lines.extend(named("applied, and the handler can't tell", undecided));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn json(report: &Report, effects: &[Effects]) -> Value {
    json!({
        "effects": effects,
        "from_ms": report.from.0,
        "until_ms": report.until.0,
        "events": report.events,
        "messages": report.messages,
        "lost": report.lost,
        "subscriptions": report.subscriptions,
    })
}

fn text(question: &Question, report: &Report) -> String {
    let (queue, topic) = (one_line(&question.queue), one_line(&question.topic));
    let mut lines =
        vec![format!("queue {queue}, topic {topic}, from {} until {}", date(report.from), date(report.until))];
    let counts = |counts: Vec<String>| if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    lines.push(format!(
        "events: {}",
        counts(report.events.iter().map(|(state, count)| format!("{count} {state}")).collect())
    ));
    if let Some(messages) = report.messages {
        lines.push(format!("messages in the queue: {messages}, of the sent events {} are missing", report.lost.count));
        lines.extend(named("sent, and not in the queue", &report.lost));
    }
    for received in &report.subscriptions {
        let results = received.results.iter().map(|(word, count)| format!("{count} {}", one_line(word))).collect();
        lines.push(format!(
            "{}: {} expected, {} missing; {}; dead letters: {}",
            one_line(&received.subscription),
            received.expected,
            received.missing.count,
            counts(results),
            received.dead_letters,
        ));
        lines.extend(named("not received", &received.missing));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn named(what: &str, missing: &Missing) -> Vec<String> {
    let mut lines: Vec<String> = missing.first.iter().map(|id| format!("  {what}: {}", one_line(id))).collect();
    if missing.count > MAX_NAMED as u64 {
        lines.push(format!("  and {} more", missing.count - MAX_NAMED as u64));
    }
    lines
}
