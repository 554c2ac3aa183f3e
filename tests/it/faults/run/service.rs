//! What stands behind the gateways: a payment service and a consumer of points, which count what they really did. Both
//! do what they are asked as often as they are asked, but for payments by [`Route::Forward`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::clients::Route;

/// Longest that a payment takes.
const PAYMENT: Duration = Duration::from_millis(40);

/// One in so many times the consumer crashes before its effect, and as often after it.
const CRASHES: u32 = 40;

/// One key's payments.
#[derive(Debug, Clone, Default)]
pub(super) struct Paid {
    /// The attempts that arrived, in their order.
    pub(super) attempts: Vec<u32>,
    /// What it answered to each execution.
    pub(super) answers: Vec<String>,
}

/// The service. Ends with the test's runtime.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    payments: Mutex<HashMap<String, Paid>>,
    /// How often points were granted, by payment.
    points: Mutex<HashMap<String, u32>>,
}

impl Service {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { port, shared }
    }

    pub(super) fn payments(&self) -> HashMap<String, Paid> {
        self.shared.payments.lock().unwrap().clone()
    }

    pub(super) fn points(&self) -> HashMap<String, u32> {
        self.shared.points.lock().unwrap().clone()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let service = hyper::service::service_fn(move |request| answer(Arc::clone(&shared), request));
        // Whoever is killed or cut off ends its connections as it likes.
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// That the consumer is gone: its connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("crashed")]
struct Crashed;

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Crashed> {
    let path = request.uri().path().to_owned();
    let (place, key) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let told = match (request.method(), place) {
        (&Method::GET, "paid") => {
            found(shared.payments.lock().unwrap().get(key).and_then(|paid| paid.answers.last().cloned()))
        }
        (&Method::GET, _) => {
            found(shared.points.lock().unwrap().get(key).map(|_| "{\"state\":\"granted\"}".to_owned()))
        }
        (_, "points") => (StatusCode::OK, grant(&shared, request).await?),
        (_, route) => {
            let field = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
            let (key, attempt) = (field("idempotency-key"), field("oncegate-attempt").parse().unwrap());
            let honours = route == Route::Forward.path();
            // A payment goes on although its caller has gone.
            (StatusCode::CREATED, tokio::spawn(pay(shared, key, attempt, honours)).await.unwrap())
        }
    };
    let (status, body) = told;
    Ok(Response::builder().status(status).body(Full::from(body)).unwrap())
}

fn found(what: Option<String>) -> (StatusCode, String) {
    what.map_or((StatusCode::NOT_FOUND, String::new()), |body| (StatusCode::OK, body))
}

/// Each execution is a payment of its own, with a number of its own.
async fn pay(shared: Arc<Shared>, key: String, attempt: u32, honours: bool) -> String {
    shared.payments.lock().unwrap().entry(key.clone()).or_default().attempts.push(attempt);
    tokio::time::sleep(PAYMENT.mul_f64(rand::random_range(0.0..1.0))).await;
    let mut payments = shared.payments.lock().unwrap();
    let paid = payments.entry(key.clone()).or_default();
    if let Some(answer) = paid.answers.last().filter(|_| honours) {
        return answer.clone();
    }
    let number: u64 = rand::random();
    let answer = format!(r#"{{"status":"paid","key":"{key}","payment":"{number:016x}"}}"#);
    paid.answers.push(answer.clone());
    answer
}

async fn grant(shared: &Shared, request: Request<Incoming>) -> Result<String, Crashed> {
    let body = request.into_body().collect().await.map_err(|_| Crashed)?.to_bytes();
    let payment: serde_json::Value = serde_json::from_slice(&body).unwrap();
    match rand::random_range(0..CRASHES) {
        0 => Err(Crashed),
        fate => {
            *shared.points.lock().unwrap().entry(payment["for"].as_str().unwrap().to_owned()).or_default() += 1;
            if fate == 1 { Err(Crashed) } else { Ok(String::new()) }
        }
    }
}
