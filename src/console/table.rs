//! Entries and events in tables. On a narrow screen each row is a card, and each cell says what it is.

use maud::{Markup, html};

use super::words::{self, when};
use crate::clock::Timestamp;
use crate::engine::desk::{Listed, Stage};
use crate::outbox::desk::Listed as Event;

/// Whether rows can be picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Picks {
    /// They can't.
    None,
    /// They can, and are not yet.
    Open,
    /// All are.
    All,
}

/// What is sent for an entry that is picked: which, and as it was seen.
pub(super) fn pick(entry: &Listed) -> String {
    format!("{}.{}", entry.id.to_hex(), entry.version())
}

/// Entries.
pub(super) fn entries(entries: &[Listed], now: Timestamp, picks: Picks) -> Markup {
    html! {
        table {
            thead { tr {
                @if picks != Picks::None { th scope="col" { span.unseen { "Pick" } } }
                th scope="col" { "Key" }
                th scope="col" { "State" }
                th scope="col" { "Route" }
                th scope="col" { "Whose" }
                th scope="col" { "Since" }
                th scope="col" { "Next" }
            } }
            tbody { @for entry in entries { (row(entry, now, picks)) } }
        }
    }
}

fn row(entry: &Listed, now: Timestamp, picks: Picks) -> Markup {
    html! {
        tr {
            @if picks != Picks::None {
                td.pick {
                    label {
                        input type="checkbox" name="pick" value=(pick(entry)) checked[picks == Picks::All];
                        span.unseen { "Pick " (entry.key) }
                    }
                }
            }
            th scope="row" data-label="Key" { (link(entry)) }
            td data-label="State" { (badge(entry.stage)) @if entry.contradicted { " " span.badge.bad { "late answer" } } }
            td data-label="Route" { (entry.route) @if entry.namespace != entry.route { " " small { (entry.namespace) } } }
            td data-label="Whose" { span.text { (entry.scope) } }
            td data-label="Since" { (when(entry.changed_at, now)) @if entry.attempt > 1 { " " small { "attempt " (entry.attempt) } } }
            td data-label="Next" { (next(entry, now)) }
        }
    }
}

/// The entry's page.
pub(super) fn link(entry: &Listed) -> Markup {
    html! { a.text href=(format!("/console/entries/{}", entry.id.to_hex())) { (shown(&entry.key)) } }
}

/// A text that strangers may have chosen: one that is nothing to see is said to be.
pub(super) fn shown(text: &str) -> &str {
    if text.trim().is_empty() { "(blank)" } else { text }
}

/// A state as it is seen at a glance.
pub(super) fn badge(stage: Stage) -> Markup {
    let class = match stage {
        Stage::InProgress => "badge",
        Stage::Unknown => "badge bad",
        Stage::Completed | Stage::Tombstone => "badge good",
    };
    html! { span class=(class) { (words::stage(stage)) } }
}

/// What happens to an entry by itself.
pub(super) fn next(entry: &Listed, now: Timestamp) -> Markup {
    html! {
        @match (entry.stage, entry.due_at) {
            (Stage::InProgress, _) => "its answer",
            (Stage::Unknown, Some(due)) if due > now => { "a lookup " (when(due, now)) }
            (Stage::Unknown, Some(_)) => "a lookup, now",
            (Stage::Unknown, None) => "waits for a person",
            (Stage::Completed, Some(due)) => { "answer forgotten " (when(due, now)) }
            (Stage::Tombstone, Some(due)) => { "key forgotten " (when(due, now)) }
            (Stage::Completed | Stage::Tombstone, None) => "kept for ever",
        }
    }
}

/// Events or deliveries.
pub(super) fn events(events: &[Event], now: Timestamp, picks: Picks) -> Markup {
    html! {
        table {
            thead { tr {
                @if picks != Picks::None { th scope="col" { span.unseen { "Pick" } } }
                th scope="col" { "Key" }
                th scope="col" { "What" }
                th scope="col" { "Where to" }
                th scope="col" { "State" }
                th scope="col" { "Since" }
                th scope="col" { "Why" }
            } }
            tbody { @for event in events { (event_row(event, now, picks)) } }
        }
    }
}

fn event_row(event: &Event, now: Timestamp, picks: Picks) -> Markup {
    html! {
        tr {
            @if picks != Picks::None {
                td.pick {
                    label {
                        input type="checkbox" name="pick" value=(event.id) checked[picks == Picks::All];
                        span.unseen { "Pick " (event.key) }
                    }
                }
            }
            th scope="row" data-label="Key" {
                a.text href=(format!("/console/events/{}", event.id)) { (shown(&event.key)) }
            }
            td data-label="What" { span.text { (event.kind) } }
            td data-label="Where to" { (event.queue) " " small { (event.topic) } }
            td data-label="State" { (words::state(event.state)) " " small { (words::several(event.attempts as usize, "attempt", "attempts")) } }
            td data-label="Since" { (when(event.changed_at, now)) }
            td data-label="Why" {
                span.text {
                    @if let Some(result) = &event.result { (result) @if event.reason.is_some() { ": " } }
                    @if let Some(reason) = &event.reason { (reason) }
                    @if event.result.is_none() && event.reason.is_none() { "\u{2013}" }
                }
            }
        }
    }
}
