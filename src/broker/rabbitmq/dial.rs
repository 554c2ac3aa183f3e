//! Opening a connection, and making sure that one that is given up is gone.

use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::tcp::RustlsConnector;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties, Error};
use rustls::RootCertStore;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::topology;
use super::{Declared, RabbitMqOptions, Topology};
use crate::broker::OptionsError;
use crate::tls;

/// How long a connection may take to say goodbye, before it is cut.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long a broker that is well may take to open a connection and a channel.
const ANSWER: Duration = Duration::from_secs(5);

/// AMQP's short strings.
pub(super) const SHORT_BYTES: usize = 255;

/// Knows how to open a connection.
pub(super) struct Dialer {
    uri: AMQPUri,
    /// Of connections over TLS.
    connector: Option<RustlsConnector>,
    pub(super) options: RabbitMqOptions,
}

/// An open connection, and a channel on it.
pub(super) struct Dialled {
    pub(super) connection: Connection,
    pub(super) channel: Channel,
    lifeline: Lifeline,
}

impl Dialer {
    /// Checks all that can be checked without connecting.
    pub(super) fn new(options: RabbitMqOptions) -> Result<Self, OptionsError> {
        let wrong = |what: String| OptionsError(format!("RabbitMQ: {what}"));
        let mut uri: AMQPUri = options.url.parse().map_err(|error| wrong(format!("the URL: {error}")))?;
        let host = options.url.split_once("://").map_or("", |(_, rest)| rest);
        if host.is_empty() || host.starts_with(['/', '?']) || host.contains('[') {
            return Err(wrong("the URL needs the name of a host, or an IPv4 address".to_owned()));
        }
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        if let Some(user) = &options.user {
            uri.authority.userinfo.username.clone_from(user);
        }
        if let Some(password) = &options.password {
            uri.authority.userinfo.password.clone_from(password);
        }
        uri.query.heartbeat = Some(u16::try_from(options.heartbeat.as_secs()).unwrap_or(u16::MAX).max(1));
        let names = [&options.exchange, &uri.vhost].into_iter();
        let names =
            names.chain(declared(&options).flat_map(|all| &all.bindings).flat_map(|b| [&b.queue, &b.routing_key]));
        if names.into_iter().any(|name| name.len() > SHORT_BYTES) {
            return Err(wrong(format!("a name is longer than {SHORT_BYTES} bytes")));
        }
        let connector = match uri.scheme {
            AMQPScheme::AMQP => None,
            AMQPScheme::AMQPS => Some(connector(&options).map_err(wrong)?),
        };
        Ok(Self { uri, connector, options })
    }

    /// Opens a connection and sees to the topology. Dropped before its end, it leaves nothing behind.
    pub(super) async fn dial(&self) -> Result<Dialled, Error> {
        let dialled = self.open().await?;
        topology::prepare(&dialled.connection, &self.options).await?;
        Ok(dialled)
    }

    /// Whether the broker answers somebody who asks for nothing in particular.
    pub(super) async fn is_answered(&self) -> bool {
        match timeout(self.options.time_limit.min(ANSWER), self.open()).await {
            Ok(Ok(dialled)) => {
                dialled.hang_up();
                true
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Opens a connection, and a channel on it.
    async fn open(&self) -> Result<Dialled, Error> {
        let (lifeline, connector) = (Lifeline::default(), self.connector.clone());
        // The client's thread has the closure, and must not keep itself alive by it.
        let held = Arc::downgrade(&lifeline.0);
        let properties = ConnectionProperties::default().with_connection_name("oncegate".into());
        let runtime = lapin::runtime::default_runtime()?;
        let connection = Connection::connector(
            self.uri.clone(),
            runtime,
            async move |uri, runtime| {
                let addresses = lookup_host((uri.authority.host.as_str(), uri.authority.port)).await?;
                let stream = AsyncTcpStream::connect(&runtime, addresses.collect::<Vec<_>>()).await?;
                if let AsyncTcpStream::Plain(plain) = &stream {
                    plain.get_ref().set_nodelay(true)?;
                    let wanted = held.upgrade().ok_or_else(|| io::Error::other("nobody waits for it any more"))?;
                    wanted.hold(plain.get_ref().as_fd().try_clone_to_owned()?.into());
                }
                match &connector {
                    None => Ok(stream),
                    Some(connector) => Ok(stream.into_rustls(connector, &uri.authority.host).await?),
                }
            },
            properties,
        )
        .await?;
        let channel = connection.create_channel().await?;
        Ok(Dialled { connection, channel, lifeline })
    }
}

impl Dialled {
    /// Says goodbye, in the background: a broker that does not answer must not hold up the next connection.
    pub(super) fn hang_up(self) {
        tokio::spawn(self.end());
    }

    /// Says goodbye.
    pub(super) async fn end(self) {
        // Whether or not there is an answer, the lifeline ends it.
        drop(timeout(GOODBYE, self.connection.close(200, "goodbye".into())).await);
        drop(self.lifeline);
    }
}

pub(super) fn declared(options: &RabbitMqOptions) -> impl Iterator<Item = &Declared> {
    match &options.topology {
        Topology::Declare(declared) => Some(declared).into_iter(),
        Topology::Given | Topology::Verify => None.into_iter(),
    }
}

/// Cuts the connection when it is dropped. The client has a thread for each connection, which would wait for a
/// broker that says nothing: for ever during the handshake, or while it is blocked.
#[derive(Default)]
struct Lifeline(Arc<Held>);

#[derive(Default)]
struct Held(Mutex<Option<TcpStream>>);

impl Held {
    fn hold(&self, stream: TcpStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(stream) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // Fails where it is closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

/// With the only authorities that are trusted, in place of the client's way to add some to the public ones.
fn connector(options: &RabbitMqOptions) -> Result<RustlsConnector, String> {
    let mut roots = RootCertStore::empty();
    match &options.authorities {
        None => roots = tls::public_authorities(),
        Some(pem) => tls::add_authorities(&mut roots, pem).map_err(|error| format!("the authorities: {error}"))?,
    }
    Ok(tls::client_config(roots, options.certificate.as_ref())?.into())
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("options", &self.options).finish_non_exhaustive()
    }
}
