//! An endpoint of webhooks, in this process.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::authority::Authority;
use super::process::free_port;

/// The largest body that it takes.
pub(crate) const BODY_LIMIT: usize = 1024 * 1024;

/// What it does with a request to a path.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// Says so, with these fields.
    Answer(StatusCode, Vec<(&'static str, &'static str)>),
    /// Reads it and closes the connection.
    Cut,
    /// Reads it and never answers.
    Hang,
    /// Answers, and its body never ends.
    Endless,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// It takes everything, but where it is told otherwise.
pub(crate) struct Endpoint {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    serving: Option<JoinHandle<()>>,
    tls: Option<TlsAcceptor>,
}

#[derive(Debug)]
struct Shared {
    behaviours: Mutex<HashMap<String, Behaviour>>,
    posted: Mutex<Vec<Posted>>,
    paused: watch::Sender<bool>,
}

impl Endpoint {
    pub(crate) async fn start() -> Self {
        Self::start_over(None).await
    }

    /// One that speaks TLS only, with those whose certificates `authority` has signed.
    pub(crate) async fn start_for_known(authority: &Authority) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificates =
            |name| CertificateDer::pem_file_iter(authority.path(name)).unwrap().map(Result::unwrap).collect::<Vec<_>>();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates("ca.pem"));
        let known = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(known.build().unwrap())
            .with_single_cert(
                certificates("server.pem"),
                PrivateKeyDer::from_pem_file(authority.path("server.key")).unwrap(),
            );
        Self::start_over(Some(Arc::new(config.unwrap()).into())).await
    }

    async fn start_over(tls: Option<TlsAcceptor>) -> Self {
        let shared =
            Shared { behaviours: Mutex::default(), posted: Mutex::default(), paused: watch::Sender::new(false) };
        let mut endpoint = Self { port: free_port(), shared: Arc::new(shared), serving: None, tls };
        endpoint.start_again().await;
        endpoint
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// Has `path` answered so from now on.
    pub(crate) fn behave(&self, path: &str, behaviour: Behaviour) {
        self.shared.behaviours.lock().unwrap().insert(path.to_owned(), behaviour);
    }

    /// What it has taken, in order: what it answered with a 2xx, or would have.
    pub(crate) fn posted(&self, path: &str) -> Vec<Posted> {
        let posted = self.shared.posted.lock().unwrap();
        posted.iter().filter(|posted| posted.path == path).cloned().collect()
    }

    /// Ends it with all its connections. What it has taken stays known.
    pub(crate) async fn kill(&mut self) {
        let serving = self.serving.take().unwrap();
        serving.abort();
        serving.await.ok();
    }

    pub(crate) async fn start_again(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.serving = Some(tokio::spawn(serve(listener, self.tls.clone(), Arc::clone(&self.shared))));
    }

    /// It takes connections and says nothing, or goes on.
    pub(crate) fn pause(&self, paused: bool) {
        self.shared.paused.send_replace(paused);
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Dropped with the task: so are the connections.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let service = service_fn(move |request| handle(request, Arc::clone(&shared)));
            let http = hyper::server::conn::http1::Builder::new();
            // Ends with an error where a connection is cut.
            match tls {
                None => http.serve_connection(TokioIo::new(stream), service).await.ok(),
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => http.serve_connection(TokioIo::new(stream), service).await.ok(),
                    Err(_stranger) => None,
                },
            };
        });
    }
}

type Body = http_body_util::Either<Full<Bytes>, Endless>;

/// "Cut the connection".
#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct Cut;

async fn handle(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Cut> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    shared.paused.subscribe().wait_for(|paused| !paused).await.map_err(|_| Cut)?;
    let behaviour = shared.behaviours.lock().unwrap().get(parts.uri.path()).cloned();
    let answer = |status, body| {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response
    };
    let whole = |text: &'static str| Body::Left(Full::new(Bytes::from_static(text.as_bytes())));
    match behaviour {
        None if body.len() > BODY_LIMIT => Ok(answer(StatusCode::PAYLOAD_TOO_LARGE, whole(""))),
        None => {
            shared.take(parts, body);
            Ok(answer(StatusCode::NO_CONTENT, whole("")))
        }
        Some(Behaviour::Answer(status, fields)) => {
            let mut response = answer(status, whole("{\"secret\": \"of the endpoint\"}"));
            for (name, value) in fields {
                response.headers_mut().append(name, value.parse().unwrap());
            }
            Ok(response)
        }
        Some(Behaviour::Cut) => {
            shared.take(parts, body);
            Err(Cut)
        }
        Some(Behaviour::Hang) => std::future::pending().await,
        Some(Behaviour::Endless) => {
            shared.take(parts, body);
            Ok(answer(StatusCode::OK, Body::Right(Endless(Box::pin(tokio::time::sleep(Duration::ZERO))))))
        }
    }
}

impl Shared {
    fn take(&self, parts: request::Parts, body: Bytes) {
        let path = parts.uri.path_and_query().unwrap().to_string();
        self.posted.lock().unwrap().push(Posted { path, headers: parts.headers, body });
    }
}

/// A body that goes on slowly for ever.
#[derive(Debug)]
struct Endless(std::pin::Pin<Box<tokio::time::Sleep>>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        std::task::ready!(self.0.as_mut().poll(cx));
        self.0 = Box::pin(tokio::time::sleep(Duration::from_millis(20)));
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(b"more")))))
    }
}
