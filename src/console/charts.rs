//! The last minutes in pictures.

use maud::{Markup, html};

use super::plot::{Line, Plot};
use super::words::long;
use crate::http::admin::Admin;
use crate::telemetry::series::{ADMISSIONS, EVERY, Point, RESULTS};

/// Seconds that are shown.
const SHOWN: usize = 300;

/// Seconds of one point of a line: more points than this gives are not seen.
const EACH: usize = 2;

/// How people call the kinds of [`ADMISSIONS`], and all others.
const KINDS: [&str; ADMISSIONS.len() + 1] = ["first", "replayed", "processing", "mismatch", "unknown", "other"];

/// All of them.
pub(super) fn all(admin: &Admin) -> Markup {
    let points = admin.points(SHOWN);
    html! {
        div.plots {
            (requests(&points).markup("requests"))
            (latency(&points).markup("latency"))
            (unsent(&points).markup("unsent"))
            (oldest(&points).markup("oldest"))
            (results(&points).markup("results"))
        }
    }
}

/// One value for each [`EACH`] seconds that have passed whole.
fn line(name: &'static str, points: &[Point], value: impl Fn(&[Point]) -> Option<f64>) -> Line {
    // Counted from the newest: a line does not change its past.
    let skipped = points.len() % EACH;
    let mut values: Vec<_> = points[skipped..].chunks(EACH).map(value).collect();
    // What the process did not live to see is on the left, so that all lines are as wide as their time.
    let missing = (SHOWN / EACH).saturating_sub(values.len());
    values.splice(0..0, std::iter::repeat_n(None, missing));
    Line { name, values }
}

/// How many each second.
fn rate(chunk: &[Point], count: impl Fn(&Point) -> u64) -> Option<f64> {
    let seconds = chunk.len() as f64 * EVERY.as_secs_f64();
    (seconds > 0.0).then(|| chunk.iter().map(count).sum::<u64>() as f64 / seconds)
}

fn plot(title: &'static str, unit: &'static str, lines: Vec<Line>) -> Plot {
    let since = format!("{} ago", long(EVERY * u32::try_from(SHOWN).unwrap_or(u32::MAX)));
    Plot { title, unit, lines, since }
}

fn requests(points: &[Point]) -> Plot {
    let kind = |(index, name): (usize, &'static str)| {
        line(name, points, move |chunk| rate(chunk, |point| point.requests[index]))
    };
    let (others, known) = (KINDS.len() - 1, KINDS.into_iter().enumerate());
    let has_others = points.iter().any(|point| point.requests[others] > 0);
    let shown = known.filter(|(index, _)| *index != others || has_others);
    plot("Requests", "each second", shown.map(kind).collect())
}

fn latency(points: &[Point]) -> Plot {
    let last = |name, of: fn(&Point) -> Option<std::time::Duration>| {
        line(name, points, move |chunk| Some(of(chunk.last()?)?.as_secs_f64() * 1_000.0))
    };
    plot("Latency", "milliseconds", vec![last("p50", |point| point.p50), last("p99", |point| point.p99)])
}

fn unsent(points: &[Point]) -> Plot {
    let last = |name, of: fn(&Point) -> u64| line(name, points, move |chunk| Some(of(chunk.last()?) as f64));
    let lines = vec![last("events", |point| point.events.count), last("deliveries", |point| point.deliveries.count)];
    plot("Outbox: not done yet", "how many", lines)
}

fn oldest(points: &[Point]) -> Plot {
    let last = |name, of: fn(&Point) -> std::time::Duration| {
        line(name, points, move |chunk| Some(of(chunk.last()?).as_secs_f64()))
    };
    let lines = vec![last("events", |point| point.events.oldest), last("deliveries", |point| point.deliveries.oldest)];
    plot("Outbox: age of the oldest", "seconds", lines)
}

fn results(points: &[Point]) -> Plot {
    let result = |(index, name): (usize, &'static str)| {
        line(name, points, move |chunk| rate(chunk, |point| point.results[index]))
    };
    // The usual one always, others once there are any.
    let is_shown = |index: usize| index == 0 || points.iter().any(|point| point.results[index] > 0);
    let shown = RESULTS.into_iter().enumerate().filter(|(index, _)| is_shown(*index));
    plot("Deliveries", "each second", shown.map(result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_wide_as_their_time_and_end_now() {
        let point = |count| Point { requests: [count, 0, 0, 0, 0, 0], ..Point::default() };
        let points: Vec<_> = [9, 1, 3, 5, 7].map(point).into();
        let plot = requests(&points);
        let first = &plot.lines[0];
        assert_eq!((first.name, first.values.len()), ("first", SHOWN / EACH));
        assert_eq!(first.values[SHOWN / EACH - 3..], [None, Some(2.0), Some(6.0)]);
        assert_eq!(plot.lines.len(), 5, "others are shown once there are any");
    }
}
