//! The HTTP edge: listening, reading, deciding what a request is, and answering.

pub mod app;
pub mod body;
pub mod connection;
pub mod cors;
pub mod docs;
pub mod drain;
pub mod endpoints;
pub mod forwarded;
pub mod framing;
pub mod gateway;
mod guarded;
pub(crate) mod kept;
pub(crate) mod keyed;
pub mod listener;
pub mod openapi;
pub(crate) mod outgoing;
pub mod peer;
pub mod preference;
pub mod replay;
pub(crate) mod reply;
mod request_state;
pub mod route;
mod sender;
mod tee;
pub mod tls;
mod token;
pub mod workers;
