//! Whether what is on record as applied is there: the handler is asked for each delivery, by the subscription's lookup.
//!
//! The handler's effect and our record of it are two commits of two databases. One that was restored, or that has lost
//! what it had confirmed, no longer has what the other one says. Nothing is mended here: about money a person decides.

use futures_util::{StreamExt as _, stream};

use super::intake::entry;
use super::reconcile::Missing;
use super::result::DeliveryResult;
use super::store::{attribute, queue_of};
use crate::clock::Timestamp;
use crate::engine::ledger::StoreError;
use crate::engine::policy::{Found, Lookup};
use crate::entry::{Identity, Key, Namespace, Scope};
use crate::outbox::desk::{Desk, Filter, Listed, MAX_LISTED, Of, State};

/// Questions at the same time: the handler has something else to do.
const AT_ONCE: usize = 8;

/// What the handler says of what is on record as applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Effects {
    /// Of which subscription.
    pub subscription: Box<str>,
    /// Deliveries that it was asked for.
    pub asked: u64,
    /// Those that it does not have, by their ids.
    pub absent: Missing,
    /// Those of which it said neither: it did not answer, or in another state.
    pub undecided: Missing,
}

impl Effects {
    /// Whether it has them all.
    #[must_use]
    pub fn are_there(&self) -> bool {
        self.absent.count == 0 && self.undecided.count == 0
    }
}

/// Asks `lookup` for each delivery of `subscription` that was applied, of those that were received from `from` until
/// before `until`.
///
/// # Errors
/// If the database can't be asked.
pub async fn ask(
    desk: &dyn Desk,
    lookup: &dyn Lookup,
    subscription: &str,
    (from, until): (Timestamp, Timestamp),
) -> Result<Effects, StoreError> {
    let mut effects = Effects { subscription: subscription.into(), ..Effects::default() };
    let filter = Filter {
        of: Of::Deliveries,
        states: vec![State::Sent],
        queue: Some(queue_of(subscription)),
        result: Some(DeliveryResult::Applied.as_str().into()),
        ..Filter::default()
    };
    let mut before = None;
    loop {
        let page = desk.list(&filter, before, MAX_LISTED).await?;
        let asked = page.iter().filter(|delivery| (from..until).contains(&delivery.created_at));
        let questions = asked.filter_map(|delivery| Some((delivery, identity(subscription, delivery)?)));
        let answers = stream::iter(questions.collect::<Vec<_>>()).map(|(delivery, identity)| async move {
            (delivery, lookup.lookup(entry(&identity.namespace, &identity.key), &identity).await)
        });
        let mut answers = answers.buffered(AT_ONCE);
        while let Some((delivery, found)) = answers.next().await {
            effects.asked += 1;
            match found {
                Found::Completed(_) => {}
                Found::Absent => effects.absent.add(&delivery.id),
                Found::Undecided => effects.undecided.add(&delivery.id),
            }
        }
        drop(answers);
        match page.last() {
            Some(oldest) if page.len() == MAX_LISTED as usize && oldest.created_at >= from => {
                before = Some(oldest.position);
            }
            Some(_) | None => return Ok(effects),
        }
    }
}

/// What the engine knew the delivery by.
fn identity(subscription: &str, delivery: &Listed) -> Option<Identity> {
    let business = delivery.attributes.get(attribute::KEY)?;
    let key = match delivery.attributes.get(attribute::VERSION) {
        Some(version) => Key::composite(&[business, version]),
        None => Key::from_business(business).ok()?,
    };
    Some(Identity { namespace: Namespace::from_stored(&queue_of(subscription)), scope: Scope::Global, key })
}
