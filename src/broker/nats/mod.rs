//! Publishes to NATS JetStream.
//!
//! An event's topic is its subject. The message is the data, with the attributes of CloudEvents as `ce-` headers
//! and the event's id as `Nats-Msg-Id`: a stream that has it already says "duplicate", which is a confirm. (What a person
//! has published again has [another one](Outgoing::copy_id), or the stream would pass it over.)
//!
//! **Order.** One task hands the events of all calls to one connection, in the order of the calls, and awaits
//! their confirms at the same time. A server takes a connection's messages in order, so what it has taken when the
//! connection is lost has no holes. For that a connection is never taken up again: the client's own reconnecting
//! would send what still waited in its queue after what went down with the old connection (see `identity.rs`).
//! The next event after a loss dials anew, once all that was under way has failed.
//!
//! | what | result | what follows |
//! |---|---|---|
//! | confirmed, also as a duplicate | `Ok` | |
//! | no stream takes the subject; the stream is full and discards new messages, or sealed | `Refused` | the queue's stream is looked at before the next event |
//! | nobody answers, but a stream takes the subject (it has no leader just now), or nobody says whether one does | `TopicUnavailable` | |
//! | larger than the server's `max_payload` or the stream's limit; a subject that can't be | `Never` | |
//! | no connection, lost, no confirm within `publish_timeout`; JetStream is off or has no room | `Unavailable` | the connection is given up, and all that waits fails |
//!
//! An event that was refused may be overtaken by later ones of its key that are in flight, when the reason goes
//! away in that moment. Sent again inside the stream's duplicate window those stay where they are; `ce-sequence`
//! tells.
//!
//! **What a confirm is worth** is the stream's business: on one server, JetStream writes a message to the file but
//! syncs the disk only every two minutes (`sync_interval`), so that a crash of the *machine* can lose what was
//! confirmed; three replicas don't.

mod courier;
mod identity;
mod link;
mod options;
mod owner;
pub mod subscriber;
mod subscription;
mod verdict;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

pub use self::options::{InvalidNats, MissingStream, NatsCredentials, NatsOptions, NatsStream};
pub use self::subscriber::NatsSubscriber;
pub use self::subscription::NatsSubscriberOptions;

use self::courier::{Courier, Errand, Job};
use super::waiters::Waiters;
use super::{Answer, Ordering, PublishError, Published, Publisher};
use crate::clock;
use crate::outbox::event::Outgoing;

/// Publishes to NATS JetStream. See the [module](self).
#[derive(Debug)]
pub struct NatsPublisher {
    waiters: Waiters,
    errands: mpsc::Sender<Errand>,
    publish_timeout: std::time::Duration,
}

impl NatsPublisher {
    /// Starts the publisher's task, on the runtime that calls. Does not connect: the first event does.
    ///
    /// # Errors
    /// If the options are wrong in themselves.
    pub fn new(options: NatsOptions) -> Result<Self, InvalidNats> {
        let addresses = options.addresses()?;
        if options.in_flight == 0 || options.queue == 0 {
            return Err(InvalidNats::NoRoom);
        }
        let (errands, waiting) = mpsc::channel(options.queue);
        let publish_timeout = options.publish_timeout;
        let waiters = Waiters::default();
        tokio::spawn(Courier::new(waiters.clone(), addresses, options, waiting).run());
        Ok(Self { waiters, errands, publish_timeout })
    }
}

impl Publisher for NatsPublisher {
    fn publish(&self, event: Outgoing) -> Answer {
        let (waiter, answer) = match self.waiters.join() {
            Ok(joined) => joined,
            Err(turned_away) => return turned_away,
        };
        if let Err(reason) = check_subject(&event.event.topic) {
            waiter.tell(Err(PublishError::Never(reason)));
            return answer;
        }
        let job = Job { event, until: clock::now() + self.publish_timeout, waiter };
        if let Err(refused) = self.errands.try_send(Errand::Publish(Box::new(job))) {
            let (reason, errand) = match refused {
                mpsc::error::TrySendError::Full(errand) => ("too many events wait", errand),
                mpsc::error::TrySendError::Closed(errand) => ("the publisher has been closed", errand),
            };
            errand.fail(reason);
        }
        answer
    }

    fn ordering(&self) -> Ordering {
        Ordering::ByCall
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let (done, closed) = oneshot::channel();
            // Who finds it closed already has nothing to wait for.
            if self.errands.send(Errand::Close(done)).await.is_ok() {
                closed.await.ok();
            }
        })
    }
}

/// What a subject may be that a message is *sent* to.
fn check_subject(subject: &str) -> Result<(), String> {
    let token = |token: &str| {
        !token.is_empty()
            && !matches!(token, "*" | ">")
            && !token.contains(|char: char| char.is_whitespace() || char.is_control())
    };
    if subject.split('.').all(token) { Ok(()) } else { Err(format!("{subject:?} is no subject to publish to")) }
}

/// Whether it is a subject to subscribe to, which may have wildcards.
fn is_filter(subject: &str) -> bool {
    let (last, before) = match subject.rsplit_once('.') {
        Some((before, last)) => (last, before),
        None => (subject, "_"),
    };
    let without = |token| if matches!(token, "*") { "_" } else { token };
    let plain: Vec<&str> = before.split('.').map(without).collect();
    let last = if last == ">" { "_" } else { without(last) };
    check_subject(&plain.join(".")).is_ok() && check_subject(last).is_ok()
}

/// What the courier tells of all that it can't send any more.
fn unavailable(reason: &str) -> Published {
    Err(PublishError::Unavailable(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_whole_tokens() {
        for subject in ["payments", "payments.*", "*.created", "payments.>", ">", "*", "a.*.c"] {
            assert!(is_filter(subject), "{subject}");
        }
        for subject in ["", ".", "a.", ".>", ">.a", "a.>.b", "a b", "a..*"] {
            assert!(!is_filter(subject), "{subject}");
        }
    }

    #[test]
    fn subjects_have_tokens_and_no_wildcards() {
        for subject in ["payments", "payments.created", "a.b-c_d.e*"] {
            assert_eq!(check_subject(subject), Ok(()), "{subject}");
        }
        for subject in ["", ".", "a.", ".a", "a..b", "a.*", "a.>", "a b", "a\r\nPUB b", "a\tb"] {
            assert!(check_subject(subject).is_err(), "{subject}");
        }
    }
}
