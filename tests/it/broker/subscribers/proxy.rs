//! A TCP proxy that cuts all its connections when it is told to.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The proxy. Ends with the test's runtime.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) port: u16,
    cuts: watch::Sender<u64>,
}

impl Proxy {
    /// In front of a server on a port of the loopback interface.
    pub(super) async fn start(server: u16) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), server)
    }

    /// Where the proxy's port has to be known before the server's.
    pub(super) fn start_on(listener: TcpListener, server: u16) -> Self {
        let port = listener.local_addr().unwrap().port();
        let (cuts, cut) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, cut.clone()));
            }
        });
        Self { port, cuts }
    }

    /// Ends every connection, in both directions and in the middle of whatever is under way.
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn pass(mut client: TcpStream, server: u16, mut cut: watch::Receiver<u64>) {
    cut.mark_unchanged();
    // A server that is not there is seen as a connection that ends.
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    tokio::select! {
        ended = copy_bidirectional(&mut client, &mut server) => drop(ended),
        // Also when the proxy is gone, with its test.
        told = cut.changed() => drop(told),
    }
}
