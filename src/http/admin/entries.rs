//! `GET /entries`, `GET /entries/{id}`.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Json};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use http::header::{ETAG, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::shapes::{self, Data};
use super::{Admin, answer, invalid, store_problem};
use crate::engine::desk::{Filter, Listed, MAX_LISTED, Page, Place, Shown, Stage};
use crate::entry::{EntryId, Identity, Key, Namespace, Scope};
use crate::http::reply::Caller;
use crate::outbox::desk::{Filter as EventFilter, Listed as Event, Of, State as EventState};
use crate::outbox::event::EventId;
use crate::problem::{Problem, Situation};

/// Entries of a list, unless it is told otherwise: a screen or two.
const LISTED: u32 = 50;

/// Decisions that a story tells, the latest: a key that is settled more often has another problem.
const TOLD: u32 = 50;

/// The query of `GET /entries`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    state: Option<Stage>,
    namespace: Option<Box<str>>,
    route: Option<Box<str>>,
    scope: Option<Box<str>>,
    key: Option<Box<str>>,
    older_than_seconds: Option<u32>,
    late_answer: Option<bool>,
    limit: Option<u32>,
    after: Option<String>,
}

/// The query of `GET /entries/{id}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowQuery {
    #[serde(default)]
    data: bool,
}

impl ShowQuery {
    pub(super) const fn data(&self) -> Data {
        if self.data { Data::Shown } else { Data::Hidden }
    }
}

/// The parameters of a query, or what is wrong with them.
pub(super) fn parameters<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    query.map(|Query(parameters)| parameters).map_err(|rejection| invalid(rejection.body_text()))
}

pub(super) fn limited(limit: Option<u32>) -> Result<u32, Problem> {
    let limit = limit.unwrap_or(LISTED);
    if limit == 0 || limit > MAX_LISTED {
        return Err(invalid(format!("`limit` is from 1 to {MAX_LISTED}")));
    }
    Ok(limit)
}

/// `GET /entries`: the Unknown ones, unless `state` says otherwise. With a `key` and without `state`, all that can be
/// found of it.
#[utoipa::path(
    get,
    path = "/entries",
    operation_id = "listEntries",
    tag = "operators",
    summary = "Requests by what is on record of them",
    description = "Those whose outcome is unknown, the oldest first, unless `state` says otherwise. With a `key` and without \
                   `state`: all that can be found of it.",
    params(
        ("state" = Option<String>, Query, pattern = "^(in_progress|unknown|completed|tombstone)$", description = "in_progress, unknown, completed or tombstone.", example = "unknown"),
        ("namespace" = Option<String>, Query, description = "Of this namespace.", example = "create-payment"),
        ("route" = Option<String>, Query, description = "Of this route.", example = "create-payment"),
        ("scope" = Option<String>, Query, description = "Of this scope: global, tenant:NAME, subject:NAME.", example = "global"),
        ("key" = Option<String>, Query, description = "Of this key.", example = "A-1001"),
        ("older_than_seconds" = Option<u32>, Query, description = "In their state for at least so long.", example = 600),
        ("late_answer" = Option<bool>, Query, description = "Only those that an answer came for after they had been settled.", example = false),
        ("limit" = Option<u32>, Query, description = "Most to list: 1 to 1000.", minimum = 1, maximum = 1000, example = 50),
        ("after" = Option<String>, Query, description = "What comes after a page: its `next`.", example = "dW5rbm93bjo3ODQxMTE3ODcwMDA6OWY4NmQwODE4ODRjN2Q2NTlhMmZlYWEwYzU1YWQwMTVhM2JmNGYxYjJiMGI4MjJjZDE1ZDZjMTViMGYwMGEwOA"),
    ),
    responses(
        (
            status = 200,
            description = "They, the `next` of the page if there may be more, and the database's time.",
            body = Object,
            example = json!({
                "entries": [{
                    "id": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "version": "4be43cb1d6b5a1f0e2a9c7d81f3b5a60",
                    "state": "unknown",
                    "namespace": "create-payment",
                    "scope": "global",
                    "key": "A-1001",
                    "route": "create-payment",
                    "attempt": 1,
                    "created_at_ms": 784_111_777_000_i64,
                    "started_at_ms": 784_111_777_000_i64,
                    "changed_at_ms": 784_111_787_000_i64,
                    "age_ms": 60_000,
                    "status": null,
                    "late_answer": false,
                    "lookups": 0,
                    "next_lookup_at_ms": null,
                }],
                "next": null,
                "now_ms": 784_111_847_000_i64,
            }),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("operator" = []), ("bearer" = []))
)]
pub(super) async fn list(
    State(admin): State<Admin>,
    query: Result<Query<ListQuery>, QueryRejection>,
    caller: Caller,
) -> Response<Body> {
    let listed = async { admin.list(parameters(query)?).await };
    answer(&caller, listed.await)
}

/// `GET /entries/{id}`: an entry's story.
#[utoipa::path(
    get,
    path = "/entries/{id}",
    operation_id = "showEntry",
    tag = "operators",
    summary = "Everything about a request",
    description = "Its attempts, its answer, its events, and what people have decided about it; the latter also of one that \
                   is gone. `ETag` names the state that was seen.",
    params(
        ("id" = String, Path, description = "64 hexadecimal digits.", example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
        ("data" = Option<bool>, Query, description = "Whether headers and bodies are shown as well, which may be nobody's business.", example = false),
    ),
    responses(
        (
            status = 200,
            description = "The entry's story.",
            body = Object,
            headers(("ETag" = String, description = "For the `If-Match` of an order.")),
            example = json!({
                    "id": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "version": "4be43cb1d6b5a1f0e2a9c7d81f3b5a60",
                    "state": "unknown",
                    "namespace": "create-payment",
                    "scope": "global",
                    "key": "A-1001",
                    "route": "create-payment",
                    "attempt": 1,
                    "created_at_ms": 784_111_777_000_i64,
                    "started_at_ms": 784_111_777_000_i64,
                    "changed_at_ms": 784_111_787_000_i64,
                    "age_ms": 60_000,
                    "status": null,
                    "late_answer": false,
                    "lookups": 0,
                    "next_lookup_at_ms": null,
                    "instance": { "name": "10.0.0.5:8080 pid 7", "alive": true },
                    "answer": null,
                    "events": [],
                    "deliveries": [],
                    "decisions": [],
            }),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 404, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("operator" = []), ("bearer" = []))
)]
pub(super) async fn show(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    query: Result<Query<ShowQuery>, QueryRejection>,
    caller: Caller,
) -> Response<Body> {
    let told = async {
        let data = parameters(query)?.data();
        admin.story(read_id(&id)?, data).await
    };
    match told.await {
        Ok(story) => {
            let tag =
                story["version"].as_str().and_then(|version| HeaderValue::try_from(format!("\"{version}\"")).ok());
            let mut response = Json(story).into_response();
            if let Some(tag) = tag {
                response.headers_mut().insert(ETAG, tag);
            }
            response
        }
        Err(problem) => caller.refuse(problem),
    }
}

/// 64 hexadecimal digits.
pub(super) fn read_id(text: &str) -> Result<EntryId, Problem> {
    EntryId::from_hex(text).ok_or_else(|| Problem::new(Situation::NoEntry))
}

impl ListQuery {
    pub(super) fn filter(&self) -> Filter {
        Filter {
            stage: self.state.unwrap_or(Stage::Unknown),
            namespace: self.namespace.clone(),
            route: self.route.clone(),
            scope: self.scope.clone(),
            key: self.key.clone(),
            older_than: Duration::from_secs(self.older_than_seconds.unwrap_or(0).into()),
            contradicted: self.late_answer.unwrap_or(false),
        }
    }
}

impl Admin {
    async fn list(&self, query: ListQuery) -> Result<Value, Problem> {
        let (limit, filter) = (limited(query.limit)?, query.filter());
        let after = query.after.as_deref().map(|after| read_cursor(filter.stage, after)).transpose()?;
        let failed = |error| store_problem(&error);
        if let (None, Some(key)) = (query.state, &filter.key) {
            let page = self.search(&filter, key, limit).await?;
            return Ok(listed(&page, None));
        }
        let page = self.0.entries.list(&filter, after, limit).await.map_err(failed)?;
        let is_full = page.entries.len() as u64 == u64::from(limit);
        let next = page.entries.last().filter(|_| is_full).map(|last| cursor(filter.stage, last.place()));
        Ok(listed(&page, next))
    }

    /// Entries of `key`: the identities that it can be part of here, which are found at once whatever their state, and
    /// all that are not over.
    pub(crate) async fn search(&self, filter: &Filter, key: &str, limit: u32) -> Result<Page, Problem> {
        let failed = |error| store_problem(&error);
        let mut page = self.0.entries.find(&self.identities(filter, key)?).await.map_err(failed)?;
        for stage in [Stage::Unknown, Stage::InProgress] {
            let of_stage = Filter { stage, ..filter.clone() };
            page.entries.extend(self.0.entries.list(&of_stage, None, limit).await.map_err(failed)?.entries);
        }
        let mut seen = HashSet::new();
        let is_wanted = |entry: &Listed| {
            filter.route.as_ref().is_none_or(|route| entry.route == *route)
                && (!filter.contradicted || entry.contradicted)
                && page.now.since(entry.changed_at) >= filter.older_than
        };
        page.entries.retain(|entry| is_wanted(entry) && seen.insert(entry.id));
        page.entries.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(page)
    }

    /// The ids that `key` has in the namespaces of this configuration, or in the one that is named.
    fn identities(&self, filter: &Filter, key: &str) -> Result<Vec<EntryId>, Problem> {
        let Ok(key) = Key::from_business(key) else { return Ok(Vec::new()) };
        let scope = match &filter.scope {
            Some(scope) => Scope::from_stored(scope).ok_or_else(|| {
                invalid("`scope` is global, tenant:NAME, subject:NAME or member:LENGTH:TENANT:SUBJECT")
            })?,
            None => Scope::Global,
        };
        let namespaces: BTreeSet<Namespace> = match &filter.namespace {
            Some(namespace) => [Namespace::from_stored(namespace)].into(),
            None => self.0.policies.values().map(|policy| policy.namespace.clone()).collect(),
        };
        let id = |namespace| Identity { namespace, scope: scope.clone(), key: key.clone() }.id();
        Ok(namespaces.into_iter().map(id).collect())
    }

    /// What is on record of an entry, also of one that is gone and was decided about.
    async fn story(&self, id: EntryId, data: Data) -> Result<Value, Problem> {
        let failed = |error| store_problem(&error);
        let decisions = self.0.entries.decisions(Some(id), None, TOLD).await.map_err(failed)?;
        let decided: Vec<_> = decisions.iter().map(|decision| shapes::decision(decision, data)).collect();
        let Some(shown) = self.0.entries.show(id).await.map_err(failed)? else {
            if decided.is_empty() {
                return Err(Problem::new(Situation::NoEntry));
            }
            return Ok(json!({ "id": id.to_hex(), "state": "none", "decisions": decided }));
        };
        let now = self.0.entries.find(&[]).await.map_err(failed)?.now;
        let mut story = shapes::story(&shown, now, data);
        story["events"] = self.events_of(&shown).await?;
        story["deliveries"] = self.deliveries_of(&shown).await?;
        story["decisions"] = json!(decided);
        Ok(story)
    }

    /// What it has announced, as far as its route is configured here.
    async fn events_of(&self, shown: &Shown) -> Result<Value, Problem> {
        let Some(events) = self.announced(shown).await? else { return Ok(Value::Null) };
        let row = |(name, event): &(Box<str>, Event)| {
            let mut row = shapes::event(event);
            row["name"] = json!(name);
            row
        };
        Ok(events.iter().map(row).collect())
    }

    /// What it has announced, by the names that its route has for it; `None` where its route is not configured.
    pub(crate) async fn announced(&self, shown: &Shown) -> Result<Option<Vec<(Box<str>, Event)>>, Problem> {
        let Some(policy) = self.0.policies.get(&shown.listed.route) else { return Ok(None) };
        let mut events = Vec::new();
        for name in policy.events.names() {
            let id = EventId::of(shown.listed.origin, name);
            if let Some(event) = self.0.events.show(id).await.map_err(|error| store_problem(&error))? {
                events.push((name.into(), event.listed));
            }
        }
        Ok(Some(events))
    }

    /// The deliveries that it came from, those that are done not among them: they are found by `oncegate deliveries`.
    async fn deliveries_of(&self, shown: &Shown) -> Result<Value, Problem> {
        Ok(self.delivered(shown).await?.iter().map(shapes::event).collect())
    }

    /// The deliveries that it came from and that are not done.
    pub(crate) async fn delivered(&self, shown: &Shown) -> Result<Vec<Event>, Problem> {
        if !shown.listed.namespace.starts_with("sub:") {
            return Ok(Vec::new());
        }
        let filter = EventFilter {
            of: Of::Deliveries,
            states: vec![
                EventState::Ready,
                EventState::Retrying,
                EventState::Waiting,
                EventState::Early,
                EventState::Parked,
            ],
            queue: Some(shown.listed.route.clone()),
            entry: Some(shown.listed.id),
            ..EventFilter::default()
        };
        self.0.events.list(&filter, None, TOLD).await.map_err(|error| store_problem(&error))
    }
}

fn listed(page: &Page, next: Option<String>) -> Value {
    let entries: Vec<_> = page.entries.iter().map(|entry| shapes::entry(entry, page.now)).collect();
    json!({ "entries": entries, "next": next, "now_ms": page.now.0 })
}

/// A place in a list, for whoever wants what comes after it.
pub(crate) fn cursor(stage: Stage, Place { at, id }: Place) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}:{at}:{}", stage.as_str(), id.to_hex()))
}

pub(crate) fn read_cursor(stage: Stage, text: &str) -> Result<Place, Problem> {
    let read = || {
        let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let mut parts = decoded.splitn(3, ':');
        parts.next().filter(|of| *of == stage.as_str())?;
        Some(Place { at: parts.next()?.parse().ok()?, id: EntryId::from_hex(parts.next()?)? })
    };
    read().ok_or_else(|| invalid("`after` is no `next` of such a list"))
}
