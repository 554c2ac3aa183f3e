//! A store that is cut off: nothing is executed without an entry, and no answer waits for ever.

use std::time::Duration;

use oncegate::engine::{Arrived, Options, Reason, Recorded, Verdict};
use oncegate::entry::Outcome;
use oncegate::storage::{Store, StoreOptions};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::upstream::{Upstream, answer, completed, timed_out};
use super::{Gateway, Setup, assert_in_progress, assert_replay, request, soon, until};
use crate::servers::database::{Database, Kind};

/// A line to a server that can be cut: connections die, new ones are closed at once.
struct Line {
    port: u16,
    up: watch::Sender<bool>,
}

impl Line {
    async fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (up, is_up) = watch::channel(true);
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *is_up.borrow() {
                    tokio::spawn(carry(client, server, is_up.clone()));
                }
            }
        });
        Self { port, up }
    }

    fn cut(&self) {
        self.up.send_replace(false);
    }

    fn mend(&self) {
        self.up.send_replace(true);
    }
}

async fn carry(mut client: TcpStream, server: u16, mut is_up: watch::Receiver<bool>) {
    let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = is_up.wait_for(|up| !up) => {}
    }
}

/// A gateway whose store is at the end of a line.
async fn at_the_end_of_a_line(kind: Kind) -> (Database, Line, Gateway) {
    let database = Database::create(kind).await;
    database.open().migrate().await.unwrap();
    let (head, rest) = database.url.split_once("@127.0.0.1:").expect("a server of this machine");
    let (port, name) = rest.split_once('/').unwrap();
    let line = Line::to(port.parse().unwrap()).await;
    let store = Store::open(&StoreOptions::new(format!("{head}@127.0.0.1:{}/{name}", line.port))).unwrap();
    let options = Options { record_patience: Duration::from_millis(200), ..Options::default() };
    let gateway = Gateway::begin(store, Setup { options, ..Setup::default() }).await;
    (database, line, gateway)
}

async fn nothing_is_executed_while_the_store_is_cut_off(kind: Kind) {
    let (_database, line, gateway) = at_the_end_of_a_line(kind).await;
    let upstream = Upstream::default();
    gateway.arrive(request("known", "1"), upstream.pays()).await;
    line.cut();
    for key in ["a", "b"] {
        let told = soon(gateway.arrive(request(key, "1"), upstream.never())).await;
        assert!(matches!(told, Arrived::Told(Verdict::Unavailable(Reason::Store))), "{told:?}");
    }
    assert_replay(&gateway.arrive(request("known", "1"), upstream.never()).await, "paid");
    line.mend();
    until("works again", || async {
        matches!(gateway.arrive(request("a", "1"), upstream.pays()).await, Arrived::Executed { .. })
    })
    .await;
    assert_eq!(upstream.calls(), 2);
}

async fn an_answer_does_not_wait_for_ever_and_its_completion_is_recorded_later(kind: Kind) {
    let (database, line, gateway) = at_the_end_of_a_line(kind).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gateway.send(request("a", "1"), run);
    held.begun().await;
    line.cut();
    held.ends(completed("paid"));
    let told = soon(sent).await.unwrap();
    assert!(matches!(told, Arrived::Executed { answer: "paid", recorded: Recorded::Nothing }), "{told:?}");
    assert_in_progress(&gateway.arrive(request("a", "1"), upstream.never()).await);
    line.mend();
    until("recorded", || gateway.is_completed("a")).await;
    assert_replay(&soon(gateway.arrive(super::patient(request("a", "1")), upstream.never())).await, "paid");
    let other = super::on(&database, Setup::default()).await;
    assert_replay(&other.arrive(request("a", "1"), upstream.never()).await, "paid");
    assert_eq!(upstream.calls(), 1);
}

async fn a_late_answer_is_not_missed_while_unknown_can_not_be_recorded(kind: Kind) {
    let (_database, line, gateway) = at_the_end_of_a_line(kind).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gateway.send(request("a", "1"), run);
    held.begun().await;
    line.cut();
    let (_, late) = timed_out();
    drop(late);
    // An exchange that goes on only while somebody drives it.
    let (polled, driven) = tokio::sync::oneshot::channel();
    let late = Box::pin(async move {
        polled.send(()).unwrap();
        Outcome::Completed(answer("paid"))
    });
    held.ends(oncegate::engine::Executed::TimedOut { answer: "timed out", late });
    soon(driven).await.unwrap();
    let told = soon(sent).await.unwrap();
    assert!(matches!(told, Arrived::Executed { answer: "timed out", recorded: Recorded::Nothing }), "{told:?}");
    line.mend();
    until("recorded", || gateway.is_completed("a")).await;
    assert_replay(&soon(gateway.arrive(super::patient(request("a", "1")), upstream.never())).await, "paid");
}

/// As after the drain time of a process that stops.
#[tokio::test]
async fn who_comes_when_nothing_is_written_any_more_is_told_so() {
    let (_database, gateway) = super::gateway(Kind::Sqlite, Setup::default()).await;
    let upstream = Upstream::default();
    gateway.arrive(request("known", "1"), upstream.pays()).await;
    drop(gateway._stop_committer);
    // What the writer still takes before it ends is executed.
    until("it has ended", || async {
        let key = rand::random::<u64>().to_string();
        match soon(gateway.engine.arrive(request(&key, "1"), upstream.pays())).await {
            Arrived::Executed { .. } => false,
            told @ Arrived::Told(_) => matches!(told, Arrived::Told(Verdict::Unavailable(Reason::Store))),
        }
    })
    .await;
    let told = soon(gateway.engine.arrive(request("late", "1"), upstream.never())).await;
    assert!(matches!(told, Arrived::Told(Verdict::Unavailable(Reason::Store))), "{told:?}");
    assert_replay(&gateway.engine.arrive(request("known", "1"), upstream.never()).await, "paid");
}

macro_rules! on_servers {
    ($($test:ident),* $(,)?) => {
        mod postgres { $(#[tokio::test] async fn $test() { super::$test(super::Kind::Postgres).await; })* }
        mod mysql { $(#[tokio::test] async fn $test() { super::$test(super::Kind::MySql).await; })* }
    };
}
on_servers!(
    nothing_is_executed_while_the_store_is_cut_off,
    an_answer_does_not_wait_for_ever_and_its_completion_is_recorded_later,
    a_late_answer_is_not_missed_while_unknown_can_not_be_recorded,
);
