//! Settling what a person has picked: typed in, shown what it does, and done.

mod input;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect};
use http::{Response, StatusCode};
use maud::{Markup, html};

pub(super) use self::input::{Input, fields};
use super::Console;
use super::form::Form;
use super::guard::Operator;
use super::layout::{self, Here};
use super::table::{self, Picks};
use super::words::several;
use crate::engine::by_hand::{Given, NotSettled, Settled, Word};
use crate::engine::desk::{MAX_LISTED, Page};
use crate::engine::ledger::StoreError;
use crate::entry::EntryId;
use crate::outbox::desk::Mode;

/// What became of each.
type Told = Vec<(EntryId, Result<Settled, NotSettled>)>;

/// `POST /console/settle`, by its `step`: `preview` says what it would do, `carry` does it, and any other one asks.
pub(super) async fn act(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Extension(form): Extension<Form>,
) -> Response<Body> {
    let input = Input::read(&form, &operator);
    let ids: Vec<_> = input.picks.iter().map(|(id, _)| *id).collect();
    if ids.is_empty() || ids.len() > MAX_LISTED as usize {
        let why = format!("Pick at least one entry, and not more than {MAX_LISTED}: nothing was done.");
        let back = html! { p { a href="/console/unknown" { "Back to the list" } } };
        return layout::refusal(StatusCode::UNPROCESSABLE_ENTITY, &why, Some(back));
    }
    let page = match console.parts().entries.find(&ids).await {
        Ok(page) => page,
        Err(error) => return layout::store_trouble(&operator, Here::Unknown, &error),
    };
    let mode = match form.get("step") {
        "preview" => Mode::DryRun,
        "carry" => Mode::Carry,
        _ => return ask(&operator, &page, &input, None),
    };
    let word = match input.word(&operator) {
        Ok(word) => word,
        Err(wrong) => return ask(&operator, &page, &input, Some(&wrong)),
    };
    let told = console.parts().settler.settle_these(&input.picks, &word, mode).await;
    match (mode, &told[..]) {
        (Mode::DryRun, _) => preview(&operator, &page, &input, &word, &told),
        (Mode::Carry, [(id, Ok(_))]) => {
            Redirect::to(&format!("/console/entries/{}?settled={}", id.to_hex(), word.outcome.as_str())).into_response()
        }
        (Mode::Carry, _) => done(&operator, &page, &told),
    }
}

fn ask(operator: &Operator, page: &Page, input: &Input, wrong: Option<&input::Wrong>) -> Response<Body> {
    let title = format!("Settle {}", several(input.picks.len(), "request", "requests"));
    let content = html! {
        h1 { (title) }
        (table::entries(&page.entries, page.now, Picks::None))
        (fields(operator, input, wrong))
    };
    let status = if wrong.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    layout::with_status(status, operator, Here::Unknown, &title, &content)
}

/// What an outcome does, in words about the money.
fn consequences(word: &Word, count: usize) -> Markup {
    let these = if count == 1 { "this request" } else { "these requests" };
    html! {
        @match &word.outcome {
            Given::Completed(response) => ul {
                li { "Whoever sends " (these) " again gets " strong { (response.status.as_u16()) } " and the answer below. Nothing is sent to the service." }
                li { "What is announced of a completed request is announced now." }
                li { strong { "If it did not happen after all, nobody is going to execute it: " } "the customer believes to have paid, and has not." }
            },
            Given::NotExecuted => ul {
                li { "The key is new again: whoever sends " (these) " again, has it " strong { "executed" } "." }
                li { "Nothing is announced." }
                li { strong { "If it did happen after all, the next retry pays a second time." } }
            },
        }
    }
}

fn preview(operator: &Operator, page: &Page, input: &Input, word: &Word, told: &Told) -> Response<Body> {
    let count = told.iter().filter(|(_, result)| result.is_ok()).count();
    let outcome = match word.outcome {
        Given::Completed(_) => "it happened",
        Given::NotExecuted => "it did not happen",
    };
    let content = html! {
        h1 { "Nothing is done yet" }
        p { "This would settle " strong { (several(count, "request", "requests")) } " as: " strong { (outcome) } "." }
        (consequences(word, count))
        (results(page, told, "would be settled"))
        dl.facts {
            dt { "Who" } dd { (word.actor.name) }
            dt { "Why" } dd.text { (word.reason) }
            @if let Given::Completed(response) = &word.outcome {
                dt { "Answer" }
                dd { pre { (String::from_utf8_lossy(&response.body)) } }
            }
        }
        form method="post" action="/console/settle" {
            (layout::token(operator))
            (input.hidden())
            div.bar {
                @if count > 0 {
                    button.danger name="step" value="carry" { "Settle " (several(count, "request", "requests")) ": " (outcome) }
                }
                button.quiet name="step" value="edit" { "Change it" }
                a href="/console/unknown" { "Leave it" }
            }
        }
    };
    layout::page(operator, Here::Unknown, "Nothing is done yet", &content)
}

fn done(operator: &Operator, page: &Page, told: &Told) -> Response<Body> {
    let count = told.iter().filter(|(_, result)| result.is_ok()).count();
    let title = format!("Settled: {} of {}", count, told.len());
    let content = html! {
        h1 { (title) }
        (results(page, told, "settled"))
        p { a href="/console/unknown" { "Back to the list" } }
    };
    layout::page(operator, Here::Unknown, &title, &content)
}

/// Each with what became of it, or would.
fn results(page: &Page, told: &Told, done: &str) -> Markup {
    let key = |id: &EntryId| page.entries.iter().find(|entry| entry.id == *id);
    html! {
        table {
            thead { tr { th scope="col" { "Key" } th scope="col" { "What becomes of it" } } }
            tbody {
                @for (id, result) in told {
                    tr {
                        th scope="row" data-label="Key" {
                            @match key(id) {
                                Some(entry) => (table::link(entry)),
                                None => a href=(format!("/console/entries/{}", id.to_hex())) { (id.to_hex()[..12]) },
                            }
                        }
                        td data-label="Result" {
                            @match result {
                                Ok(settled) => { (done) @if !settled.events.is_empty() { ", " (several(settled.events.len(), "event", "events")) } }
                                Err(NotSettled::Store(StoreError::CommitUnknown(_))) => span.bad { "whether it was settled is not known: look at it again" },
                                Err(NotSettled::Store(_)) => span.bad { "left alone: the store does not answer" },
                                Err(why) => span.bad { "left alone: " (why) },
                            }
                        }
                    }
                }
            }
        }
    }
}
