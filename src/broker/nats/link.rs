//! One connection to a server, from its dialling to its loss.

use std::sync::Arc;

use async_nats::connection::State;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{
    Context, ContextBuilder, CreateStreamErrorKind, GetStreamErrorKind, PublishAckFuture,
};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, Stream};
use async_nats::{ConnectError, ConnectOptions, ServerAddr};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::identity::Identity;
use super::options::{MissingStream, NatsOptions, NatsStream};
use super::owner::Owners;
use super::verdict;
use crate::broker::PublishError;

/// Dead peers are noticed within three of them while nothing is sent; while something is, its time-out is sooner.
const PING_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// A connection. Never taken up again once it is lost.
#[derive(Debug)]
pub(super) struct Link {
    context: Context,
    /// Cancelled when it is given up.
    gone: CancellationToken,
    _guard: DropGuard,
    /// Who takes which subject, where somebody had to ask.
    owners: Arc<Owners>,
    /// Whether the queue's stream has been looked at since the connection was made, or since it was missing.
    stream_is_there: bool,
}

impl Link {
    /// Connects to one of `addresses`.
    pub(super) async fn dial(addresses: &[ServerAddr], options: &NatsOptions) -> Result<Self, ConnectError> {
        let identity = Identity::new(options.credentials.clone());
        let answer = {
            let identity = identity.clone();
            move |nonce| identity.clone().answer(nonce)
        };
        let mut connect = ConnectOptions::with_auth_callback(answer)
            .name("oncegate")
            .require_tls(options.require_tls)
            .connection_timeout(options.connect_timeout)
            .request_timeout(Some(options.publish_timeout))
            .ping_interval(PING_INTERVAL)
            // Servers that are discovered would be tried in vain after a loss, and no others are needed before.
            .ignore_discovered_servers()
            .max_reconnects(addresses.len());
        if let Some(path) = &options.ca_file {
            connect = connect.add_root_certificates(path.clone());
        }
        if let Some((certificate, key)) = &options.client_certificate {
            connect = connect.add_client_certificate(certificate.clone(), key.clone());
        }
        let client = connect.connect(addresses).await?;
        identity.used_up();
        let context = ContextBuilder::new()
            .timeout(options.publish_timeout)
            .max_ack_inflight(options.in_flight)
            .backpressure_on_inflight(true)
            .build(client);
        let gone = CancellationToken::new();
        Ok(Self {
            context,
            gone: gone.clone(),
            _guard: gone.drop_guard(),
            owners: Arc::default(),
            stream_is_there: false,
        })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn owners(&self) -> Arc<Owners> {
        Arc::clone(&self.owners)
    }

    /// Cancelled when the link is given up.
    pub(super) fn gone(&self) -> CancellationToken {
        self.gone.clone()
    }

    pub(super) fn is_up(&self) -> bool {
        self.context.client().connection_state() == State::Connected
    }

    /// Hands an event over for sending. It is sent after all that were handed over before it.
    pub(super) async fn send(&self, subject: &str, message: PublishMessage) -> Result<PublishAckFuture, PublishError> {
        self.context.send_publish(subject.to_owned(), message).await.map_err(|error| verdict::of(&error))
    }

    /// Has the stream looked at again before the next event.
    pub(super) fn stream_is_missing(&mut self) {
        self.stream_is_there = false;
    }

    /// Makes sure of the queue's stream, unless that has been done.
    pub(super) async fn ensure(&mut self, wanted: Option<&NatsStream>) -> Result<(), PublishError> {
        if let Some(wanted) = wanted.filter(|_| !self.stream_is_there) {
            let stream = self.stream(wanted).await?;
            verify(&stream, wanted)?;
        }
        self.stream_is_there = true;
        Ok(())
    }

    async fn stream(&self, wanted: &NatsStream) -> Result<Stream, PublishError> {
        let error = match self.context.get_stream(&wanted.name).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let missing = matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND);
        match &wanted.missing {
            MissingStream::Create { replicas, duplicate_window } if missing => {
                let config = Config {
                    name: wanted.name.clone(),
                    subjects: wanted.subjects.clone(),
                    num_replicas: *replicas,
                    duplicate_window: *duplicate_window,
                    ..Config::default()
                };
                self.create(config).await
            }
            MissingStream::Create { .. } | MissingStream::Fail => {
                Err(unavailable(&format!("stream {}", wanted.name), &error))
            }
        }
    }

    /// Another gateway may be making it at the same time: then it is there.
    async fn create(&self, config: Config) -> Result<Stream, PublishError> {
        let name = config.name.clone();
        match self.context.create_stream(config).await {
            Ok(stream) => Ok(stream),
            Err(error) if exists(&error.kind()) => {
                let there = self.context.get_stream(&name).await;
                there.map_err(|error| unavailable(&format!("stream {name}"), &error))
            }
            Err(error) => Err(unavailable(&format!("stream {name} can't be made"), &error)),
        }
    }
}

fn exists(kind: &CreateStreamErrorKind) -> bool {
    matches!(kind, CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST)
}

/// A stream that takes none of our events, or confirms none, is told at once and not by time-outs.
fn verify(stream: &Stream, wanted: &NatsStream) -> Result<(), PublishError> {
    let config = &stream.cached_info().config;
    if let Some(subject) = wanted.subjects.iter().find(|subject| !config.subjects.contains(subject)) {
        let text = format!("stream {} does not take {subject}", wanted.name);
        return Err(PublishError::Unavailable(text));
    }
    if config.no_ack {
        let text = format!("stream {} confirms nothing (no_ack)", wanted.name);
        return Err(PublishError::Unavailable(text));
    }
    Ok(())
}

pub(super) fn unavailable(what: &str, error: &dyn std::error::Error) -> PublishError {
    PublishError::Unavailable(format!("{what}: {error}"))
}
