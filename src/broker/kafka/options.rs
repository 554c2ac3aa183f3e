//! What a Kafka publisher is configured with.

use std::path::PathBuf;
use std::time::Duration;

use rdkafka::ClientConfig;

use crate::broker::hidden::Hidden;

/// Settings of a Kafka queue.
#[derive(Debug, Clone)]
pub struct KafkaOptions {
    /// Brokers to begin with, `host:port`. They name the others.
    pub brokers: Vec<String>,
    /// Whether connections are encrypted. Needs a build with the feature `kafka-ssl`.
    pub tls: Option<KafkaTls>,
    /// Who we are; `None`: nobody in particular.
    pub login: Option<KafkaLogin>,
    /// Bounds everything that can happen to an event, retries by the client included. What has no report by
    /// then may have been stored.
    pub delivery_timeout: Duration,
    /// The largest event with its attributes, also after compression by nobody: Kafka's `message.max.bytes` is
    /// 1 MiB on brokers unless raised. Larger ones never go.
    pub max_message_bytes: u32,
    /// Events that may wait or be in flight. More than a relay's window, so that it is never seen there.
    pub queue: u32,
    /// How long a topic may be unknown before an event to it is refused: a topic that has just been made takes a
    /// moment to be known everywhere.
    pub topic_patience: Duration,
}

/// How connections are encrypted.
#[derive(Debug, Clone, Default)]
pub struct KafkaTls {
    /// PEM file of certificate authorities that are trusted, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM files of our certificate and its key, for brokers that ask for one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// Who we are to the brokers. Shows no password.
#[derive(Debug, Clone)]
pub struct KafkaLogin {
    /// How the password is shown.
    pub mechanism: KafkaMechanism,
    /// The user.
    pub user: String,
    /// The password.
    pub password: Hidden,
}

/// A SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KafkaMechanism {
    /// As it is. Only over TLS.
    Plain,
    /// By challenge. Needs a build with the feature `kafka-ssl`, whose library computes it.
    ScramSha256,
    /// As [`Self::ScramSha256`], longer.
    ScramSha512,
}

impl KafkaOptions {
    /// The defaults, for `brokers`.
    #[must_use]
    pub fn new(brokers: Vec<String>) -> Self {
        Self {
            brokers,
            tls: None,
            login: None,
            delivery_timeout: Duration::from_secs(20),
            max_message_bytes: 1_000_000,
            queue: 100_000,
            topic_patience: Duration::from_secs(5),
        }
    }
}

/// Why a Kafka queue can't be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum InvalidKafka {
    /// No broker at all.
    #[error("a Kafka queue has at least one broker")]
    NoBroker,
    /// Not the address of a broker.
    #[error("a Kafka broker is host:port, not `{0}`")]
    Broker(String),
    /// What is subscribed to can't be.
    #[error("a Kafka subscription {0}")]
    Subscription(&'static str),
    /// The build lacks what this needs.
    #[error("{0} needs a build with the feature `kafka-ssl`")]
    NoSsl(&'static str),
    /// The client library does not take the settings.
    #[error("the Kafka client can't be made: {0}")]
    Client(String),
}

/// The producer's settings.
pub(super) fn producer(options: &KafkaOptions) -> Result<ClientConfig, InvalidKafka> {
    let millis = |duration: Duration| duration.as_millis().to_string();
    let mut config = client(options)?;
    config
        // On every replica that is in sync, once, and in order through the client's own retries.
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("delivery.timeout.ms", millis(options.delivery_timeout))
        .set("request.timeout.ms", millis(options.delivery_timeout / 2))
        .set("topic.metadata.propagation.max.ms", millis(options.topic_patience.min(options.delivery_timeout / 2)))
        .set("queue.buffering.max.messages", options.queue.to_string())
        // No waiting for company: batches form while earlier ones are on their way.
        .set("linger.ms", "0")
        // As Java's client: other producers of a topic put a key on the same partition.
        .set("partitioner", "murmur2_random");
    Ok(config)
}

/// The settings of whatever client.
pub(super) fn client(options: &KafkaOptions) -> Result<ClientConfig, InvalidKafka> {
    if options.brokers.is_empty() {
        return Err(InvalidKafka::NoBroker);
    }
    if let Some(wrong) = options.brokers.iter().find(|broker| !is_address(broker)) {
        return Err(InvalidKafka::Broker(wrong.clone()));
    }
    let millis = |duration: Duration| duration.as_millis().to_string();
    let mut config = ClientConfig::new();
    config
        .set("client.id", "oncegate")
        .set("bootstrap.servers", options.brokers.join(","))
        .set("message.max.bytes", options.max_message_bytes.to_string())
        .set("socket.keepalive.enable", "true")
        .set("socket.connection.setup.timeout.ms", millis(options.delivery_timeout.max(Duration::from_secs(1))))
        // Who asks for it backs off; the client is to be there when he comes back.
        .set("reconnect.backoff.max.ms", "1000");
    secure(&mut config, options)?;
    Ok(config)
}

fn secure(config: &mut ClientConfig, options: &KafkaOptions) -> Result<(), InvalidKafka> {
    let protocol = match (&options.tls, &options.login) {
        (None, None) => "plaintext",
        (None, Some(_)) => "sasl_plaintext",
        (Some(_), None) => "ssl",
        (Some(_), Some(_)) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if let Some(tls) = &options.tls {
        needs_ssl("TLS")?;
        if let Some(path) = &tls.ca_file {
            config.set("ssl.ca.location", path.display().to_string());
        }
        if let Some((certificate, key)) = &tls.client_certificate {
            config.set("ssl.certificate.location", certificate.display().to_string());
            config.set("ssl.key.location", key.display().to_string());
        }
    }
    if let Some(login) = &options.login {
        let mechanism = match login.mechanism {
            KafkaMechanism::Plain => "PLAIN",
            KafkaMechanism::ScramSha256 => "SCRAM-SHA-256",
            KafkaMechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        if login.mechanism != KafkaMechanism::Plain {
            needs_ssl("SCRAM")?;
        }
        config.set("sasl.mechanism", mechanism);
        config.set("sasl.username", &login.user);
        config.set("sasl.password", login.password.expose());
    }
    Ok(())
}

fn needs_ssl(what: &'static str) -> Result<(), InvalidKafka> {
    if cfg!(feature = "kafka-ssl") { Ok(()) } else { Err(InvalidKafka::NoSsl(what)) }
}

/// A list separator in an address would smuggle another broker in.
fn is_address(broker: &str) -> bool {
    let Some((host, port)) = broker.rsplit_once(':') else { return false };
    !host.is_empty() && !host.contains([',', '/', '@', ' ']) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_addresses() {
        for broker in ["a:9092", "[::1]:9092", "a.example:1"] {
            assert!(producer(&KafkaOptions::new(vec![broker.to_owned()])).is_ok(), "{broker}");
        }
        for broker in ["", "a", ":9092", "a:", "a:0", "a:99999", "kafka://a:9092", "u:p@a:9092", "a:1,b:2"] {
            assert!(producer(&KafkaOptions::new(vec![broker.to_owned()])).is_err(), "{broker}");
        }
    }

    #[test]
    fn a_build_says_what_it_lacks() {
        let brokers = vec!["a:9092".to_owned()];
        let login = |mechanism| {
            let login = KafkaLogin { mechanism, user: "u".to_owned(), password: Hidden::new("hunter2") };
            KafkaOptions { login: Some(login), ..KafkaOptions::new(brokers.clone()) }
        };
        assert!(!format!("{:?}", login(KafkaMechanism::Plain)).contains("hunter2"));
        assert!(producer(&login(KafkaMechanism::Plain)).is_ok());
        let tls = KafkaOptions { tls: Some(KafkaTls::default()), ..KafkaOptions::new(brokers.clone()) };
        for needy in [tls, login(KafkaMechanism::ScramSha512)] {
            assert_eq!(matches!(producer(&needy), Err(InvalidKafka::NoSsl(_))), cfg!(not(feature = "kafka-ssl")));
        }
    }
}
