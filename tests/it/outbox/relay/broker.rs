//! A small broker on a real socket: it writes down what reaches it, in order, and answers as a test says.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use oncegate::broker::{CONFIRMED, Ordering, PublishError, Published, Publisher};
use oncegate::outbox::event::Outgoing;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// What reached the broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Received {
    pub(super) id: String,
    pub(super) sequence: i64,
    pub(super) epoch: i64,
    pub(super) key: String,
}

/// What the broker makes of a key's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    Confirm,
    Refuse,
    Never,
    /// Its topic takes nothing.
    Away,
    /// Takes them, and says nothing for now.
    Silent,
}

#[derive(Debug, Default)]
struct State {
    received: Vec<Received>,
    manners: HashMap<String, Manner>,
    /// Where the answers to silent keys go once they are let go.
    unanswered: Vec<(Received, mpsc::UnboundedSender<String>)>,
    /// The most events of which the broker had not said anything, at any time.
    outstanding: usize,
    most_outstanding: usize,
    /// Connections end at once.
    is_down: bool,
    cut: CancellationToken,
}

#[derive(Debug, Clone)]
pub(super) struct Broker {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Broker {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let broker = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let accepting = broker.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (is_down, cut) = {
                    let state = accepting.state();
                    (state.is_down, state.cut.clone())
                };
                if !is_down {
                    let serving = accepting.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = serving.serve(stream) => {}
                            () = cut.cancelled() => {}
                        }
                    });
                }
            }
        });
        broker
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    async fn serve(&self, mut stream: TcpStream) {
        let (reading, mut writing) = stream.split();
        let mut lines = BufReader::new(reading).lines();
        let (answer, mut answers) = mpsc::unbounded_channel();
        loop {
            tokio::select! {
                line = lines.next_line() => match line {
                    Ok(Some(line)) => self.take(&line, &answer),
                    Ok(None) | Err(_) => return,
                },
                Some(answer) = answers.recv() => {
                    if writing.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn take(&self, line: &str, answer: &mpsc::UnboundedSender<String>) {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().unwrap().to_owned();
        let received =
            Received { id: next(), sequence: next().parse().unwrap(), epoch: next().parse().unwrap(), key: next() };
        let mut state = self.state();
        state.received.push(received.clone());
        state.outstanding += 1;
        state.most_outstanding = state.most_outstanding.max(state.outstanding);
        match state.manners.get(&received.key).copied().unwrap_or(Manner::Confirm) {
            Manner::Silent => state.unanswered.push((received, answer.clone())),
            manner => {
                state.outstanding -= 1;
                answer.send(spoken(&received, manner)).ok();
            }
        }
    }

    /// From now on.
    pub(super) fn treats(&self, key: &str, manner: Manner) {
        self.state().manners.insert(key.to_owned(), manner);
    }

    /// Confirms what was kept waiting, and everything from now on.
    pub(super) fn let_go(&self) {
        let mut state = self.state();
        state.manners.retain(|_, manner| *manner != Manner::Silent);
        for (received, answer) in std::mem::take(&mut state.unanswered) {
            state.outstanding -= 1;
            answer.send(spoken(&received, Manner::Confirm)).ok();
        }
    }

    /// Ends every connection, and each new one.
    pub(super) fn go_down(&self) {
        let mut state = self.state();
        state.is_down = true;
        std::mem::take(&mut state.cut).cancel();
    }

    pub(super) fn come_up(&self) {
        self.state().is_down = false;
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.state().received.clone()
    }

    pub(super) fn count(&self, key: &str) -> usize {
        self.state().received.iter().filter(|received| received.key == key).count()
    }

    pub(super) fn most_outstanding(&self) -> usize {
        self.state().most_outstanding
    }

    /// The order in which a key's events came for the first time.
    pub(super) fn first_times(&self) -> HashMap<String, Vec<i64>> {
        let mut seen = HashSet::new();
        let mut keys: HashMap<String, Vec<i64>> = HashMap::new();
        for received in self.received() {
            if seen.insert(received.id) {
                keys.entry(received.key).or_default().push(received.sequence);
            }
        }
        keys
    }

    /// Each key's events came in order, for the first time.
    pub(super) fn assert_ordered(&self) {
        for (key, sequences) in self.first_times() {
            assert!(sequences.is_sorted(), "{key}: {sequences:?}");
        }
    }
}

fn spoken(received: &Received, manner: Manner) -> String {
    format!("{} {manner:?}\n", received.sequence)
}

/// Publishes over one connection, opened when it is needed.
#[derive(Debug)]
pub(super) struct Line {
    ordering: Ordering,
    calls: mpsc::UnboundedSender<(Outgoing, Waiter)>,
}

type Waiter = oneshot::Sender<Published>;

impl Line {
    pub(super) fn to(broker: &Broker, ordering: Ordering) -> Arc<Self> {
        let (calls, mut coming) = mpsc::unbounded_channel();
        let address = broker.address;
        tokio::spawn(async move {
            while let Some(first) = coming.recv().await {
                connected(address, first, &mut coming).await;
            }
        });
        Arc::new(Self { ordering, calls })
    }
}

/// One connection's life. Whoever waits when it ends is told so.
async fn connected(
    address: SocketAddr,
    first: (Outgoing, Waiter),
    coming: &mut mpsc::UnboundedReceiver<(Outgoing, Waiter)>,
) {
    let gone = || Err(PublishError::Unavailable("the connection ended".to_owned()));
    let mut waiting: HashMap<i64, Waiter> = HashMap::new();
    if let Ok(mut stream) = TcpStream::connect(address).await {
        stream.set_nodelay(true).unwrap();
        let (reading, mut writing) = stream.split();
        let mut lines = BufReader::new(reading).lines();
        let mut next = Some(first);
        loop {
            if let Some((outgoing, waiter)) = next.take() {
                let Outgoing { event, sequence, epoch, .. } = outgoing;
                waiting.insert(sequence, waiter);
                let frame = format!("{} {sequence} {epoch} {}\n", event.id, event.key);
                if writing.write_all(frame.as_bytes()).await.is_err() {
                    break;
                }
            }
            tokio::select! {
                call = coming.recv() => match call {
                    Some(call) => next = Some(call),
                    None => break,
                },
                line = lines.next_line() => match line {
                    Ok(Some(line)) => answered(&line, &mut waiting),
                    Ok(None) | Err(_) => break,
                },
            }
        }
    } else {
        first.1.send(gone()).ok();
    }
    for (_, waiter) in waiting {
        waiter.send(gone()).ok();
    }
}

fn answered(line: &str, waiting: &mut HashMap<i64, Waiter>) {
    let (sequence, said) = line.split_once(' ').unwrap();
    let result = match said {
        "Confirm" => CONFIRMED,
        "Refuse" => Err(PublishError::Refused("refused".to_owned())),
        "Away" => Err(PublishError::TopicUnavailable("no leader".to_owned())),
        "Never" => Err(PublishError::Never("never".to_owned())),
        _ => panic!("{line}"),
    };
    if let Some(waiter) = waiting.remove(&sequence.parse().unwrap()) {
        waiter.send(result).ok();
    }
}

impl Publisher for Line {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        let (waiter, told) = oneshot::channel();
        let gone = || Err(PublishError::Unavailable("the publisher has ended".to_owned()));
        if self.calls.send((event, waiter)).is_err() {
            return Box::pin(std::future::ready(gone()));
        }
        Box::pin(async move { told.await.unwrap_or_else(|_| gone()) })
    }

    fn ordering(&self) -> Ordering {
        self.ordering
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
