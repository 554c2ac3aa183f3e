//! What a subscription counts.

use metrics::Counter;

use super::result::DeliveryResult;

/// Counts what came of deliveries.
pub(super) struct Results([Counter; DeliveryResult::ALL.len()]);

impl Results {
    pub(super) fn new(subscription: &str) -> Self {
        Self(DeliveryResult::ALL.map(|result| {
            metrics::counter!("oncegate_deliveries_total", "subscription" => String::from(subscription), "result" => result.as_str())
        }))
    }

    pub(super) fn count(&self, result: DeliveryResult) {
        let index = DeliveryResult::ALL.iter().position(|known| *known == result);
        if let Some(counter) = index.and_then(|index| self.0.get(index)) {
            counter.increment(1);
        }
    }
}

/// Counts what is received.
pub(super) struct Receipts {
    /// Messages that the queue handed out.
    pub(super) received: Counter,
    /// Of them, those that were deposited before: redelivered by the queue.
    pub(super) known: Counter,
    /// Of them, those that were handled before as the cache or a mark knew: no database was asked.
    pub(super) filtered: Counter,
    /// What came of the last.
    pub(super) results: Results,
}

impl Receipts {
    pub(super) fn new(subscription: &str) -> Self {
        let label = || String::from(subscription);
        Self {
            received: metrics::counter!("oncegate_messages_received_total", "subscription" => label()),
            known: metrics::counter!("oncegate_messages_redelivered_total", "subscription" => label()),
            filtered: metrics::counter!("oncegate_messages_filtered_total", "subscription" => label()),
            results: Results::new(subscription),
        }
    }
}
