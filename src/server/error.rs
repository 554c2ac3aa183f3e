//! Why a gateway does not start, in words for whoever starts it.

use std::io;
use std::net::SocketAddr;

use crate::auth::jwt::KeyError;
use crate::engine::ledger::StoreError;
use crate::entry::fingerprint::SecretsError;
use crate::http::tls::TlsError;
use crate::marks::MarksError;
use crate::sealer::SealerError;
use crate::storage;
use crate::upstream::InvalidUpstream;

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The database can't be opened or migrated.
    #[error("the store can't be used: {0}")]
    Store(#[from] storage::Error),
    /// The database can't be asked.
    #[error("the store can't be used: {0}")]
    StoreAsked(#[from] StoreError),
    /// The mark store's settings are wrong.
    #[error("marks: {0}")]
    Marks(#[from] MarksError),
    /// The fingerprint secrets are wrong.
    #[error("secrets.fingerprint: {0}")]
    Secrets(#[from] SecretsError),
    /// The encryption secrets are wrong.
    #[error("secrets.encryption: {0}")]
    Sealer(#[from] SealerError),
    /// An upstream's settings are wrong.
    #[error("upstreams: {0}")]
    Upstream(#[from] InvalidUpstream),
    /// The routes can't be served as configured.
    #[error("routes: {0}")]
    Routes(String),
    /// The certificate can't be used.
    #[error("server.tls: {0}")]
    Tls(#[from] TlsError),
    /// The keys of access tokens can't be used.
    #[error("auth.jwt: {0}")]
    Keys(#[from] KeyError),
    /// The system gives no threads.
    #[error("no thread can be started: {0}")]
    Threads(io::Error),
    /// Whoever reaches the address could settle payments.
    #[error("server.admin_listen: {0} is reachable from outside; set server.admin_token")]
    OpenToAll(SocketAddr),
    /// A queue's settings are wrong.
    #[error("the queue {queue}: {text}")]
    Queue {
        /// Which one.
        queue: String,
        /// What is wrong.
        text: String,
    },
    /// A subscription's settings are wrong.
    #[error("the subscription {subscription}: {text}")]
    Subscription {
        /// Which one.
        subscription: String,
        /// What is wrong.
        text: String,
    },
    /// A file can't be read.
    #[error("{file}: {error}")]
    File {
        /// Which one.
        file: String,
        /// Why not.
        error: io::Error,
    },
    /// The address can't be bound.
    #[error(
        "{address} can't be bound: {error}. Choose another address with --listen (server.listen) or server.admin_listen"
    )]
    Bind {
        /// Which one.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
}

impl ServeError {
    /// Whether it is one of the store that may be over in a moment.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Store(storage::Error::Store(error)) | Self::StoreAsked(error) => {
                !matches!(error, StoreError::Refused(_))
            }
            _ => false,
        }
    }
}
