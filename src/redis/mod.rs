//! What all that talk to a Redis have in common: where it is, and how a connection to it is opened.

pub(crate) mod address;
pub(crate) mod dial;

use std::fmt;

use crate::tls::ClientCertificate;

/// Which Redis (7 or later, or Valkey).
#[derive(Clone, Default)]
pub struct Servers {
    /// `redis://host[:port][/db]`,
    /// `redis+sentinel://host[:port],host[:port]/master-name[/db]` or
    /// `redis+cluster://host[:port],host[:port]`.
    /// `rediss` in place of `redis` means TLS. `user[:password]@` may stand before the first host.
    pub url: String,
    /// The user's name, in place of one in the URL.
    pub user: Option<String>,
    /// The servers' password, in place of one in the URL.
    pub password: Option<String>,
    /// The sentinels' own password, where they have one.
    pub sentinel_password: Option<String>,
    /// PEM of the only authorities trusted for TLS; `None`: the public ones.
    pub authorities: Option<Vec<u8>>,
    /// What we show to servers that ask for a certificate.
    pub certificate: Option<ClientCertificate>,
}

/// What is wrong with the description of servers. Says nothing of secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServersError {
    /// No kind of Redis.
    #[error("the URL begins with none of redis: rediss: redis+sentinel: redis+cluster:")]
    Scheme,
    /// Not what follows such a beginning.
    #[error("the URL is malformed: {0}")]
    Malformed(&'static str),
    /// The client refuses them.
    #[error("the client refuses it: {0}")]
    Refused(String),
}

/// Shows no secret; the URL may hold one.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        f.debug_struct("Servers").field("scheme", &scheme).finish_non_exhaustive()
    }
}
