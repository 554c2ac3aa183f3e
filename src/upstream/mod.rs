//! Forwards one request to the service behind us and says what is known of it afterwards.
//!
//! The only question that matters here is *may the upstream have acted?* An answer from [`Upstream::send`]
//! is one of three:
//!
//! | [`Exchange`] | what is known | what may follow |
//! |---|---|---|
//! | `NotSent` | it certainly has not acted | the same key may run again |
//! | `Lost` | it may or may not have acted | held until settled |
//! | `Answered` | it has said so | [`classify()`] decides by the status |
//!
//! What counts as proof that nothing was sent is in [`failure`]; all else is `Lost`.
//!
//! Requests of routes without a policy go through [`Upstream::forward_streaming`] instead: bodies flow both
//! ways as they come, with trailers and upgrades.

pub mod answer;
mod buffered;
pub mod classify;
mod connector;
mod exchange;
pub mod failure;
pub mod hop_by_hop;
pub mod lookup;
mod options;
mod permit;
pub(crate) mod pieces;
mod pools;
mod splice;
mod streaming;
mod targets;
mod watched;

pub use answer::{Reading, read_answer};
pub use classify::{Class, OutcomeRules, Statuses, classify};
pub use exchange::{Exchange, Upstream};
pub use failure::{Failure, Reason};
pub use options::{InvalidUpstream, Trust, UpstreamOptions};
pub use permit::Permit;
pub use splice::Held;
pub use streaming::StreamFailure;
