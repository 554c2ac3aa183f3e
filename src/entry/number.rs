//! Numbers by their exact decimal value.
