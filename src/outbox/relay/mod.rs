//! The relay: publishes what the outbox holds, at least once, in order per key, and marks it sent only after the
//! broker's confirm.
//!
//! [`Machine`] decides, without I/O; [`Relay`] moves what it asks for between the [`Outbox`] and the
//! [`Publisher`]. One relay serves one queue in one process; [`Duties`] measures and cleans up beside it.
//!
//! [`Outbox`]: crate::outbox::store::Outbox
//! [`Publisher`]: crate::broker::Publisher

mod backoff;
mod driver;
mod duties;
mod group;
mod health;
mod lane;
mod line;
mod machine;
mod meters;
mod options;
mod topics;
mod wake;

pub use backoff::Backoff;
pub use driver::Relay;
pub use duties::Duties;
pub use group::{Relayed, Relays};
pub use health::Change;
pub use machine::{LaneCall, Machine, Ticket};
pub use options::RelayOptions;
pub use wake::{Wake, Wakes};
