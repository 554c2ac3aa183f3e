//! `oncegate events`: what lies in the outbox, and what becomes of it.

use clap::Args;
use oncegate::outbox::desk::State;
use serde_json::Value;

use super::desk::{self, Filters, Rows, named, states};

/// Of events.
pub(super) type Events = Rows<EventFilters>;

#[derive(Debug, Args)]
pub(super) struct EventFilters {
    /// In this state. May be repeated.
    #[arg(long, value_parser = desk::state)]
    state: Vec<State>,
    /// Of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Of this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Of this route.
    #[arg(long)]
    route: Option<String>,
    /// Of this key.
    #[arg(long)]
    key: Option<String>,
}

impl Filters for EventFilters {
    const MANY: &'static str = "events";

    fn named(&self) -> Vec<(&'static str, Value)> {
        let texts = [("queue", &self.queue), ("topic", &self.topic), ("route", &self.route), ("key", &self.key)];
        states(&self.state).into_iter().chain(named(texts)).collect()
    }
}
