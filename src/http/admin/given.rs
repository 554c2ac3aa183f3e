//! What an operator gives as an entry's outcome.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;

use super::access::Authority;
use super::invalid;
use crate::engine::by_hand::{Given, Word};
use crate::engine::desk::Actor;
use crate::entry::StoredResponse;
use crate::problem::Problem;
use crate::upstream::hop_by_hop;

/// Most bytes of a name and of a reason: what is kept of them.
pub(crate) const MAX_ACTOR_BYTES: usize = 200;
pub(crate) const MAX_REASON_BYTES: usize = 2_000;

/// What became of a request, who says so, and why.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenWord {
    pub(crate) outcome: Outcome,
    /// Of what was completed.
    pub(crate) response: Option<GivenResponse>,
    /// Kept on record.
    pub(crate) reason: String,
    /// Who says so. Not needed with an access token: its subject does.
    pub(crate) actor: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Completed,
    NotExecuted,
}

/// The answer that retries get.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenResponse {
    #[schema(minimum = 200, maximum = 499)]
    pub(crate) status: u16,
    /// Line by line: name and value.
    #[serde(default)]
    #[schema(value_type = Vec<Vec<String>>)]
    pub(crate) headers: Vec<(String, String)>,
    /// Its body, where that is text.
    pub(crate) body: Option<String>,
    /// Its body, where that is not.
    pub(crate) body_base64: Option<String>,
}

impl GivenWord {
    /// The word as the engine takes it.
    pub(crate) fn read(self, authority: &Authority) -> Result<Word, Problem> {
        let outcome = match (self.outcome, self.response) {
            (Outcome::Completed, Some(response)) => Given::Completed(Arc::new(response.read()?)),
            (Outcome::Completed, None) => {
                return Err(invalid("`response` is missing: what retries of a completed request are to be answered"));
            }
            (Outcome::NotExecuted, None) => Given::NotExecuted,
            (Outcome::NotExecuted, Some(_)) => {
                return Err(invalid("`response` is for completed requests: one that was not executed runs again"));
            }
        };
        let actor = actor(self.actor.as_deref(), authority)?;
        Ok(Word { outcome, actor, reason: given_text("reason", &self.reason, MAX_REASON_BYTES)? })
    }
}

/// Who decides: whoever the access token was issued for, or else who they say that they are.
pub(super) fn actor(given: Option<&str>, authority: &Authority) -> Result<Actor, Problem> {
    let name = match (authority.subject(), given) {
        (Some(subject), None) => subject,
        (Some(subject), Some(actor)) if subject == actor.trim() => subject,
        (Some(_), Some(_)) => return Err(invalid("`actor` is who the access token was issued for, or left out")),
        (None, actor) => actor.unwrap_or_default(),
    };
    Ok(Actor { name: given_text("actor", name, MAX_ACTOR_BYTES)?, authority: authority.as_str().into() })
}

/// A text that is kept on record.
pub(super) fn given_text(what: &str, text: &str, longest: usize) -> Result<Box<str>, Problem> {
    match text.trim() {
        "" => Err(invalid(format!("`{what}` is empty; it is kept on record"))),
        text if text.len() > longest => Err(invalid(format!("`{what}` is longer than {longest} bytes"))),
        text => Ok(text.into()),
    }
}

impl GivenResponse {
    fn read(self) -> Result<StoredResponse, Problem> {
        // What a completed request can have been answered with: a 5xx says nothing of what happened.
        let status = StatusCode::from_u16(self.status).ok().filter(|status| (200..500).contains(&status.as_u16()));
        let status = status.ok_or_else(|| invalid("`response.status` is from 200 to 499"))?;
        let body = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => return Err(invalid("`response` has one of `body` and `body_base64`")),
            (Some(text), None) => Bytes::from(text),
            (None, Some(encoded)) => {
                Bytes::from(STANDARD.decode(encoded).map_err(|_| invalid("`response.body_base64` is not Base64"))?)
            }
            (None, None) => Bytes::new(),
        };
        let bodiless = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
        if bodiless.contains(&status) && !body.is_empty() {
            return Err(invalid(format!("An answer with status {} has no body", status.as_u16())));
        }
        let headers = fields(self.headers)?;
        let response = StoredResponse::of(status, &headers, body, &[]);
        let dropped = headers.keys().find(|name| !response.headers.contains_key(*name));
        match dropped {
            Some(name) => Err(not_replayed(name.as_str())),
            None => Ok(response),
        }
    }
}

fn not_replayed(name: &str) -> Problem {
    invalid(format!("`{name}` is no part of a replayed answer: it belongs to one exchange"))
}

fn fields(given: Vec<(String, String)>) -> Result<HeaderMap, Problem> {
    let mut fields = HeaderMap::new();
    for (name, value) in &given {
        let parsed = HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value.as_str()).ok());
        let (name, value) =
            parsed.ok_or_else(|| invalid("`response.headers` are pairs of a field name and its value"))?;
        fields.append(name, value);
    }
    let mut kept = fields.clone();
    hop_by_hop::strip(&mut kept);
    match fields.keys().find(|name| !kept.contains_key(*name)) {
        Some(name) => Err(not_replayed(name.as_str())),
        None => Ok(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(word: Value) -> Result<Word, String> {
        let word: GivenWord = serde_json::from_value(word).map_err(|error| error.to_string())?;
        word.read(&Authority::Token).map_err(|problem| format!("{problem:?}"))
    }

    fn completed(response: Value) -> Result<Word, String> {
        read(json!({ "outcome": "completed", "response": response, "reason": "seen at the bank", "actor": "ann" }))
    }

    #[test]
    fn a_completed_request_is_given_the_answer_that_its_retries_get() {
        let headers = json!([["content-type", "application/json"], ["link", "</a>"], ["link", "</b>"]]);
        let word = completed(json!({ "status": 201, "headers": headers, "body": "{}" })).unwrap();
        let Given::Completed(response) = word.outcome else { panic!("{word:?}") };
        assert_eq!((response.status.as_u16(), &response.body[..], response.headers.len()), (201, &b"{}"[..], 3));
        assert_eq!((&*word.actor.name, &*word.actor.authority), ("ann", "token"));
        let bytes = completed(json!({ "status": 200, "body_base64": "AP8=" })).unwrap();
        let Given::Completed(response) = bytes.outcome else { panic!("{bytes:?}") };
        assert_eq!(&response.body[..], b"\x00\xff");
    }

    #[test]
    fn what_can_not_be_replayed_is_refused() {
        for response in [
            json!({ "status": 500 }),
            json!({ "status": 100 }),
            json!({ "status": 204, "body": "x" }),
            json!({ "status": 200, "body": "x", "body_base64": "AA==" }),
            json!({ "status": 200, "body_base64": "?" }),
            json!({ "status": 200, "headers": [["content-length", "3"]] }),
            json!({ "status": 200, "headers": [["transfer-encoding", "chunked"]] }),
            json!({ "status": 200, "headers": [["set-cookie", "a=b"]] }),
            json!({ "status": 200, "headers": [["a b", "c"]] }),
            json!({ "status": 200, "headers": [["a", "b\r\nc: d"]] }),
            json!({ "status": 200, "bdy": "x" }),
        ] {
            assert!(completed(response.clone()).is_err(), "{response}");
        }
    }

    #[test]
    fn a_word_says_who_and_why_and_fits_its_outcome() {
        for word in [
            json!({ "outcome": "not_executed", "reason": " ", "actor": "ann" }),
            json!({ "outcome": "not_executed", "reason": "x", "actor": "" }),
            json!({ "outcome": "not_executed", "reason": "x" }),
            json!({ "outcome": "not_executed", "actor": "ann" }),
            json!({ "outcome": "unknown", "reason": "x", "actor": "ann" }),
            json!({ "outcome": "completed", "reason": "x", "actor": "ann" }),
            json!({ "outcome": "not_executed", "response": { "status": 200 }, "reason": "x", "actor": "ann" }),
            json!({ "outcome": "not_executed", "reason": "x".repeat(2001), "actor": "ann" }),
        ] {
            assert!(read(word.clone()).is_err(), "{word}");
        }
        assert!(read(json!({ "outcome": "not_executed", "reason": "x", "actor": "ann" })).is_ok());
    }

    #[test]
    fn whoever_is_known_by_name_acts_under_it() {
        let read = |actor: Value| {
            let word = json!({ "outcome": "not_executed", "reason": "x", "actor": actor });
            let word: GivenWord = serde_json::from_value(word).unwrap();
            word.read(&Authority::Granted("ann".into())).map(|word| word.actor.name)
        };
        assert_eq!(&*read(Value::Null).ok().unwrap(), "ann");
        assert_eq!(&*read(json!("ann")).ok().unwrap(), "ann");
        assert!(read(json!("bob")).is_err());
    }
}
