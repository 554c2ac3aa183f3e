//! `oncegate deliveries`: what subscriptions have received, and what came of it.

use clap::Args;
use oncegate::outbox::desk::State;
use oncegate::outbox::result::DeliveryResult;
use serde_json::{Value, json};

use super::desk::{self, Filters, Rows, named, states};

/// Of deliveries.
pub(super) type Deliveries = Rows<DeliveryFilters>;

#[derive(Debug, Args)]
pub(super) struct DeliveryFilters {
    /// In this state. May be repeated. A list by --result is of all states that have one, unless it is given.
    #[arg(long, value_parser = desk::state)]
    state: Vec<State>,
    /// Of this subscription.
    #[arg(long)]
    subscription: Option<String>,
    /// Of this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Of this key: the business key (where what is stored is sealed, with --subscription), or what they are ordered
    /// by.
    #[arg(long)]
    key: Option<String>,
    /// With this result: applied, duplicate, stale, conflict or rejected.
    #[arg(long, value_parser = result)]
    result: Option<DeliveryResult>,
}

fn result(text: &str) -> Result<DeliveryResult, String> {
    let known = || DeliveryResult::FINAL.map(DeliveryResult::as_str).join(", ");
    let result = text.parse().ok().filter(|result| DeliveryResult::FINAL.contains(result));
    result.ok_or_else(|| format!("one of {}; what has no result yet has a state", known()))
}

impl Filters for DeliveryFilters {
    const MANY: &'static str = "deliveries";

    fn named(&self) -> Vec<(&'static str, Value)> {
        let texts = [("subscription", &self.subscription), ("topic", &self.topic), ("key", &self.key)];
        let result = self.result.map(|result| ("result", json!(result.as_str())));
        states(&self.state).into_iter().chain(named(texts)).chain(result).collect()
    }
}
