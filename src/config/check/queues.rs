//! Queues: their names and bounds, and settings that belong to their kind.

use std::collections::HashSet;

use super::{Finding, error, warning};
use crate::config::{ByteSize, Config, Queue, QueueUrl, SaslMechanism};
use crate::outbox::lane::DEFAULT_QUEUE;
use crate::outbox::seed::LARGEST_SEED;
use crate::outbox::store::MAX_LANES;

/// Below it hardly an event fits.
const LEAST_EVENT: ByteSize = ByteSize::kib(1);

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    names(config, findings);
    queue("queue", &config.queue, findings);
    for one in &config.queues {
        queue(&format!("queues.{}", one.name), one, findings);
    }
}

fn names(config: &Config, findings: &mut Vec<Finding>) {
    if config.queue.name.as_str() != DEFAULT_QUEUE {
        let text = format!("\"{}\": [queue] is the queue called default; others go to [[queues]]", config.queue.name);
        findings.push(error("queue.name", text));
    }
    let mut seen = HashSet::from([DEFAULT_QUEUE]);
    for queue in config.queues.iter().filter(|queue| !seen.insert(queue.name.as_str())) {
        let text = "the name is missing or occurs twice; give each of [[queues]] one of its own (default is [queue])";
        findings.push(error(format!("queues.{}.name", queue.name), text));
    }
}

fn queue(key: &str, queue: &Queue, findings: &mut Vec<Finding>) {
    let mut wrong = |name: &str, text: String| findings.push(error(format!("{key}.{name}"), text));
    let (feature, is_built) = queue.url.feature();
    if !is_built {
        wrong("url", format!("this binary has no {feature}; build it with --features {feature}"));
    }
    if queue.partitions.get() > MAX_LANES {
        wrong("partitions", format!("{} is more than the store keeps of a queue, {MAX_LANES}", queue.partitions));
    }
    let size = queue.max_event_bytes;
    if size < LEAST_EVENT || size.get() > LARGEST_SEED {
        let text =
            format!("{size} is out of bounds; it must be {LEAST_EVENT} to {}", ByteSize::kib(LARGEST_SEED >> 10));
        wrong("max_event_bytes", text);
    }
    if queue.lease.get().as_secs() == 0 {
        wrong("lease", format!("{} is too short to be renewed in time; it must be 1s or more", queue.lease));
    }
    of_its_kind(queue, &mut wrong);
    tls(queue, &mut wrong);
    credentials(queue, &mut wrong);
    if matches!(queue.url, QueueUrl::Webhook(_)) && queue.signing.is_empty() {
        findings.push(warning(format!("{key}.signing"), "without a signature the receiver can't tell who posts"));
    }
    let shows_password = queue.password.is_some() && queue.kafka.mechanism == SaslMechanism::Plain;
    if matches!(queue.url, QueueUrl::Kafka(_)) && shows_password && !queue.url.is_tls() {
        let text = "\"plain\" shows the password to everybody on the way; write kafka+tls:// or another mechanism";
        findings.push(warning(format!("{key}.kafka.mechanism"), text));
    }
}

/// A setting that means nothing to this kind of queue was meant for another one.
fn of_its_kind(queue: &Queue, wrong: &mut impl FnMut(&str, String)) {
    let (has_user, has_password, has_tls, has_signature) = match queue.url {
        QueueUrl::Embedded => (false, false, false, false),
        QueueUrl::Webhook(_) => (false, true, true, true),
        QueueUrl::Rabbitmq(_) | QueueUrl::Kafka(_) | QueueUrl::Nats(_) | QueueUrl::Redis(_) => {
            (true, true, true, false)
        }
    };
    let is_nats = matches!(queue.url, QueueUrl::Nats(_));
    let table = [
        ("username", queue.username.is_some(), has_user),
        ("password", queue.password.is_some(), has_password),
        ("ca", queue.ca.is_some(), has_tls),
        ("cert", queue.cert.is_some(), has_tls),
        ("signing", !queue.signing.is_empty(), has_signature),
        ("nats.nkey", queue.nats.nkey.is_some(), is_nats),
        ("nats.credentials", queue.nats.credentials.is_some(), is_nats),
    ];
    for (name, _, _) in table.into_iter().filter(|(_, is_set, is_known)| *is_set && !is_known) {
        wrong(name, format!("it means nothing to {}; remove it", queue.url));
    }
}

/// Whoever names an authority or shows a certificate means to be encrypted.
fn tls(queue: &Queue, wrong: &mut impl FnMut(&str, String)) {
    if queue.cert.is_some() != queue.key.is_some() {
        wrong("cert", "a certificate and its key come together".to_owned());
    }
    let encrypted = match queue.url {
        QueueUrl::Rabbitmq(_) => "amqps://",
        QueueUrl::Kafka(_) => "kafka+tls://",
        QueueUrl::Redis(_) => "rediss",
        QueueUrl::Webhook(_) => "https://",
        // NATS agrees upon it after the first words, and these settings insist on it.
        QueueUrl::Nats(_) | QueueUrl::Embedded => return,
    };
    let is_meant = queue.ca.is_some() || queue.cert.is_some();
    if is_meant && !queue.url.is_tls() {
        wrong(
            "url",
            format!("{} is not encrypted, so no certificate is looked at; begin it with {encrypted}", queue.url),
        );
    }
}

/// What would be left out without a word.
fn credentials(queue: &Queue, wrong: &mut impl FnMut(&str, String)) {
    let (has_user, has_password) = (queue.username.is_some(), queue.password.is_some());
    let by_certificate = queue.cert.is_some();
    if has_user && !has_password && !by_certificate {
        wrong("username", "a user without a password can't log in; set password".to_owned());
    }
    if matches!(queue.url, QueueUrl::Kafka(_)) {
        if has_password && !has_user {
            wrong("password", "whose password it is is missing; set username".to_owned());
        }
        if has_password && queue.kafka.mechanism != SaslMechanism::Plain && !cfg!(feature = "kafka-ssl") {
            let text = "this binary has no kafka-ssl, which SCRAM needs; build it with --features kafka-ssl";
            wrong("kafka.mechanism", text.to_owned());
        }
    }
    let ways = [has_password, queue.nats.nkey.is_some(), queue.nats.credentials.is_some()];
    if ways.into_iter().filter(|is_set| *is_set).count() > 1 {
        wrong("nats", "a password, an nkey and a credentials file say who we are in three ways; set one".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    #[test]
    fn queues_have_names_of_their_own() {
        assert_error(&Base::default().head("queue.name = 'other'"), "queue.name", "called default");
        for twice in ["", "name = 'default'"] {
            let base = Base::default().and(&format!("[[queues]]\n{twice}"));
            assert_error(&base, "queues.default.name", "one of its own");
        }
    }

    #[test]
    fn settings_of_a_queue_are_within_bounds_and_of_its_kind() {
        let table = [
            ("partitions = 257", "partitions", "more than the store keeps of a queue, 256"),
            ("max_event_bytes = '5MiB'", "max_event_bytes", "1KiB to 4MiB"),
            ("max_event_bytes = '1B'", "max_event_bytes", "1KiB to 4MiB"),
            ("lease = '999ms'", "lease", "1s or more"),
            ("username = 'me'", "username", "means nothing to embedded:"),
            ("password = 'env:S'", "password", "means nothing"),
            ("signing = ['env:S']", "signing", "means nothing"),
            ("cert = 'a.pem'", "cert", "come together"),
            ("nats.nkey = 'env:S'", "nats.nkey", "means nothing to embedded:"),
            ("nats.credentials = 'a.creds'", "nats.credentials", "means nothing to embedded:"),
            ("url = 'https://a'\nusername = 'me'", "username", "means nothing to https://a"),
        ];
        for (setting, key, text) in table {
            let base = Base::default().and(&format!("[[queues]]\nname = 'q'\n{setting}"));
            assert_error(&base, &format!("queues.q.{key}"), text);
        }
        assert_warning(&Base::default().and("[queue]\nurl = 'https://a'"), "queue.signing", "who posts");
    }

    #[test]
    fn a_broker_that_is_not_built_in_is_an_error() {
        let base = Base::default().and("[queue]\nurl = 'kafka://a'");
        if cfg!(feature = "kafka") {
            assert_sound(&base);
        } else {
            assert_error(&base, "queue.url", "build it with --features kafka");
        }
    }

    fn queue(settings: &str) -> Base {
        Base::default().and(&format!("[[queues]]\nname = 'q'\n{settings}"))
    }

    #[test]
    fn certificates_need_an_encrypted_connection() {
        let pair = "cert = 'a.pem'\nkey = 'a.key'";
        for (plain, encrypted) in [
            ("amqp://a", "amqps://a"),
            ("redis://a", "rediss://a"),
            ("redis+sentinel://a/m", "rediss+sentinel://a/m"),
            ("redis+cluster://a", "rediss+cluster://a"),
            ("http://a", "https://a"),
        ] {
            for setting in [pair, "ca = 'ca.pem'"] {
                assert_error(&queue(&format!("url = '{plain}'\n{setting}")), "queues.q.url", "not encrypted");
                let signing = if encrypted == "https://a" { "signing = ['env:S']" } else { "" };
                assert_sound(&queue(&format!("url = '{encrypted}'\n{signing}\n{setting}")));
            }
        }
        assert_sound(&queue(&format!("url = 'nats://a'\n{pair}")));
    }

    #[test]
    fn credentials_are_whole_and_of_one_kind() {
        for url in ["amqps://a", "rediss://a", "nats://a"] {
            assert_error(&queue(&format!("url = '{url}'\nusername = 'me'")), "queues.q.username", "set password");
            assert_sound(&queue(&format!("url = '{url}'\nusername = 'me'\npassword = 'env:S'")));
        }
        assert_sound(&queue("url = 'amqps://a'\nusername = 'me'\ncert = 'a.pem'\nkey = 'a.key'"));
        for second in ["nats.credentials = 'a.creds'", "password = 'env:S'"] {
            let two = queue(&format!("url = 'nats://a'\nnats.nkey = 'env:S'\n{second}"));
            assert_error(&two, "queues.q.nats", "set one");
        }
        for one in ["nats.nkey = 'env:S'", "nats.credentials = 'a.creds'", "password = 'env:S'"] {
            assert_sound(&queue(&format!("url = 'nats://a'\n{one}")));
        }
    }

    #[test]
    #[cfg(feature = "kafka")]
    fn kafka_is_told_who_we_are_in_a_way_that_this_binary_knows() {
        let kafka = |settings: &str| queue(&format!("url = 'kafka://a:1'\n{settings}"));
        assert_error(&kafka("password = 'env:S'\nkafka.mechanism = 'plain'"), "queues.q.password", "set username");
        let login = "username = 'me'\npassword = 'env:S'";
        let plain = kafka(&format!("{login}\nkafka.mechanism = 'plain'"));
        assert_warning(&plain, "queues.q.kafka.mechanism", "shows the password");
        let scram = kafka(login);
        if cfg!(feature = "kafka-ssl") {
            assert_sound(&scram);
        } else {
            assert_error(&scram, "queues.q.kafka.mechanism", "--features kafka-ssl");
        }
    }
}
