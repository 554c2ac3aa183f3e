//! Clients that pay until they are told to stop, and what they were told.

use std::collections::HashMap;
use std::net::SocketAddr;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client::{Client, End};

/// Clients at a time.
const CLIENTS: usize = 16;

/// What each key's callers were told.
pub(super) type History = HashMap<String, Vec<End>>;

/// Clients at work.
#[derive(Debug)]
pub(super) struct Load {
    clients: JoinSet<History>,
    stop: CancellationToken,
}

impl Load {
    /// Starts clients that pay at any of `gateways`.
    pub(super) fn start(client: &Client, gateways: &[SocketAddr]) -> Self {
        let stop = CancellationToken::new();
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(one(client.clone(), gateways.to_vec(), number, stop.clone()));
        }
        Self { clients, stop }
    }

    /// Begins no more payments, and returns what became of all.
    pub(super) async fn stop(mut self) -> History {
        self.stop.cancel();
        let mut history = History::new();
        while let Some(client) = self.clients.join_next().await {
            history.extend(client.unwrap());
        }
        history
    }
}

/// Pays one key after the other. Some requests are sent twice at once, and some again later.
async fn one(client: Client, gateways: Vec<SocketAddr>, number: usize, stop: CancellationToken) -> History {
    let mut history = History::new();
    while !stop.is_cancelled() {
        let count = history.len();
        let key = format!("c{number}-{count}");
        let ends = match count % 3 {
            0 => {
                let twice = tokio::join!(client.pay(&gateways, &key), client.pay(&gateways, &key));
                vec![twice.0, twice.1]
            }
            _ => vec![client.pay(&gateways, &key).await],
        };
        history.insert(key, ends);
        if count % 4 == 3 {
            let earlier = format!("c{number}-{}", rand::random_range(0..count));
            let end = client.pay(&gateways, &earlier).await;
            history.get_mut(&earlier).unwrap().push(end);
        }
    }
    history
}
