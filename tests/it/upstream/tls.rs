use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use oncegate::http::listener::{Listener, ListenerOptions};
use oncegate::http::peer::Peer;
use oncegate::http::tls::{TlsFiles, server_config};
use oncegate::http::workers::Dealer;
use oncegate::upstream::{Reason, Trust, Upstream};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_util::sync::CancellationToken;

use super::raw::Server;
use super::{assert_not_sent, options, post, send, status};

/// A TLS listener for `localhost` that answers HTTP/2 with 200 and HTTP/1.1 with 505.
struct Secure {
    url: String,
    ca: std::path::PathBuf,
    _dir: tempfile::TempDir,
    _stop: tokio_util::sync::DropGuard,
}

async fn secure() -> Secure {
    let dir = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = TlsFiles { cert: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&files.cert, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    let options = ListenerOptions { tls: Some(server_config(&files).unwrap()), ..ListenerOptions::default() };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let stop = CancellationToken::new();
    tokio::spawn(listener.serve(tower::service_fn(answer), Dealer::here(), stop.clone()));
    Secure { url, ca: files.cert, _dir: dir, _stop: stop.drop_guard() }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    assert!(request.extensions().get::<Peer>().unwrap().tls);
    let status = if request.version() == Version::HTTP_2 { 200 } else { 505 };
    Ok(Response::builder().status(status).body(Body::empty()).unwrap())
}

#[tokio::test]
async fn a_trusted_upstream_is_spoken_to_in_the_version_it_prefers() {
    let secure = secure().await;
    let mut options = options(&[&secure.url]);
    options.trust = Trust::PublicAnd(secure.ca.clone());
    assert_eq!(status(&send(&Upstream::new(&options).unwrap(), post("/", "x")).await), 200);
}

#[tokio::test]
async fn nothing_is_sent_to_an_upstream_that_is_not_trusted() {
    let secure = secure().await;
    let exchange = send(&Upstream::new(&options(&[&secure.url])).unwrap(), post("/", "x")).await;
    assert_not_sent(&exchange, Reason::TlsCertificate);
}

#[tokio::test]
async fn nothing_is_sent_to_an_upstream_that_speaks_no_tls() {
    let plain = Server::start(|_, mut stream| async move {
        super::raw::write(&mut stream, "HTTP/1.1 400 Bad Request\r\n\r\n").await;
        super::raw::read_until(&mut stream, "\0never").await;
    })
    .await;
    let upstream = Upstream::new(&options(&[&format!("https://{}", plain.addr)])).unwrap();
    assert_not_sent(&send(&upstream, post("/", "x")).await, Reason::Tls);
}

#[test]
fn unusable_tls_files_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for path in [empty, dir.path().join("missing.pem")] {
        let error = server_config(&TlsFiles { cert: path.clone(), key: path.clone() }).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}
