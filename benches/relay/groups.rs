//! What is compared with what.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use oncegate::broker::Publisher;

use crate::brokers::Broker;
use crate::ground::{Ground, Keys};
use crate::latency::{Course, Leg, Rhythm, Told};
use crate::load::Measured;
use crate::one_by_one::{self, OneByOne};
use crate::report::{self, Measure, Needed, Series, spread};
use crate::servers::{Program, Running, Settings};
use crate::{Options, backlog, database, distance, requests};

/// A group of contenders that take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// The relay against reading, publishing and marking one by one.
    Pace,
    /// One hot key, against one round trip an event.
    HotKey,
    /// From commit to confirm on an idle system.
    Idle,
    /// The same for those beside a key that the broker refuses.
    Poison,
    /// First requests with an event each, against those without.
    Requests,
    /// Memory while a backlog drains.
    Backlog,
}

/// Keys of the events.
const KEYS: u32 = 10_000;

/// So many times fewer events are published one by one, so that a turn takes about as long.
const FEWER: u32 = 20;

/// One way to the far brokers: another region's.
const FAR: Duration = Duration::from_millis(5);

impl Group {
    pub(crate) async fn run(self, options: &Options) {
        let program = Program(options.more.gateway.clone());
        match self {
            Self::Pace => pace(options, &program).await,
            Self::HotKey => hot_key(options, &program).await,
            Self::Idle => idle(options).await,
            Self::Poison => poison(options).await,
            Self::Requests => requests::run(options, &program).await,
            Self::Backlog => {
                backlog::run(&program, &Broker::redis(), options.more.backlog, KEYS).await;
                backlog::run(&program, &Broker::rabbitmq(), options.more.backlog, KEYS).await;
            }
        }
    }
}

/// One side of a comparison of paces.
enum Contender {
    /// A gateway to which no requests come, only events.
    Relay {
        ground: Ground,
        keys: u32,
        events: u32,
        _gateway: Running,
    },
    OneByOne {
        side: OneByOne,
        events: u32,
    },
    RoundTrips {
        publisher: Arc<dyn Publisher>,
        events: u32,
    },
}

impl Contender {
    fn relay(program: &Program, ground: Ground, queue: &str, keys: u32, events: u32) -> Self {
        let settings = Settings { store: Some(&ground.url), queue: Some(queue), ..Settings::default() };
        // No request comes, so nothing has to stand behind it.
        let gateway = program.gateway(9, settings);
        Self::Relay { ground, keys, events, _gateway: gateway }
    }

    async fn measure(&mut self) -> Measured {
        let (elapsed, events) = match self {
            Self::Relay { ground, keys, events, _gateway: _ } => {
                ground.commit(*events, Keys::Spread(*keys)).await;
                ground.notify().await;
                (ground.drained().await, *events)
            }
            Self::OneByOne { side, events } => {
                side.ground.commit(*events, Keys::Spread(KEYS)).await;
                (side.drain().await, *events)
            }
            Self::RoundTrips { publisher, events } => (one_by_one::publish(&**publisher, *events).await, *events),
        };
        Measured { per_second: f64::from(events) / elapsed.as_secs_f64(), median: elapsed / events }
    }
}

/// Lets the contenders take turns. The first turns do not count: connections, plans and caches are there then.
async fn take_turns(options: &Options, mut contenders: Vec<(&'static str, Contender)>) -> Vec<Series> {
    for (_, contender) in &mut contenders {
        contender.measure().await;
    }
    let mut all: Vec<_> = contenders.iter().map(|(name, _)| Series { name, rounds: Vec::new() }).collect();
    for _ in 0..options.rounds {
        for ((_, contender), series) in contenders.iter_mut().zip(&mut all) {
            series.rounds.push(contender.measure().await);
        }
    }
    report::contenders(&all);
    all
}

async fn pace(options: &Options, program: &Program) {
    report::title("Relay, PostgreSQL");
    let server = database::start();
    let brokers = [
        (Broker::rabbitmq(), "rabbitmq", ["relay to RabbitMQ", "one by one to RabbitMQ"]),
        (Broker::redis(), "redis", ["relay to Redis", "one by one to Redis"]),
    ];
    let mut contenders = Vec::new();
    for (broker, database, [relay, one_by_one]) in &brokers {
        let ground = Ground::create(&server, database).await;
        let queue = broker.settings(broker.port());
        contenders.push((*relay, Contender::relay(program, ground, &queue, KEYS, options.more.events)));
        let ground = Ground::create(&server, &format!("{database}_one_by_one")).await;
        let side = OneByOne::new(ground, broker.publisher(broker.port())).await;
        contenders.push((*one_by_one, Contender::OneByOne { side, events: options.more.events / FEWER }));
    }
    let all = take_turns(options, contenders).await;
    report::ratio(&all[0], &all[1], Measure::Rate, Needed::AtLeast(10.0));
    report::ratio(&all[2], &all[3], Measure::Rate, Needed::AtLeast(10.0));
}

async fn hot_key(options: &Options, program: &Program) {
    report::title(&format!("One hot key, brokers {FAR:?} away"));
    let server = database::start();
    let brokers = [
        (Broker::rabbitmq(), "rabbitmq", ["relay to RabbitMQ", "round trips to RabbitMQ"]),
        (Broker::redis(), "redis", ["relay to Redis", "round trips to Redis"]),
    ];
    let mut contenders = Vec::new();
    for (broker, database, [relay, round_trips]) in &brokers {
        let (ground, port) = (Ground::create(&server, database).await, distance::to(broker.port(), FAR));
        let contender = Contender::relay(program, ground, &broker.settings(port), 1, options.more.events);
        contenders.push((*relay, contender));
        let (publisher, events) = (broker.publisher(port), options.more.events / FEWER / 5);
        contenders.push((*round_trips, Contender::RoundTrips { publisher, events }));
    }
    let all = take_turns(options, contenders).await;
    report::ratio(&all[0], &all[1], Measure::Rate, Needed::AtLeast(2.0));
    report::ratio(&all[2], &all[3], Measure::Rate, Needed::AtLeast(2.0));
}

async fn idle(options: &Options) {
    report::title("From commit to confirm, idle");
    let server = database::start();
    let (rabbitmq, redis) = (Broker::rabbitmq(), Broker::redis());
    // No divisor of the second in which the relay polls.
    let rhythm = |told| Rhythm { batch: 1, every: Duration::from_millis(37), keys: Keys::Spread(KEYS), told };
    let sides = [
        ("RabbitMQ, committed in the relay's process", "rabbitmq_here", &rabbitmq, Told::Here),
        ("RabbitMQ, committed in another process", "rabbitmq_elsewhere", &rabbitmq, Told::Elsewhere),
        ("Redis, committed in the relay's process", "redis_here", &redis, Told::Here),
        ("Redis, committed in another process", "redis_elsewhere", &redis, Told::Elsewhere),
    ];
    let mut courses = Vec::new();
    for (name, database, broker, told) in sides {
        courses.push(Course::prepare(name, &server, database, broker, rhythm(told)).await);
    }
    run(options, &mut courses).await;
    for course in &courses {
        course.report(Needed::AtMost(50.0));
    }
}

async fn poison(options: &Options) {
    report::title("From commit to confirm, beside a poison key");
    let server = database::start();
    for broker in [Broker::rabbitmq(), Broker::redis()] {
        let every = Duration::from_millis(10);
        let rhythm = |keys| Rhythm { batch: 10, every, keys, told: Told::Here };
        let name = broker.name();
        let database = |kind: &str| format!("{}_{kind}", name.to_lowercase());
        let (plain, poisoned) = (database("plain"), database("poisoned"));
        println!("  {name}, 1,000 events/s of {KEYS} keys, every hundredth of one more");
        let mut courses = [
            Course::prepare("  which is as the others", &server, &plain, &broker, rhythm(Keys::WithOneMore(KEYS)))
                .await,
            Course::prepare("  which is refused", &server, &poisoned, &broker, rhythm(Keys::WithPoison(KEYS))).await,
        ];
        run(options, &mut courses).await;
        for course in &courses {
            course.report(Needed::Nothing);
        }
        let [plain, poisoned] = &courses;
        let ratios = poisoned
            .quantile(Leg::Whole, 0.99)
            .zip(plain.quantile(Leg::Whole, 0.99))
            .map(|(poisoned, plain)| poisoned / plain);
        let ratio = spread(ratios);
        let verdict = Needed::AtMost(1.1).judge(ratio.middle);
        println!(
            "  p99 beside poison / without: {:.2} ({:.2} to {:.2})  {verdict}",
            ratio.middle, ratio.least, ratio.most
        );
    }
}

/// Lets the courses take turns; the first ones do not count.
async fn run(options: &Options, courses: &mut [Course]) {
    for course in &mut *courses {
        course.run(Duration::from_secs(1)).await;
        course.rounds.clear();
    }
    for _ in 0..options.rounds {
        for course in &mut *courses {
            course.run(Duration::from_secs(options.seconds)).await;
        }
    }
}
