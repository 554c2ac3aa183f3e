//! What tells deliveries from events: both are rows of the work table, and worked by the same relay.

/// What queues of deliveries are called by, before the name of their subscription. No configured queue's name has a
/// colon.
pub const QUEUE_PREFIX: &str = "sub:";

/// Names among a delivery's attributes that are the queue door's own. CloudEvents knows no such names, so they never go
/// out with a copy, and no message brings them along.
pub mod attribute {
    /// The id of the message, as its producer gave it.
    pub const MESSAGE: &str = "oncegate-message";
    /// Where it was in the broker.
    pub const PLACE: &str = "oncegate-place";
    /// The business key: what the engine knows it by.
    pub const KEY: &str = "oncegate-key";
    /// The version of its entity, where the subscription has versions.
    pub const VERSION: &str = "oncegate-version";
}

/// The queue in which the deliveries of `subscription` are.
#[must_use]
pub fn queue_of(subscription: &str) -> Box<str> {
    format!("{QUEUE_PREFIX}{subscription}").into()
}

/// The subscription whose deliveries are in `queue`, if it is one of deliveries.
#[must_use]
pub fn subscription_of(queue: &str) -> Option<&str> {
    queue.strip_prefix(QUEUE_PREFIX)
}
