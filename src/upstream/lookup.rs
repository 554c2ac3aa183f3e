//! Asks the upstream what became of a request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, response};
use hyper::body::Incoming;
use tokio::time::timeout_at;

use super::{Exchange, Permit, Reading, Statuses, Upstream, hop_by_hop, read_answer};
use crate::clock::{self, Instant};
use crate::engine::policy::{Found, Lookup};
use crate::entry::{Answer, EntryId, Identity, StoredResponse};

/// The path and query to ask at for an entry; `None` for one whose key or owner can't be put there without doubt.
pub type Target = Box<dyn Fn(EntryId, &Identity) -> Option<String> + Send + Sync>;

/// How an upstream is asked, and what its answers mean.
pub struct UpstreamLookup {
    /// Who is asked.
    pub upstream: Upstream,
    /// What is asked.
    pub target: Target,
    /// Fields sent along.
    pub headers: HeaderMap,
    /// Statuses that mean "executed", if `equals` holds as well.
    pub completed: Statuses,
    /// JSON pointers and the values that they must have.
    pub equals: Vec<(String, serde_json::Value)>,
    /// How long asking may take.
    pub timeout: Duration,
    /// The largest answer kept.
    pub response_limit: usize,
    /// Fields that a replay leaves out.
    pub excluded: Vec<HeaderName>,
}

impl std::fmt::Debug for UpstreamLookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamLookup").field("upstream", &self.upstream.name()).finish_non_exhaustive()
    }
}

impl Lookup for UpstreamLookup {
    fn lookup<'a>(&'a self, id: EntryId, identity: &'a Identity) -> BoxFuture<'a, Found> {
        Box::pin(async move {
            let found = self.ask(id, identity).await;
            tracing::debug!(entry = ?id, upstream = self.upstream.name(), ?found, "lookup");
            found
        })
    }
}

impl UpstreamLookup {
    async fn ask(&self, id: EntryId, identity: &Identity) -> Found {
        let Some(request) = self.request(id, identity) else { return Found::Undecided };
        let deadline = clock::now() + self.timeout;
        match timeout_at(deadline, self.upstream.send(request, Permit::until(deadline))).await {
            Ok(Exchange::Answered { parts, body }) if parts.status == StatusCode::NOT_FOUND => {
                drop(body);
                Found::Absent
            }
            Ok(Exchange::Answered { parts, body }) if self.completed.contains(parts.status) => {
                self.read(parts, body, deadline).await
            }
            Ok(Exchange::Answered { .. } | Exchange::NotSent(_) | Exchange::Lost(_)) | Err(_) => Found::Undecided,
        }
    }

    fn request(&self, id: EntryId, identity: &Identity) -> Option<Request<Bytes>> {
        let target = (self.target)(id, identity)?;
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = target.parse().ok()?;
        request.headers_mut().clone_from(&self.headers);
        Some(request)
    }

    /// The answer counts only whole: from a part nobody can tell whether `equals` holds, and it would be
    /// replayed.
    async fn read(&self, mut parts: response::Parts, body: Incoming, deadline: Instant) -> Found {
        let Reading::Kept(body) = read_answer(body, self.response_limit, deadline).await else {
            return Found::Undecided;
        };
        if !self.equals.is_empty() && !holds(&body, &self.equals) {
            return Found::Undecided;
        }
        hop_by_hop::strip(&mut parts.headers);
        Found::Completed(Answer::Response(Arc::new(StoredResponse::of(
            parts.status,
            &parts.headers,
            body,
            &self.excluded,
        ))))
    }
}

fn holds(body: &[u8], equals: &[(String, serde_json::Value)]) -> bool {
    let Ok(body) = serde_json::from_slice::<serde_json::Value>(body) else { return false };
    equals.iter().all(|(pointer, value)| body.pointer(pointer) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_values_must_hold_and_none_may_be_missing() {
        let equals = [("/status".to_owned(), json!("paid")), ("/paid".to_owned(), json!(true))];
        assert!(holds(br#"{"status":"paid","paid":true,"more":1}"#, &equals));
        for body in [&br#"{"status":"paid"}"#[..], br#"{"status":"open","paid":true}"#, b"paid", b""] {
            assert!(!holds(body, &equals));
        }
    }
}
