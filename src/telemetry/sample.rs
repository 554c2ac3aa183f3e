//! What the metrics say at one moment, of all routes, queues and subscriptions together.

use std::time::Duration;

use super::REQUEST_SECONDS;
use super::exposition::{Line, lines};
use super::series::{ADMISSIONS, Lag, Point, RESULTS};
use crate::clock::Timestamp;

/// What queues of deliveries begin with.
const OF_DELIVERIES: &str = "sub:";

/// What has been counted since the process began, and what is measured now.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    requests: [u64; ADMISSIONS.len() + 1],
    /// Requests by how long they took, each bucket with those before it; the last are all.
    durations: [u64; REQUEST_SECONDS.len() + 1],
    results: [u64; RESULTS.len()],
    events: Lag,
    deliveries: Lag,
}

impl Totals {
    pub(super) fn read(metrics: &str) -> Self {
        let mut totals = Self::default();
        for line in lines(metrics) {
            match line.name {
                "oncegate_requests_total" => {
                    let index = place(&ADMISSIONS, line.label("admission")).unwrap_or(ADMISSIONS.len());
                    totals.requests[index] += whole(line.value);
                }
                "oncegate_request_duration_seconds_bucket" => totals.duration(&line),
                "oncegate_deliveries_total" => {
                    if let Some(index) = place(&RESULTS, line.label("result")) {
                        totals.results[index] += whole(line.value);
                    }
                }
                "oncegate_outbox_unsent" => totals.lag(&line).count += whole(line.value),
                "oncegate_outbox_oldest_unsent_seconds" => {
                    let lag = totals.lag(&line);
                    lag.oldest = lag.oldest.max(Duration::try_from_secs_f64(line.value).unwrap_or_default());
                }
                _ => {}
            }
        }
        totals
    }

    fn duration(&mut self, line: &Line<'_>) {
        let bound: Option<f64> = line.label("le").and_then(|bound| bound.parse().ok());
        let index = bound.map(|bound| REQUEST_SECONDS.iter().position(|known| *known >= bound));
        if let Some(index) = index {
            self.durations[index.unwrap_or(REQUEST_SECONDS.len())] += whole(line.value);
        }
    }

    fn lag(&mut self, line: &Line<'_>) -> &mut Lag {
        match line.label("queue").is_some_and(|queue| queue.starts_with(OF_DELIVERIES)) {
            true => &mut self.deliveries,
            false => &mut self.events,
        }
    }

    /// The point that this is at `now`, after `before`; with the latencies since `first`.
    pub(super) fn since(&self, before: &Self, first: &Self, now: Timestamp) -> Point {
        let durations = less(&self.durations, &first.durations);
        Point {
            at_ms: now.0,
            requests: less(&self.requests, &before.requests),
            p50: quantile(&durations, 0.5),
            p99: quantile(&durations, 0.99),
            events: self.events,
            deliveries: self.deliveries,
            results: less(&self.results, &before.results),
        }
    }
}

fn place(known: &[&str], said: Option<&str>) -> Option<usize> {
    known.iter().position(|known| Some(*known) == said)
}

fn whole(value: f64) -> u64 {
    value as u64
}

fn less<const N: usize>(now: &[u64; N], before: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|index| now[index].saturating_sub(before[index]))
}

/// As Prometheus' `histogram_quantile`: within a bucket, all are taken to be spread evenly. What took longer than the
/// last bound took at least that.
fn quantile(durations: &[u64; REQUEST_SECONDS.len() + 1], quantile: f64) -> Option<Duration> {
    let all = *durations.last()?;
    if all == 0 {
        return None;
    }
    let rank = all as f64 * quantile;
    let bucket = durations.iter().position(|upto| *upto as f64 >= rank)?;
    let Some(upper) = REQUEST_SECONDS.get(bucket) else {
        return REQUEST_SECONDS.last().map(|longest| Duration::from_secs_f64(*longest));
    };
    let (lower, below) = match bucket.checked_sub(1) {
        Some(before) => (REQUEST_SECONDS[before], durations[before]),
        None => (0.0, 0),
    };
    let within = (rank - below as f64) / (durations[bucket].saturating_sub(below)).max(1) as f64;
    Some(Duration::from_secs_f64(lower + (upper - lower) * within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let mut durations = [0; REQUEST_SECONDS.len() + 1];
        assert_eq!(quantile(&durations, 0.5), None);
        // Ten between the second bound and the third.
        durations[2..].fill(10);
        let [half, most] = [0.5, 1.0].map(|part| quantile(&durations, part).unwrap().as_secs_f64());
        assert!((half - f64::midpoint(REQUEST_SECONDS[1], REQUEST_SECONDS[2])).abs() < 1e-9, "{half}");
        assert!((most - REQUEST_SECONDS[2]).abs() < 1e-9, "{most}");
        // One more, beyond all bounds.
        *durations.last_mut().unwrap() += 1;
        let longest = quantile(&durations, 0.999).unwrap().as_secs_f64();
        assert!((longest - REQUEST_SECONDS[REQUEST_SECONDS.len() - 1]).abs() < 1e-9, "{longest}");
    }
}
