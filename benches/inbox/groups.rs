//! What is compared with what.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use crate::Options;
use crate::ground::Ground;
use crate::handling::{self, Asked, Effect, Guard};
use crate::report::{self, Measure, Needed, Series};

/// A group of contenders that take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// New messages, each in a transaction with one update, under one guard or another.
    Guards,
    /// The same of a handler with three statements.
    Awards,
    /// New messages in batches that share a transaction.
    Batches,
    /// Messages that were handled before.
    Duplicates,
}

/// How long each contender runs before anything counts.
const WARM_UP: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
enum Contender {
    Handle(Guard, Effect),
    Ask(Asked),
}

impl Contender {
    async fn run(self, ground: &Arc<Ground>, workers: usize, period: Duration) -> crate::load::Measured {
        match self {
            Self::Handle(guard, effect) => handling::handle(ground, (guard, effect), workers, period).await,
            Self::Ask(asked) => handling::ask(ground, asked, workers, period).await,
        }
    }
}

impl Group {
    pub(crate) async fn run(self, options: &Options) {
        let ground = Arc::new(Ground::new(options.more.workers).await);
        match self {
            Self::Guards => guards(&ground, options).await,
            Self::Awards => awards(&ground, options).await,
            Self::Batches => batches(&ground, options).await,
            Self::Duplicates => duplicates(&ground, options).await,
        }
    }
}

async fn take_turns(
    ground: &Arc<Ground>,
    options: &Options,
    contenders: Vec<(&'static str, Contender)>,
) -> Vec<Series> {
    for (_, contender) in &contenders {
        contender.run(ground, options.more.workers, WARM_UP).await;
    }
    let mut all: Vec<_> = contenders.iter().map(|(name, _)| Series { name, rounds: Vec::new() }).collect();
    for _ in 0..options.rounds {
        for ((_, contender), series) in contenders.iter().zip(&mut all) {
            let measured = contender.run(ground, options.more.workers, Duration::from_secs(options.seconds)).await;
            series.rounds.push(measured);
        }
    }
    report::contenders(&all);
    all
}

async fn guards(ground: &Arc<Ground>, options: &Options) {
    report::title("Time of a new message in its own transaction, PostgreSQL");
    let contenders = vec![
        ("no guard", Contender::Handle(Guard::None, Effect::Update)),
        ("unique key", Contender::Handle(Guard::UniqueKey, Effect::Update)),
        ("state machine", Contender::Handle(Guard::StateMachine, Effect::Update)),
        ("record, cache", Contender::Handle(Guard::Record, Effect::Update)),
        ("record, cache and Redis", Contender::Handle(Guard::RecordAndMark, Effect::Update)),
        ("record and version", Contender::Handle(Guard::Version, Effect::Update)),
    ];
    let all = take_turns(ground, options, contenders).await;
    for (series, needed) in all[1..].iter().zip([
        Needed::Nothing,
        Needed::Nothing,
        Needed::AtMost(1.25),
        Needed::AtMost(1.25),
        Needed::Nothing,
    ]) {
        // Rates the other way round: what is compared is time.
        report::ratio(&all[0], series, Measure::Rate, needed);
    }
}

async fn awards(ground: &Arc<Ground>, options: &Options) {
    report::title("Time of a new message whose handler reads, books and adds, PostgreSQL");
    let contenders = vec![
        ("no guard", Contender::Handle(Guard::None, Effect::Award)),
        ("record, cache", Contender::Handle(Guard::Record, Effect::Award)),
        ("record, cache and Redis", Contender::Handle(Guard::RecordAndMark, Effect::Award)),
    ];
    let all = take_turns(ground, options, contenders).await;
    for series in &all[1..] {
        report::ratio(&all[0], series, Measure::Rate, Needed::AtMost(1.25));
    }
}

async fn batches(ground: &Arc<Ground>, options: &Options) {
    report::title("New messages in batches, PostgreSQL");
    let contenders = vec![
        ("batched", Contender::Handle(Guard::Batch(options.more.batch), Effect::Update)),
        ("one by one", Contender::Handle(Guard::RecordAndMark, Effect::Update)),
        ("one by one, no guard", Contender::Handle(Guard::None, Effect::Update)),
    ];
    let all = take_turns(ground, options, contenders).await;
    report::ratio(&all[0], &all[1], Measure::Rate, Needed::AtLeast(3.0));
    report::ratio(&all[0], &all[2], Measure::Rate, Needed::Nothing);
}

async fn duplicates(ground: &Arc<Ground>, options: &Options) {
    report::title("Messages that were handled before, PostgreSQL");
    handling::make_known(ground).await;
    let contenders = vec![
        ("found in the cache", Contender::Ask(Asked::Cache)),
        ("found in Redis", Contender::Ask(Asked::Mark)),
        ("found in the database", Contender::Ask(Asked::Database)),
        ("a new one", Contender::Handle(Guard::RecordAndMark, Effect::Update)),
    ];
    let all = take_turns(ground, options, contenders).await;
    for series in &all[..3] {
        report::ratio(series, &all[3], Measure::Rate, Needed::Nothing);
    }
}
