//! A TCP proxy in front of PostgreSQL that cuts connections in the middle of a commit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The statement as it goes over the wire, which no isolation level's name is.
const COMMIT: &[u8] = b"COMMIT\0";

/// How a batch begins that commits by itself, behind the name under which it is prepared.
const BATCH: &[u8] = b"\0WITH changed AS";

/// How sqlx begins the names of what it prepares.
const NAME: &[u8] = b"sqlx_s_";

/// One in so many commits is cut.
const ODDS: u32 = 4;

/// The proxy. Ends with the test's runtime.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    cuts: AtomicBool,
    /// Both kinds take turns.
    is_next_before: AtomicBool,
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
    let mut commits = Commits::default();
    // The answer comes when the commit is durable.
    let mut cut_at_answer = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let chunk = &asked[..read?];
                if chunk.is_empty() {
                    return Ok(());
                }
                let cut = commits.are_in(chunk) && shared.cuts.load(Ordering::Relaxed) && rng.random_range(0..ODDS) == 0;
                if cut && shared.is_next_before.fetch_not(Ordering::Relaxed) {
                    shared.before.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                server.write_all(chunk).await?;
                cut_at_answer |= cut;
            }
            read = server.read(&mut answered) => {
                let chunk = &answered[..read?];
                if chunk.is_empty() {
                    return Ok(());
                }
                if cut_at_answer {
                    shared.after.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                client.write_all(chunk).await?;
            }
        }
    }
}

/// Tells what commits on one connection.
#[derive(Debug, Default)]
struct Commits {
    /// What is sent to run a prepared batch: its name between two zeros.
    batches: Vec<Vec<u8>>,
}

impl Commits {
    fn are_in(&mut self, chunk: &[u8]) -> bool {
        if let Some(place) = find(chunk, BATCH) {
            // Not by what a name may contain: the length of the message stands before it, and may look like a letter.
            let name = chunk[..place].windows(NAME.len()).rposition(|window| window == NAME).unwrap();
            self.batches.push([b"\0", &chunk[name..=place]].concat());
            return false;
        }
        find(chunk, COMMIT).is_some() || self.batches.iter().any(|batch| find(chunk, batch).is_some())
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
