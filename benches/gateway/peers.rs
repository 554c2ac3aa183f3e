//! What stands around the gateway, each in a process of its own: a fast upstream, and the bare reverse proxy
//! that the gateway is measured against.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

/// What a payment service answers.
const ANSWER: &[u8] = br#"{"id":"pay_5f1d7a9c","order_no":"2026-0001","status":"paid","amount":1250,"currency":"EUR"}"#;

/// Answers each request at once; those under `/slow` never.
pub(crate) fn upstream(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/slow" {
        std::future::pending::<()>().await;
    }
    // Unread, it would cost the connection.
    request.into_body().collect().await.ok();
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER)));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The least that a reverse proxy of axum and hyper does: another authority, the rest as it came. Threads,
/// pool and socket options are the gateway's.
pub(crate) fn proxy(port: u16, upstream: u16) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let app = Router::new().fallback(forward).with_state(Upstream::new(upstream));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let service = TowerToHyperService::new(app.clone());
            tokio::spawn(async move {
                auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    });
}

#[derive(Clone)]
struct Upstream {
    authority: Authority,
    client: Client<HttpConnector, Body>,
}

impl Upstream {
    fn new(port: u16) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(256)
            .build(connector);
        Self { authority: Authority::try_from(format!("127.0.0.1:{port}")).unwrap(), client }
    }
}

async fn forward(State(upstream): State<Upstream>, mut request: Request<Body>) -> Response<Body> {
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(upstream.authority.clone());
    *request.uri_mut() = Uri::from_parts(uri).unwrap();
    match upstream.client.request(request).await {
        Ok(response) => response.map(Body::new),
        Err(_) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}
