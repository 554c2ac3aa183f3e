//! Where a queue is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::address::{ServiceUrl, ServiceUrlError};

/// Where a queue is, by the kind of broker. None holds a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueUrl {
    /// `embedded:`: a table of the store.
    Embedded,
    /// `amqp://` or `amqps://`: RabbitMQ.
    Rabbitmq(ServiceUrl),
    /// `kafka://` or `kafka+tls://`: brokers, separated by commas.
    Kafka(ServiceUrl),
    /// `nats://` or `tls://`: NATS JetStream.
    Nats(ServiceUrl),
    /// `redis://`, `rediss://`, and either with `+sentinel` or `+cluster`: Redis Streams.
    Redis(ServiceUrl),
    /// `https://` or `http://`: each event is posted.
    Webhook(ServiceUrl),
}

/// Why a text is no such URL. The text is not repeated where it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueUrlError {
    /// No URL, or one with a password.
    #[error(transparent)]
    Url(#[from] ServiceUrlError),
    /// Of no kind that there is.
    #[error(
        "{0}: is no queue: there are embedded: amqp:// amqps:// kafka:// kafka+tls:// nats:// tls:// redis:// rediss:// redis+sentinel:// redis+cluster:// https:// http://"
    )]
    Scheme(String),
    /// Nothing after the scheme.
    #[error("the host is missing")]
    NoHost,
    /// More than `embedded:`.
    #[error("write \"embedded:\" and nothing after it")]
    Embedded,
}

impl QueueUrl {
    /// The cargo feature that its adapter is behind, and whether this binary has it.
    #[must_use]
    pub fn feature(&self) -> (&'static str, bool) {
        match self {
            Self::Embedded => ("default", true),
            Self::Rabbitmq(_) => ("rabbitmq", cfg!(feature = "rabbitmq")),
            Self::Kafka(_) if self.is_tls() => ("kafka-ssl", cfg!(feature = "kafka-ssl")),
            Self::Kafka(_) => ("kafka", cfg!(feature = "kafka")),
            Self::Nats(_) => ("nats", cfg!(feature = "nats")),
            Self::Redis(_) => ("redis-streams", cfg!(feature = "redis-streams")),
            Self::Webhook(_) => ("webhook", cfg!(feature = "webhook")),
        }
    }

    /// Whether its connections are encrypted whatever the server says.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        let scheme = self.url().map_or("", ServiceUrl::scheme);
        scheme.starts_with("rediss") || matches!(scheme, "amqps" | "kafka+tls" | "tls" | "https")
    }

    fn url(&self) -> Option<&ServiceUrl> {
        match self {
            Self::Embedded => None,
            Self::Rabbitmq(url) | Self::Kafka(url) | Self::Nats(url) | Self::Redis(url) | Self::Webhook(url) => {
                Some(url)
            }
        }
    }
}

impl FromStr for QueueUrl {
    type Err = QueueUrlError;

    fn from_str(text: &str) -> Result<Self, QueueUrlError> {
        let url: ServiceUrl = text.parse()?;
        let kind = match url.scheme() {
            "embedded" if text == "embedded:" => return Ok(Self::Embedded),
            "embedded" => return Err(QueueUrlError::Embedded),
            "amqp" | "amqps" => Self::Rabbitmq,
            "kafka" | "kafka+tls" => Self::Kafka,
            "nats" | "tls" => Self::Nats,
            "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster" | "rediss+cluster" => {
                Self::Redis
            }
            "http" | "https" => Self::Webhook,
            other => return Err(QueueUrlError::Scheme(other.to_owned())),
        };
        let after = text.split_once("://").map_or("", |(_, after)| after);
        let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        if host.is_empty() { Err(QueueUrlError::NoHost) } else { Ok(kind(url)) }
    }
}

impl fmt::Display for QueueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url().map_or("embedded:", ServiceUrl::as_str))
    }
}

impl<'de> Deserialize<'de> for QueueUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `from_text`, which shows the value.
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Result<&'static str, QueueUrlError> {
        let url: QueueUrl = text.parse()?;
        assert_eq!(url.to_string(), text);
        Ok(url.feature().0)
    }

    #[test]
    fn the_scheme_says_what_kind_of_broker_it_is() {
        let table = [
            ("embedded:", "default"),
            ("amqp://me@rabbit:5672/vhost", "rabbitmq"),
            ("amqps://rabbit", "rabbitmq"),
            ("kafka://a:9092,b:9092", "kafka"),
            ("kafka+tls://a:9093", "kafka-ssl"),
            ("nats://n:4222", "nats"),
            ("tls://n", "nats"),
            ("redis://r:6379/0", "redis-streams"),
            ("rediss+sentinel://a:1,b:2/master", "redis-streams"),
            ("redis+cluster://a:1", "redis-streams"),
            ("https://hooks.example.com/payments?v=1", "webhook"),
            ("http://127.0.0.1:9000", "webhook"),
        ];
        for (text, feature) in table {
            assert_eq!(kind(text), Ok(feature), "{text}");
        }
    }

    #[test]
    fn what_is_no_queue_is_told_why() {
        assert_eq!(kind("rabbit"), Err(QueueUrlError::Url(ServiceUrlError::NoScheme)));
        assert_eq!(kind("amqp://me:pw@rabbit"), Err(QueueUrlError::Url(ServiceUrlError::Password)));
        assert_eq!(kind("https://me:pw@hooks"), Err(QueueUrlError::Url(ServiceUrlError::Password)));
        assert_eq!(kind("sqs://a"), Err(QueueUrlError::Scheme("sqs".to_owned())));
        for text in ["amqp:", "amqp://", "amqp:rabbit", "https:///path", "nats://me@"] {
            assert_eq!(kind(text), Err(QueueUrlError::NoHost), "{text}");
        }
        assert_eq!(kind("embedded://x"), Err(QueueUrlError::Embedded));
    }
}
