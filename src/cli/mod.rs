//! The command line.

mod admin;
mod cursors;
mod deliveries;
mod demo;
mod desk;
mod desk_text;
mod entries;
mod entries_text;
mod events;
mod files;
mod identity;
mod out;
mod reconcile;
mod routes;
mod serve;
mod subscriptions;

use out::{say, tell};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use oncegate::config::{self, Config, Finding, Severity};

/// Makes payment-style requests safe to send twice.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    after_help = "Exit codes: 0 done; 1 it could not be done; 2 the command line or the configuration is wrong; \
                  3 done, but not for all that were named, or not as they are."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows in one process, with nothing to install, how a double payment does not happen.
    Demo(demo::Demo),
    /// Runs the gateway until SIGTERM or SIGINT, then finishes what is in flight.
    Serve(Configured),
    /// Says what in the configuration is wrong, or does not fit together.
    Check(Configured),
    /// Prints the OpenAPI document of the gateway's own endpoints.
    Openapi,
    /// Brings the database's schema up to date. `serve` does so as well.
    Migrate(Configured),
    /// What gives requests their identity, as the database remembers it.
    #[command(subcommand)]
    Identity(identity::Identity),
    /// Requests by what is on record of them, and those that need a person's word.
    #[command(subcommand)]
    Entries(entries::Entries),
    /// What lies in the outbox, and what becomes of it.
    #[command(subcommand)]
    Events(events::Events),
    /// What subscriptions have received, and what came of it.
    #[command(subcommand)]
    Deliveries(deliveries::Deliveries),
    /// In which mode routes are, and switching it while gateways run.
    #[command(subcommand)]
    Routes(routes::Routes),
    /// Whether subscriptions deliver, and pausing them while gateways run.
    #[command(subcommand)]
    Subscriptions(subscriptions::Subscriptions),
    /// How far subscriptions have come in embedded queues.
    #[command(subcommand)]
    Cursors(cursors::Cursors),
    /// Compares what was published to a topic with what subscriptions made of it, and names what is missing.
    Reconcile(reconcile::Reconcile),
}

/// Where the configuration is.
#[derive(Debug, Args)]
struct Configured {
    /// The configuration file; every setting is shown in config.example.toml.
    #[arg(long, default_value = "oncegate.toml")]
    config: PathBuf,
    /// Overrides server.listen.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Overrides any setting, such as `--set store.url=sqlite://other.db`. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Why a command did not do what it was told.
enum Failure {
    /// It could not be done.
    Failed(String),
    /// The configuration is wrong.
    Wrong(String),
    /// It was done, but not for all that were named.
    NotAll(String),
}

impl Configured {
    /// The configuration, if it is right. Warnings are printed.
    fn load(&self) -> Result<Config, Failure> {
        let (config, findings) = self.examine()?;
        for finding in &findings {
            eprintln!("{}", line(finding));
        }
        match findings.iter().any(|finding| finding.severity == Severity::Error) {
            true => Err(Failure::Wrong(format!("{} can't be used as it is", self.config.display()))),
            false => Ok(config),
        }
    }

    fn examine(&self) -> Result<(Config, Vec<Finding>), Failure> {
        let listen = self.listen.iter().map(|address| ("server.listen".to_owned(), address.clone()));
        let flags = self.set.iter().cloned().chain(listen);
        let config = Config::load(&self.config, config::process_env(), flags)
            .map_err(|error| Failure::Wrong(error.to_string()))?;
        let findings = config::check(&config);
        Ok((config, findings))
    }

    fn check(&self) -> Result<(), Failure> {
        self.load()?;
        say!("{} is in order", self.config.display());
        Ok(())
    }
}

fn openapi() -> Result<(), Failure> {
    tell!("{}", oncegate::http::openapi::text().map_err(failed)?);
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

fn line(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    format!("{severity}: {}: {}", finding.key, finding.text)
}

/// Runs the command line.
pub(crate) fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Demo(demo) => demo.run(),
        Command::Serve(configured) => configured.load().and_then(|config| serve::run(&config)),
        Command::Check(configured) => configured.check(),
        Command::Openapi => openapi(),
        Command::Migrate(configured) => configured.load().and_then(|config| serve::migrate(&config)),
        Command::Identity(identity) => identity.run(),
        Command::Entries(entries) => entries.run(),
        Command::Events(events) => events.run(),
        Command::Deliveries(deliveries) => deliveries.run(),
        Command::Routes(routes) => routes.run(),
        Command::Subscriptions(subscriptions) => subscriptions.run(),
        Command::Cursors(cursors) => cursors.run(),
        Command::Reconcile(reconcile) => reconcile.run(),
    };
    let (text, code) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(text)) => (text, 1),
        Err(Failure::Wrong(text)) => (text, 2),
        Err(Failure::NotAll(text)) => (text, 3),
    };
    eprintln!("oncegate: {text}");
    ExitCode::from(code)
}
