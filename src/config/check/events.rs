//! Events, and the queues that they go to.

use std::collections::HashSet;

use super::{Finding, error, warning};
use crate::config::{Config, Event, Name, Route};
use crate::entry::{KeySource, source::Alternative};
use crate::http::route::Mode;
use crate::outbox::key::EventKey;

/// The columns' bound.
const MAX_TEXT_BYTES: usize = 255;

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    for route in &config.routes {
        events(config, route, findings);
    }
}

fn events(config: &Config, route: &Route, findings: &mut Vec<Finding>) {
    if route.events.is_empty() {
        return;
    }
    let key = format!("routes.{}.events", route.name);
    match &route.idempotency {
        None => {
            let text = "events need [routes.idempotency]: without entries nobody knows what was completed";
            findings.push(error(&key, text));
        }
        Some(policy) if policy.mode == Mode::Observe => {
            findings.push(warning(&key, "a route that only observes announces nothing"));
        }
        Some(_) => {}
    }
    let mut seen = HashSet::new();
    for event in &route.events {
        let key = format!("{key}.{}", event.name);
        if !seen.insert(&event.name) {
            findings.push(error(format!("{key}.name"), "the name occurs twice; rename one"));
        }
        known_queue(config, &format!("{key}.queue"), &event.queue, findings);
        texts(&key, event, findings);
        parameters(&key, route, event, findings);
    }
}

fn texts(key: &str, event: &Event, findings: &mut Vec<Finding>) {
    let texts = [("type", Some(&event.kind)), ("topic", Some(&event.topic)), ("source", event.source.as_ref())];
    for (name, text) in texts.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        sendable(&format!("{key}.{name}"), text, findings);
    }
    if event.when.status.iter().next().is_none() {
        findings.push(error(format!("{key}.when.status"), "no status is in it: the event would never be"));
    }
}

/// What a column and every broker can hold.
pub(super) fn sendable(key: &str, text: &str, findings: &mut Vec<Finding>) {
    if !(1..=MAX_TEXT_BYTES).contains(&text.len()) || text.chars().any(char::is_control) {
        findings.push(error(key, format!("it must have 1 to {MAX_TEXT_BYTES} bytes and no control characters")));
    }
}

pub(super) fn known_queue(config: &Config, key: &str, queue: &Name, findings: &mut Vec<Finding>) {
    if config.queue(queue).is_none() {
        let known: Vec<_> = config.all_queues().map(|queue| queue.name.as_str()).collect();
        findings.push(error(key, format!("\"{queue}\" is no queue; there are: {}", known.join(", "))));
    }
}

fn parameters(key: &str, route: &Route, event: &Event, findings: &mut Vec<Finding>) {
    let EventKey::Request(sources) = &event.key else { return };
    for source in sources.alternatives().iter().flat_map(Alternative::sources) {
        if let KeySource::Path(name) = source
            && !route.pattern.parameters().any(|parameter| *parameter == **name)
        {
            let text =
                format!("\"{source}\" names no parameter of \"{}\"; write {{{name}}} into the match", route.pattern);
            findings.push(error(format!("{key}.key"), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    const EVENT: &str = "name = 'paid', type = 'a', topic = 'b'";

    fn events(events: &[&str]) -> Base {
        let list: Vec<_> = events.iter().map(|event| format!("{{ {event} }}")).collect();
        Base::default().route(&format!("events = [{}]", list.join(", ")))
    }

    #[test]
    fn an_event_has_a_name_of_its_own_and_a_queue_that_there_is() {
        assert_sound(&events(&[EVENT, &EVENT.replace("paid", "refunded")]));
        assert_error(&events(&[EVENT, EVENT]), "routes.pay.events.paid.name", "occurs twice");
        let elsewhere = events(&[&format!("{EVENT}, queue = 'audit'")]);
        assert_error(&elsewhere, "routes.pay.events.paid.queue", "\"audit\" is no queue; there are: default");
        assert_sound(&elsewhere.and("[[queues]]\nname = 'audit'"));
    }

    #[test]
    fn an_event_needs_an_entry() {
        let base = Base::default()
            .and(&format!("[[routes]]\nname = 'b'\nmatch = 'POST /b'\nupstream = 'u'\nevents = [{{ {EVENT} }}]"));
        assert_error(&base, "routes.b.events", "need [routes.idempotency]");
        let observed = events(&[EVENT]).policy("key = 'header', mode = 'observe'");
        assert_warning(&observed, "routes.pay.events", "announces nothing");
    }

    #[test]
    fn what_no_broker_could_take_is_refused() {
        let table = [("type", ""), ("topic", "a\\u0000"), ("source", &*"s".repeat(256))];
        for (name, text) in table {
            let rest: Vec<_> = EVENT.split(", ").filter(|pair| !pair.starts_with(name)).collect();
            let base = events(&[&format!("{}, {name} = \"{text}\"", rest.join(", "))]);
            assert_error(&base, &format!("routes.pay.events.paid.{name}"), "1 to 255 bytes");
        }
        let never = events(&[&format!("{EVENT}, when = {{ status = [] }}")]);
        assert_error(&never, "routes.pay.events.paid.when.status", "never");
        let nowhere = events(&[&format!("{EVENT}, key = 'path:order'")]);
        assert_error(&nowhere, "routes.pay.events.paid.key", "names no parameter");
        assert_sound(&events(&[&format!("{EVENT}, key = 'path:id'")]));
    }
}
