//! What events cost the requests that they announce.

use std::time::Duration;

use crate::brokers::Broker;
use crate::ground::Ground;
use crate::load::{Keys, Load, Until};
use crate::report::{self, Measure, Needed, Series, spread};
use crate::servers::{self, Program, Running, Settings};
use crate::{Options, database};

/// How long each gateway runs before anything counts.
const WARM_UP: Duration = Duration::from_secs(3);

/// Whether a gateway's events are published, or lie there for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Published,
    Kept,
}

/// A gateway and its load.
struct Side {
    fate: Fate,
    ground: Ground,
    load: Load,
    series: Series,
    /// How long after the last answer the last event was sent, in seconds.
    behind: Vec<f64>,
    /// Ends with it.
    _gateway: Running,
}

impl Side {
    async fn run(&mut self, period: Duration) {
        self.series.rounds.push(self.load.run(Until::Elapsed(period)).await);
        // The others' turns are not to be disturbed by what is left of this one.
        if self.fate == Fate::Published {
            self.behind.push(self.ground.drained().await.as_secs_f64());
        }
    }

    fn forget(&mut self) {
        self.series.rounds.clear();
        self.behind.clear();
    }
}

pub(crate) async fn run(options: &Options, program: &Program) {
    report::title("First requests with an event each, PostgreSQL");
    let (server, rabbitmq) = (database::start(), Broker::rabbitmq());
    let upstream = servers::peer("upstream", &[]);
    let settings = rabbitmq.settings(rabbitmq.port());
    let queues = [
        ("without events", "without", None, Fate::Kept),
        // The relay finds nobody: what is left is the event in the completing transaction.
        ("with events, no broker there", "kept", Some("url = \"amqp://127.0.0.1:9\""), Fate::Kept),
        ("with events to RabbitMQ", "rabbitmq", Some(&*settings), Fate::Published),
        ("with events to the embedded queue", "embedded", Some("url = \"embedded:\""), Fate::Published),
    ];
    let mut sides = Vec::new();
    for (name, database, queue, fate) in queues {
        let ground = Ground::create(&server, database).await;
        let settings = Settings { store: Some(&ground.url), queue, ..Settings::default() };
        let gateway = program.gateway(upstream.port, settings);
        let load = Load { port: gateway.port, path: "/pay", keys: Keys::Fresh, connections: options.more.connections };
        let series = Series { name, rounds: Vec::new() };
        let mut side = Side { fate, ground, load, series, behind: Vec::new(), _gateway: gateway };
        side.run(WARM_UP).await;
        side.forget();
        sides.push(side);
    }
    for _ in 0..options.rounds {
        for side in &mut sides {
            side.run(Duration::from_secs(options.seconds)).await;
        }
    }
    for side in sides.iter().filter(|side| side.fate == Fate::Published) {
        let behind = spread(side.behind.iter().copied());
        let (name, middle, least, most) = (side.series.name, behind.middle, behind.least, behind.most);
        println!("  {name}: the last one is sent after {middle:.2} s ({least:.2} to {most:.2})");
    }
    let all: Vec<Series> = sides.into_iter().map(|side| side.series).collect();
    report::contenders(&all);
    for series in &all[1..] {
        report::ratio(series, &all[0], Measure::Rate, Needed::AtLeast(0.85));
    }
}
