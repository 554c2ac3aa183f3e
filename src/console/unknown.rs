//! The entries whose outcome nobody knows.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use http::Response;
use maud::{Markup, html};

use super::Console;
use super::form::{Form, target};
use super::guard::Operator;
use super::layout::{self, Here};
use super::table::{self, Picks};
use super::words::counted;
use crate::engine::desk::{Filter, Page, Stage};
use crate::http::admin::entries::{cursor, read_cursor};

/// Entries of a page, unless it is told otherwise, and the most that are offered.
const LISTED: [u32; 3] = [50, 200, 1_000];

/// Fields of the filter.
const FIELDS: [&str; 6] = ["route", "namespace", "scope", "key", "minutes", "show"];

/// `GET /console/unknown`.
pub(super) async fn page(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    let query = Form::read(query.unwrap_or_default().as_bytes());
    let (filter, limit) = (filter(&query), limit(&query));
    let after = query.some("after").and_then(|after| read_cursor(Stage::Unknown, after).ok());
    let found = match console.parts().entries.list(&filter, after, limit).await {
        Ok(found) => found,
        Err(error) => return layout::store_trouble(&operator, Here::Unknown, &error),
    };
    let count = console.admin.waiting().await.map(|waiting| waiting.unknown.count).ok();
    let content = html! {
        h1 { "Needs a person" }
        p {
            @if let Some(count) = count { strong { (counted(count)) } " unknown in all. " }
            "Each of these requests was sent, and nobody knows whether it was executed: the connection was lost, or the \
             answer did not come in time. Until that is settled, no retry is sent on."
        }
        (filters(&query, limit))
        @if found.entries.is_empty() {
            p.empty { @if filter.names_some() { "None of these." } @else { "None. Nothing waits for a person." } }
        } @else {
            (list(&operator, &found, &query))
        }
        (pages(&found, &query, limit))
    };
    layout::page(&operator, Here::Unknown, "Needs a person", &content)
}

fn filter(query: &Form) -> Filter {
    let text = |name| query.some(name).map(Into::into);
    let minutes: u64 = query.get("minutes").trim().parse().unwrap_or(0);
    Filter {
        namespace: text("namespace"),
        route: text("route"),
        scope: text("scope"),
        key: text("key"),
        older_than: Duration::from_secs(minutes.saturating_mul(60)),
        ..Filter::of(Stage::Unknown)
    }
}

fn limit(query: &Form) -> u32 {
    let asked = query.get("show").parse().unwrap_or(LISTED[0]);
    LISTED.into_iter().find(|offered| *offered == asked).unwrap_or(LISTED[0])
}

fn filters(query: &Form, limit: u32) -> Markup {
    let is_used = FIELDS.iter().any(|name| query.some(name).is_some());
    html! {
        details.filters open[is_used] {
            summary { "Filter" }
            form.row method="get" action="/console/unknown" {
                @for (name, label) in [("route", "Route"), ("namespace", "Namespace"), ("scope", "Whose (scope)"), ("key", "Key")] {
                    label { (label) input name=(name) value=(query.get(name)) autocomplete="off"; }
                }
                label { "For at least (minutes)" input name="minutes" type="number" min="0" value=(query.get("minutes")); }
                label { "Show"
                    select name="show" {
                        @for offered in LISTED { option value=(offered) selected[offered == limit] { (offered) } }
                    }
                }
                button.quiet { "Filter" }
                @if is_used { a href="/console/unknown" { "All" } }
            }
        }
    }
}

fn list(operator: &Operator, found: &Page, query: &Form) -> Markup {
    let all = query.get("pick") == "all";
    let (other, says) = if all { ("", "Pick none") } else { ("all", "Pick all of this page") };
    html! {
        form method="post" action="/console/settle" {
            (layout::token(operator))
            div.bar {
                button name="step" value="edit" { "Settle what is picked\u{2026}" }
                a href=(same(query, &[("after", query.get("after")), ("pick", other)])) { (says) }
            }
            (table::entries(&found.entries, found.now, if all { Picks::All } else { Picks::Open }))
        }
    }
}

/// This page with the same filter.
fn same(query: &Form, more: &[(&str, &str)]) -> String {
    let filter = FIELDS.map(|name| (name, query.get(name)));
    target("/console/unknown", &[&filter, more].concat())
}

fn pages(found: &Page, query: &Form, limit: u32) -> Markup {
    let is_full = found.entries.len() == limit as usize;
    let next = found.entries.last().filter(|_| is_full).map(|last| cursor(Stage::Unknown, last.place()));
    html! {
        p.pages {
            @if query.some("after").is_some() { a href=(same(query, &[])) { "The oldest" } }
            @if let Some(next) = next { a href=(same(query, &[("after", &next)])) { "Later ones" } }
        }
    }
}
