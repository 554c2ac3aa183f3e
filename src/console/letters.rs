//! Dead letters: events that no queue has taken, and deliveries that no handler has.

mod input;

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Redirect};
use http::{Response, StatusCode};
use maud::{Markup, html};

pub(super) use self::input::{Input, fields};
use super::Console;
use super::form::{Form, target};
use super::guard::Operator;
use super::layout::{self, Here};
use super::table::{self, Picks};
use super::words::{counted, several};
use crate::clock;
use crate::engine::ledger::StoreError;
use crate::outbox::desk::{Acted, Action, Filter, Listed, MAX_LISTED, Mode, Of, Order, State as Stand, Which};
use crate::outbox::event::EventId;

/// Letters of a page.
const LISTED: u32 = 100;

/// Fields of the filter.
const FIELDS: [&str; 5] = ["of", "queue", "route", "key", "all"];

/// The id of an event, as it is written.
pub(super) fn read_id(text: &str) -> Option<EventId> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok())?.map(|id| EventId(id.to_be_bytes()))
}

/// `GET /console/letters`.
pub(super) async fn page(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    let query = Form::read(query.unwrap_or_default().as_bytes());
    let of = if query.get("of") == "deliveries" { Of::Deliveries } else { Of::Events };
    let before = query.some("before").and_then(|before| before.parse().ok());
    let found = match console.parts().events.list(&filter(of, &query), before, LISTED).await {
        Ok(found) => found,
        Err(error) => return layout::store_trouble(&operator, Here::Letters, &error),
    };
    let content = html! {
        h1 { "Dead letters" }
        (tabs(&console, of).await)
        p {
            @match of {
                Of::Events => "Events that were committed with an outcome, and that their queue does not take. Consumers do not know of them.",
                Of::Deliveries => "Messages that their handler does not take. Their effect has not happened, or nobody knows whether it has.",
            }
        }
        (filters(of, &query))
        @if found.is_empty() { p.empty { "None." } } @else { (list(&operator, &found, &query)) }
        (pages(&found, &query))
    };
    layout::page(&operator, Here::Letters, "Dead letters", &content)
}

fn filter(of: Of, query: &Form) -> Filter {
    let text = |name| query.some(name).map(Into::into);
    let states = match query.get("all") {
        "" => vec![Stand::Parked],
        // All that are not done.
        _ => Vec::new(),
    };
    Filter { of, states, queue: text("queue"), route: text("route"), key: text("key"), ..Filter::default() }
}

async fn tabs(console: &Console, of: Of) -> Markup {
    let parked = console.admin.waiting().await.map(|waiting| waiting.parked).unwrap_or_default();
    let tabs = [
        (Of::Events, "events", "Events", parked.events),
        (Of::Deliveries, "deliveries", "Deliveries", parked.deliveries),
    ];
    html! {
        nav.tabs aria-label="Kinds" {
            @for (kind, name, title, count) in tabs {
                a href=(target("/console/letters", &[("of", name)])) aria-current=[(kind == of).then_some("true")] { (title) " " b { (counted(count)) } }
            }
        }
    }
}

fn filters(of: Of, query: &Form) -> Markup {
    let is_used = FIELDS[1..].iter().any(|name| query.some(name).is_some());
    let kind = if of == Of::Deliveries { "deliveries" } else { "events" };
    html! {
        details.filters open[is_used] {
            summary { "Filter" }
            form.row method="get" action="/console/letters" {
                input type="hidden" name="of" value=(kind);
                @for (name, label) in [("queue", "Queue"), ("route", "Route"), ("key", "Key")] {
                    label { (label) input name=(name) value=(query.get(name)) autocomplete="off"; }
                }
                label.check { input type="checkbox" name="all" value="1" checked[query.some("all").is_some()]; " Also those that are tried again or wait" }
                button.quiet { "Filter" }
                @if is_used { a href=(target("/console/letters", &[("of", kind)])) { "All" } }
            }
        }
    }
}

fn list(operator: &Operator, found: &[Listed], query: &Form) -> Markup {
    let all = query.get("pick") == "all";
    let (other, says) = if all { ("", "Pick none") } else { ("all", "Pick all of this page") };
    html! {
        form method="post" action="/console/letters" {
            (layout::token(operator))
            input type="hidden" name="of" value=(query.get("of"));
            div.bar {
                button name="step" value="edit" { "Retry or discard what is picked\u{2026}" }
                a href=(same(query, &[("before", query.get("before")), ("pick", other)])) { (says) }
            }
            (table::events(found, clock::wall(), if all { Picks::All } else { Picks::Open }))
        }
    }
}

/// This page with the same filter.
fn same(query: &Form, more: &[(&str, &str)]) -> String {
    let filter = FIELDS.map(|name| (name, query.get(name)));
    target("/console/letters", &[&filter, more].concat())
}

fn pages(found: &[Listed], query: &Form) -> Markup {
    let next = found.last().filter(|_| found.len() == LISTED as usize).map(|last| last.position.to_string());
    html! {
        p.pages {
            @if query.some("before").is_some() { a href=(same(query, &[])) { "The newest" } }
            @if let Some(next) = next { a href=(same(query, &[("before", &next)])) { "Earlier ones" } }
        }
    }
}

/// `POST /console/letters`, by its `step`: `preview` says what it would do, `carry` does it, and any other one asks.
pub(super) async fn act(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Extension(form): Extension<Form>,
) -> Response<Body> {
    let input = Input::read(&form, &operator);
    if input.ids.is_empty() || input.ids.len() > MAX_LISTED as usize {
        let why = format!("Pick at least one, and not more than {MAX_LISTED}: nothing was done.");
        let back = html! { p { a href="/console/letters" { "Back to the list" } } };
        return layout::refusal(StatusCode::UNPROCESSABLE_ENTITY, &why, Some(back));
    }
    let mode = match form.get("step") {
        "preview" => Mode::DryRun,
        "carry" => Mode::Carry,
        _ => return ask(&operator, &input, None),
    };
    let action = match input.action(&operator) {
        Ok(action) => action,
        Err(wrong) => return ask(&operator, &input, Some(&wrong)),
    };
    let acted = match go(&console, &input, &operator, action, mode).await {
        Ok(acted) => acted,
        Err(error) => return layout::store_trouble(&operator, Here::Letters, &error),
    };
    match (mode, &acted.changed[..]) {
        (Mode::DryRun, _) => preview(&operator, &input, action, &acted),
        (Mode::Carry, [one]) if acted.left.is_empty() => {
            let done = target(&format!("/console/events/{}", one.id), &[("done", action.as_str())]);
            Redirect::to(&done).into_response()
        }
        (Mode::Carry, _) => done(&operator, action, &acted),
    }
}

async fn go(
    console: &Console,
    input: &Input,
    operator: &Operator,
    action: Action,
    mode: Mode,
) -> Result<Acted, StoreError> {
    let order = Order { action, to: Which::Ids(input.ids.clone()), reason: input.reason().into(), mode };
    let acted = console.parts().events.act_by(&order, Some(&input.by(operator))).await?;
    if mode == Mode::Carry {
        tracing::warn!(action = action.as_str(), changed = acted.changed.len(), "a person decided about dead letters");
    }
    Ok(acted)
}

fn ask(operator: &Operator, input: &Input, wrong: Option<&input::Wrong>) -> Response<Body> {
    let title = format!("Retry or discard {}", several(input.ids.len(), "letter", "letters"));
    let content = html! {
        h1 { (title) }
        (fields(operator, input, Stand::Parked, wrong))
    };
    let status = if wrong.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    layout::with_status(status, operator, Here::Letters, &title, &content)
}

/// What it does, in words about who waits for it.
fn consequences(action: Action) -> Markup {
    html! {
        ul {
            @match action {
                Action::Retry => {
                    li { "Sent again with the same id: a consumer that remembers ids does nothing if it has it already. Attempts begin anew." }
                    li { "If what was wrong still is, it comes back here." }
                },
                Action::Discard { .. } => {
                    li { strong { "Never sent: " } "whoever waits for it (points, stock, books) is not going to hear of it." }
                    li { "What waited behind it for the same key goes on without it." }
                },
            }
        }
    }
}

const fn verb(action: Action) -> &'static str {
    match action {
        Action::Retry => "Send again",
        Action::Discard { .. } => "Discard",
    }
}

fn preview(operator: &Operator, input: &Input, action: Action, acted: &Acted) -> Response<Body> {
    let count = acted.changed.len();
    let content = html! {
        h1 { "Nothing is done yet" }
        p { (verb(action)) ": " strong { (several(count, "letter", "letters")) } "." }
        (consequences(action))
        (both(acted))
        form method="post" action="/console/letters" {
            (layout::token(operator))
            (input.hidden())
            div.bar {
                @if count > 0 { button.danger name="step" value="carry" { (verb(action)) ": " (several(count, "letter", "letters")) } }
                button.quiet name="step" value="edit" { "Change it" }
                a href="/console/letters" { "Leave it" }
            }
        }
    };
    layout::page(operator, Here::Letters, "Nothing is done yet", &content)
}

fn done(operator: &Operator, action: Action, acted: &Acted) -> Response<Body> {
    let all = acted.changed.len() + acted.left.len();
    let title = format!("{}: done for {} of {all}", verb(action), acted.changed.len());
    let content = html! {
        h1 { (title) }
        (both(acted))
        p { a href="/console/letters" { "Back to the list" } }
    };
    layout::page(operator, Here::Letters, &title, &content)
}

/// As they were before, and those that were left alone.
fn both(acted: &Acted) -> Markup {
    html! {
        @if !acted.changed.is_empty() { (table::events(&acted.changed, clock::wall(), Picks::None)) }
        @if !acted.left.is_empty() {
            h2 { "Left alone: on their way just now, or in another state by now" }
            (table::events(&acted.left, clock::wall(), Picks::None))
        }
    }
}
