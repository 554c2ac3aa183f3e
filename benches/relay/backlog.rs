//! A large backlog, and the memory of the process that drains it.

use std::time::Duration;

use oncegate::clock;

use crate::brokers::Broker;
use crate::ground::{Ground, Keys};
use crate::report::Needed;
use crate::servers::{Program, Settings};
use crate::{database, report};

/// Events of one transaction that fills the outbox.
const FILL: u32 = 100_000;

/// How often the process' memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// What counts as flat, in bytes for each event: less than a single position that is remembered, with what remembering
/// costs.
const FLAT: f64 = 16.0;

const MIB: f64 = (1 << 20) as f64;

pub(crate) async fn run(program: &Program, broker: &Broker, count: u32, keys: u32) {
    report::title(&format!("A backlog of {count} events, {}", broker.name()));
    let server = database::start();
    let mut ground = Ground::create(&server, "backlog").await;
    while ground.count < i64::from(count) {
        let left = u32::try_from(i64::from(count) - ground.count).unwrap();
        ground.commit(left.min(FILL), Keys::Spread(keys)).await;
    }
    let queue = broker.settings(broker.port());
    // No request comes, so nothing has to stand behind it.
    let gateway = program.gateway(9, Settings { store: Some(&ground.url), queue: Some(&queue), ..Settings::default() });
    let begun = clock::now();
    let mut samples = Vec::new();
    while !ground.is_drained().await {
        samples.push((begun.elapsed().as_secs_f64(), gateway.memory() as f64));
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
    let elapsed = begun.elapsed().as_secs_f64();
    // What is set up in the beginning does not grow with the backlog.
    let settled = &samples[samples.len() / 10..];
    let most = samples.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max);
    let [tenth, half, end] = [samples.len() / 10, samples.len() / 2, samples.len() - 1].map(|at| samples[at].1 / MIB);
    let per_event = slope(settled) * elapsed / f64::from(count);
    println!("  {:.0} events/s, in {elapsed:.0} s", f64::from(count) / elapsed);
    let most = most / MIB;
    println!("  resident: {tenth:.1} MiB after a tenth, {half:.1} after half, {end:.1} at the end, {most:.1} at most");
    println!("  slope: {per_event:.2} bytes an event  {}", Needed::AtMost(FLAT).judge(per_event));
}

/// Of the line that fits best.
fn slope(samples: &[(f64, f64)]) -> f64 {
    let count = samples.len() as f64;
    let (x, y) = samples.iter().fold((0.0, 0.0), |(x, y), sample| (x + sample.0 / count, y + sample.1 / count));
    let (up, along) = samples.iter().fold((0.0, 0.0), |(up, along), sample| {
        (up + (sample.0 - x) * (sample.1 - y), along + (sample.0 - x) * (sample.0 - x))
    });
    up / along
}
