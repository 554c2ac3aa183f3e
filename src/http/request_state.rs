//! What the caller of a request may know of it.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::entry::{Admission, Comparison, Entry, Identity, StoredResponse, admit};

/// The state of a request, as its own caller may know it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct RequestState {
    /// The kind of operation that the key belongs to.
    namespace: String,
    /// The key.
    key: String,
    /// `in_progress`: it is being executed. `unknown`: nobody knows whether it was. `completed`: it was, and `response`
    /// is what it came to. `expired`: it was, and its answer is no longer kept.
    #[schema(pattern = "^(in_progress|unknown|completed|expired)$")]
    state: &'static str,
    /// The number of the latest execution. Above 1 an earlier one ended unknown.
    attempt: u32,
    /// Until when the answer is kept, as an HTTP date.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires: Option<String>,
    /// What it came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    response: Option<KnownResponse>,
}

/// A stored answer, as far as it was kept.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct KnownResponse {
    /// Its status.
    status: u16,
    /// Its header, line by line: name and value.
    #[schema(value_type = Vec<Vec<String>>)]
    headers: Vec<(String, String)>,
    /// Its body, where that is text in UTF-8. Neither this nor `body_base64`: it was not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body: Option<String>,
    /// Its body, where that is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body_base64: Option<String>,
}

impl RequestState {
    /// What a retry would be told now; `None`: the key is new again.
    pub(super) fn of(identity: &Identity, entry: &Entry, now: Timestamp) -> Option<Self> {
        let (state, expires, response) = match admit(entry, Comparison::Same, now) {
            Admission::InProgress => ("in_progress", None, None),
            Admission::Held { .. } => ("unknown", None, None),
            Admission::Replay { response, expires } => {
                ("completed", Some(expires), Some(KnownResponse::whole(&response)))
            }
            Admission::NotKept { status, expires } => {
                ("completed", Some(expires), Some(KnownResponse::status_only(status)))
            }
            Admission::Expired => ("expired", None, None),
            // The last two are told of other requests only.
            Admission::Forgotten { .. } | Admission::Mismatch | Admission::Incomparable => return None,
        };
        Some(Self {
            namespace: identity.namespace.to_string(),
            key: identity.key.as_str().to_owned(),
            state,
            attempt: entry.attempt,
            expires: expires.map(|expires| httpdate::fmt_http_date(expires.to_system())),
            response,
        })
    }
}

impl KnownResponse {
    fn status_only(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: None, body_base64: None }
    }

    fn whole(response: &StoredResponse) -> Self {
        use base64::Engine as _;
        let headers = response.headers.iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        let (body, body_base64) = match std::str::from_utf8(&response.body) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(base64::engine::general_purpose::STANDARD.encode(&response.body))),
        };
        Self { status: response.status.as_u16(), headers: headers.collect(), body, body_base64 }
    }
}
