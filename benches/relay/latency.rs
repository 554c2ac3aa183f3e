//! From the commit of an event to the broker's confirm.

use std::collections::HashMap;
use std::time::Duration;

use oncegate::clock;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::brokers::Broker;
use crate::ground::{Ground, Keys};
use crate::private::postgres::Postgres;
use crate::relaying::{Confirmed, Relaying};
use crate::report::{Needed, spread};

/// Longest wait for a confirm: something is wrong then.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who tells the relay of a commit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Told {
    /// The process that it runs in.
    Here,
    /// Another one, through the database.
    Elsewhere,
}

/// How an outbox is filled: so many events in one transaction, so often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    pub(crate) batch: u32,
    pub(crate) every: Duration,
    pub(crate) keys: Keys,
    pub(crate) told: Told,
}

/// What of an event's way is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leg {
    /// From the commit's answer to the broker's confirm.
    Whole,
    /// From the commit's answer to the call of the publisher: what is ours.
    Ours,
    /// From there to the confirm: what is the broker's.
    Brokers,
}

/// An outbox, its relay, and the times of each round.
pub(crate) struct Course {
    pub(crate) name: &'static str,
    ground: Ground,
    relaying: Relaying,
    rhythm: Rhythm,
    pub(crate) rounds: Vec<Vec<Way>>,
}

/// The times of one event.
pub(crate) struct Way {
    ours: Duration,
    brokers: Duration,
}

impl Course {
    pub(crate) async fn prepare(
        name: &'static str,
        server: &Postgres,
        database: &str,
        broker: &Broker,
        rhythm: Rhythm,
    ) -> Self {
        let ground = Ground::create(server, database).await;
        let relaying = Relaying::start(&ground.url, broker.publisher(broker.port()));
        Self { name, ground, relaying, rhythm, rounds: Vec::new() }
    }

    /// One round: fills the outbox for `period`, and awaits the confirms.
    pub(crate) async fn run(&mut self, period: Duration) {
        let Rhythm { batch, every, keys, told } = self.rhythm;
        let is_odd = |number: i64| match keys {
            Keys::Spread(_) => false,
            Keys::WithOneMore(_) | Keys::WithPoison(_) => number % 100 == 0,
        };
        let mut committed = HashMap::new();
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begun = clock::now();
        while begun.elapsed() < period {
            ticks.tick().await;
            let first = self.ground.count + 1;
            self.ground.commit(batch, keys).await;
            let now = clock::now();
            committed.extend((first..=self.ground.count).map(|number| (number, now)));
            match told {
                Told::Here => self.relaying.wake.committed(),
                Told::Elsewhere => self.ground.notify().await,
            }
        }
        committed.retain(|number, _| !is_odd(*number));
        let mut times = Vec::new();
        while times.len() < committed.len() {
            let Confirmed { number, called, confirmed } =
                timeout(PATIENCE, self.relaying.confirmed.recv()).await.unwrap().unwrap();
            // Of an earlier round there may be one of the key that the broker refuses.
            if let Some(since) = committed.get(&number) {
                times.push(Way { ours: called - *since, brokers: confirmed - called });
            }
        }
        self.rounds.push(times);
    }

    /// That part of the events had this leg behind them within this time, in milliseconds, round by round.
    pub(crate) fn quantile(&self, leg: Leg, part: f64) -> impl Iterator<Item = f64> + '_ {
        let time = move |way: &Way| match leg {
            Leg::Whole => way.ours + way.brokers,
            Leg::Ours => way.ours,
            Leg::Brokers => way.brokers,
        };
        self.rounds.iter().map(move |ways| {
            let mut times: Vec<Duration> = ways.iter().map(time).collect();
            times.sort_unstable();
            times[((times.len() - 1) as f64 * part).round() as usize].as_secs_f64() * 1e3
        })
    }

    /// Prints the times.
    pub(crate) fn report(&self, needed: Needed) {
        for (leg, name) in [(Leg::Whole, self.name), (Leg::Ours, "  to the call"), (Leg::Brokers, "  to the confirm")] {
            let [half, most, all] = [0.5, 0.99, 1.0].map(|part| spread(self.quantile(leg, part)));
            let judged = if leg == Leg::Whole { needed } else { Needed::Nothing };
            println!(
                "  {name:<44} p50 {:.1} ms, p99 {:.1} ms ({:.1} to {:.1}), all {:.1} ms  {}",
                half.middle,
                most.middle,
                most.least,
                most.most,
                all.most,
                judged.judge(most.middle)
            );
        }
    }
}
