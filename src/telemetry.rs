//! Logs and metrics.
//!
//! Logs: one JSON object a line, on standard error. `RUST_LOG` sets the filter; the default is `info`.
//!
//! Bodies, tokens and whole keys are never logged; entries are named by the beginning of their digest.

mod exposition;
mod sample;
pub mod series;

use std::sync::LazyLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Begins to log. Called again, it changes nothing.
pub fn init() {
    begin(LevelFilter::INFO);
}

/// Begins to log, errors only unless `RUST_LOG` says otherwise.
pub fn init_quietly() {
    begin(LevelFilter::ERROR);
}

/// What libraries must not log: RabbitMQ's client logs returned messages whole, as warnings.
const NEVER: [&str; 1] = ["lapin::returned_messages=off"];

fn begin(default: LevelFilter) {
    let filter = EnvFilter::builder().with_default_directive(default.into()).from_env_lossy();
    let filter = NEVER.iter().filter_map(|silent| silent.parse().ok()).fold(filter, EnvFilter::add_directive);
    let logs =
        tracing_subscriber::fmt().json().flatten_event(true).with_writer(std::io::stderr).with_env_filter(filter);
    if logs.try_init().is_err() {
        tracing::debug!("logging had begun before");
    }
}

/// Bounds of histograms in seconds: from a replay out of memory to an upstream's longest time-out.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Bounds of what a guarded request took: closer to each other, since what is usual is read from them.
const REQUEST_SECONDS: [f64; 18] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Bounds of the batch size: powers of two up to the largest batch.
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

static METRICS: LazyLock<Option<PrometheusHandle>> = LazyLock::new(|| {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .and_then(|builder| {
            let whole = Matcher::Full("oncegate_request_duration_seconds".to_owned());
            builder.set_buckets_for_metric(whole, &REQUEST_SECONDS)
        })
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &SIZES));
    match builder.and_then(PrometheusBuilder::install_recorder) {
        Ok(handle) => Some(handle),
        Err(error) => {
            tracing::error!(%error, "metrics are not kept");
            None
        }
    }
});

/// Begins to keep metrics; one set for the process.
pub fn keep_metrics() {
    LazyLock::force(&METRICS);
}

/// The metrics in Prometheus' text format; empty before [`keep_metrics`].
#[must_use]
pub fn metrics() -> String {
    LazyLock::force(&METRICS).as_ref().map(PrometheusHandle::render).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::Directive;

    use super::*;

    #[test]
    fn what_must_not_be_logged_is_spelled_right() {
        for silent in NEVER {
            assert!(silent.parse::<Directive>().is_ok(), "{silent}");
        }
    }
}
