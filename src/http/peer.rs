//! Who is at the other end of a connection.

use std::net::SocketAddr;

use http::HeaderValue;

/// The other end of the connection that a request came by; an extension of every request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address. Of a proxy in front of us, where there is one.
    pub addr: SocketAddr,
    /// Whether it speaks TLS to us.
    pub tls: bool,
    /// The address for `X-Forwarded-For`, written once per connection.
    ip: HeaderValue,
}

impl Peer {
    /// A peer at `addr`. An IPv4 address that came by an IPv6 socket counts as IPv4.
    #[must_use]
    pub fn new(addr: SocketAddr, tls: bool) -> Self {
        let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
        let ip = HeaderValue::from_str(&addr.ip().to_string());
        Self { addr, tls, ip: ip.unwrap_or_else(|_| HeaderValue::from_static("unknown")) }
    }

    /// The address as a field value.
    #[must_use]
    pub fn ip_value(&self) -> &HeaderValue {
        &self.ip
    }

    /// The scheme that it used.
    #[must_use]
    pub fn scheme(&self) -> HeaderValue {
        HeaderValue::from_static(if self.tls { "https" } else { "http" })
    }
}
