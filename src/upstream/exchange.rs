//! Sending a guarded request, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header, request, response};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::buffered::{Buffered, Witness};
use super::connector::Connector;
use super::failure::{Failure, Verdict, judge, judge_silence};
use super::options::{InvalidUpstream, UpstreamOptions};
use super::streaming::Streamed;
use super::targets::{Target, Targets, Tried};
use super::watched::abandoned;
use crate::clock;

/// How often one request is dialled again because the pooled connection it was given had been closed. The
/// pool may hold several such connections, but a server that closes every connection at once is not reached.
const REDIALS: u32 = 8;

/// How long an HTTP/2 connection in use may be silent before it is asked for a sign of life.
const HTTP2_PING_AFTER: Duration = Duration::from_secs(10);

/// The service behind us: its URLs and its connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Upstream(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    name: Box<str>,
    pub(super) targets: Targets,
    /// Guarded requests. The library's own retries are off, so that only this module decides.
    guarded: Client<Connector, Buffered>,
    /// Pass-through requests, with connections of their own so that neither kind starves the other. Here
    /// the library's retry is on, since nothing here can copy a streamed body: it sends again only what it
    /// got back unsent from a reused connection (rule 2 of [`super::failure`]).
    pub(super) streamed: Client<Connector, Streamed>,
    pub(super) timeout: Duration,
    /// HTTP/2 without negotiation.
    http2: bool,
}

/// What came of sending a request.
#[derive(Debug)]
pub enum Exchange {
    /// The upstream certainly has not acted on it.
    NotSent(Failure),
    /// It was sent, at least in part, and nobody knows what became of it.
    Lost(Failure),
    /// The upstream's answer: its head, and the body still to be read.
    Answered {
        /// The head.
        parts: response::Parts,
        /// The body as it comes; see [`super::read_answer`].
        body: Incoming,
    },
}

/// What became of one URL.
enum Attempt {
    /// Nothing was sent: another URL may be tried.
    Unreached(Failure),
    Done(Exchange),
}

impl Upstream {
    /// An upstream as configured. Opens no connection yet.
    ///
    /// # Errors
    /// If a URL or the file of certificate authorities can't be used.
    pub fn new(options: &UpstreamOptions) -> Result<Self, InvalidUpstream> {
        let connector = Connector::new(options)?;
        Ok(Self(Arc::new(Inner {
            name: options.name.clone(),
            targets: Targets::new(&options.urls, options.connect_timeout)?,
            guarded: client(options).retry_canceled_requests(false).build(connector.clone()),
            streamed: client(options).retry_canceled_requests(true).build(connector),
            timeout: options.timeout,
            http2: options.http2_prior_knowledge,
        })))
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Sends `request` and waits for the head of the answer, however long that takes.
    ///
    /// 1. Nothing happens before the future is polled first.
    /// 2. It has no time-out but the one for connecting. A caller that has waited long enough should go on
    ///    polling the same future, so that a late answer is still heard; dropping it closes the connection.
    /// 3. Another URL is tried only while nothing has been sent to any.
    ///
    /// The URI's scheme and authority and the `Host` field are replaced by those of the URL that is taken;
    /// extensions are not sent. Every other field goes out as it is.
    pub fn send(&self, request: Request<Bytes>) -> impl Future<Output = Exchange> + Send + use<> {
        let inner = Arc::clone(&self.0);
        async move { inner.send(request).await }
    }
}

impl Inner {
    async fn send(&self, request: Request<Bytes>) -> Exchange {
        let (parts, body) = request.into_parts();
        let mut tried = Tried::default();
        let mut last = None;
        while let Some(index) = self.targets.pick(clock::now(), tried) {
            match self.send_to(self.targets.get(index), &parts, &body).await {
                Attempt::Done(exchange) => {
                    self.targets.reached(index);
                    return exchange;
                }
                Attempt::Unreached(failure) => {
                    self.left_out(index, &failure);
                    tried.add(index);
                    last = Some(failure);
                }
            }
        }
        Exchange::NotSent(last.unwrap_or_else(Failure::no_url))
    }

    async fn send_to(&self, target: &Target, parts: &request::Parts, body: &Bytes) -> Attempt {
        let mut redials = REDIALS;
        loop {
            match self.send_once(target, parts, body).await {
                Ok(response) => return Attempt::Done(answered(response)),
                Err(Verdict::Unsent(_)) if redials > 0 => redials -= 1,
                Err(Verdict::NoConnection(failure) | Verdict::Unsent(failure)) => return Attempt::Unreached(failure),
                Err(Verdict::Unprocessed(failure)) => return Attempt::Done(Exchange::NotSent(failure)),
                Err(Verdict::Lost(failure)) => return Attempt::Done(Exchange::Lost(failure)),
            }
        }
    }

    async fn send_once(
        &self,
        target: &Target,
        parts: &request::Parts,
        body: &Bytes,
    ) -> Result<Response<Incoming>, Verdict> {
        let (mut request, witness) = copy(target, parts, body);
        let connection = capture_connection(&mut request);
        // The witness is asked while the request still exists: what `select!` did not choose is dropped before
        // the chosen arm runs.
        let silence = async {
            let http2 = abandoned(connection).await;
            judge_silence(!http2 && !self.http2, witness.body_untouched())
        };
        tokio::select! {
            // In this order, so that an answer that has come is seen before the silence is judged.
            biased;
            answer = self.guarded.request(request) => answer.map_err(|error| judge(&error, witness.body_taken())),
            verdict = silence => Err(verdict),
        }
    }

    /// Notes that the URL could not be reached.
    pub(super) fn left_out(&self, index: usize, failure: &Failure) {
        tracing::warn!(upstream = %self.name, url = index, %failure, "upstream URL can't be reached, left out for a while");
        self.targets.failed(index, clock::now(), rand::random());
    }
}

fn answered(response: Response<Incoming>) -> Exchange {
    let (parts, body) = response.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return Exchange::Lost(Failure::unasked_upgrade());
    }
    Exchange::Answered { parts, body }
}

/// The parts are kept for the next dial or the next URL, so what is sent is a copy. The body is shared.
fn copy(target: &Target, parts: &request::Parts, body: &Bytes) -> (Request<Buffered>, Witness) {
    let (body, witness) = Buffered::new(&parts.method, body.clone());
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = target.uri(parts.uri.path_and_query().cloned());
    request.headers_mut().clone_from(&parts.headers);
    request.headers_mut().insert(header::HOST, target.host.clone());
    (request, witness)
}

fn client(options: &UpstreamOptions) -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        // Without its timer the pool would notice idle connections only when it hands them out.
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(options.idle_timeout)
        .pool_max_idle_per_host(options.max_idle_per_host)
        .http2_only(options.http2_prior_knowledge)
        .http2_keep_alive_interval(HTTP2_PING_AFTER)
        .set_host(false);
    builder
}
