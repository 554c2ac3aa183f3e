//! Logs: one JSON object a line, on standard error. `RUST_LOG` sets the filter; the default is `info`.
//!
//! Bodies, tokens and whole keys are never logged; entries are named by the beginning of their digest.

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

fn begin(default: LevelFilter) {
    let filter = EnvFilter::builder().with_default_directive(default.into()).from_env_lossy();
    let logs =
        tracing_subscriber::fmt().json().flatten_event(true).with_writer(std::io::stderr).with_env_filter(filter);
    if logs.try_init().is_err() {
        tracing::debug!("logging had begun before");
    }
}
