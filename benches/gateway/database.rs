//! A private PostgreSQL with its defaults for durability, and pgbench on it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::load::Measured;
use crate::private::postgres::{Postgres, bin};
use crate::private::process::run;

/// One durable commit for the claim and one for the outcome, on the gateway's own table: what a request
/// costs that nobody batches.
const TWO_COMMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/gateway/two_commits.sql");

/// A server. No checkpoint falls into one contender's turn and not into another's.
pub(crate) fn start() -> Postgres {
    Postgres::start(&["max_wal_size=8GB", "checkpoint_timeout=1h", "shared_buffers=512MB"])
}

/// A fresh database's URL.
pub(crate) fn create(server: &Postgres, name: &str) -> String {
    let create = format!("CREATE DATABASE {name}");
    run(Command::new(bin("psql")).arg("-qc").arg(create).arg(format!("{}/postgres", server.base_url)));
    format!("{}/{name}", server.base_url)
}

/// Runs the script against the database at `url` with prepared statements.
pub(crate) fn pgbench(url: &str, clients: usize, period: Duration) -> Measured {
    let mut command = Command::new(bin("pgbench"));
    command.args(["--no-vacuum", "--protocol=prepared", "--jobs=1", "--file"]).arg(Path::new(TWO_COMMITS));
    command.arg(format!("--client={clients}")).arg(format!("--time={}", period.as_secs().max(1))).arg(url);
    let said = run(&mut command);
    let number = |before: &str| {
        let rest = said.split_once(before).map(|(_, rest)| rest.trim_start()).unwrap_or_default();
        rest.split_whitespace().next().and_then(|number| number.parse::<f64>().ok())
    };
    let (per_second, average_ms) = number("tps =").zip(number("latency average =")).expect(&said);
    Measured { per_second, median: Duration::from_secs_f64(average_ms / 1e3) }
}
