//! The last minutes of what operators watch, second by second: kept in memory, read out of the metrics.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::sample::Totals;
use crate::clock::{self, Timestamp};

/// Between two points. A person sees what has happened a second ago.
pub const EVERY: Duration = Duration::from_secs(1);

/// Points that are kept: ten minutes, some hundred kilobytes.
pub const KEPT: usize = 600;

/// Points whose latencies count for one: of a single second there are too few to say what is usual.
const LATENCIES_OF: usize = 10;

/// How requests are told apart, by the word that metrics have for their admission; what is not here counts as other.
pub const ADMISSIONS: [&str; 5] = ["execute", "replay", "in_progress", "mismatch", "held"];

/// What may come of a delivery, in the words that metrics have for it.
pub const RESULTS: [&str; 7] =
    ["applied", "duplicate", "stale", "deferred", "conflict", "rejected", "in_progress_elsewhere"];

/// One point in time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Point {
    /// When, by this machine's clock.
    pub at_ms: i64,
    /// Requests since the point before, by [`ADMISSIONS`]; the last are all others.
    pub requests: [u64; ADMISSIONS.len() + 1],
    /// What half of the requests of the last seconds took at most; `None` if there were none.
    pub p50: Option<Duration>,
    /// What all but one of a hundred took at most.
    pub p99: Option<Duration>,
    /// What lies in the outbox.
    pub events: Lag,
    /// What lies before the handlers of subscriptions.
    pub deliveries: Lag,
    /// Deliveries since the point before, by [`RESULTS`].
    pub results: [u64; RESULTS.len()],
}

/// What is not done yet, of all queues together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lag {
    /// How much.
    pub count: u64,
    /// The age of the oldest.
    pub oldest: Duration,
}

/// The points of the last minutes.
#[derive(Debug, Default)]
pub struct Series(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    points: VecDeque<Point>,
    /// Totals of the last seconds, the newest at the back.
    totals: VecDeque<Totals>,
}

impl Series {
    /// Adds a point each second until `stop`. Reading the metrics also puts away samples of histograms, which would pile
    /// up otherwise.
    pub async fn run(&self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.add(clock::wall(), &super::metrics());
        }
    }

    /// Adds what `metrics` say at `now`.
    pub fn add(&self, now: Timestamp, metrics: &str) {
        let totals = Totals::read(metrics);
        let mut kept = self.kept();
        // The first point has nothing to be compared with: what was counted before it came at some other time.
        let before = kept.totals.back().unwrap_or(&totals);
        let first = kept.totals.front().unwrap_or(&totals);
        let point = totals.since(before, first, now);
        kept.points.push_back(point);
        kept.totals.push_back(totals);
        while kept.points.len() > KEPT {
            kept.points.pop_front();
        }
        while kept.totals.len() > LATENCIES_OF {
            kept.totals.pop_front();
        }
    }

    /// The last points, so many at most, in order.
    #[must_use]
    pub fn last(&self, count: usize) -> Vec<Point> {
        let kept = self.kept();
        kept.points.iter().skip(kept.points.len().saturating_sub(count)).copied().collect()
    }

    /// Nothing is left half done under the lock.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(executed: u64, replayed: u64, slow: u64, unsent: u64) -> String {
        let fast = executed + replayed;
        let all = fast + slow;
        format!(
            "oncegate_requests_total{{route=\"a\",admission=\"execute\"}} {executed}\n\
             oncegate_requests_total{{route=\"b\",admission=\"execute\"}} {slow}\n\
             oncegate_requests_total{{route=\"a\",admission=\"replay\"}} {replayed}\n\
             oncegate_requests_total{{route=\"a\",admission=\"expired\"}} 1\n\
             oncegate_request_duration_seconds_bucket{{route=\"a\",le=\"0.01\"}} {fast}\n\
             oncegate_request_duration_seconds_bucket{{route=\"a\",le=\"1\"}} {all}\n\
             oncegate_request_duration_seconds_bucket{{route=\"a\",le=\"+Inf\"}} {all}\n\
             oncegate_request_duration_seconds_sum{{route=\"a\"}} 1\n\
             oncegate_outbox_unsent{{queue=\"default\"}} {unsent}\n\
             oncegate_outbox_unsent{{queue=\"other\"}} 1\n\
             oncegate_outbox_unsent{{queue=\"sub:points\"}} 7\n\
             oncegate_outbox_oldest_unsent_seconds{{queue=\"default\"}} 2.5\n\
             oncegate_outbox_oldest_unsent_seconds{{queue=\"other\"}} 9\n\
             oncegate_deliveries_total{{subscription=\"points\",result=\"applied\"}} {executed}\n"
        )
    }

    #[test]
    fn a_point_tells_what_came_since_the_one_before() {
        let series = Series::default();
        series.add(Timestamp(1_000), &metrics(100, 50, 0, 3));
        series.add(Timestamp(2_000), &metrics(104, 53, 1, 4));
        let points = series.last(10);
        assert_eq!(points[0].requests, [0; 6], "what came before the first point came at some other time");
        let point = points[1];
        assert_eq!((point.at_ms, point.requests), (2_000, [5, 3, 0, 0, 0, 0]));
        assert_eq!(point.results, [4, 0, 0, 0, 0, 0, 0]);
        assert_eq!((point.events.count, point.events.oldest), (5, Duration::from_secs(9)));
        assert_eq!((point.deliveries.count, point.deliveries.oldest), (7, Duration::ZERO));
        let (p50, p99) = (point.p50.unwrap(), point.p99.unwrap());
        assert!(p50 < Duration::from_millis(10) && p99 > Duration::from_millis(500), "{p50:?} {p99:?}");
    }

    #[test]
    fn a_latency_is_told_as_long_as_it_is_recent_and_a_restarted_count_is_no_flood() {
        let series = Series::default();
        series.add(Timestamp(0), &metrics(1, 0, 0, 0));
        series.add(Timestamp(1), &metrics(2, 0, 0, 0));
        assert!(series.last(1)[0].p50.is_some());
        for second in 2..20 {
            series.add(Timestamp(second), &metrics(2, 0, 0, 0));
        }
        assert_eq!(series.last(1)[0].p50, None);
        series.add(Timestamp(20), "");
        assert_eq!(series.last(1)[0].requests, [0; 6]);
    }

    #[test]
    fn only_the_last_minutes_are_kept() {
        let series = Series::default();
        for second in 0..2_000 {
            series.add(Timestamp(second), "");
        }
        let points = series.last(usize::MAX);
        assert_eq!((points.len(), points[0].at_ms, points[KEPT - 1].at_ms), (KEPT, 1_400, 1_999));
        assert_eq!(series.last(2).iter().map(|point| point.at_ms).collect::<Vec<_>>(), [1_998, 1_999]);
    }
}
