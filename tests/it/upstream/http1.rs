use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncegate::upstream::{Exchange, Permit, Reading, Reason, read_answer};
use tokio::sync::{mpsc, oneshot};

use super::raw::{OK, Server, read_request, read_until, refusing, reset, write};
use super::{PATIENCE, assert_lost, assert_not_sent, options, patient, post, send, status, upstream};

/// Answers one request with what it has read.
async fn seen_request(body: &'static str) -> String {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::start(move |_, mut stream| {
        let tell = tell.clone();
        async move {
            tell.send(read_request(&mut stream).await.unwrap()).unwrap();
            write(&mut stream, OK).await;
        }
    })
    .await;
    let mut request = post("http://client.test/p%2F?q=1", body);
    request.headers_mut().insert("host", "client.test".parse().unwrap());
    assert_eq!(status(&send(&upstream(&[&server.url()]), request).await), 200);
    told.recv().await.unwrap().replace(&server.addr.to_string(), "UPSTREAM")
}

#[tokio::test]
async fn the_request_goes_out_as_it_is_but_for_the_upstreams_host() {
    assert_eq!(
        seen_request("body").await,
        "POST /p%2F?q=1 HTTP/1.1\r\nhost: UPSTREAM\r\ncontent-length: 4\r\n\r\nbody"
    );
}

#[tokio::test]
async fn an_empty_post_says_that_it_is_empty() {
    assert!(seen_request("").await.contains("content-length: 0\r\n"));
}

#[tokio::test]
async fn a_refused_connection_is_not_sent() {
    let exchange = send(&upstream(&[&refusing().await]), post("/", "x")).await;
    assert_not_sent(&exchange, Reason::Refused);
}

#[tokio::test]
async fn a_name_without_address_is_not_sent() {
    let exchange = send(&upstream(&["http://nobody.invalid"]), post("/", "x")).await;
    // Where no name server can be reached the look-up itself takes too long.
    let Exchange::NotSent(failure) = exchange else { panic!("{exchange:?}") };
    assert!(matches!(failure.reason, Reason::Dns | Reason::ConnectTimeout), "{failure}");
}

#[tokio::test]
async fn a_tls_handshake_that_does_not_answer_is_not_sent() {
    let server = Server::start(|_, stream| async move { drop((stream, std::future::pending::<()>().await)) }).await;
    let mut options = options(&[&format!("https://{}", server.addr)]);
    options.connect_timeout = Duration::from_millis(100);
    let exchange = send(&oncegate::upstream::Upstream::new(&options).unwrap(), post("/", "x")).await;
    assert_not_sent(&exchange, Reason::ConnectTimeout);
}

#[tokio::test]
async fn a_connection_lost_after_the_request_is_lost_and_never_tried_elsewhere() {
    for abruptly in [false, true] {
        let broken = Server::start(move |_, mut stream| async move {
            read_request(&mut stream).await;
            if abruptly {
                reset(stream);
            }
        })
        .await;
        let healthy = Server::ok().await;
        let upstream = upstream(&[&broken.url(), &healthy.url()]);
        assert_lost(&send(&upstream, post("/", "x")).await, Reason::ConnectionLost);
        assert_eq!((broken.accepted(), healthy.accepted()), (1, 0));
    }
}

#[tokio::test]
async fn a_connection_lost_within_the_request_is_lost() {
    let server = Server::start(|_, mut stream| async move {
        read_until(&mut stream, "\r\n\r\n").await;
        reset(stream);
    })
    .await;
    // More than the sockets hold, so that the client is still writing.
    let body: &'static str = Box::leak("x".repeat(32 << 20).into());
    let exchange = send(&upstream(&[&server.url()]), post("/", body)).await;
    assert_lost(&exchange, Reason::ConnectionLost);
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_lost() {
    let server = Server::start(|_, mut stream| async move {
        read_request(&mut stream).await;
        write(&mut stream, "220 mail.test ESMTP\r\n\r\n").await;
    })
    .await;
    assert_lost(&send(&upstream(&[&server.url()]), post("/", "x")).await, Reason::Protocol);
}

#[tokio::test]
async fn informational_answers_are_not_final() {
    let server = Server::start(|_, mut stream| async move {
        read_request(&mut stream).await;
        write(&mut stream, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 201 Created\r\n\r\n").await;
    })
    .await;
    assert_eq!(status(&send(&upstream(&[&server.url()]), post("/", "x")).await), 201);

    let server = Server::start(|_, mut stream| async move {
        read_request(&mut stream).await;
        write(&mut stream, "HTTP/1.1 103 Early Hints\r\n\r\n").await;
    })
    .await;
    assert_lost(&send(&upstream(&[&server.url()]), post("/", "x")).await, Reason::ConnectionLost);
}

#[tokio::test]
async fn an_upgrade_that_nobody_asked_for_is_lost() {
    let server = Server::start(|_, mut stream| async move {
        read_request(&mut stream).await;
        write(&mut stream, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await;
    })
    .await;
    assert_lost(&send(&upstream(&[&server.url()]), post("/", "x")).await, Reason::Protocol);
}

#[tokio::test]
async fn an_unused_connection_is_closed_by_us_before_the_upstream_may() {
    let (tell, told) = oneshot::channel();
    let tell = Mutex::new(Some(tell));
    let server = Server::start(move |_, mut stream| {
        let tell = tell.lock().unwrap().take().unwrap();
        async move {
            read_request(&mut stream).await;
            write(&mut stream, OK).await;
            tell.send(read_request(&mut stream).await).unwrap();
        }
    })
    .await;
    let mut options = options(&[&server.url()]);
    options.idle_timeout = Duration::from_millis(50);
    let upstream = oncegate::upstream::Upstream::new(&options).unwrap();
    let Exchange::Answered { body, .. } = send(&upstream, post("/", "x")).await else { panic!("no answer") };
    read_answer(body, 10, oncegate::clock::now() + PATIENCE).await;
    let second = tokio::time::timeout(PATIENCE, told).await.expect("the connection is closed").unwrap();
    assert_eq!(second, None);
}

#[tokio::test]
async fn nothing_is_sent_before_the_first_poll() {
    let server = Server::ok().await;
    let upstream = upstream(&[&server.url()]);
    let unpolled = upstream.send(post("/never", "x"), patient());
    assert_eq!(status(&send(&upstream, post("/", "x")).await), 200);
    assert_eq!(server.accepted(), 1);
    drop(unpolled);
}

/// Whenever the right to begin is lost: between two looks at it, and as soon as it is looked at.
#[tokio::test]
async fn what_may_not_begin_any_more_arrives_nowhere_whole() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&arrived);
    let server = Server::start(move |_, mut stream| {
        let count = Arc::clone(&count);
        async move {
            while read_request(&mut stream).await.is_some() {
                count.fetch_add(1, Ordering::Relaxed);
                write(&mut stream, OK).await;
            }
        }
    })
    .await;
    let mut delete = post("/", "");
    *delete.method_mut() = http::Method::DELETE;
    for request in [post("/", "x"), post("/", ""), delete] {
        let (mut ends, before) = (Vec::new(), arrived.load(Ordering::Relaxed));
        for looks in 0.. {
            let left = AtomicUsize::new(looks);
            let holds =
                move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
            let permit = Permit::while_holds(oncegate::clock::now() + PATIENCE, holds);
            // Each on a connection of its own.
            let exchange = upstream(&[&server.url()]).send(request.clone(), permit).await;
            let is_answered = matches!(exchange, Exchange::Answered { .. });
            let now = arrived.load(Ordering::Relaxed) - before;
            assert_eq!(now, usize::from(is_answered), "{request:?} after {looks} looks: {exchange:?}");
            if is_answered {
                break;
            }
            ends.push(exchange);
        }
        assert_not_sent(&ends[0], Reason::ConnectTimeout);
        assert!(ends.iter().any(|end| matches!(end, Exchange::Lost(_))), "the body was refused: {ends:?}");
    }
}

#[tokio::test]
async fn a_late_answer_is_heard_by_who_goes_on_listening() {
    let (release, released) = oneshot::channel();
    let released = Mutex::new(Some(released));
    let server = Server::start(move |_, mut stream| {
        let released = released.lock().unwrap().take().unwrap();
        async move {
            read_request(&mut stream).await;
            drop(released.await);
            write(&mut stream, OK).await;
        }
    })
    .await;
    let upstream = upstream(&[&server.url()]);
    let mut exchange = std::pin::pin!(upstream.send(post("/", "x"), patient()));
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut exchange).await.is_err());
    release.send(()).unwrap();
    assert_eq!(status(&tokio::time::timeout(PATIENCE, exchange).await.unwrap()), 200);
}

/// On one thread the order is certain: the test goes on after the runtime has seen the end of the
/// connection and before the connection's task has. So the request meets a connection that is closed and
/// not known to be.
#[tokio::test(flavor = "current_thread")]
async fn a_pooled_connection_that_turns_out_closed_is_dialled_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream = upstream(&[&url]);
    let answer_one = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert_ne!(stream.read(&mut request).unwrap(), 0);
        stream.write_all(OK.as_bytes()).unwrap();
        (listener, stream)
    };
    let first = std::thread::spawn(answer_one);
    let Exchange::Answered { body, .. } = send(&upstream, post("/", "x")).await else { panic!("no answer") };
    let deadline = oncegate::clock::now() + PATIENCE;
    assert!(matches!(read_answer(body, 10, deadline).await, Reading::Kept(_)));
    let (listener, stream) = first.join().unwrap();
    drop(stream);
    tokio::task::yield_now().await;

    let second = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert_ne!(stream.read(&mut request).unwrap(), 0);
        stream.write_all(OK.as_bytes()).unwrap();
    });
    assert_eq!(status(&send(&upstream, post("/", "x")).await), 200);
    second.join().unwrap();
}

/// The invariant behind every rule: what is said not to have been sent was never seen, what was answered was
/// seen, and nothing is seen twice. The server ends connections at every point it can. Now and then this also
/// meets the connection that ends while it is given a request, which must not be waited for in vain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_sent_was_never_seen_and_nothing_is_seen_twice() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let server = Server::start(move |number, mut stream| {
        let log = Arc::clone(&log);
        async move {
            for request in 0.. {
                match (number + request) % 7 {
                    0 => return reset(stream),
                    1 => return,
                    _ => {}
                }
                let Some(text) = read_request(&mut stream).await else { return };
                log.lock().unwrap().push(text.rsplit("\r\n").next().unwrap().to_owned());
                match (number + request) % 7 {
                    2 => return,
                    3 => return reset(stream),
                    4 => return write(&mut stream, OK).await,
                    _ => write(&mut stream, OK).await,
                }
            }
        }
    })
    .await;
    let upstream = upstream(&[&server.url()]);
    let (mut answered, mut not_sent) = (HashSet::new(), HashSet::new());
    for number in 0..400 {
        let id: &'static str = Box::leak(format!("request-{number}").into());
        match send(&upstream, post("/", id)).await {
            Exchange::Answered { body, .. } => {
                answered.insert(id.to_owned());
                read_answer(body, 10, oncegate::clock::now() + PATIENCE).await;
            }
            Exchange::NotSent(_) => _ = not_sent.insert(id.to_owned()),
            Exchange::Lost(_) => {}
        }
    }
    let seen = seen.lock().unwrap();
    let once: HashSet<_> = seen.iter().cloned().collect();
    assert_eq!(once.len(), seen.len(), "a request was seen twice");
    assert!(answered.is_subset(&once) && !answered.is_empty());
    assert!(not_sent.is_disjoint(&once), "said not to be sent, and seen");
}
