//! Times and numbers, for people.

use std::time::Duration;

use maud::{Markup, html};

use crate::clock::Timestamp;
use crate::engine::desk::Stage;
use crate::http::admin::stats::COUNTED;
use crate::outbox::desk::State;

/// How long, in the two largest units at most.
pub(super) fn long(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: u64, unit: &str, small: u64, other: &str| match small {
        0 => format!("{large}\u{a0}{unit}"),
        _ => format!("{large}\u{a0}{unit} {small}\u{a0}{other}"),
    };
    match seconds {
        0..60 => format!("{seconds}\u{a0}s"),
        60..3_600 => two(minutes, "min", if minutes < 10 { seconds % 60 } else { 0 }, "s"),
        3_600..86_400 => two(hours, "h", minutes % 60, "min"),
        _ => two(days, "d", if days < 10 { hours % 24 } else { 0 }, "h"),
    }
}

/// A point in time, by how far it is from `now`.
pub(super) fn when(at: Timestamp, now: Timestamp) -> Markup {
    let exact = at.rfc3339();
    let text = if at > now { format!("in {}", long(at.since(now))) } else { format!("{} ago", long(now.since(at))) };
    html! { time datetime=(exact) title=(exact) { (text) } }
}

/// A point in time to the second, by UTC.
pub(super) fn at(at: Timestamp) -> Markup {
    let exact = at.rfc3339();
    let text = format!("{} {}", &exact[..10], &exact[11..19]);
    html! { time datetime=(exact) title=(exact) { (text) " UTC" } }
}

/// What was counted up to the cap.
pub(super) fn counted(count: u64) -> String {
    if count >= u64::from(COUNTED) { format!("{COUNTED}+") } else { count.to_string() }
}

/// One of it, or several.
pub(super) fn several(count: usize, one: &str, many: &str) -> String {
    format!("{count}\u{a0}{}", if count == 1 { one } else { many })
}

/// Where an entry is in its life.
pub(super) const fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::InProgress => "in progress",
        Stage::Unknown => "outcome unknown",
        Stage::Completed => "completed",
        Stage::Tombstone => "completed, answer forgotten",
    }
}

/// Where an event or a delivery stands.
pub(super) const fn state(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::Retrying => "tried again",
        State::Waiting => "waits behind another one of its key",
        State::Early => "early: waits for another one of its key",
        State::Parked => "parked: a dead letter",
        State::Sent => "done",
        State::Discarded => "discarded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_two_units_at_most() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (725, "12 min"),
            (3_600, "1 h"),
            (7_320, "2 h 2 min"),
            (90_000, "1 d 1 h"),
            (864_000, "10 d"),
        ] {
            assert_eq!(long(Duration::from_secs(seconds)).replace('\u{a0}', " "), text);
        }
    }
}
