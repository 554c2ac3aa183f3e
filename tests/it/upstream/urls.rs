use oncegate::upstream::{Reason, Trust, Upstream};
use tokio::net::TcpListener;

use super::raw::{OK, Server, read_request, refusing, write};
use super::{PATIENCE, assert_not_sent, options, post, send, status, upstream};

/// Answers one request per connection, so that connections count requests.
async fn one_each(listener: TcpListener) -> Server {
    Server::on(listener, |_, mut stream| async move {
        read_request(&mut stream).await;
        write(&mut stream, &OK.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")).await;
    })
}

async fn counting() -> Server {
    one_each(TcpListener::bind("127.0.0.1:0").await.unwrap()).await
}

#[tokio::test]
async fn urls_take_turns() {
    let (first, second) = (counting().await, counting().await);
    let upstream = upstream(&[&first.url(), &second.url()]);
    for _ in 0..6 {
        assert_eq!(status(&send(&upstream, post("/", "x")).await), 200);
    }
    assert_eq!((first.accepted(), second.accepted()), (3, 3));
}

#[tokio::test]
async fn a_url_that_refuses_is_replaced_left_out_and_tried_again_when_it_is_back() {
    let url = refusing().await;
    let healthy = counting().await;
    let upstream = upstream(&[&url, &healthy.url()]);
    for _ in 0..6 {
        assert_eq!(status(&send(&upstream, post("/", "x")).await), 200);
    }
    assert_eq!(healthy.accepted(), 6);

    let back = one_each(TcpListener::bind(url.strip_prefix("http://").unwrap()).await.unwrap()).await;
    let retried = async {
        while back.accepted() < 3 {
            assert_eq!(status(&send(&upstream, post("/", "x")).await), 200);
        }
    };
    tokio::time::timeout(PATIENCE, retried).await.expect("the URL is tried again");
}

#[tokio::test]
async fn when_no_url_can_be_reached_nothing_is_sent() {
    let exchange = send(&upstream(&[&refusing().await, &refusing().await]), post("/", "x")).await;
    assert_not_sent(&exchange, Reason::Refused);
}

#[tokio::test]
async fn a_single_url_is_tried_whenever_it_is_asked_for() {
    let url = refusing().await;
    let upstream = upstream(&[&url]);
    assert_not_sent(&send(&upstream, post("/", "x")).await, Reason::Refused);
    let _back = one_each(TcpListener::bind(url.strip_prefix("http://").unwrap()).await.unwrap()).await;
    assert_eq!(status(&send(&upstream, post("/", "x")).await), 200);
}

#[tokio::test]
async fn unusable_settings_are_told() {
    assert!(Upstream::new(&options(&[])).is_err());
    assert!(Upstream::new(&options(&["http://a/base"])).is_err());
    let mut options = options(&["https://a"]);
    options.trust = Trust::PublicAnd("no-such-file.pem".into());
    assert!(Upstream::new(&options).unwrap_err().to_string().contains("no-such-file.pem"));
}
