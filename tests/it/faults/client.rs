//! A client that retries as SDKs do: with the same key, until it is told something final.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use oncegate::clock;

use super::PATIENCE;

/// How long one try may take: longer than an upstream may.
const TRY: Duration = Duration::from_secs(5);

/// What a try was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: String,
    pub(super) replayed: bool,
    /// Whether the gateway says that the answer is on record, or does not say that it is not.
    pub(super) recorded: bool,
    pub(super) retry_after: bool,
}

impl Answer {
    pub(super) fn is_problem(&self, slug: &str) -> bool {
        self.body.contains(&format!("/problems/{slug}"))
    }
}

/// What a payment came to for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The upstream's answer, or its replay.
    Answered(Answer),
    /// Nobody knows.
    Held,
}

#[derive(Debug, Clone)]
pub(super) struct Client {
    http: Http<HttpConnector, Full<Bytes>>,
}

impl Client {
    pub(super) fn new() -> Self {
        Self { http: Http::builder(TokioExecutor::new()).build_http() }
    }

    /// One try; `None`: no whole answer came.
    pub(super) async fn post(&self, gateway: SocketAddr, key: &str) -> Option<Answer> {
        self.post_to(gateway, "pay", key).await
    }

    /// The same on this route.
    pub(super) async fn post_to(&self, gateway: SocketAddr, route: &str, key: &str) -> Option<Answer> {
        let payer = key.split('-').next().unwrap_or_default();
        let request = Request::post(format!("http://{gateway}/{route}"))
            .header("idempotency-key", key)
            .body(Full::from(format!(r#"{{"for":"{key}","payer":"{payer}"}}"#)))
            .unwrap();
        let exchange = async {
            let (parts, body) = self.http.request(request).await.ok()?.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            let is = |name: &str, value: &str| parts.headers.get(name).is_some_and(|found| found == value);
            Some(Answer {
                status: parts.status,
                body: String::from_utf8(body.to_vec()).unwrap(),
                replayed: is("idempotent-replayed", "true"),
                recorded: !is("oncegate-recorded", "false"),
                retry_after: parts.headers.contains_key("retry-after"),
            })
        };
        tokio::time::timeout(TRY, exchange).await.ok().flatten()
    }

    /// Tries at any of `gateways` until the end.
    pub(super) async fn pay(&self, gateways: &[SocketAddr], key: &str) -> End {
        let deadline = clock::now() + PATIENCE;
        loop {
            let gateway = gateways[rand::random_range(0..gateways.len())];
            let answer = self.post(gateway, key).await;
            match &answer {
                Some(answer) if answer.is_problem("outcome-unknown") => return End::Held,
                Some(answer) if answer.status.is_success() => return End::Answered(answer.clone()),
                Some(answer) => {
                    let again = ["processing", "unavailable"].iter().any(|slug| answer.is_problem(slug));
                    // An upstream's time-out is told once; the next try tells what is on record.
                    let failed = ["upstream-timeout", "upstream-failed"].iter().any(|slug| answer.is_problem(slug));
                    assert!(again || failed, "{key}: {answer:?}");
                    assert!(!again || answer.retry_after, "{key}: {answer:?}");
                }
                None => {}
            }
            assert!(clock::now() < deadline, "{key} is stuck, last told: {answer:?}");
            tokio::time::sleep(Duration::from_millis(rand::random_range(20..100))).await;
        }
    }
}
