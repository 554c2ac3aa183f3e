//! Publishes by HTTP: a POST to an endpoint, signed by Standard Webhooks 1.0.
//!
//! An event goes to the queue's URL; a topic that is not empty is a path below it (`https://host/hooks` and
//! `payments/created`: `https://host/hooks/payments/created`). The body is the event as CloudEvents' JSON. The
//! signature covers it, the id, which is the event's in each try, and the time of the try:
//!
//! ```text
//! content-type: application/cloudevents+json
//! webhook-id: 8f14e45fceea167a5a36dedd4bea2543
//! webhook-timestamp: 1772368496
//! webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
//! ```
//!
//! | answer | result | why |
//! |---|---|---|
//! | 2xx | `Ok` | the body is not looked at |
//! | 413, 422, and 400 with a JSON body | `Never` | the endpoint has looked at this event |
//! | any other: 400, 401, 403, 404, 405, 410, 415, 5xx, redirects, ... | `Refused` | a proxy on the way, a deploy gone wrong, an endpoint that is overloaded: nothing that should park every event at once. Redirects are not followed: what is signed for one host is not for another |
//! | 429, 502, 503, 504, none in time, or the connection was cut after sending, twice in a row | `Refused` | the endpoint may choke on just this event: an attempt counts, or one event would stop the queue for ever |
//! | the same, and another event of its topic has heard just that, with no other answer to one of them since | `TopicUnavailable` | its path as a whole is down or overloaded, others may not be; but each fifth time in a row of the same event `Refused` |
//! | no connection, also after one was cut | `Unavailable` | the endpoint is down |
//!
//! Events of a key go one by one, since nothing orders two requests.
//!
//! The URL is the operator's and may name any host: private networks are not shut out. Don't let others choose it.

mod endpoint;
mod secret;
mod silence;
mod verdict;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, header};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout_at;
use tokio_util::task::TaskTracker;

pub use self::secret::{InvalidSecret, WebhookSecret};

use self::endpoint::Endpoint;
use self::silence::Silence;
use super::{Answer, Hidden, OptionsError, Ordering, PublishError, Published, Publisher, cloud_events};
use crate::clock::{self, Instant};
use crate::outbox::event::{EventId, Outgoing};
use crate::upstream::{Exchange, InvalidUpstream, Permit, Trust, Upstream, UpstreamOptions, read_answer};

/// How much of an answer's body is read and thrown away, so that its connection can be used again. Of a longer
/// one the connection is closed.
const DRAINED_BYTES: usize = 64 * 1024;

/// How long an answer's body may take. Nobody waits for it.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Settings of a webhook queue.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// Its name in logs.
    pub name: Box<str>,
    /// Where events are posted to, `https://host[:port][/path][?query]`. `http` is for endpoints on the same
    /// host, or on a network that is trusted.
    pub url: Hidden,
    /// What signs. While a secret changes there are two, and each signs.
    pub secrets: Vec<WebhookSecret>,
    /// The value of `Authorization`, where something in front of the endpoint wants one.
    pub authorization: Option<Hidden>,
    /// PEM file of the only certificate authorities that are trusted; `None`: the public ones.
    pub ca_file: Option<PathBuf>,
    /// PEM files of our certificate and its key, for endpoints that ask for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Bounds name look-up, TCP and TLS handshake together.
    pub connect_timeout: Duration,
    /// Bounds everything that can happen to an event. What the specification recommends is 15 s to 30 s.
    pub timeout: Duration,
    /// Requests at the same time. Further ones wait, within their time-out.
    pub in_flight: usize,
}

impl WebhookOptions {
    /// The defaults.
    #[must_use]
    pub fn new(name: &str, url: Hidden, secrets: Vec<WebhookSecret>) -> Self {
        Self {
            name: name.into(),
            url,
            secrets,
            authorization: None,
            ca_file: None,
            certificate: None,
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(15),
            in_flight: 64,
        }
    }
}

/// Why a webhook queue can't be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum InvalidWebhook {
    /// Not a URL to post to. It is not shown: it may hold a secret.
    #[error("a webhook's URL is https://host[:port][/path][?query], without a user or password")]
    Url,
    /// Nothing to sign with.
    #[error("a webhook has at least one secret")]
    NoSecret,
    /// No request may be made.
    #[error("a webhook has room for at least one request at a time")]
    NoRoom,
    /// The value of `Authorization` can't be sent.
    #[error("the value of `Authorization` is not one line of ASCII")]
    Authorization,
    /// The client can't be made.
    #[error(transparent)]
    Client(#[from] InvalidUpstream),
}

/// Publishes by HTTP. See the [module](self).
#[derive(Debug)]
pub struct WebhookPublisher {
    poster: Arc<Poster>,
    /// Requests that are under way.
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Poster {
    upstream: Upstream,
    endpoint: Endpoint,
    secrets: Vec<WebhookSecret>,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    room: Semaphore,
    silence: Mutex<Silence>,
}

impl WebhookPublisher {
    /// Does not connect: the first event does.
    ///
    /// # Errors
    /// If the options are wrong in themselves.
    pub fn new(options: WebhookOptions) -> Result<Self, InvalidWebhook> {
        let endpoint = Endpoint::parse(options.url.expose())?;
        if options.secrets.is_empty() {
            return Err(InvalidWebhook::NoSecret);
        }
        if options.in_flight == 0 {
            return Err(InvalidWebhook::NoRoom);
        }
        let upstream = UpstreamOptions {
            connect_timeout: options.connect_timeout,
            timeout: options.timeout,
            trust: options.ca_file.map_or(Trust::Public, Trust::Only),
            certificate: options.certificate,
            max_idle_per_host: options.in_flight,
            ..UpstreamOptions::new(&options.name, vec![endpoint.origin.clone()])
        };
        let poster = Poster {
            upstream: Upstream::new(&upstream)?,
            endpoint,
            secrets: options.secrets,
            authorization: options.authorization.map(|value| authorization(&value)).transpose()?,
            timeout: options.timeout,
            room: Semaphore::new(options.in_flight),
            silence: Mutex::default(),
        };
        Ok(Self { poster: Arc::new(poster), tasks: TaskTracker::new() })
    }
}

/// Why nothing can be subscribed to here.
#[must_use]
pub fn no_source() -> OptionsError {
    OptionsError("a webhook is where events are posted: nothing can be received from it".to_owned())
}

impl Publisher for WebhookPublisher {
    fn publish(&self, event: Outgoing) -> Answer {
        if self.tasks.is_closed() {
            return Box::pin(std::future::ready(unavailable("the publisher has been closed")));
        }
        let until = clock::now() + self.poster.timeout;
        let (caller, told) = oneshot::channel();
        self.tasks.spawn(Arc::clone(&self.poster).post(event, until, caller));
        Box::pin(async move { told.await.unwrap_or_else(|_| unavailable("the publisher has ended")) })
    }

    fn ordering(&self) -> Ordering {
        Ordering::OneByOne
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.tasks.close();
        Box::pin(self.tasks.wait())
    }
}

impl Poster {
    /// Tells `caller` what came of the event, and sees to the rest of the answer.
    async fn post(self: Arc<Self>, event: Outgoing, until: Instant, caller: oneshot::Sender<Published>) {
        let Ok(Ok(_room)) = timeout_at(until, self.room.acquire()).await else {
            caller.send(unavailable("too many requests are under way")).ok();
            return;
        };
        let request = match self.request(&event) {
            Ok(request) => request,
            Err(reason) => {
                caller.send(Err(PublishError::Never(reason))).ok();
                return;
            }
        };
        let event = (&*event.event.topic, event.event.id);
        match timeout_at(until, self.send(request, Permit::until(until))).await {
            Ok(Exchange::Answered { parts, body }) if verdict::is_silence(parts.status) => {
                caller.send(self.unanswered(event, verdict::text(parts.status, &parts.headers))).ok();
                read_answer(body, DRAINED_BYTES, clock::now() + DRAIN_TIME).await;
            }
            Ok(Exchange::Answered { parts, body }) => {
                self.silence().ends(event.0);
                caller.send(verdict::of(parts.status, &parts.headers)).ok();
                read_answer(body, DRAINED_BYTES, clock::now() + DRAIN_TIME).await;
            }
            Ok(Exchange::NotSent(failure)) => {
                caller.send(unavailable(&failure.to_string())).ok();
            }
            Ok(Exchange::Lost(failure)) => {
                caller.send(self.unanswered(event, failure.to_string())).ok();
            }
            Err(_elapsed) => {
                caller.send(self.unanswered(event, "no answer in time".to_owned())).ok();
            }
        }
    }

    /// What to say of an event that the endpoint has not spoken about.
    fn unanswered(&self, (topic, id): (&str, EventId), reason: String) -> Published {
        Err(match self.silence().met(topic, id) {
            true => PublishError::TopicUnavailable(reason),
            false => PublishError::Refused(reason),
        })
    }

    /// Whole after every step.
    fn silence(&self) -> std::sync::MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends once more when the connection is cut: that tells an endpoint that is down from one that chokes on
    /// this event. It has the same id, should the endpoint get it twice.
    async fn send(&self, request: Request<Bytes>, permit: Permit) -> Exchange {
        match self.upstream.send(request.clone(), permit.clone()).await {
            Exchange::Lost(_) => self.upstream.send(request, permit).await,
            exchange @ (Exchange::NotSent(_) | Exchange::Answered { .. }) => exchange,
        }
    }

    fn request(&self, event: &Outgoing) -> Result<Request<Bytes>, String> {
        let uri = self.endpoint.target(&event.event.topic)?;
        let body = cloud_events::structured(event);
        let (id, timestamp) = (event.event.id.to_string(), clock::wall().0 / 1000);
        let signatures = secret::signatures(&self.secrets, &id, timestamp, &body);
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(header::CONTENT_TYPE, cloud_events::STRUCTURED)
            .header(header::USER_AGENT, concat!("oncegate/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signatures)
            .body(body);
        let mut request = request.map_err(|error| error.to_string())?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
        }
        Ok(request)
    }
}

fn authorization(value: &Hidden) -> Result<HeaderValue, InvalidWebhook> {
    let mut value = HeaderValue::from_str(value.expose()).map_err(|_| InvalidWebhook::Authorization)?;
    value.set_sensitive(true);
    Ok(value)
}

fn unavailable(reason: &str) -> Published {
    Err(PublishError::Unavailable(reason.to_owned()))
}
