use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Response;
use oncegate::http::drain::Drained;
use oncegate::http::listener::ListenerOptions;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::{PATIENCE, Served, rest, until};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// A listener whose answers wait for permits; says how many requests have begun.
struct Held {
    served: Served,
    begun: Arc<Semaphore>,
    release: Arc<Semaphore>,
}

async fn held(drain_timeout: Duration) -> Held {
    let (begun, release) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begin, wait) = (Arc::clone(&begun), Arc::clone(&release));
    let service = tower::service_fn(move |_| {
        let (begin, wait) = (Arc::clone(&begin), Arc::clone(&wait));
        async move {
            begin.add_permits(1);
            wait.acquire().await.unwrap().forget();
            Ok(Response::new(Body::from("done")))
        }
    });
    let options = ListenerOptions { drain_timeout, ..ListenerOptions::default() };
    Held { served: Served::start(options, service).await, begun, release }
}

#[tokio::test]
async fn requests_being_answered_finish_and_nothing_new_is_accepted() {
    let Held { served, begun, release } = held(PATIENCE).await;
    let addr = served.addr;
    let mut client = served.send(GET).await;
    begun.acquire().await.unwrap().forget();
    let drained = tokio::spawn(served.drained());
    let refused = async {
        while let Ok(stream) = TcpStream::connect(addr).await {
            drop(stream);
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("the port is closed");
    release.add_permits(1);
    let (text, closed) = rest(&mut client, PATIENCE).await;
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("done") && closed, "{text}");
    assert!(text.contains("connection: close"), "{text}");
    assert_eq!(drained.await.unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_the_end() {
    let Held { served, release, .. } = held(PATIENCE).await;
    release.add_permits(1);
    let mut kept_alive = served.send(GET).await;
    until(&mut kept_alive, "done").await;
    let _silent = served.connect().await;
    assert_eq!(served.drained().await, Drained { cut: 0 });
    assert!(rest(&mut kept_alive, PATIENCE).await.1);
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut_and_counted() {
    let Held { served, begun, .. } = held(Duration::from_millis(100)).await;
    let mut clients = [served.send(GET).await, served.send(GET).await];
    begun.acquire_many(2).await.unwrap().forget();
    assert_eq!(served.drained().await, Drained { cut: 2 });
    for client in &mut clients {
        assert_eq!(rest(client, PATIENCE).await, (String::new(), true));
    }
}
