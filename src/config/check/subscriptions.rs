//! Subscriptions: where their messages come from, what makes two of them one, and in which order they are.

use super::events::{known_queue, sendable};
use super::{Finding, error, outcomes, warning};
use crate::auth::ScopeKind;
use crate::config::{Config, Queue, QueueUrl, Subscription};
use crate::entry::source::{Alternative, MessageSource, Source as _};
use crate::inbox::store::MAX_DEPOSIT;
use crate::outbox::event::OnFailure;
use crate::outbox::store::MAX_LANES;

/// Fields that a delivery has anyway.
const OURS: [&str; 6] =
    ["content-length", "content-type", "host", "idempotency-key", "oncegate-attempt", "traceparent"];

/// Each is a connection to the handler.
const MAX_CONCURRENCY: u32 = 1024;

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    for one in &config.subscriptions {
        let key = format!("subscriptions.{}", one.name);
        source(config, &key, one, findings);
        alone(config, &key, one, findings);
        identity(&key, one, findings);
        order(&key, one, findings);
        handler(&key, one, findings);
        bounds(&key, one, findings);
        let keys = outcomes::Keys {
            scope: ScopeKind::Global,
            tenants: false,
            forwarded: one.forward_key,
            composite: one.version.is_some() || one.key.alternatives().iter().any(is_composite),
            // Whatever a message's key is, the handler has it in the message.
            business: true,
            header: false,
        };
        outcomes::lookup(&format!("{key}.lookup"), one.on_unknown, one.lookup.as_ref(), &keys, findings);
    }
}

fn is_composite(alternative: &Alternative<MessageSource>) -> bool {
    alternative.sources().len() > 1
}

fn source(config: &Config, key: &str, one: &Subscription, findings: &mut Vec<Finding>) {
    known_queue(config, &format!("{key}.queue"), &one.queue, findings);
    if let Some(queue) = config.queue(&one.queue)
        && matches!(queue.url, QueueUrl::Webhook(_))
    {
        let text = format!("\"{}\" posts events to a URL; nothing can be received from it", one.queue);
        findings.push(error(format!("{key}.queue"), text));
    }
    sendable(&format!("{key}.topic"), &one.topic, findings);
    if let Some(dead_letter) = &one.dead_letter {
        sendable(&format!("{key}.dead_letter"), dead_letter, findings);
        if *dead_letter == one.topic {
            let text =
                format!("\"{dead_letter}\" is the topic itself: what can't be handled would come again for ever");
            findings.push(error(format!("{key}.dead_letter"), text));
        }
    }
}

/// Of two that receive as one consumer each would lose what the other gets.
fn alone(config: &Config, key: &str, one: &Subscription, findings: &mut Vec<Finding>) {
    let Some(queue) = config.queue(&one.queue) else { return };
    let before = config.subscriptions.iter().take_while(|other| !std::ptr::eq(*other, one));
    for other in before.filter(|other| other.queue == one.queue && consumer(queue, other) == consumer(queue, one)) {
        let what_to_do = match is_of_default_exchange(queue, one) {
            true => {
                "in RabbitMQ's default exchange a topic is one queue; set rabbitmq.exchange, where each has its own"
            }
            false => "give each a group of its own",
        };
        let text = format!("each message would go either here or to \"{}\", never to both: {what_to_do}", other.name);
        findings.push(error(format!("{key}.group"), text));
    }
}

/// What the queue tells subscriptions apart by. A group of RabbitMQ is one queue, whatever the topics.
fn consumer<'a>(queue: &Queue, one: &'a Subscription) -> (Option<&'a str>, &'a str) {
    match &queue.url {
        QueueUrl::Rabbitmq(_) if is_of_default_exchange(queue, one) => (None, &one.topic),
        QueueUrl::Rabbitmq(_) => (None, one.group().as_str()),
        QueueUrl::Embedded | QueueUrl::Kafka(_) | QueueUrl::Nats(_) | QueueUrl::Redis(_) | QueueUrl::Webhook(_) => {
            (Some(&one.topic), one.group().as_str())
        }
    }
}

/// Whether it reads the queue that its topic names.
fn is_of_default_exchange(queue: &Queue, one: &Subscription) -> bool {
    matches!(queue.url, QueueUrl::Rabbitmq(_)) && queue.rabbitmq.exchange.is_empty() && one.group.is_none()
}

fn identity(key: &str, one: &Subscription, findings: &mut Vec<Finding>) {
    if one.key.alternatives().iter().any(|alternative| !alternative.is_business()) {
        let text = format!(
            "{}: a producer that sends again may give another id, and then it is another message; use a business key where there is one",
            one.key
        );
        findings.push(warning(format!("{key}.key"), text));
    }
}

fn order(key: &str, one: &Subscription, findings: &mut Vec<Finding>) {
    match (&one.version, &one.entity) {
        (Some(_), None) => findings.push(error(format!("{key}.entity"), "missing: whose versions are they?")),
        (Some(version), Some(_)) if !version.get().is_business() => {
            findings.push(error(format!("{key}.version"), "an id is no number that grows"));
        }
        (Some(_), Some(_)) | (None, _) => {}
    }
    if one.gap.is_some() && one.version.is_none() {
        findings.push(error(format!("{key}.gap"), "without effect; set version and entity, or remove it"));
    }
    if one.version.is_some() && one.on_failure == OnFailure::Hold {
        let text = "with versions a later message carries the whole state, and may be the missing one; use \"skip\", and gap where each version must be seen";
        findings.push(error(format!("{key}.on_failure"), text));
    }
    if one.backoff.first > one.backoff.max {
        let text = format!("{} is longer than max, {}", one.backoff.first, one.backoff.max);
        findings.push(error(format!("{key}.backoff.first"), text));
    }
}

fn handler(key: &str, one: &Subscription, findings: &mut Vec<Finding>) {
    for field in one.headers.keys().map(|name| name.get().as_str()) {
        if OURS.contains(&field) || field.starts_with("ce-") {
            findings.push(error(format!("{key}.headers.{field}"), "the gateway sets it; remove it"));
        }
    }
    if one.tls.ca.is_some() && !one.deliver.is_tls() {
        findings.push(error(format!("{key}.tls.ca"), "the handler's URL is not https; remove it, or use https"));
    }
}

fn bounds(key: &str, one: &Subscription, findings: &mut Vec<Finding>) {
    let most_received = u32::try_from(MAX_DEPOSIT).unwrap_or(u32::MAX);
    let table = [
        ("concurrency", one.concurrency, MAX_CONCURRENCY),
        ("prefetch", one.prefetch, most_received),
        ("partitions", one.partitions, MAX_LANES),
    ];
    for (name, number, most) in table.into_iter().filter(|(_, number, most)| number.get() > *most) {
        findings.push(error(format!("{key}.{name}"), format!("{number} is more than {most}")));
    }
    if one.lease.get().as_secs() == 0 {
        let text = format!("{} is too short to be renewed in time; it must be 1s or more", one.lease);
        findings.push(error(format!("{key}.lease"), text));
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    fn key(name: &str) -> String {
        format!("subscriptions.points.{name}")
    }

    fn subscription(rest: &str) -> Base {
        let sources = if rest.contains("key =") { "" } else { "key = 'body:/order_no'" };
        let topic = if rest.contains("topic =") { "" } else { "topic = 'payments'" };
        Base::default().and(&format!(
            "[[subscriptions]]\nname = 'points'\ndeliver = 'http://a:1/points'\n{sources}\n{topic}\n{rest}"
        ))
    }

    #[test]
    fn messages_come_from_a_queue_that_there_is_and_that_can_be_read() {
        assert_sound(&subscription(""));
        assert_error(&subscription("queue = 'audit'"), &key("queue"), "\"audit\" is no queue; there are: default");
        let webhook = subscription("queue = 'hooks'").and("[[queues]]\nname = 'hooks'\nurl = 'https://a'");
        assert_error(&webhook, &key("queue"), "nothing can be received");
        assert_error(&subscription("topic = ''"), &key("topic"), "1 to 255 bytes");
        assert_error(&subscription("dead_letter = 'payments'"), &key("dead_letter"), "for ever");
        assert_sound(&subscription("dead_letter = 'payments.dead'"));
    }

    #[test]
    fn two_that_would_take_each_others_messages_are_refused() {
        let two = |queue: &str, first: &str, second: &str| {
            let other = "name = 'stock'\ndeliver = 'http://a:1/x'\nkey = 'body:/no'\nqueue = 'q'";
            subscription(&format!("queue = 'q'\n{first}"))
                .and(&format!("[[subscriptions]]\n{other}\n{second}\n[[queues]]\nname = 'q'\n{queue}"))
        };
        let (default, exchange) = ("url = 'amqp://a'", "url = 'amqp://a'\nrabbitmq.exchange = 'events'");
        let same = "topic = 'payments'";
        for (queue, first, second) in [
            (default, "", same),
            (exchange, "group = 'g'", "topic = 'payments'\ngroup = 'g'"),
            (exchange, "group = 'g'", "topic = 'refunds'\ngroup = 'g'"),
            ("url = 'embedded:'", "group = 'g'", "topic = 'payments'\ngroup = 'g'"),
            ("url = 'nats://a'", "", "topic = 'payments'\ngroup = 'points'"),
        ] {
            assert_error(&two(queue, first, second), "subscriptions.stock.group", "either here or to \"points\"");
        }
        assert_error(&two(default, "", same), "subscriptions.stock.group", "set rabbitmq.exchange");
        for (queue, first, second) in [
            (default, "", "topic = 'refunds'"),
            (exchange, "", same),
            ("url = 'embedded:'", "", same),
            ("url = 'embedded:'", "group = 'g'", "topic = 'refunds'\ngroup = 'g'"),
            ("url = 'redis://a'", "", same),
        ] {
            assert_sound(&two(queue, first, second));
        }
    }

    #[test]
    fn names_are_their_own() {
        let twice = subscription("")
            .and("[[subscriptions]]\nname = 'points'\ndeliver = 'http://a:1/x'\ntopic = 't'\nkey = 'body:/no'");
        assert_error(&twice, &key("name"), "occurs twice");
    }

    #[test]
    fn an_id_is_the_last_resort() {
        for written in ["'id'", "['body:/order_no', 'id']", "[['body:/shop', 'id']]"] {
            assert_warning(&subscription(&format!("key = {written}")), &key("key"), "may give another id");
        }
        assert_sound(&subscription("key = [['body:/shop', 'attribute:subject']]"));
    }

    #[test]
    fn versions_are_numbers_of_an_entity() {
        assert_error(&subscription("version = 'body:/version'"), &key("entity"), "whose versions");
        assert_error(&subscription("version = 'id'\nentity = 'body:/no'"), &key("version"), "no number");
        let gap = "gap = { wait = '30s', then = 'apply' }";
        assert_error(&subscription(gap), &key("gap"), "without effect");
        assert_sound(&subscription(&format!("version = 'body:/version'\nentity = 'body:/no'\n{gap}")));
        assert_sound(&subscription("entity = 'body:/no'"));
        let hold = "on_failure = 'hold'";
        let versions = format!("version = 'body:/version'\nentity = 'body:/no'\n{hold}");
        assert_error(&subscription(&versions), &key("on_failure"), "may be the missing one");
        assert_sound(&subscription(hold));
    }

    #[test]
    fn a_record_outlives_the_tries() {
        let needed = 8 * 10 + 127;
        assert_error(&subscription(&format!("retention = '{needed}s'")), &key("retention"), "207 s");
        assert_sound(&subscription(&format!("retention = '{}s'", needed + 1)));
        assert_error(
            &subscription("backoff = { first = '10m', max = '5m' }"),
            &key("backoff.first"),
            "longer than max",
        );
        assert_error(&subscription("backoff.first = '0s'"), &key("backoff.first"), "longer than zero");
    }

    #[test]
    fn a_lease_outlasts_each_delivery() {
        let slow = subscription("timeout = '20s'");
        assert_error(&slow, "engine.lease", "timeout 20s of the subscription points");
        assert_warning(
            &subscription("timeout = '19s'").head("server.drain_timeout = '18s'"),
            "server.drain_timeout",
            "19s",
        );
        assert_error(&subscription("connect_timeout = '11s'"), &key("connect_timeout"), "longer than timeout");
    }

    #[test]
    fn unknown_outcomes_are_looked_up_as_routes_do() {
        assert_error(&subscription("on_unknown = 'lookup'"), &key("lookup"), "missing");
        let lookup = "lookup = { request = 'GET /points/{key}' }";
        assert_error(&subscription(lookup), &key("lookup"), "without effect");
        assert_sound(&subscription(&format!("on_unknown = 'lookup'\n{lookup}")));
        let versions = format!("on_unknown = 'lookup'\n{lookup}\nversion = 'body:/v'\nentity = 'body:/no'");
        assert_warning(&subscription(&versions), &key("lookup.request"), "digest");
        let absent = "on_unknown = 'lookup'\nlookup = { request = 'GET /{key}', absent = 'not_executed' }";
        assert_error(&subscription(absent), &key("lookup.after"), "missing");
    }

    #[test]
    fn what_the_gateway_sends_itself_is_not_configured() {
        for field in ["Idempotency-Key", "content-type", "ce-id", "traceparent"] {
            let base = subscription(&format!("headers = {{ {field} = 'x' }}"));
            assert_error(&base, &key(&format!("headers.{}", field.to_ascii_lowercase())), "sets it");
        }
        assert_sound(&subscription("headers = { authorization = 'env:S' }"));
        assert_error(&subscription("tls.ca = 'a.pem'"), &key("tls.ca"), "not https");
    }

    #[test]
    fn numbers_are_within_bounds() {
        for (setting, name) in [
            ("concurrency = 1025", "concurrency"),
            ("prefetch = 1025", "prefetch"),
            ("partitions = 257", "partitions"),
            ("lease = '999ms'", "lease"),
        ] {
            assert_error(&subscription(setting), &key(name), "");
        }
    }
}
