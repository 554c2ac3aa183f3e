//! What the endpoints of events and of deliveries have in common: rows of the work table, and what people decide about
//! them.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::access::Authority;
use super::given::{MAX_REASON_BYTES, given_text};
use super::trouble::Troubles;
use super::{Admin, entries, given, invalid, rows, store_problem};
use crate::outbox::desk::{Acted, Action, Filter, MAX_LISTED, Mode, Order, State, Which};
use crate::outbox::event::EventId;
use crate::problem::{Problem, Situation};

/// Rows of one order, unless it is told otherwise: what a person can still look through.
const AT_MOST: u32 = 100;

/// Which rows: the members of a filter, and the parameters of a list beside `limit`, `after`.
pub(super) trait Wanted: DeserializeOwned + Send {
    /// What a list of them is called.
    const MANY: &'static str;

    /// Those that are meant.
    fn filter(self) -> Filter;
}

/// States as people write them: `parked,sent`, or a list.
#[derive(Debug, Default)]
pub(super) struct States(pub(super) Vec<State>);

impl<'de> Deserialize<'de> for States {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            List(Vec<String>),
        }
        let words = match Written::deserialize(deserializer)? {
            Written::Text(text) => text.split(',').map(|word| word.trim().to_owned()).collect(),
            Written::List(list) => list,
        };
        let read = |word: &String| State::ALL.into_iter().find(|state| state.as_str() == word);
        let unknown = |word: &String| serde::de::Error::custom(format!("`state` is one of {}, not {word}", known()));
        words.iter().map(|word| read(word).ok_or_else(|| unknown(word))).collect::<Result<_, _>>().map(Self)
    }
}

fn known() -> String {
    State::ALL.map(State::as_str).join(", ")
}

/// The body of an order.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, bound = "W: Wanted")]
pub(super) struct GivenOrder<W> {
    /// These, or those of a filter.
    ids: Option<Vec<String>>,
    filter: Option<W>,
    /// Most of a filter: 100 unless it says otherwise.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only says which. The default of a filter.
    dry_run: Option<bool>,
    /// Kept on record.
    reason: String,
    /// Who says so. Not needed with an access token: its subject does.
    actor: Option<String>,
}

/// The query of a list: its filter, and where it begins.
struct Asked {
    filter: Filter,
    limit: u32,
    before: Option<i64>,
}

type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The query of a row.
pub(super) type Pair = Result<Query<entries::ShowQuery>, QueryRejection>;

impl Asked {
    fn read<W: Wanted>(query: Pairs) -> Result<Self, Problem> {
        let mut named = Map::new();
        for (name, value) in entries::parameters(query)? {
            match named.get(&name).and_then(Value::as_str) {
                None => named.insert(name, Value::String(value)),
                Some(before) if name == "state" => named.insert(name, Value::String(format!("{before},{value}"))),
                Some(_) => return Err(invalid(format!("`{name}` is named twice"))),
            };
        }
        let limit = named.remove("limit").map(|limit| number(&limit, "limit")).transpose()?;
        let after = named.remove("after").map(|after| number(&after, "after")).transpose()?;
        let wanted: W = serde_json::from_value(Value::Object(named)).map_err(invalid)?;
        Ok(Self { filter: wanted.filter(), limit: entries::limited(limit)?, before: after })
    }
}

fn number<N: std::str::FromStr>(value: &Value, name: &str) -> Result<N, Problem> {
    let number = value.as_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| invalid(format!("`{name}` is no such number")))
}

impl<W: Wanted> GivenOrder<W> {
    fn read(self, action: Action) -> Result<(Order, Vec<EventId>), Problem> {
        let Self { ids, filter, limit, dry_run, reason, .. } = self;
        let reason = given_text("reason", &reason, MAX_REASON_BYTES)?;
        let (to, ids, by_default) = match (ids, filter) {
            (Some(ids), None) if limit.is_none() => {
                let ids = read_ids(&ids)?;
                (Which::Ids(ids.clone()), ids, Mode::Carry)
            }
            (Some(_), None) => return Err(invalid("`limit` is for a filter")),
            (None, Some(wanted)) => {
                let mut filter = wanted.filter();
                if filter.states.is_empty() {
                    filter.states.push(State::Parked);
                }
                let limit = entries::limited(Some(limit.unwrap_or(AT_MOST)))?;
                (Which::All { filter, limit }, Vec::new(), Mode::DryRun)
            }
            (Some(_), Some(_)) | (None, None) => return Err(invalid("Name either `ids` or a `filter`")),
        };
        let mode = match dry_run {
            Some(true) => Mode::DryRun,
            Some(false) => Mode::Carry,
            None => by_default,
        };
        Ok((Order { action, to, reason, mode }, ids))
    }
}

fn read_ids(ids: &[String]) -> Result<Vec<EventId>, Problem> {
    if ids.is_empty() || ids.len() > MAX_LISTED as usize {
        return Err(invalid(format!("`ids` are from 1 to {MAX_LISTED}")));
    }
    let read = |id: &String| EventId::from_hex(id).ok_or_else(|| invalid("An id has 32 hexadecimal digits"));
    ids.iter().map(read).collect()
}

impl Admin {
    /// A list, the newest first. One by result, and by no state, is of all states that have one.
    pub(super) async fn work<W: Wanted>(&self, query: Pairs) -> Result<Value, Problem> {
        let Asked { mut filter, limit, before } = Asked::read::<W>(query)?;
        if filter.result.is_some() && filter.states.is_empty() {
            filter.states = vec![State::Parked, State::Sent, State::Discarded];
        }
        let failed = |error| store_problem(&error);
        let found = self.0.events.list(&filter, before, limit).await.map_err(failed)?;
        let relays = self.0.events.relays().await.map_err(failed)?;
        let troubles = Troubles::new(&relays, &found);
        let is_full = found.len() as u64 == u64::from(limit);
        let next = found.last().filter(|_| is_full).map(|last| last.position.to_string());
        Ok(json!({ W::MANY: rows::rows(&found, &troubles), "next": next, "troubles": troubles.all() }))
    }

    /// Everything about one.
    pub(super) async fn work_page(&self, id: &str, query: Pair) -> Result<Value, Problem> {
        let data = entries::parameters(query)?.data();
        let id = EventId::from_hex(id).ok_or_else(|| Problem::new(Situation::NoEntry))?;
        let failed = |error| store_problem(&error);
        let shown = self.0.events.show(id).await.map_err(failed)?.ok_or_else(|| Problem::new(Situation::NoEntry))?;
        let relays = self.0.events.relays().await.map_err(failed)?;
        Ok(rows::page(&shown, &Troubles::new(&relays, [&shown.listed]), data))
    }

    /// Does to rows what a person says.
    pub(super) async fn act<W: Wanted>(
        &self,
        order: GivenOrder<W>,
        action: Action,
        authority: &Authority,
    ) -> Result<Value, Problem> {
        let actor = given::actor(order.actor.as_deref(), authority)?;
        let (order, ids) = order.read(action)?;
        let acted = self.0.events.act_by(&order, Some(&actor)).await.map_err(|error| store_problem(&error))?;
        if order.mode == Mode::Carry && !acted.changed.is_empty() {
            tracing::warn!(actor = %actor.name, action = action.as_str(), count = acted.changed.len(), "a person decided about events");
        }
        Ok(told(&order, &acted, &ids))
    }
}

fn told(order: &Order, acted: &Acted, ids: &[EventId]) -> Value {
    let is_there = |id: &&EventId| {
        let id = id.to_string();
        acted.changed.iter().chain(&acted.left).any(|event| *event.id == *id)
    };
    let missing: Vec<String> = ids.iter().filter(|id| !is_there(id)).map(ToString::to_string).collect();
    let none = Troubles::default();
    json!({
        "action": order.action.as_str(),
        "dry_run": order.mode == Mode::DryRun,
        "changed": rows::rows(&acted.changed, &none),
        "left": rows::rows(&acted.left, &none),
        "missing": missing,
    })
}
