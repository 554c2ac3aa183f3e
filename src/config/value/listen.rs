//! Addresses to listen on.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// An address to listen on: an IP address and a port; port 0 is any free one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen(SocketAddr);

/// Why a text is no such address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"")]
pub struct ListenError;

impl Listen {
    /// This port of 127.0.0.1.
    #[must_use]
    pub const fn loopback(port: u16) -> Self {
        Self(SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), port))
    }

    /// The socket's address.
    #[must_use]
    pub const fn get(self) -> SocketAddr {
        self.0
    }
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        text.parse().map(Self).map_err(|_| ListenError)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::from_text(deserializer, "an address such as \"127.0.0.1:8080\"")
    }
}
