//! What a queue's configuration says of the connection to its broker: read here for all kinds of them.

use std::path::{Path, PathBuf};

use crate::broker::Hidden;
use crate::config::{Queue, ServiceUrl};
use crate::server::ServeError;
use crate::server::options::read;
use crate::tls::ClientCertificate;

/// Where a queue's broker is, whom we trust, and who we are.
pub(super) struct Access<'a> {
    pub(super) queue: &'a Queue,
    pub(super) url: &'a str,
}

impl<'a> Access<'a> {
    pub(super) fn new(queue: &'a Queue, url: &'a ServiceUrl) -> Self {
        Self { queue, url: url.as_str() }
    }

    /// The URL's beginning, and what follows `://`.
    pub(super) fn parts(&self) -> (&'a str, &'a str) {
        self.url.split_once("://").unwrap_or(("", self.url))
    }

    pub(super) fn user(&self) -> Option<String> {
        self.queue.username.clone()
    }

    pub(super) fn password(&self) -> Option<Hidden> {
        self.queue.password.as_ref().map(|secret| Hidden::new(secret.expose()))
    }

    /// Of clients that read files themselves.
    pub(super) fn ca_file(&self) -> Option<PathBuf> {
        self.queue.ca.clone()
    }

    /// Of clients that read files themselves: the certificate and its key.
    pub(super) fn certificate_files(&self) -> Option<(PathBuf, PathBuf)> {
        self.queue.cert.clone().zip(self.queue.key.clone())
    }

    pub(super) fn authorities(&self) -> Result<Option<Vec<u8>>, ServeError> {
        self.queue.ca.as_deref().map(read).transpose()
    }

    pub(super) fn certificate(&self) -> Result<Option<ClientCertificate>, ServeError> {
        let read = |(chain, key): (PathBuf, PathBuf)| {
            let read = |path: &Path| read(path);
            Ok(ClientCertificate { chain: read(&chain)?, key: read(&key)? })
        };
        self.certificate_files().map(read).transpose()
    }

    /// What is wrong with the queue.
    pub(super) fn wrong<T: ToString>(&self) -> impl Fn(T) -> ServeError {
        super::wrong(self.queue)
    }
}
