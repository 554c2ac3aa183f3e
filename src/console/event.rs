//! An event, or a delivery.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use http::Response;
use maud::{Markup, html};

use super::Console;
use super::form::{Form, target};
use super::guard::Operator;
use super::layout::{self, Here};
use super::letters;
use super::table::shown;
use super::words::{at, several, state};
use crate::outbox::desk::{Shown, Taken};
use crate::problem::{Problem, Situation};

/// `GET /console/events/{id}`.
pub(super) async fn page(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    let query = Form::read(query.unwrap_or_default().as_bytes());
    let found = match letters::read_id(&id) {
        Some(id) => console.parts().events.show(id).await,
        None => Ok(None),
    };
    match found {
        Ok(Some(event)) => {
            let content = content(&operator, &event, &query);
            layout::page(&operator, Here::Letters, &event.listed.key, &content)
        }
        Ok(None) => {
            let nothing = Problem::new(Situation::NoEntry);
            layout::trouble(&operator, Here::Letters, &nothing)
        }
        Err(error) => layout::store_trouble(&operator, Here::Letters, &error),
    }
}

fn content(operator: &Operator, event: &Shown, query: &Form) -> Markup {
    let listed = &event.listed;
    let is_delivery = listed.queue.starts_with("sub:");
    html! {
        @if let Some(done) = query.some("done") {
            p.notice role="status" { @if done == "retry" { "Ready again: it is sent with the next turn." } @else { "Discarded: it is never sent." } }
        }
        h1.text { (shown(&listed.key)) }
        p.lead { @if is_delivery { "A delivery" } @else { "An event" } ": " (state(listed.state)) ", " (several(listed.attempts as usize, "attempt", "attempts")) "." }
        @if let Some(result) = &listed.result { p { "Result: " strong { (result) } } }
        @if let Some(reason) = &listed.reason { p.alert.text { (reason) } }
        (letters::fields(operator, &letters::Input::of(&listed.id), listed.state, None))
        h2 { "Facts" }
        (facts(event))
        @if !event.actions.is_empty() { h2 { "What people did" } (actions(&event.actions)) }
        h2 { "Data" }
        p { (several(event.data.len(), "byte", "bytes")) " of " (event.content_type) "." }
        @if query.get("data") == "true" {
            pre { (String::from_utf8_lossy(&event.data)) }
        } @else {
            p { a href=(target(&format!("/console/events/{}", listed.id), &[("data", "true")])) { "Show the data" } " \u{2013} it may be nobody's business." }
        }
    }
}

fn facts(event: &Shown) -> Markup {
    let listed = &event.listed;
    html! {
        dl.facts {
            dt { "Type" } dd.text { (listed.kind) }
            dt { "Queue" } dd.text { (listed.queue) }
            dt { "Topic" } dd.text { (listed.topic) }
            dt { "Route" } dd.text { (listed.route) }
            dt { "Committed" } dd { (at(listed.created_at)) }
            dt { "Changed" } dd { (at(listed.changed_at)) }
            @if let Some(due) = listed.due_at { dt { "Due" } dd { (at(due)) } }
            @if listed.deferrals > 0 { dt { "Could not be then" } dd { (several(listed.deferrals as usize, "time", "times")) } }
            @if listed.deaths > 0 { dt { "Processes that ended with it" } dd { (listed.deaths) } }
            dt { "Position" } dd { (listed.position) }
            dt { "Id" } dd.text { code { (listed.id) } }
            dt { "Request" } dd.text { a href=(format!("/console/entries/{}", event.entry)) { "its story" } }
            @for (name, value) in &listed.attributes { dt.text { (name) } dd.text { (value) } }
        }
    }
}

fn actions(actions: &[Taken]) -> Markup {
    html! {
        ol.story {
            @for taken in actions { li { (at(taken.at)) " " @if let Some(by) = &taken.by { span.text { (by.name) } ": " } (taken.action) ", when it was " (state(taken.state)) ": " span.text { (taken.reason) } } }
        }
    }
}
