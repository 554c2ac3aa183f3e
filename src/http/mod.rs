//! The HTTP edge: listening, reading, and the fields that belong to a connection rather than to a message.

pub mod body;
pub mod connection;
pub mod drain;
pub mod forwarded;
pub mod framing;
pub mod hop_by_hop;
pub mod listener;
pub mod peer;
pub mod tls;
