//! What all pages have in common.

use axum::body::Body;
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode, Uri};
use maud::{DOCTYPE, Markup, html};

use super::form::Form;
use super::guard::Operator;
use crate::engine::ledger::StoreError;
use crate::problem::Problem;

/// Where a page belongs in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Here {
    Overview,
    Unknown,
    Search,
    Letters,
    Decisions,
}

const PLACES: [(Here, &str, &str); 5] = [
    (Here::Overview, "/console", "Overview"),
    (Here::Unknown, "/console/unknown", "Needs a person"),
    (Here::Letters, "/console/letters", "Dead letters"),
    (Here::Search, "/console/search", "Search"),
    (Here::Decisions, "/console/decisions", "Decisions"),
];

/// A whole page.
pub(super) fn page(operator: &Operator, here: Here, title: &str, content: &Markup) -> Response<Body> {
    with_status(StatusCode::OK, operator, here, title, content)
}

/// The same with another status.
pub(super) fn with_status(
    status: StatusCode,
    operator: &Operator,
    here: Here,
    title: &str,
    content: &Markup,
) -> Response<Body> {
    let header = html! {
        header.masthead {
            a.skip href="#content" { "Skip to the content" }
            a.brand href="/console" { "Oncegate" }
            nav aria-label="Console" {
                @for (place, target, name) in PLACES {
                    a href=(target) aria-current=[(place == here).then_some("page")] { (name) }
                }
            }
            (who(operator))
        }
    };
    document(status, title, &header, content)
}

fn who(operator: &Operator) -> Markup {
    let name = operator.authority.subject().unwrap_or(&operator.name);
    html! {
        @if operator.has_session {
            form.who method="post" action="/console/sign-out" {
                (token(operator))
                @if !name.is_empty() { span { (name) } }
                button.quiet { "Sign out" }
            }
        }
    }
}

/// A page without a place in the navigation.
pub(super) fn bare(status: StatusCode, title: &str, content: &Markup) -> Response<Body> {
    let header = html! { header.masthead { span.brand { "Oncegate" } } };
    document(status, title, &header, content)
}

fn document(status: StatusCode, title: &str, header: &Markup, content: &Markup) -> Response<Body> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " \u{b7} Oncegate" }
                link rel="icon" href="/console/icon.svg";
                link rel="stylesheet" href="/console/console.css";
                script src="/console/console.js" defer {}
            }
            body {
                (header)
                main #content tabindex="-1" { (content) }
            }
        }
    };
    fragment(status, page)
}

/// A part of a page.
pub(super) fn fragment(status: StatusCode, markup: Markup) -> Response<Body> {
    (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], markup.into_string()).into_response()
}

/// The field that shows that a form is ours.
pub(super) fn token(operator: &Operator) -> Markup {
    html! { input type="hidden" name="form" value=(operator.token); }
}

/// Says why something was not done.
pub(super) fn refusal(status: StatusCode, why: &str, more: Option<Markup>) -> Response<Body> {
    let content = html! {
        h1 { "Not done" }
        p.alert role="alert" { (why) }
        @if let Some(more) = more { (more) }
        p { a href="/console" { "To the overview" } }
    };
    bare(status, "Not done", &content)
}

/// What can't be shown because the store does not answer, or for another reason.
pub(super) fn trouble(operator: &Operator, here: Here, problem: &Problem) -> Response<Body> {
    let facts = problem.situation().facts();
    let content = html! {
        h1 { (facts.title) }
        @if let Some(more) = problem.more() { p.alert role="alert" { (more) } }
        p { (facts.detail) }
    };
    with_status(facts.status, operator, here, facts.title, &content)
}

/// The store does not answer.
pub(super) fn store_trouble(operator: &Operator, here: Here, error: &StoreError) -> Response<Body> {
    tracing::warn!(%error, "an operator could not be answered");
    let content = html! {
        h1 { "The store does not answer" }
        p.alert role="alert" { "Nothing is known here without it. Load the page again in a moment." }
    };
    with_status(StatusCode::SERVICE_UNAVAILABLE, operator, here, "The store does not answer", &content)
}

/// A link of another site led here, for which browsers keep the cookie back: a page of ours leads here once more.
pub(super) fn once_more(uri: &Uri) -> Response<Body> {
    let target = uri.path_and_query().map_or("/console", |target| target.as_str());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Oncegate" }
                meta http-equiv="refresh" content=(format!("0;url={target}"));
            }
            body { p { a href=(target) { "Go on" } } }
        }
    };
    fragment(StatusCode::OK, page)
}

/// A form of ours, but of another run of the gateway, or of a session that is over: what was typed in is not lost.
pub(super) fn stale(operator: &Operator, kept: Option<(&str, &Form)>) -> Response<Body> {
    let more = kept.map(|(path, form)| resume(operator, path, form));
    refusal(StatusCode::FORBIDDEN, "The form does not belong to this session, so nothing was done.", more)
}

/// A form that sends what was sent before, for a look at it first.
pub(super) fn resume(operator: &Operator, path: &str, form: &Form) -> Markup {
    html! {
        form method="post" action=(path) {
            (token(operator))
            @for (name, value) in form.fields().filter(|(name, _)| !matches!(*name, "form" | "step")) {
                input type="hidden" name=(name) value=(value);
            }
            button name="step" value="preview" { "Go on where you were" }
        }
    }
}
