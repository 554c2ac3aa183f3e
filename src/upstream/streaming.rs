//! Pass-through: both bodies flow as they come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Version, header};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::exchange::{Inner, Upstream};
use super::failure::{Failure, Verdict, judge};
use super::splice::{Client, Held, splice};
use super::targets::Tried;
use crate::clock;

/// Why a streamed request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum StreamFailure {
    /// The upstream certainly has not acted on it.
    #[error("not sent: {0}")]
    NotSent(Failure),
    /// It was sent, at least in part.
    #[error("lost: {0}")]
    Lost(Failure),
    /// The upstream had all it was sent and did not answer in time.
    #[error("no answer within the time-out")]
    TimedOut,
}

impl Upstream {
    /// Forwards `request` as it comes and gives back the answer as it comes.
    ///
    /// 1. Bodies stream both ways with their trailers. The client's body is first asked for once there is a
    ///    connection to the upstream, which is also when hyper answers `Expect: 100-continue`.
    /// 2. When the client asks to upgrade and the upstream answers 101, the two connections are joined; the
    ///    caller only has to pass the answer on with its `Connection` and `Upgrade` fields.
    /// 3. The time-out bounds the wait for the head of the answer, and starts anew with each piece of body
    ///    that the upstream takes. Nothing bounds the body of the answer: it may be an event stream.
    /// 4. Another URL is tried only while nothing has been sent, and only without a body to stream.
    ///
    /// The URI's scheme and authority and the `Host` field are replaced by those of the URL that is taken.
    /// Everything else in the head goes out as it is: hop-by-hop fields are the caller's business.
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn forward_streaming(&self, mut request: Request<Body>) -> Result<Response<Incoming>, StreamFailure> {
        let inner = &*self.0;
        let upgrade = take_upgrade(&mut request);
        *request.version_mut() = Version::HTTP_11;
        let spare = Spare::of(&request, inner.targets.len());
        let mut tried = Tried::default();
        let mut last = None;
        while let Some(index) = inner.targets.pick(clock::now(), tried) {
            let failure = match inner.stream_to(index, request).await {
                Ok(response) => return join(upgrade, response),
                Err(Missed::Sent(failure)) => return Err(failure),
                Err(Missed::Unreached(failure)) => failure,
            };
            tried.add(index);
            match spare.copy() {
                Some(copy) => request = copy,
                None => return Err(StreamFailure::NotSent(failure)),
            }
            last = Some(failure);
        }
        Err(StreamFailure::NotSent(last.unwrap_or_else(Failure::no_url)))
    }
}

/// Why one URL gave no answer.
enum Missed {
    /// Nothing was sent: another URL may be tried.
    Unreached(Failure),
    Sent(StreamFailure),
}

impl Inner {
    async fn stream_to(&self, index: usize, mut request: Request<Body>) -> Result<Response<Incoming>, Missed> {
        let target = self.targets.get(index);
        *request.uri_mut() = target.uri(request.uri().path_and_query().cloned());
        request.headers_mut().insert(header::HOST, target.host.clone());
        let progress = (!request.body().is_end_stream()).then(Arc::<Notify>::default);
        let request = request.map(|body| Streamed { body, progress: progress.clone() });
        let answer = self.pools.here().streamed.request(request);
        let answer = match progress {
            None => timeout(self.timeout, answer).await.ok(),
            Some(progress) => within(self.timeout, &progress, answer).await,
        };
        match answer {
            None => Err(Missed::Sent(StreamFailure::TimedOut)),
            Some(Err(error)) => Err(self.missed(index, &error)),
            Some(Ok(response)) => {
                self.targets.reached(index);
                Ok(response)
            }
        }
    }

    fn missed(&self, index: usize, error: &legacy::Error) -> Missed {
        match judge(error, false) {
            Verdict::NoConnection(failure) => {
                self.left_out(index, &failure);
                Missed::Unreached(failure)
            }
            Verdict::Unsent(failure) | Verdict::Unprocessed(failure) => Missed::Sent(StreamFailure::NotSent(failure)),
            Verdict::Lost(failure) => Missed::Sent(StreamFailure::Lost(failure)),
        }
    }
}

/// Waits for `answer`, at most `limit` from the last piece of body that was taken.
async fn within<A>(limit: Duration, progress: &Notify, answer: impl Future<Output = A>) -> Option<A> {
    let mut answer = std::pin::pin!(answer);
    let mut late = std::pin::pin!(tokio::time::sleep(limit));
    loop {
        tokio::select! {
            answer = &mut answer => return Some(answer),
            () = progress.notified() => late.as_mut().reset(clock::now() + limit),
            () = &mut late => return None,
        }
    }
}

/// The client's side of an upgrade, if it asks for one.
fn take_upgrade(request: &mut Request<Body>) -> Option<Client> {
    let asked = request.headers().contains_key(header::UPGRADE);
    let upgrade = asked.then(|| request.extensions_mut().remove::<OnUpgrade>()).flatten()?;
    Some(Client { upgrade, held: request.extensions_mut().remove::<Held>() })
}

fn join(client: Option<Client>, mut response: Response<Incoming>) -> Result<Response<Incoming>, StreamFailure> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let client = client.ok_or_else(|| StreamFailure::Lost(Failure::unasked_upgrade()))?;
        splice(client, hyper::upgrade::on(&mut response));
    }
    Ok(response)
}

/// What is needed to try another URL: the head, where there is another URL and no body.
struct Spare(Option<Request<()>>);

impl Spare {
    fn of(request: &Request<Body>, urls: usize) -> Self {
        Self((urls > 1 && request.body().is_end_stream()).then(|| with_head_of(request, ())))
    }

    fn copy(&self) -> Option<Request<Body>> {
        self.0.as_ref().map(|head| with_head_of(head, Body::empty()))
    }
}

fn with_head_of<A, B>(request: &Request<A>, body: B) -> Request<B> {
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    copy.headers_mut().clone_from(request.headers());
    copy
}

/// The client's body on its way to the upstream.
#[derive(Debug)]
pub(super) struct Streamed {
    body: Body,
    /// Told of each piece that is taken.
    progress: Option<Arc<Notify>>,
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready()
            && let Some(progress) = &self.progress
        {
            progress.notify_one();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
