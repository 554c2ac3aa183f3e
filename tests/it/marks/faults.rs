//! What becomes of calls when their Redis is down, slow, emptied, moved or replaced.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use oncegate::clock;
use oncegate::engine::marks::{Marks, Reserved, Unavailable};
use oncegate::marks::circuit::CircuitOptions;
use oncegate::marks::{MarksOptions, connect};
use tokio::task::JoinSet;

use super::{LONG, completed, eventually, in_progress, key, patient, random_id};
use crate::servers::process::free_port;
use crate::servers::redis::{Cluster, Redis, Sentinels};

/// What the stores of these tests allow a call.
const TIME_LIMIT: Duration = Duration::from_millis(300);

/// What a busy machine may add to it.
const SLACK: Duration = Duration::from_secs(2);

fn impatient(url: &str) -> Arc<dyn Marks> {
    let pause = Duration::from_millis(50);
    let circuit = CircuitOptions { failures: 3, pause, longest_pause: pause * 4 };
    connect(&MarksOptions { url: url.into(), time_limit: TIME_LIMIT, circuit, ..MarksOptions::default() }).unwrap()
}

/// Every kind of call is refused within the time limit.
async fn assert_unavailable_in_time(marks: &dyn Marks) {
    let (id, mark) = (random_id(), in_progress());
    let start = clock::now();
    assert!(marks.reserve(id, &mark, LONG).await.is_err());
    assert!(marks.get(id).await.is_err());
    assert!(marks.complete(id, &completed(&mark), LONG).await.is_err());
    assert!(marks.release(id, mark.nonce).await.is_err());
    assert!(marks.extend(&[(id, mark.nonce)], LONG).await.is_err());
    assert!(clock::now() - start < TIME_LIMIT * 5 + SLACK, "{:?}", clock::now() - start);
}

/// Asks until the breaker refuses without asking the store.
async fn breaker_opens(marks: &dyn Marks) {
    eventually("the breaker opens", async || {
        marks.get(random_id()).await.is_err_and(|Unavailable(reason)| reason.contains("not asked"))
    })
    .await;
}

pub(super) async fn works_again(marks: &dyn Marks) {
    eventually("the store works again", async || {
        marks.reserve(random_id(), &in_progress(), LONG).await == Ok(Reserved::Acquired)
    })
    .await;
    let (id, mark) = (random_id(), in_progress());
    assert_eq!(marks.reserve(id, &mark, LONG).await, Ok(Reserved::Acquired));
    assert_eq!(marks.extend(&[(id, mark.nonce)], LONG).await, Ok(()));
    assert_eq!(marks.complete(id, &completed(&mark), LONG).await, Ok(true));
    assert_eq!(marks.get(id).await, Ok(Some(completed(&mark))));
    assert_eq!(marks.release(id, mark.nonce).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_is_unavailable_at_once_and_found_again_after_its_restart() {
    let server = Redis::start();
    let port = server.port;
    let marks = impatient(&server.url);
    works_again(&*marks).await;
    drop(server);
    assert_unavailable_in_time(&*marks).await;
    breaker_opens(&*marks).await;
    let _server = Redis::start_on(port, &[]);
    works_again(&*marks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_after_the_gateway_is_found() {
    let port = free_port();
    let marks = impatient(&format!("redis://127.0.0.1:{port}"));
    assert_unavailable_in_time(&*marks).await;
    let _server = Redis::start_on(port, &[]);
    works_again(&*marks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_costs_a_call_its_time_limit_and_then_nothing() {
    let server = Redis::start();
    let connected = impatient(&server.url);
    works_again(&*connected).await;
    let unconnected = impatient(&server.url);
    server.signal("STOP");
    for marks in [&connected, &unconnected] {
        assert_unavailable_in_time(&**marks).await;
        breaker_opens(&**marks).await;
    }
    server.signal("CONT");
    for marks in [&connected, &unconnected] {
        works_again(&**marks).await;
    }
}

/// It takes connections and never says a word.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = mute.local_addr().unwrap();
    for kind in ["redis", "rediss", "redis+cluster"] {
        assert_unavailable_in_time(&*impatient(&format!("{kind}://{address}"))).await;
    }
    assert_unavailable_in_time(&*impatient(&format!("redis+sentinel://{address}/main"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_marks_and_scripts_is_no_fault() {
    let server = Redis::start();
    let marks = patient(&server.url);
    let mark = in_progress();
    let ids = [(); 3].map(|()| (random_id(), mark.nonce));
    let forget = || {
        server.cli(&["FLUSHALL"]);
        server.cli(&["SCRIPT", "FLUSH"]);
    };
    works_again(&*marks).await;
    forget();
    assert_eq!(marks.complete(ids[0].0, &completed(&mark), LONG).await, Ok(true));
    forget();
    assert_eq!(marks.release(ids[0].0, mark.nonce).await, Ok(false));
    for (id, _) in ids {
        assert_eq!(marks.reserve(id, &mark, LONG).await, Ok(Reserved::Acquired));
    }
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(marks.extend(&ids, LONG * 2).await, Ok(()));
    for (id, _) in ids {
        let left: u128 = server.cli(&["PTTL", &key(id)]).parse().unwrap();
        assert!(left > LONG.as_millis(), "{left} ms");
    }
}

/// Every answer still goes to who asked for it, however many did not wait for theirs.
#[tokio::test(flavor = "multi_thread")]
async fn calls_given_up_leave_no_answer_for_others() {
    let (server, cluster) = (Redis::start(), Cluster::start());
    for url in [&server.url, &cluster.url] {
        let marks = patient(url);
        let mut callers = JoinSet::new();
        for caller in 0..32_u32 {
            let marks = Arc::clone(&marks);
            callers.spawn(async move {
                let (id, mark) = (random_id(), in_progress());
                assert_eq!(marks.reserve(id, &mark, LONG).await, Ok(Reserved::Acquired));
                for round in 0..50 {
                    give_up(marks.get(random_id()), caller + round).await;
                    give_up(marks.complete(random_id(), &completed(&mark), LONG), round).await;
                    assert_eq!(marks.get(id).await, Ok(Some(mark.clone())));
                }
            });
        }
        callers.join_all().await;
    }
}

/// Lets `call` begin, and drops it when it has been polled a few times.
async fn give_up<T>(call: impl Future<Output = T>, polls: u32) {
    let mut call = pin!(call);
    for _ in 0..polls % 4 {
        let polled = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        if polled.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_the_sentinels_new_master_is_used() {
    let sentinels = Sentinels::start();
    let marks = impatient(&sentinels.url);
    works_again(&*marks).await;
    sentinels.master.signal("KILL");
    works_again(&*marks).await;
    assert!(sentinels.replica.is_master());
}

/// It hangs, so its connections are never closed, and takes no part in its own replacement.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_from_a_master_that_hangs_the_new_one_is_used() {
    let sentinels = Sentinels::start();
    let marks = impatient(&sentinels.url);
    works_again(&*marks).await;
    sentinels.master.signal("STOP");
    works_again(&*marks).await;
    assert!(sentinels.replica.is_master());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_to_another_node_is_followed() {
    let cluster = Cluster::start();
    let marks = patient(&cluster.url);
    works_again(&*marks).await;
    let (id, mark) = (random_id(), in_progress());
    let slot = cluster.slot(&key(id));
    let new = (Cluster::first_owner(slot) + 1) % 3;
    cluster.move_slot(slot, new);
    assert_eq!(marks.reserve(id, &mark, LONG).await, Ok(Reserved::Acquired));
    assert_eq!(marks.extend(&[(id, mark.nonce)], LONG).await, Ok(()));
    assert_eq!(marks.complete(id, &completed(&mark), LONG).await, Ok(true));
    assert!(cluster.nodes[new].cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]) == "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_hangs_or_is_gone_takes_only_its_own_marks_along() {
    for signal in ["STOP", "KILL"] {
        let cluster = Cluster::start();
        let marks = impatient(&cluster.url);
        works_again(&*marks).await;
        let on_node = |lost: bool| {
            let of_lost = |id| (Cluster::first_owner(cluster.slot(&key(id))) == 2) == lost;
            std::iter::repeat_with(random_id).find(|id| of_lost(*id)).unwrap()
        };
        let (well, lost) = (on_node(false), on_node(true));
        cluster.nodes[2].signal(signal);
        assert!(marks.get(lost).await.is_err(), "{signal}");
        eventually("the other nodes answer", async || marks.get(well).await == Ok(None)).await;
        // While many ask for marks of the lost node, others are told of theirs between them.
        let asking = async { join_all((0..3).map(|_| marks.get(lost))).await };
        assert!(asking.await.iter().all(Result::is_err), "{signal}");
        eventually("the other nodes answer", async || marks.get(well).await == Ok(None)).await;
        if signal == "STOP" {
            cluster.nodes[2].signal("CONT");
            eventually("the node is back", async || marks.get(lost).await == Ok(None)).await;
        }
    }
}
