//! What people have decided.

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use http::Response;
use maud::{Markup, html};

use super::Console;
use super::form::{Form, target};
use super::guard::Operator;
use super::layout::{self, Here};
use super::table::shown;
use super::words::at;
use crate::engine::desk::Decision;

/// Decisions of a page.
const LISTED: u32 = 50;

/// `GET /console/decisions`.
pub(super) async fn page(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    let query = Form::read(query.unwrap_or_default().as_bytes());
    let before = query.some("before").and_then(|before| before.parse().ok());
    let decisions = match console.parts().entries.decisions(None, before, LISTED).await {
        Ok(decisions) => decisions,
        Err(error) => return layout::store_trouble(&operator, Here::Decisions, &error),
    };
    let next = decisions.last().filter(|_| decisions.len() == LISTED as usize).map(|last| last.number.to_string());
    let content = html! {
        h1 { "Decisions" }
        p { "What people have decided about unknown outcomes, the latest first." }
        @if decisions.is_empty() { p.empty { "Nobody has decided anything." } } @else { (table(&decisions)) }
        @if let Some(next) = next { p { a href=(target("/console/decisions", &[("before", &next)])) { "Earlier ones" } } }
    };
    layout::page(&operator, Here::Decisions, "Decisions", &content)
}

/// Decisions with the entries that they were about.
pub(super) fn table(decisions: &[Decision]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "When" }
                th scope="col" { "Key" }
                th scope="col" { "Outcome" }
                th scope="col" { "Who" }
                th scope="col" { "Why" }
            } }
            tbody {
                @for decision in decisions {
                    tr {
                        td data-label="When" { (at(decision.at)) }
                        th scope="row" data-label="Key" {
                            a.text href=(format!("/console/entries/{}", decision.entry.to_hex())) { (shown(&decision.key)) }
                        }
                        td data-label="Outcome" { (outcome(decision)) }
                        td data-label="Who" { span.text { (decision.actor.name) } " " small { (decision.actor.authority) } }
                        td data-label="Why" { span.text { (decision.reason) } }
                    }
                }
            }
        }
    }
}

/// What was decided, and whether the truth has come out otherwise.
pub(super) fn outcome(decision: &Decision) -> Markup {
    html! {
        @match &*decision.outcome {
            "completed" => { span.badge.good { "it happened" } @if let Some(status) = decision.status { " " small { (status) } } }
            "not_executed" => span.badge { "it did not happen" },
            other => span.badge { (other) },
        }
        @if let Some(late) = &decision.evidence { " " span.badge.bad { "late answer: " (late.status.as_u16()) } }
    }
}
