//! What a NATS publisher is configured with.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::ServerAddr;

use super::identity;
use crate::broker::hidden::Hidden;

/// Settings of a NATS JetStream queue.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Servers of one cluster, `nats://host[:port]` or `tls://host[:port]`, tried in random order. Passwords do
    /// not belong here.
    pub servers: Vec<String>,
    /// Who we are.
    pub credentials: NatsCredentials,
    /// Insist on TLS also with `nats://`. `tls://` always does, and so do servers that say so.
    pub require_tls: bool,
    /// PEM file of certificate authorities that are trusted, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM files of our certificate and its key, for servers that ask for one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// The stream that takes the events. Looked at after each connecting, so that a missing one is found before
    /// the first event. `None`: whatever streams the administrators have set up.
    pub stream: Option<NatsStream>,
    /// Bounds a connection's dialling, TLS and authentication, for each server.
    pub connect_timeout: Duration,
    /// Bounds everything that can happen to an event, from the call of `publish` to its end. Also how soon a
    /// connection with a dead peer is given up.
    pub publish_timeout: Duration,
    /// Events sent and not yet confirmed. With 1024 and a server at 10 ms, 100,000 events/s.
    pub in_flight: usize,
    /// Events that may wait to be sent. Beyond it `publish` says `Unavailable`: more than a relay's window, so
    /// that it is never seen there.
    pub queue: usize,
}

/// Who we are to a NATS server. Shows no secret.
#[derive(Debug, Clone)]
pub enum NatsCredentials {
    /// Nobody in particular.
    None,
    /// A user and its password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: Hidden,
    },
    /// A token.
    Token(Hidden),
    /// The seed of an NKey (`SU...`), which signs the server's challenge.
    NKey(Hidden),
    /// A file with a JWT and the seed of its NKey (`.creds`). Read for each connection, so that a new one is
    /// taken without a restart.
    File(PathBuf),
}

/// A JetStream stream that a queue needs.
#[derive(Debug, Clone)]
pub struct NatsStream {
    /// Its name.
    pub name: String,
    /// What it takes, such as `payments.>`. All of them must be among the subjects of a stream that exists.
    pub subjects: Vec<String>,
    /// What to do if there is none.
    pub missing: MissingStream,
}

/// What to do without a stream.
#[derive(Debug, Clone)]
pub enum MissingStream {
    /// Nothing is published until somebody has made it.
    Fail,
    /// It is made, on disk and without limits. One that exists is never changed.
    Create {
        /// Copies in the cluster. Three survive the loss of a server; one does not.
        replicas: usize,
        /// How long the stream knows the ids of what it has. A retry within it is no second message.
        duplicate_window: Duration,
    },
}

impl NatsOptions {
    /// The defaults, for `servers`.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            credentials: NatsCredentials::None,
            require_tls: false,
            ca_file: None,
            client_certificate: None,
            stream: None,
            connect_timeout: Duration::from_secs(3),
            publish_timeout: Duration::from_secs(10),
            in_flight: 1024,
            queue: 16_384,
        }
    }

    /// Checks what can be checked without connecting, and returns the servers' addresses.
    pub(super) fn addresses(&self) -> Result<Vec<ServerAddr>, InvalidNats> {
        if self.servers.is_empty() {
            return Err(InvalidNats::NoServer);
        }
        if let NatsCredentials::NKey(seed) = &self.credentials {
            identity::key_pair(seed.expose()).map_err(|_| InvalidNats::NKey)?;
        }
        self.servers.iter().map(|server| address(server)).collect()
    }
}

/// Why a NATS queue can't be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum InvalidNats {
    /// No server at all.
    #[error("a NATS queue has at least one server")]
    NoServer,
    /// Not the address of a server. It is not shown whole: it may hold a password.
    #[error("a NATS server is nats://host[:port] or tls://host[:port], without a user or password")]
    Server,
    /// Nothing may be in flight or wait.
    #[error("a NATS queue needs room for at least one event in flight and one in the queue")]
    NoRoom,
    /// What is subscribed to can't be.
    #[error("a NATS subscription {0}")]
    Subscription(&'static str),
    /// The seed of the NKey is none.
    #[error("the NKey's seed can't be read")]
    NKey,
}

fn address(server: &str) -> Result<ServerAddr, InvalidNats> {
    let address: ServerAddr = server.parse().map_err(|_| InvalidNats::Server)?;
    let known = matches!(address.scheme(), "nats" | "tls") && !address.host().is_empty();
    let bare = address.username().is_none() && address.password().is_none();
    if known && bare { Ok(address) } else { Err(InvalidNats::Server) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(server: &str) -> Result<Vec<ServerAddr>, InvalidNats> {
        NatsOptions::new(vec![server.to_owned()]).addresses()
    }

    #[test]
    fn servers_are_addresses_without_secrets() {
        for server in ["nats://a", "tls://a:4443", "nats://[::1]:4222", "nats://a.example:1"] {
            assert!(addresses(server).is_ok(), "{server}");
        }
        for server in
            ["nats://u:hunter2@a", "nats://hunter2@a", "nats://:hunter2@a", "http://a", "ws://a", "nats://", ""]
        {
            let error = addresses(server).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let secret = || Hidden::new("hunter2");
        for credentials in [
            NatsCredentials::Password { user: "u".to_owned(), password: secret() },
            NatsCredentials::Token(secret()),
            NatsCredentials::NKey(secret()),
        ] {
            assert!(!format!("{credentials:?}").contains("hunter2"));
        }
    }
}
