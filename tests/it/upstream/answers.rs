use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use oncegate::clock;
use oncegate::upstream::{Exchange, Reading, read_answer};

use super::raw::{Server, read_request, write};
use super::{PATIENCE, post, send, upstream};

/// Reads the answer that `text` is, up to 10 bytes.
async fn reading(text: &'static str, patience: Duration, stay_open: bool) -> Reading<Incoming> {
    let server = Server::start(move |_, mut stream| async move {
        read_request(&mut stream).await;
        write(&mut stream, text).await;
        if stay_open {
            std::future::pending::<()>().await;
        }
    })
    .await;
    let Exchange::Answered { body, .. } = send(&upstream(&[&server.url()]), post("/", "x")).await else {
        panic!("no answer")
    };
    let reading = read_answer(body, 10, clock::now() + patience).await;
    drop(server);
    reading
}

#[track_caller]
fn kept(reading: Reading<Incoming>) -> String {
    let Reading::Kept(body) = reading else { panic!("{reading:?}") };
    String::from_utf8(body.to_vec()).unwrap()
}

#[track_caller]
fn cut(reading: Reading<Incoming>) -> String {
    let Reading::Cut { prefix } = reading else { panic!("{reading:?}") };
    String::from_utf8(prefix.to_vec()).unwrap()
}

#[tokio::test]
async fn a_body_up_to_the_limit_is_kept() {
    let whole = reading("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789", PATIENCE, true).await;
    assert_eq!(kept(whole), "0123456789");
    let empty = reading("HTTP/1.1 204 No Content\r\n\r\n", PATIENCE, true).await;
    assert_eq!(kept(empty), "");
}

#[tokio::test]
async fn chunks_are_joined_and_trailers_dropped() {
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                  3\r\n012\r\n4\r\n3456\r\n0\r\nx-sum: 1\r\n\r\n";
    assert_eq!(kept(reading(chunks, PATIENCE, true).await), "0123456");
}

#[tokio::test]
async fn a_larger_body_can_still_be_passed_on_whole() {
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                  8\r\n01234567\r\n4\r\n89ab\r\n2\r\ncd\r\n0\r\n\r\n";
    let Reading::TooLarge { prefix, rest } = reading(chunks, PATIENCE, true).await else { panic!("not too large") };
    assert!(prefix.len() > 10);
    let rest = rest.collect().await.unwrap().to_bytes();
    assert_eq!([prefix, rest].concat(), b"0123456789abcd");
}

#[tokio::test]
async fn of_a_body_that_announces_too_much_nothing_is_read() {
    let announced = reading("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n01", PATIENCE, true).await;
    assert!(matches!(announced, Reading::TooLarge { prefix, .. } if prefix.is_empty()));
}

#[tokio::test]
async fn a_body_that_ends_early_is_cut() {
    let short = reading("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123", PATIENCE, false).await;
    assert_eq!(cut(short), "0123");
    let short = reading("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n0123\r\n", PATIENCE, false).await;
    assert_eq!(cut(short), "0123");
}

#[tokio::test]
async fn a_body_that_does_not_come_in_time_is_cut() {
    let hanging = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123";
    let cut_at = cut(reading(hanging, Duration::from_millis(100), true).await);
    assert!("0123".starts_with(&cut_at), "{cut_at}");
}
