//! A value is taken from a document as another reader would take it, or not at all.

use oncegate::entry::Pointer;
use oncegate::entry::json::{self, Found, Unreadable};
use serde_json::Value;

use super::input::Input;

pub(super) fn holds(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let text = String::from_utf8_lossy(input.some()).into_owned();
    let body = input.rest();
    let theirs: Option<Value> = serde_json::from_slice(body).ok();
    let Ok(pointer) = Pointer::parse(&text) else {
        assert!(!text.is_empty() && (!text.starts_with('/') || text.contains('~') || text.matches('/').count() > 64));
        return;
    };
    assert_eq!(Pointer::parse(&pointer.to_string()), Ok(pointer.clone()));
    assert_eq!(pointer.to_string(), text);
    if theirs.is_some() {
        assert!(json::is_json(body), "they can read it");
    }
    let found = json::find(body, &pointer);
    match json::excerpt(body, &pointer) {
        Ok(Some(excerpt)) => {
            assert!(json::is_json(excerpt.as_bytes()), "{excerpt}");
            let excerpt: Option<Value> = serde_json::from_str(excerpt).ok();
            if let Some(theirs) = &theirs {
                assert_eq!(theirs.pointer(&text), excerpt.as_ref(), "{text}");
                agree(found.ok().flatten(), excerpt.as_ref());
            }
        }
        Ok(None) => {
            assert_eq!(found, Ok(None));
            assert!(theirs.is_none_or(|theirs| theirs.pointer(&text).is_none()), "{text}");
        }
        Err(Unreadable::NotJson) => {
            assert_eq!(found, Ok(None));
            assert!(theirs.is_none() && !json::is_json(body) && json::meaning(body).is_none());
        }
        // A name on the way comes twice: it has no meaning either.
        Err(Unreadable::Ambiguous) => assert!(json::meaning(body).is_none()),
    }
}

fn agree(found: Option<Found>, theirs: Option<&Value>) {
    match (found, theirs) {
        (Some(Found::String(text)), Some(theirs)) => assert_eq!(Value::String(text), *theirs),
        (Some(Found::Integer(text)), Some(Value::Number(number))) => {
            if number.is_i64() || number.is_u64() {
                assert_eq!(text, number.to_string());
            }
        }
        (Some(Found::Other), Some(theirs)) => assert!(!theirs.is_string()),
        (found, theirs) => panic!("{found:?} and {theirs:?}"),
    }
}
