//! Entries of a stream as messages.
//!
//! | fields | are |
//! |---|---|
//! | `data`, and `specversion` | a CloudEvent: the other fields are attributes |
//! | `data`, without `specversion` | a message: the other fields are headers |
//! | others | a message, whose data is a JSON object of its fields |

use std::borrow::Cow;

use deadpool_redis::redis::Value;
use serde_json::Map;

use crate::broker::cloud_events::DATA_CONTENT_TYPE;
use crate::broker::held::Said;
use crate::broker::incoming::{self, Incoming};

const DATA: &[u8] = b"data";

type Entries = Vec<(Box<str>, Said)>;

/// What XREADGROUP of one stream answers: its entries, and the ids of those that are no more.
pub(super) fn entries(answer: Value) -> Result<(Entries, Vec<Box<str>>), &'static str> {
    const STRANGE: &str = "a strange answer to XREADGROUP";
    let streams = match answer {
        // Nothing in time.
        Value::Nil => return Ok((Vec::new(), Vec::new())),
        Value::Array(streams) => streams,
        _ => return Err(STRANGE),
    };
    let Some(Value::Array(stream)) = streams.into_iter().next() else { return Err(STRANGE) };
    let Some(Value::Array(entries)) = stream.into_iter().nth(1) else { return Err(STRANGE) };
    parse(entries).ok_or(STRANGE)
}

/// What XAUTOCLAIM answers: where to go on, and entries.
pub(super) fn claimed(answer: Value) -> Result<(Box<str>, Entries), &'static str> {
    const STRANGE: &str = "a strange answer to XAUTOCLAIM";
    let Value::Array(answer) = answer else { return Err(STRANGE) };
    let mut parts = answer.into_iter();
    let (Some(next), Some(Value::Array(entries))) = (parts.next(), parts.next()) else { return Err(STRANGE) };
    let next = bytes(&next).and_then(|next| std::str::from_utf8(next).ok()).ok_or(STRANGE)?;
    // Those that are no more have been let go by the server.
    let (entries, _gone) = parse(entries).ok_or(STRANGE)?;
    Ok((next.into(), entries))
}

fn parse(entries: Vec<Value>) -> Option<(Entries, Vec<Box<str>>)> {
    let (mut there, mut gone) = (Vec::new(), Vec::new());
    for entry in entries {
        let Value::Array(entry) = entry else { continue };
        let [id, fields] = <[Value; 2]>::try_from(entry).ok()?;
        let id: Box<str> = std::str::from_utf8(bytes(&id)?).ok()?.into();
        match fields {
            Value::Array(fields) => there.push((id, said(&fields))),
            _ => gone.push(id),
        }
    }
    Some((there, gone))
}

fn said(fields: &[Value]) -> Said {
    let fields: Vec<(&[u8], &[u8])> = fields
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[name, value]| (bytes(name).unwrap_or_default(), bytes(value).unwrap_or_default()))
        .collect();
    let field = |wanted: &[u8]| fields.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    let Some(data) = field(DATA) else { return object(&fields) };
    let is_event = field(b"specversion").is_some();
    let mut incoming = Incoming::new(if is_event { incoming::BARE } else { incoming::FOREIGN });
    let mut seen_data = false;
    for (name, value) in &fields {
        if *name == DATA && !seen_data {
            seen_data = true;
            continue;
        }
        let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else { continue };
        if !is_event && name == DATA_CONTENT_TYPE {
            incoming.content_type(value);
        } else {
            incoming.header(name, value);
        }
    }
    incoming.read(data.to_vec().into())
}

fn object(fields: &[(&[u8], &[u8])]) -> Said {
    let text = |bytes| Cow::into_owned(String::from_utf8_lossy(bytes));
    let object: Map<_, _> = fields.iter().map(|(name, value)| (text(name), text(value).into())).collect();
    let data = serde_json::Value::Object(object).to_string();
    Said { content_type: Some("application/json".into()), data: data.into(), ..Said::default() }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: impl AsRef<[u8]>) -> Value {
        Value::BulkString(text.as_ref().to_vec())
    }

    fn entry(id: &str, fields: &[(&[u8], &[u8])]) -> Value {
        let fields = fields.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]).collect();
        Value::Array(vec![bulk(id), Value::Array(fields)])
    }

    fn read(fields: &[(&[u8], &[u8])]) -> Said {
        let stream = Value::Array(vec![bulk("payments"), Value::Array(vec![entry("1-0", fields)])]);
        let (mut entries, gone) = entries(Value::Array(vec![stream])).unwrap();
        assert_eq!((entries.len(), gone.len()), (1, 0));
        entries.remove(0).1
    }

    #[test]
    fn a_foreign_entry_is_an_object_of_its_fields() {
        let said = read(&[(b"order", b"7"), (b"note", b"\xff\"")]);
        assert_eq!(said.data, r#"{"note":"\ufffd\"","order":"7"}"#.replace("\\ufffd", "\u{fffd}"));
        assert_eq!((said.id, said.content_type.as_deref()), (None, Some("application/json")));
    }

    #[test]
    fn data_without_a_specversion_has_no_id_of_its_own() {
        let said = read(&[(b"id", b"7"), (b"data", b"x"), (b"datacontenttype", b"text/plain"), (b"data", b"y")]);
        assert_eq!((&*said.data, said.id, said.content_type.as_deref()), (&b"x"[..], None, Some("text/plain")));
        assert_eq!(said.attributes, [("id".into(), "7".into()), ("data".into(), "y".into())]);
    }

    #[test]
    fn entries_that_are_no_more_are_told_apart() {
        let gone = Value::Array(vec![bulk("2-0"), Value::Nil]);
        let list = Value::Array(vec![entry("1-0", &[(b"a", b"b")]), gone, Value::Nil]);
        let (there, gone) = entries(Value::Array(vec![Value::Array(vec![bulk("s"), list.clone()])])).unwrap();
        assert_eq!((there.len(), gone), (1, vec!["2-0".into()]));
        let (next, there) = claimed(Value::Array(vec![bulk("3-0"), list])).unwrap();
        assert_eq!((&*next, there.len()), ("3-0", 1));
    }

    #[test]
    fn no_answer_panics() {
        let strange = [
            Value::Okay,
            Value::Int(1),
            Value::Array(Vec::new()),
            Value::Array(vec![Value::Array(vec![bulk("s")])]),
            Value::Array(vec![Value::Array(vec![bulk("s"), Value::Array(vec![Value::Array(vec![bulk("1-0")])])])]),
        ];
        for answer in strange {
            assert!(entries(answer.clone()).is_err(), "{answer:?}");
            assert!(claimed(answer.clone()).is_err(), "{answer:?}");
        }
        assert!(entries(Value::Nil).unwrap().0.is_empty());
    }
}
