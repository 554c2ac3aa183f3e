//! A payment service that counts how often it is asked to pay.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// When it answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Script {
    /// After a random time up to this.
    Within(Duration),
    /// When [`Upstream::release`] is called.
    Hang,
}

/// The service. Ends with the test's runtime.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    script: watch::Sender<Script>,
    payments: Mutex<HashMap<String, Payment>>,
}

#[derive(Debug, Default)]
struct Payment {
    /// The attempts that arrived, in their order.
    attempts: Vec<u32>,
    /// Whether it was done.
    done: bool,
}

impl Upstream {
    pub(super) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { script: watch::Sender::new(script), payments: Mutex::default() });
        tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { address, shared }
    }

    /// Lets everything that hangs go on, and nothing hang any more.
    pub(super) fn release(&self) {
        self.shared.script.send_replace(Script::Within(Duration::ZERO));
    }

    /// How often `key` arrived.
    pub(super) fn seen(&self, key: &str) -> usize {
        self.attempts(key).len()
    }

    /// The attempts at `key` that arrived, in their order.
    pub(super) fn attempts(&self, key: &str) -> Vec<u32> {
        self.shared.payments.lock().unwrap().get(key).map(|payment| payment.attempts.clone()).unwrap_or_default()
    }

    /// The answer to `key`: other for each key, and always the same.
    pub(super) fn answer(key: &str) -> String {
        format!(r#"{{"status":"paid","key":"{key}"}}"#)
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let service = hyper::service::service_fn(move |request| answer(Arc::clone(&shared), request));
        // A gateway that is killed ends its connections as it likes.
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match *request.method() {
        Method::GET => {
            let key = request.uri().path().rsplit('/').next().unwrap();
            match shared.payments.lock().unwrap().get(key) {
                Some(payment) if payment.done => (StatusCode::OK, Upstream::answer(key)),
                Some(_) | None => (StatusCode::NOT_FOUND, String::new()),
            }
        }
        _ => {
            let field = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
            let (key, attempt) = (field("idempotency-key"), field("oncegate-attempt").parse().unwrap());
            // A payment goes on although its caller has gone.
            (StatusCode::CREATED, tokio::spawn(pay(shared, key, attempt)).await.unwrap())
        }
    };
    Ok(Response::builder().status(status).body(Full::from(body)).unwrap())
}

async fn pay(shared: Arc<Shared>, key: String, attempt: u32) -> String {
    let mut script = shared.script.subscribe();
    shared.payments.lock().unwrap().entry(key.clone()).or_default().attempts.push(attempt);
    let script = *script.wait_for(|script| matches!(script, Script::Within(_))).await.unwrap();
    if let Script::Within(longest) = script {
        tokio::time::sleep(longest.mul_f64(rand::random_range(0.0..1.0))).await;
    }
    shared.payments.lock().unwrap().entry(key.clone()).or_default().done = true;
    Upstream::answer(&key)
}
