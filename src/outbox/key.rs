//! What events are ordered by.

use sha2::{Digest as _, Sha256};

use super::event::MAX_EVENT_KEY_BYTES;
use super::seed::Seed;
use crate::entry::json::{self, Found};
use crate::entry::{Key, KeySources, Pointer, StoredResponse};

/// Where an event's key comes from: events of one key are published in the order of their commits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EventKey {
    /// The idempotency key.
    #[default]
    Idempotency,
    /// The request, by the sources that an idempotency key has: taken when the request is claimed.
    Request(KeySources),
    /// A string or plain integer of the JSON response.
    Response(Pointer),
}

impl EventKey {
    /// The key; `None` where there is none, or where it can't be one.
    pub(super) fn of(
        &self,
        event: &str,
        idempotency: &Key,
        seed: Option<&Seed>,
        response: Option<&StoredResponse>,
    ) -> Option<Box<str>> {
        match self {
            Self::Idempotency => Some(idempotency.as_str().into()),
            Self::Request(_) => seed?.key_of(event).map(Into::into),
            Self::Response(pointer) => match json::find(&response?.body, pointer) {
                Ok(Some(Found::String(text) | Found::Integer(text))) => usable(&text),
                Ok(Some(Found::Other) | None) | Err(json::Ambiguous) => None,
            },
        }
    }
}

/// `text` as a key: not empty, no control characters, and of a length that the store takes.
pub(super) fn usable(text: &str) -> Option<Box<str>> {
    let is_usable = !text.trim().is_empty() && !text.chars().any(char::is_control);
    is_usable.then(|| bounded(text))
}

/// A key that is longer than the store takes is replaced by its digest, so that its events still have one order.
fn bounded(text: &str) -> Box<str> {
    if text.len() <= MAX_EVENT_KEY_BYTES {
        return text.into();
    }
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().fold(String::from("sha256-"), |key, byte| key + &format!("{byte:02x}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_too_long_is_replaced_by_its_digest() {
        let longest = "k".repeat(MAX_EVENT_KEY_BYTES);
        assert_eq!(usable(&longest).as_deref(), Some(&*longest));
        let (one, other) = (usable(&format!("{longest}1")).unwrap(), usable(&format!("{longest}2")).unwrap());
        assert!(one != other && one.starts_with("sha256-") && one.len() == 71, "{one}");
        assert_eq!((usable(""), usable(" "), usable("a\0")), (None, None, None));
    }
}
