//! Ratios of one interleaved run. Rates of a machine mean little elsewhere; what two programs that took
//! turns on it relate like means something.

use std::time::Duration;

use crate::load::Measured;

/// What a ratio has to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Needed {
    AtLeast(f64),
    AtMost(f64),
    /// Told, not judged.
    Nothing,
}

impl Needed {
    pub(crate) fn judge(self, ratio: f64) -> String {
        let (text, holds) = match self {
            Self::AtLeast(limit) => (format!("at least {limit}"), ratio >= limit),
            Self::AtMost(limit) => (format!("at most {limit}"), ratio <= limit),
            Self::Nothing => return String::new(),
        };
        format!("{text}: {}", if holds { "yes" } else { "NO" })
    }
}

/// A contender's results, one a round.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<Measured>,
}

/// What of a round is compared.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Measure {
    Rate,
    Latency,
}

impl Measure {
    fn of(self, measured: &Measured) -> f64 {
        match self {
            Self::Rate => measured.per_second,
            Self::Latency => measured.median.as_secs_f64(),
        }
    }
}

/// Prints a group's title.
pub(crate) fn title(text: &str) {
    println!("\n{text}");
}

/// Prints what each contender reached.
pub(crate) fn contenders(all: &[Series]) {
    for series in all {
        let rate = spread(series.rounds.iter().map(|round| round.per_second));
        let median = spread(series.rounds.iter().map(|round| round.median.as_secs_f64()));
        let median = Duration::from_secs_f64(median.middle);
        println!(
            "  {:<34} {:>9.0}/s  ({:.0} to {:.0}), {median:.0?} each",
            series.name, rate.middle, rate.least, rate.most
        );
    }
}

/// Prints `a` over `b`, each round by itself: what disturbs a round disturbs both.
pub(crate) fn ratio(a: &Series, b: &Series, measure: Measure, needed: Needed) {
    let ratios = a.rounds.iter().zip(&b.rounds).map(|(a, b)| measure.of(a) / measure.of(b));
    let Spread { least, middle, most } = spread(ratios);
    let name = format!("{} / {}", a.name, b.name);
    println!("  {name:<58} {middle:>6.2}  ({least:.2} to {most:.2})  {}", needed.judge(middle));
}

/// Prints how much memory `count` requests took.
pub(crate) fn memory(what: &str, bytes: u64, count: f64) {
    let each = bytes as f64 / count;
    println!("  {what:<36} {:>7.1} MiB for each 100,000 ({each:.0} bytes each)", each * 1e5 / f64::from(1 << 20));
}

/// The median, and what is on both sides of it.
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) middle: f64,
    pub(crate) most: f64,
}

pub(crate) fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    Spread { least: values[0], middle: values[values.len() / 2], most: values[values.len() - 1] }
}
