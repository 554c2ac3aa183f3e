//! `[[routes.events]]`: what is announced of a route's completed requests.

use std::collections::HashMap;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, de};

use super::value::{Name, StatusMatch, Statuses};
use crate::entry::{KeySources, Pointer};
use crate::outbox::data::{Data, Template};
use crate::outbox::event::OnFailure;
use crate::outbox::key::EventKey;
use crate::outbox::lane::DEFAULT_QUEUE;

/// One of `[[routes.events]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Tells the events of a route apart. It makes the event's id: another name is another event.
    pub name: Name,
    /// CloudEvents `type`, such as `com.example.payment.created`. No default: consumers choose by it.
    #[serde(rename = "type")]
    pub kind: String,
    /// CloudEvents `source`. Default `/` and the route's name.
    #[serde(default)]
    pub source: Option<String>,
    /// Which completed requests it announces. Default every 2xx.
    #[serde(default)]
    pub when: When,
    /// The queue, by name. Default `default`, the one of `[queue]`.
    #[serde(default = "queue")]
    pub queue: Name,
    /// Where in the queue: a routing key, topic, subject, stream or path. No default.
    pub topic: String,
    /// What it is ordered by: `"key"` (the idempotency key), sources as an idempotency key has them, or
    /// `"response:/pointer"`. Default `"key"`.
    #[serde(default, deserialize_with = "key")]
    pub key: EventKey,
    /// What it says: `"response"`, `"request"`, `"both"`, or a table. In a table, `"request:/pointer"` and
    /// `"response:/pointer"` stand for the values there, and everything else for itself. Default `"response"`.
    #[serde(default, deserialize_with = "data")]
    pub data: Data,
    /// What becomes of later events of its key when it has failed for good. Default `"hold"`: nobody sees a later
    /// state without the earlier one.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// `when` of an event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// The response's status. Default "2xx".
    pub status: Statuses,
    /// Values of the JSON response by pointer, all of which must hold. Default none.
    pub equals: HashMap<Pointer, serde_json::Value>,
}

impl Default for When {
    fn default() -> Self {
        Self { status: Statuses(vec![StatusMatch::Class(2)]), equals: HashMap::new() }
    }
}

fn queue() -> Name {
    Name::from_static(DEFAULT_QUEUE)
}

fn key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EventKey, D::Error> {
    let value = toml::Value::deserialize(deserializer)?;
    match value.as_str() {
        Some("key") => Ok(EventKey::Idempotency),
        Some(text) if text.starts_with("response:") => pointer(&text["response:".len()..]).map(EventKey::Response),
        Some(_) | None => KeySources::deserialize(value).map(EventKey::Request).map_err(|error| {
            D::Error::custom(format_args!(
                "{}; an event's key is \"key\" or \"response:/pointer\" too",
                error.message()
            ))
        }),
    }
}

/// Deepest nesting of an event's table: deeper than what people write.
const MAX_DEPTH: usize = 16;

fn data<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Data, D::Error> {
    let value = toml::Value::deserialize(deserializer)?;
    match value.as_str() {
        Some("response") => Ok(Data::Response),
        Some("request") => Ok(Data::Request),
        Some("both") => Ok(Data::both()),
        Some(_) | None if value.is_table() => template(value, MAX_DEPTH).map(Data::Template),
        Some(_) | None => {
            let text = format!("`{value}`: an event's data is \"response\", \"request\", \"both\", or a table");
            Err(D::Error::custom(text))
        }
    }
}

fn template<E: de::Error>(value: toml::Value, depth: usize) -> Result<Template, E> {
    use toml::Value;
    if depth == 0 {
        return Err(E::custom(format_args!("an event's data has at most {MAX_DEPTH} levels")));
    }
    let literal = |json: serde_json::Value| Ok(Template::Literal(json.to_string().into()));
    match value {
        Value::String(text) => match text.split_once(':') {
            Some(("request", rest)) => pointer(rest).map(Template::Request),
            Some(("response", rest)) => pointer(rest).map(Template::Response),
            Some(_) | None => literal(text.into()),
        },
        Value::Integer(number) => literal(number.into()),
        Value::Float(number) if number.is_finite() => literal(number.into()),
        Value::Float(number) => Err(E::custom(format_args!("`{number}` is no number of JSON"))),
        Value::Boolean(value) => literal(value.into()),
        Value::Datetime(time) => literal(time.to_string().into()),
        Value::Array(elements) => {
            let elements = elements.into_iter().map(|element| template(element, depth - 1));
            elements.collect::<Result<_, _>>().map(Template::Array)
        }
        Value::Table(members) => {
            let members = members.into_iter().map(|(name, member)| Ok((name.into(), template(member, depth - 1)?)));
            members.collect::<Result<_, _>>().map(Template::Object)
        }
    }
}

fn pointer<E: de::Error>(text: &str) -> Result<Pointer, E> {
    Pointer::parse(text).map_err(|error| E::custom(format_args!("`{text}`: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(rest: &str) -> Result<Event, String> {
        let text = format!("name = 'created'\ntype = 't'\ntopic = 'p'\n{rest}");
        toml::from_str(&text).map_err(|error| error.message().to_owned())
    }

    fn at(pointer: &str) -> Pointer {
        Pointer::parse(pointer).unwrap()
    }

    #[test]
    fn keys_are_the_idempotency_key_or_come_from_request_or_response() {
        let key = |written: &str| event(&format!("key = {written}")).map(|event| event.key);
        assert_eq!(event("").unwrap().key, EventKey::Idempotency);
        assert_eq!(key("'key'"), Ok(EventKey::Idempotency));
        assert_eq!(key("'response:/id'"), Ok(EventKey::Response(at("/id"))));
        let sources = |json: &str| EventKey::Request(serde_json::from_str(json).unwrap());
        assert_eq!(key("'body:/order_no'"), Ok(sources(r#""body:/order_no""#)));
        assert_eq!(key("[['path:shop', 'query:no'], 'header']"), Ok(sources(r#"[["path:shop","query:no"],"header"]"#)));
        for (written, told) in [
            ("'order'", "\"key\" or \"response:/pointer\""),
            ("'response:id'", "begins with /"),
            ("'body:id'", "begins with /"),
            ("7", "expected a key source"),
        ] {
            let error = key(written).unwrap_err();
            assert!(error.contains(told), "{written}: {error}");
        }
    }

    #[test]
    fn data_is_a_body_both_or_a_table_of_literals_and_pointers() {
        let data = |written: &str| event(&format!("data = {written}")).map(|event| event.data);
        assert_eq!(event("").unwrap().data, Data::Response);
        assert_eq!((data("'request'"), data("'both'")), (Ok(Data::Request), Ok(Data::both())));
        let literal = |json: &str| Template::Literal(json.into());
        let expected = Template::Object(vec![
            ("at".into(), literal("\"1979-05-27\"")),
            ("id".into(), Template::Response(at("/id"))),
            ("list".into(), Template::Array(vec![literal("1"), literal("2.5"), literal("true"), literal("\"a:b\"")])),
            ("order".into(), Template::Object(vec![("no".into(), Template::Request(at("")))])),
        ]);
        let written =
            "{ id = 'response:/id', order = { no = 'request:' }, list = [1, 2.5, true, 'a:b'], at = 1979-05-27 }";
        assert_eq!(data(written), Ok(Data::Template(expected)));
        let deep = format!("{}1{}", "{ a = ".repeat(20), " }".repeat(20));
        for (written, told) in [
            ("'respons'", "\"both\", or a table"),
            ("7", "or a table"),
            ("{ id = 'response:id' }", "begins with /"),
            ("{ id = nan }", "no number"),
            (&deep, "at most 16 levels"),
        ] {
            let error = data(written).unwrap_err();
            assert!(error.contains(told), "{written}: {error}");
        }
    }
}
