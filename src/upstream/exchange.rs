//! Sending a guarded request, and what came of it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response, StatusCode, header, request, response};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use tokio::time::sleep_until;

use super::buffered::{Buffered, Witness};
use super::connector::Connector;
use super::failure::{Failure, Verdict, judge, judge_silence, judge_time};
use super::options::{InvalidUpstream, UpstreamOptions};
use super::permit::Permit;
use super::pools::AllPools;
use super::targets::{Target, Targets, Tried};
use super::watched::abandoned;
use crate::clock;

/// How often one request is dialled again because the pooled connection it was given had been closed. The
/// pool may hold several such connections, but a server that closes every connection at once is not reached.
const REDIALS: u32 = 8;

/// The service behind us: its URLs and its connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Upstream(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    name: Box<str>,
    pub(super) targets: Targets,
    pub(super) pools: AllPools,
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
            pools: AllPools::new(connector, options),
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
    /// 2. Nothing is begun once `permit` is over: what has no connection by then is `NotSent`. What has begun has no
    ///    time-out. A caller that has waited long enough should go on polling the same future, so that a late answer
    ///    is still heard; dropping it closes the connection.
    /// 3. Another URL is tried only while nothing has been sent to any.
    ///
    /// The URI's scheme and authority and the `Host` field are replaced by those of the URL that is taken;
    /// extensions are not sent. Every other field goes out as it is.
    pub fn send(&self, request: Request<Bytes>, permit: Permit) -> impl Future<Output = Exchange> + Send + use<> {
        let inner = Arc::clone(&self.0);
        async move { inner.send(request, &permit).await }
    }
}

impl Inner {
    async fn send(&self, request: Request<Bytes>, permit: &Permit) -> Exchange {
        let (parts, body) = request.into_parts();
        let mut tried = Tried::default();
        let mut last = None;
        while permit.holds()
            && let Some(index) = self.targets.pick(clock::now(), tried)
        {
            match self.send_to(self.targets.get(index), &parts, &body, permit).await {
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
        let none = || if permit.holds() { Failure::no_url() } else { Failure::no_time() };
        Exchange::NotSent(last.unwrap_or_else(none))
    }

    async fn send_to(&self, target: &Target, parts: &request::Parts, body: &Bytes, permit: &Permit) -> Attempt {
        let mut redials = REDIALS;
        loop {
            match self.send_once(target, parts, body, permit).await {
                Ok(response) => return Attempt::Done(answered(response)),
                Err(Verdict::Unsent(_)) if redials > 0 && permit.holds() => redials -= 1,
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
        permit: &Permit,
    ) -> Result<Response<Incoming>, Verdict> {
        let (mut request, witness) = copy(target, parts, body, permit);
        let connection = capture_connection(&mut request);
        let taken = connection.clone();
        let connected = || taken.connection_metadata().is_some();
        let mut answer = self.pools.here().guarded.request(request);
        // Looked at each time: the connection may come when this process wakes from a long sleep.
        let answer = poll_fn(|cx| match connected() || permit.holds() {
            true => answer.poll_unpin(cx).map_err(|error| judge(&error, witness.body_taken())),
            false => Poll::Ready(Err(judge_time(false))),
        });
        let too_late = async {
            sleep_until(permit.end()).await;
            match connected() {
                true if !witness.body_untouched() => std::future::pending().await,
                connected => judge_time(connected),
            }
        };
        // The witness is asked while the request still exists: what `select!` did not choose is dropped before
        // the chosen arm runs.
        let silence = async {
            let http2 = abandoned(connection).await;
            judge_silence(!http2 && !self.http2, witness.body_untouched())
        };
        tokio::select! {
            // In this order, so that an answer that has come is seen before the silence is judged.
            biased;
            answer = answer => answer,
            verdict = silence => Err(verdict),
            verdict = too_late => Err(verdict),
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
fn copy(target: &Target, parts: &request::Parts, body: &Bytes, permit: &Permit) -> (Request<Buffered>, Witness) {
    let (buffered, witness) = Buffered::new(&parts.method, body.clone(), permit.clone());
    let mut request = Request::new(buffered);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = target.uri(parts.uri.path_and_query().cloned());
    request.headers_mut().clone_from(&parts.headers);
    request.headers_mut().insert(header::HOST, target.host.clone());
    if body.is_empty() {
        // As long as the body itself says when the head is written.
        request.headers_mut().remove(header::CONTENT_LENGTH);
    }
    (request, witness)
}
