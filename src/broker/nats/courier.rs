//! The task that takes events to the server.

use std::sync::Arc;

use async_nats::jetstream::context::{Context, PublishAckFuture, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::{HeaderMap, ServerAddr};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::link::{self, Link};
use super::options::NatsOptions;
use super::owner::Owners;
use super::{unavailable, verdict};
use crate::broker::waiters::{Waiter, Waiters};
use crate::broker::{CONFIRMED, PublishError, Published, cloud_events};
use crate::clock::Instant;
use crate::outbox::event::Outgoing;

/// What the courier is asked to do.
#[derive(Debug)]
pub(super) enum Errand {
    Publish(Box<Job>),
    /// Ends once everything before it has its result.
    Close(oneshot::Sender<()>),
}

/// One event on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) event: Outgoing,
    /// Then it has failed, wherever it is.
    pub(super) until: Instant,
    pub(super) waiter: Waiter,
}

/// What an event's confirm is awaited with.
struct HandedOver {
    ack: PublishAckFuture,
    /// Cancelled when the link is given up that it went over.
    gone: CancellationToken,
    context: Context,
    owners: Arc<Owners>,
}

/// An event that is being sent, until its confirm or failure, and the end of the link that it was sent over.
type Sent = BoxFuture<'static, (Published, Waiter, CancellationToken)>;

pub(super) struct Courier {
    waiters: Waiters,
    addresses: Vec<ServerAddr>,
    options: NatsOptions,
    errands: mpsc::Receiver<Errand>,
    /// `None`: the next event dials.
    link: Option<Link>,
    sent: FuturesUnordered<Sent>,
}

impl Errand {
    pub(super) fn fail(self, reason: &str) {
        match self {
            Self::Publish(job) => job.waiter.tell(unavailable(reason)),
            // Dropped, which says that the courier has ended.
            Self::Close(_) => {}
        }
    }
}

impl Courier {
    pub(super) fn new(
        waiters: Waiters,
        addresses: Vec<ServerAddr>,
        options: NatsOptions,
        errands: mpsc::Receiver<Errand>,
    ) -> Self {
        Self { waiters, addresses, options, errands, link: None, sent: FuturesUnordered::new() }
    }

    /// Ends with the publisher, or when it is told to.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                // Confirms first: they make room.
                biased;
                Some((published, waiter, link)) = self.sent.next() => self.confirmed(published, waiter, &link),
                errand = self.errands.recv(), if self.sent.len() < self.options.in_flight => match errand {
                    Some(Errand::Publish(job)) => self.send(*job).await,
                    Some(Errand::Close(done)) => return self.end(Some(done)).await,
                    None => return self.end(None).await,
                },
            }
        }
    }

    async fn send(&mut self, job: Job) {
        let Job { event, until, waiter } = job;
        if waiter.is_too_late() {
            return waiter.tell(unavailable("the connection failed under an event before it"));
        }
        match timeout_at(until, self.hand_over(&event)).await {
            Ok(Ok(sent)) => self.sent.push(Box::pin(confirm(sent, event.event.topic, until, waiter))),
            Ok(Err(error)) => self.conclude(Err(error), waiter),
            Err(_elapsed) => self.conclude(unavailable("not sent in time"), waiter),
        }
    }

    /// Dials where there is no connection and nothing under way, and hands the event over to it.
    async fn hand_over(&mut self, event: &Outgoing) -> Result<HandedOver, PublishError> {
        let link = match &mut self.link {
            Some(link) if link.is_up() => link,
            // What went down with the connection must not be overtaken by this one on the next.
            _ if !self.sent.is_empty() => return Err(PublishError::Unavailable("the connection is lost".to_owned())),
            lost => {
                *lost = None;
                let link = Link::dial(&self.addresses, &self.options).await;
                lost.insert(link.map_err(|error| link::unavailable("can't connect", &error))?)
            }
        };
        link.ensure(self.options.stream.as_ref()).await?;
        let ack = link.send(&event.event.topic, message(event)).await?;
        Ok(HandedOver { ack, gone: link.gone(), context: link.context().clone(), owners: link.owners() })
    }

    /// Concludes an event that was sent. The failure of a link that has been given up says nothing of the one
    /// that there is now.
    fn confirmed(&mut self, published: Published, waiter: Waiter, link: &CancellationToken) {
        if link.is_cancelled() { waiter.tell(published) } else { self.conclude(published, waiter) }
    }

    /// Tells the caller, and draws the consequences for the connection and for what waits.
    fn conclude(&mut self, published: Published, waiter: Waiter) {
        match published {
            Err(PublishError::Refused(_)) => {
                if let Some(link) = &mut self.link {
                    link.stream_is_missing();
                }
                waiter.tell(published);
            }
            Err(failure @ PublishError::Unavailable(_)) => {
                self.waiters.break_off(waiter, failure);
                // What was sent over it fails with it.
                self.link = None;
            }
            // It was about the event alone.
            Ok(_) | Err(_) => waiter.tell(published),
        }
    }

    async fn end(mut self, done: Option<oneshot::Sender<()>>) {
        self.errands.close();
        while let Ok(errand) = self.errands.try_recv() {
            errand.fail("the publisher has been closed");
        }
        while let Some((published, waiter, _link)) = self.sent.next().await {
            waiter.tell(published);
        }
        self.link = None;
        if let Some(done) = done {
            done.send(()).ok();
        }
    }
}

/// Awaits the confirm.
async fn confirm(
    HandedOver { ack, gone, context, owners }: HandedOver,
    subject: Box<str>,
    until: Instant,
    waiter: Waiter,
) -> (Published, Waiter, CancellationToken) {
    let answer = async {
        match ack.await {
            // A duplicate is there already, by an earlier try.
            Ok(_ack) => CONFIRMED,
            Err(error) if error.kind() == PublishErrorKind::StreamNotFound => {
                Err(owners.verdict(&context, &subject, error.to_string()).await)
            }
            Err(error) => Err(verdict::of(&error)),
        }
    };
    let published = tokio::select! {
        // A confirm that is there counts, whatever has become of the connection since.
        biased;
        answer = answer => answer,
        () = gone.cancelled() => unavailable("the connection failed under it"),
        () = sleep_until(until) => unavailable("no confirm in time"),
    };
    (published, waiter, gone)
}

fn message(event: &Outgoing) -> PublishMessage {
    let mut headers = HeaderMap::new();
    for (name, value) in cloud_events::attributes(event) {
        headers.insert(format!("ce-{name}"), &*cloud_events::header_text(&value));
    }
    if !event.event.content_type.is_empty() {
        headers.insert("content-type", &*cloud_events::header_text(&event.event.content_type));
    }
    // Last, since it sets one header of those that are there.
    PublishMessage::build().payload(event.event.data.clone()).headers(headers).message_id(event.copy_id())
}
