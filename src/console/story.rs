//! An entry's story.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use http::{Response, StatusCode};
use maud::{Markup, html};

use super::Console;
use super::form::{Form, target};
use super::guard::Operator;
use super::layout::{self, Here};
use super::settle::{Input, fields};
use super::table::{self, Picks, badge, next, shown};
use super::words::{at, long, several};
use crate::clock::Timestamp;
use crate::engine::desk::{Decision, Shown, Stage};
use crate::entry::{Answer, EntryId, StoredResponse};
use crate::outbox::desk::Listed as Event;
use crate::problem::{Problem, Situation};

/// Decisions that a story tells, the latest.
const TOLD: u32 = 50;

/// What belongs to an entry.
struct Story {
    shown: Option<Shown>,
    decisions: Vec<Decision>,
    /// By the names that its route has for them; `None` where its route is not configured here.
    events: Option<Vec<(Box<str>, Event)>>,
    deliveries: Vec<Event>,
    now: Timestamp,
}

/// `GET /console/entries/{id}`.
pub(super) async fn page(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    let query = Form::read(query.unwrap_or_default().as_bytes());
    let found = match EntryId::from_hex(&id) {
        Some(id) => Story::read(&console, id).await,
        None => Err(Problem::new(Situation::NoEntry)),
    };
    let story = match found {
        Ok(story) => story,
        Err(problem) => return layout::trouble(&operator, Here::Search, &problem),
    };
    let here = match &story.shown {
        Some(shown) if shown.listed.stage == Stage::Unknown => Here::Unknown,
        Some(_) | None => Here::Search,
    };
    let key = story.key();
    let content = html! {
        @if let Some(outcome) = query.some("settled") { (settled(outcome)) }
        h1.text { (shown(key)) }
        @match &story.shown {
            Some(shown) => (entry(&operator, &story, shown, &query)),
            None => p { "There is no entry of this key now: it was settled as not executed, and the key is new again." },
        }
        (decided(&story.decisions))
    };
    layout::with_status(StatusCode::OK, &operator, here, key, &content)
}

fn settled(outcome: &str) -> Markup {
    html! {
        p.notice role="status" {
            @match outcome {
                "not_executed" => "Settled: it did not happen. The key is new again.",
                _ => "Settled: it happened. Retries get the answer below.",
            }
        }
    }
}

impl Story {
    async fn read(console: &Console, id: EntryId) -> Result<Self, Problem> {
        let entries = &console.parts().entries;
        let failed = |error| {
            tracing::warn!(%error, "an operator could not be answered");
            Problem::new(Situation::Unavailable)
        };
        let decisions = entries.decisions(Some(id), None, TOLD).await.map_err(failed)?;
        let Some(shown) = entries.show(id).await.map_err(failed)? else {
            if decisions.is_empty() {
                return Err(Problem::new(Situation::NoEntry));
            }
            return Ok(Self { shown: None, decisions, events: None, deliveries: Vec::new(), now: Timestamp(0) });
        };
        let now = entries.find(&[]).await.map_err(failed)?.now;
        let events = console.admin.announced(&shown).await?;
        let deliveries = console.admin.delivered(&shown).await?;
        Ok(Self { shown: Some(shown), decisions, events, deliveries, now })
    }

    fn key(&self) -> &str {
        let decided = || self.decisions.first().map(|decision| &*decision.key);
        self.shown.as_ref().map(|shown| &*shown.listed.key).or_else(decided).unwrap_or_default()
    }
}

fn entry(operator: &Operator, story: &Story, shown: &Shown, query: &Form) -> Markup {
    let (listed, now) = (&shown.listed, story.now);
    html! {
        p.lead { (badge(listed.stage)) " for " (long(now.since(listed.changed_at))) "; next: " (next(listed, now)) }
        @if listed.contradicted {
            p.alert { "An answer came after this was settled otherwise. Compare the two: the money may need to be put right." }
        }
        (timeline(story, shown))
        @if listed.stage == Stage::Unknown {
            h2 { "Settle it" }
            (fields(operator, &Input::new(vec![(listed.id, listed.version())], operator), None))
        }
        (answers(shown, query))
        h2 { "Events" }
        (events(story))
        @if !story.deliveries.is_empty() {
            h2 { "Deliveries that are not done" }
            (table::events(&story.deliveries, now, Picks::None))
        }
        h2 { "Facts" }
        (facts(shown))
    }
}

/// What happened, in order.
fn timeline(story: &Story, shown: &Shown) -> Markup {
    let listed = &shown.listed;
    html! {
        h2 { "What happened" }
        ol.story {
            li { (at(listed.created_at)) " The request came, and its key was claimed." }
            @if listed.attempt > 1 {
                li { (at(listed.started_at)) " It was sent for the " (ordinal(listed.attempt)) " time." }
            }
            @match listed.stage {
                Stage::InProgress => li {
                    (at(listed.started_at)) " It was sent, or is about to be; the answer has not come yet."
                    @if let Some(by) = &shown.instance { " By " (by.name) @if !by.alive { ", which is not alive any more" } "." }
                },
                Stage::Unknown => li.bad {
                    (at(listed.changed_at)) " Its outcome became unknown: sent, and no answer that says what happened."
                    @if listed.lookups > 0 { " The service has been asked " (several(listed.lookups as usize, "time", "times")) " since." }
                },
                Stage::Completed | Stage::Tombstone => li.good {
                    (at(listed.changed_at)) " It was completed" @if let Some(status) = listed.status { " with " (status) } "."
                },
            }
            @for decision in story.decisions.iter().rev() {
                li { (at(decision.at)) " " span.text { (decision.actor.name) } " decided: " (super::decisions::outcome(decision)) }
            }
            @for (name, event) in story.events.iter().flatten() {
                li { (at(event.created_at)) " Event " span.text { (name) } " was committed: " (super::words::state(event.state)) " since " (at(event.changed_at)) "." }
            }
        }
    }
}

fn ordinal(number: u32) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

/// What retries get. Only who asks for it sees more than its status and size.
fn answers(shown: &Shown, query: &Form) -> Markup {
    let data = query.get("data") == "true";
    html! {
        @match &shown.answer {
            Some(Answer::Response(kept)) => { h2 { "Answer" } (answer(kept, data)) },
            Some(Answer::StatusOnly(status)) => { h2 { "Answer" } p { "Status " (status) ". The rest was not kept." } },
            None => {}
        }
        @if let Some(late) = &shown.evidence { h2 { "Late answer" } (answer(late, data)) }
        @let has_more = matches!(shown.answer, Some(Answer::Response(_))) || shown.evidence.is_some();
        @if has_more && !data {
            p { a href=(target(&format!("/console/entries/{}", shown.listed.id.to_hex()), &[("data", "true")])) { "Show headers and body" } " \u{2013} they may be nobody's business." }
        }
    }
}

fn answer(response: &StoredResponse, data: bool) -> Markup {
    html! {
        p { "Status " (response.status.as_u16()) ", " (several(response.body.len(), "byte", "bytes")) "." }
        @if data {
            pre {
                @for (name, value) in &response.headers { (name.as_str()) ": " (String::from_utf8_lossy(value.as_bytes())) "\n" }
                "\n" (String::from_utf8_lossy(&response.body))
            }
        }
    }
}

fn events(story: &Story) -> Markup {
    html! {
        @match &story.events {
            None => p { "Its route is not configured here, so what it announces is not known." },
            Some(events) if events.is_empty() => p { "None." },
            Some(events) => {
                @let events: Vec<_> = events.iter().map(|(_, event)| event.clone()).collect();
                (table::events(&events, story.now, Picks::None))
            }
        }
    }
}

fn decided(decisions: &[Decision]) -> Markup {
    html! {
        @if !decisions.is_empty() {
            h2 { "Decisions" }
            (super::decisions::table(decisions))
        }
    }
}

fn facts(shown: &Shown) -> Markup {
    let listed = &shown.listed;
    html! {
        dl.facts {
            dt { "Route" } dd { (listed.route) }
            dt { "Namespace" } dd { (listed.namespace) }
            dt { "Whose" } dd.text { (listed.scope) }
            dt { "Attempt" } dd { (listed.attempt) }
            dt { "Id" } dd.text { code { (listed.id.to_hex()) } }
        }
    }
}
