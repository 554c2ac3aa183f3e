//! The same contract over HTTP/2 and TLS.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;

use super::client::Answer;
use super::gateway::Gateway;
use super::in_time;
use super::upstream::Upstream;

fn payment(gateway: &Gateway, scheme: &str) -> Request<Full<Bytes>> {
    let request = Request::post(format!("{scheme}://{}/pay", gateway.addr)).header("idempotency-key", "k");
    request.header("content-type", "application/json").body(Full::from("{\"amount\":1}")).unwrap()
}

#[tokio::test]
async fn ten_streams_of_one_http2_connection_are_one_execution() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".concurrent", "wait")]).await;
    let stream = TokioIo::new(TcpStream::connect(gateway.addr).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let answers = join_all((0..10).map(|_| {
        let mut sender = sender.clone();
        let request = payment(&gateway, "http");
        async move { Answer::read(in_time(sender.send_request(request)).await.unwrap()).await }
    }))
    .await;
    let replays = answers.iter().filter(|answer| answer.field("idempotent-replayed") == Some("true")).count();
    assert!(answers.iter().all(|answer| (answer.status, &answer.body[..]) == (201, b"{\"payment\":1}")), "{answers:?}");
    assert_eq!((replays, upstream.count()), (9, 1));
    gateway.pay("k").send().await.is_replay_of(&answers[0]);
}

#[tokio::test]
async fn the_gateway_ends_tls_and_says_so_to_the_upstream() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    std::fs::write(&cert, certified.cert.pem()).unwrap();
    std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    let upstream = Upstream::counting().await;
    let files = [("server.tls.cert", cert.to_str().unwrap()), ("server.tls.key", key.to_str().unwrap())];
    let gateway = Gateway::start(&upstream, &files).await;
    for (alpn, replayed) in [(&b"http/1.1"[..], "false"), (b"h2", "true")] {
        let stream = TokioIo::new(connect(&gateway, certified.cert.der(), alpn).await);
        let answer = if alpn == b"h2" {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            in_time(sender.send_request(payment(&gateway, "https"))).await.unwrap()
        } else {
            let (mut sender, connection) = http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let mut request = payment(&gateway, "https");
            *request.uri_mut() = "/pay".parse().unwrap();
            request.headers_mut().insert("host", "localhost".parse().unwrap());
            in_time(sender.send_request(request)).await.unwrap()
        };
        assert_eq!(Answer::read(answer).await.told(), (201, "{\"payment\":1}", Some(replayed)));
    }
    assert_eq!(upstream.last().field("x-forwarded-proto"), Some("https"));
}

async fn connect(
    gateway: &Gateway,
    cert: &CertificateDer<'static>,
    alpn: &[u8],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(cert.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(gateway.addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = in_time(tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn));
    stream
}
