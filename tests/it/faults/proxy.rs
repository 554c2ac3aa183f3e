//! A TCP proxy in front of PostgreSQL that cuts connections in the middle of a COMMIT.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The statement as it goes over the wire, which no isolation level's name is.
const COMMIT: &[u8] = b"COMMIT\0";

/// One in so many commits is cut.
const ODDS: u32 = 20;

/// The proxy. Ends with the test's runtime.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    cuts: AtomicBool,
    /// Commits that the server never saw.
    before: AtomicU32,
    /// Commits whose answer nobody saw.
    after: AtomicU32,
}

impl Proxy {
    pub(super) async fn start(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut rng = SmallRng::seed_from_u64(seed);
            while let Ok((client, _)) = listener.accept().await {
                let rng = SmallRng::seed_from_u64(rng.random());
                let shared = Arc::clone(&accepting);
                // However a connection ends, both sides see it end.
                tokio::spawn(async move { drop(pass(client, server, rng, &shared).await) });
            }
        });
        Self { address, shared }
    }

    /// Begins or ends the cutting.
    pub(super) fn cut(&self, cuts: bool) {
        self.shared.cuts.store(cuts, Ordering::Relaxed);
    }

    /// How many commits were cut off before the server saw them, and after.
    pub(super) fn cuts(&self) -> (u32, u32) {
        (self.shared.before.load(Ordering::Relaxed), self.shared.after.load(Ordering::Relaxed))
    }
}

async fn pass(mut client: TcpStream, server: SocketAddr, mut rng: SmallRng, shared: &Shared) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut asked, mut answered) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let chunk = &asked[..read?];
                if chunk.is_empty() {
                    return Ok(());
                }
                let commits = chunk.windows(COMMIT.len()).any(|window| window == COMMIT);
                let cut = commits && shared.cuts.load(Ordering::Relaxed) && rng.random_range(0..ODDS) == 0;
                if cut && rng.random() {
                    shared.before.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                server.write_all(chunk).await?;
                if cut {
                    // The answer comes when the commit is durable.
                    server.readable().await?;
                    shared.after.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
            }
            read = server.read(&mut answered) => {
                let chunk = &answered[..read?];
                if chunk.is_empty() {
                    return Ok(());
                }
                client.write_all(chunk).await?;
            }
        }
    }
}
