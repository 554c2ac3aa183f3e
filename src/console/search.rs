//! Looking for a request by its key or order number.

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Redirect};
use http::Response;
use maud::{Markup, html};

use super::Console;
use super::form::Form;
use super::guard::Operator;
use super::layout::{self, Here};
use super::table::{self, Picks};
use crate::engine::desk::{Filter, Page, Stage};
use crate::entry::EntryId;
use crate::outbox::desk::{Filter as EventFilter, Listed as Event, Of};
use crate::problem::{Problem, Situation};

/// Most that is found: who finds more has not said enough.
const FOUND: u32 = 50;

/// What was found.
struct Found {
    entries: Page,
    /// Not done yet, or given up.
    events: Vec<Event>,
    deliveries: Vec<Event>,
}

/// `GET /console/search`.
pub(super) async fn page(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    let query = Form::read(query.unwrap_or_default().as_bytes());
    let wanted = query.some("q");
    if let Some(target) = wanted.and_then(by_id) {
        return Redirect::to(&target).into_response();
    }
    let found = match wanted {
        Some(key) => match Found::of(&console, key, &query).await {
            Ok(found) => Some(found),
            Err(problem) => return layout::trouble(&operator, Here::Search, &problem),
        },
        None => None,
    };
    let content = html! {
        h1 { "Search" }
        (form(&query))
        @if let Some(found) = &found { (results(found)) }
    };
    layout::page(&operator, Here::Search, "Search", &content)
}

/// Whoever has an id at hand, of an entry or an event, goes there at once.
fn by_id(text: &str) -> Option<String> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text.len() {
        64 if is_hex => EntryId::from_hex(text).map(|id| format!("/console/entries/{}", id.to_hex())),
        32 if is_hex => Some(format!("/console/events/{}", text.to_ascii_lowercase())),
        _ => None,
    }
}

impl Found {
    async fn of(console: &Console, key: &str, query: &Form) -> Result<Self, Problem> {
        let text = |name| query.some(name).map(Into::into);
        let filter = Filter {
            key: Some(key.into()),
            namespace: text("namespace"),
            scope: text("scope"),
            ..Filter::of(Stage::Unknown)
        };
        let entries = console.admin.search(&filter, key, FOUND).await?;
        let of = |of| EventFilter { of, key: Some(key.into()), ..EventFilter::default() };
        let list = async |filter: EventFilter| {
            console.parts().events.list(&filter, None, FOUND).await.map_err(|error| {
                tracing::warn!(%error, "an operator could not be answered");
                Problem::new(Situation::Unavailable)
            })
        };
        let (events, deliveries) = (list(of(Of::Events)).await?, list(of(Of::Deliveries)).await?);
        Ok(Self { entries, events, deliveries })
    }
}

fn form(query: &Form) -> Markup {
    let is_used = query.some("namespace").or(query.some("scope")).is_some();
    html! {
        form.card method="get" action="/console/search" role="search" {
            label for="q" { "Idempotency key, order number, or the id of an entry or event" }
            div.bar {
                input #q.wide name="q" value=(query.get("q")) autofocus autocomplete="off" spellcheck="false";
                button { "Search" }
            }
            details open[is_used] {
                summary { "Only of one caller, or one kind of operation" }
                div.row {
                    label { "Whose (scope)" input name="scope" value=(query.get("scope")) autocomplete="off" placeholder="subject:NAME"; }
                    label { "Namespace" input name="namespace" value=(query.get("namespace")) autocomplete="off"; }
                }
                p.hint {
                    "Requests that are not over are found whoever has sent them. Completed ones are found where keys are \
                     everybody's; where each caller has keys of its own, say whose: "
                    code { "tenant:NAME" } ", " code { "subject:NAME" } "."
                }
            }
        }
    }
}

fn results(found: &Found) -> Markup {
    let Found { entries, events, deliveries } = found;
    html! {
        @if entries.entries.is_empty() {
            p.empty { "No request of this key is on record." }
            p.hint { "Completed ones of a caller with keys of its own are found with their scope." }
        } @else {
            h2 { "Requests" }
            (table::entries(&entries.entries, entries.now, Picks::None))
        }
        @for (title, rows) in [("Events that are not done", events), ("Deliveries that are not done", deliveries)] {
            @if !rows.is_empty() { h2 { (title) } (table::events(rows, entries.now, Picks::None)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_page_and_a_key_to_none() {
        assert_eq!(by_id(&"AB".repeat(32)), Some(format!("/console/entries/{}", "ab".repeat(32))));
        assert_eq!(by_id(&"0F".repeat(16)), Some(format!("/console/events/{}", "0f".repeat(16))));
        for key in ["", "1001", "order-7", &"g".repeat(64), &"0".repeat(33)] {
            assert_eq!(by_id(key), None);
        }
    }
}
