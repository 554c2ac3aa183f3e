//! Accepts connections and serves HTTP/1.1 and HTTP/2 on them until told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::connection::{Handler, Protocol};
use super::drain::{Connections, Drained};
use super::workers::Dealer;
use crate::upstream::Held;

/// Pause after a failed accept, so that running out of file descriptors does not burn a core; short enough
/// that nobody notices once one is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What bounds a listener and its connections.
#[derive(Debug, Clone)]
pub struct ListenerOptions {
    /// Longest wait for the whole head of a request, against clients that drip it. hyper starts it anew when
    /// an answer is out, so that it also is how long a connection may be kept unused.
    pub head_timeout: Duration,
    /// Longest TLS handshake.
    pub handshake_timeout: Duration,
    /// Most bytes of a head; not less than 8192, which is hyper's least.
    pub max_head_bytes: usize,
    /// Most header fields of an HTTP/1.1 request.
    pub max_headers: usize,
    /// Most connections at a time. At the bound nothing is accepted until one ends: the excess waits in the
    /// kernel's queue, where it costs us nothing, instead of being turned away with work.
    pub max_connections: usize,
    /// Most requests at a time on one HTTP/2 connection.
    pub max_streams: u32,
    /// How long requests being answered may take to finish at shutdown.
    pub drain_timeout: Duration,
    /// Speak TLS; see [`super::tls::server_config`].
    pub tls: Option<Arc<ServerConfig>>,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            max_head_bytes: 64 * 1024,
            max_headers: 100,
            max_connections: 10_000,
            max_streams: 250,
            drain_timeout: Duration::from_secs(30),
            tls: None,
        }
    }
}

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    options: ListenerOptions,
}

impl Listener {
    /// Binds `addr`, also while connections of an earlier process linger there.
    ///
    /// # Errors
    /// If the address can't be bound.
    pub async fn bind(addr: SocketAddr, mut options: ListenerOptions) -> io::Result<Self> {
        // tokio sets SO_REUSEADDR. hyper panics below its least buffer.
        let tcp = TcpListener::bind(addr).await?;
        options.max_head_bytes = options.max_head_bytes.max(8192);
        Ok(Self { tcp, options })
    }

    /// Where it listens; names the port where `bind` was given port 0.
    ///
    /// # Errors
    /// If the socket can't be asked.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves on the workers that `dealer` deals connections to, until `shutdown`; then accepts nothing more, lets the connections finish what they are doing,
    /// and cuts those that have not finished within the drain time-out.
    ///
    /// Connections that were upgraded have left HTTP and are not waited for.
    pub async fn serve<S: Handler>(self, service: S, dealer: Dealer, shutdown: CancellationToken) -> Drained {
        let connections = Connections::new(shutdown);
        let protocol = Protocol::new(&self.options, connections.finish.clone());
        let places = Arc::new(Semaphore::new(self.options.max_connections.min(Semaphore::MAX_PERMITS)));
        while let Some((stream, addr, place)) = self.next(&places, &connections.finish).await {
            let (protocol, service) = (protocol.clone(), service.clone());
            connections.spawn_on(dealer.next(), async move {
                match rehomed(stream) {
                    Ok(stream) => protocol.serve(stream, addr, Held(Arc::new(place)), service).await,
                    Err(error) => tracing::warn!(%error, "a connection could not be handed to its worker"),
                }
            });
        }
        drop(self.tcp);
        connections.drain(self.options.drain_timeout).await
    }

    /// The next connection, when there is place for it; `None` at shutdown.
    async fn next(
        &self,
        places: &Arc<Semaphore>,
        shutdown: &CancellationToken,
    ) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let accepted = async {
            let place = Arc::clone(places).acquire_owned().await.ok()?;
            let (stream, addr) = self.accept().await;
            Some((stream, addr, place))
        };
        shutdown.run_until_cancelled(accepted).await.flatten()
    }

    /// Accepts, whatever it takes: an error concerns one connection, or passes when a descriptor is free.
    async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.tcp.accept().await {
                Ok(accepted) => return accepted,
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "can't accept connections, trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// The same connection, watched by the runtime that this is called in instead of the listener's.
fn rehomed(stream: TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(stream.into_std()?)
}

/// The connection that was to be accepted has failed; the listener has not.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}
