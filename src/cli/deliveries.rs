//! `oncegate deliveries`: what subscriptions have received, and what came of it.

use clap::Args;
use oncegate::entry::{EntryId, Identity, Key, Namespace, Scope};
use oncegate::inbox::result::DeliveryResult;
use oncegate::inbox::store::queue_of;
use oncegate::outbox::desk::{Filter, Of, State};

use super::desk::{self, Filters, Rows};

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
    const OF: Of = Of::Deliveries;

    fn filter(&self) -> Filter {
        Filter {
            of: Self::OF,
            states: self.state.clone(),
            queue: self.subscription.as_deref().map(queue_of),
            key: self.key.as_deref().map(Into::into),
            entry: self.subscription.as_deref().zip(self.key.as_deref()).and_then(|(name, key)| entry(name, key)),
            result: self.result.map(|result| result.as_str().into()),
            ..Filter::default()
        }
    }
}

/// The entry of a business key of a subscription.
fn entry(subscription: &str, key: &str) -> Option<EntryId> {
    let namespace = Namespace::from_stored(&queue_of(subscription));
    Some(Identity { namespace, scope: Scope::Global, key: Key::from_business(key).ok()? }.id())
}
