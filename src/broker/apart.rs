//! Topics that are ill while their broker is well, each over a connection of its own.
//!
//! On a connection, what is behind an event without a confirm fails with it, or it would pass it. So an event that
//! waits in vain (for a queue without its majority, for a partition without a leader) takes down what goes
//! elsewhere, each time that it is tried. Where that happens, somebody asks whether the broker is there at all:
//!
//! | the event | the broker | result | afterwards |
//! |---|---|---|---|
//! | not confirmed in time | does not answer | `Unavailable` | |
//! | not confirmed in time | answers | `TopicUnavailable` | its topic is published to apart from the others |
//! | of a topic that is apart, not confirmed in time, or its connection is lost | does not answer | `Unavailable` | |
//! | the same | answers | `TopicUnavailable` | |
//! | of a topic that has been apart, and well, for long | | its own | its topic is published to with the others again |
//!
//! **Order.** Until the caller of an event has heard that it failed so, events of its topic are turned away. So none
//! of its key goes over another connection before everybody knows.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, join_all};

use super::{Answer, PublishError, Published, Publisher};
use crate::clock::{self, Instant};
use crate::outbox::event::Outgoing;

/// The most topics that are apart, each with a connection. Where more are ill, it is the broker.
const MOST: usize = 16;

/// How long a topic stays apart after it was ill: longer than any pause between tries, so that one that is ill for
/// days takes the others down once.
const WELL_AFTER: Duration = Duration::from_secs(600);

/// Opens one more connection.
type Open = Box<dyn Fn() -> Option<Arc<dyn Publisher>> + Send + Sync>;

/// Asks whether the broker answers at all, over a connection of its own, within a bounded time.
type Ask = Box<dyn Fn(&str) -> BoxFuture<'static, bool> + Send + Sync>;

/// A publisher that takes events in the order of the calls, and others like it for topics that are ill.
#[derive(Clone)]
pub(super) struct Apart(Arc<Inner>);

struct Inner {
    /// Says `TopicUnavailable` of an event that was not confirmed in time, and `Unavailable` of what fails with it.
    main: Arc<dyn Publisher>,
    open: Open,
    ask: Ask,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that are ill, or were.
    topics: HashMap<Box<str>, Topic>,
    question: Option<Shared<BoxFuture<'static, bool>>>,
    is_closed: bool,
}

struct Topic {
    /// `None` until it is known that the broker answers.
    own: Option<Arc<dyn Publisher>>,
    /// Events of it that have no result, of those that were called since it is apart.
    open: usize,
    /// Failures of it that their callers have not heard of.
    unheard: usize,
    /// When it failed last.
    failed: Instant,
}

/// Where an event goes.
enum Place {
    Main,
    Own(Arc<dyn Publisher>, UnderWay),
    /// Nowhere now.
    TurnedAway,
}

impl Apart {
    pub(super) fn new(
        main: Arc<dyn Publisher>,
        open: impl Fn() -> Option<Arc<dyn Publisher>> + Send + Sync + 'static,
        ask: impl Fn(&str) -> BoxFuture<'static, bool> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner { main, open: Box::new(open), ask: Box::new(ask), state: Mutex::default() }))
    }

    /// See [`Publisher::publish`].
    pub(super) fn publish(&self, event: Outgoing) -> Answer {
        let this = self.clone();
        let topic = event.event.topic.clone();
        match self.place(&topic) {
            Place::Main => {
                let answer = self.0.main.publish(event);
                Box::pin(async move {
                    match answer.await {
                        Err(PublishError::TopicUnavailable(reason)) => this.failed(topic, reason).await,
                        other => other,
                    }
                })
            }
            Place::Own(own, open) => {
                let answer = own.publish(event);
                Box::pin(async move {
                    let _open = open;
                    match answer.await {
                        Err(PublishError::TopicUnavailable(reason) | PublishError::Unavailable(reason)) => {
                            this.failed(topic, reason).await
                        }
                        other => other,
                    }
                })
            }
            Place::TurnedAway => Box::pin(std::future::ready(Err(PublishError::TopicUnavailable(
                "an event before it failed just now".to_owned(),
            )))),
        }
    }

    fn place(&self, name: &str) -> Place {
        let mut state = self.state();
        // Mostly none is ill.
        if state.topics.is_empty() {
            return Place::Main;
        }
        let Some(topic) = state.topics.get_mut(name) else { return Place::Main };
        if topic.unheard > 0 {
            return Place::TurnedAway;
        }
        let is_over = topic.open == 0 && topic.failed + WELL_AFTER <= clock::now();
        match &topic.own {
            Some(own) if !is_over => {
                topic.open += 1;
                let open = UnderWay { apart: self.clone(), topic: name.into() };
                Place::Own(Arc::clone(own), open)
            }
            Some(_) | None => {
                let own = state.topics.remove(name).and_then(|topic| topic.own);
                drop(state);
                if let Some(own) = own {
                    tokio::spawn(async move { own.close().await });
                }
                Place::Main
            }
        }
    }

    /// What to say of an event of `topic` that has waited in vain.
    async fn failed(self, topic: Box<str>, reason: String) -> Published {
        let _unheard = self.note_failure(&topic);
        if self.question(&topic).await && self.set_apart(&topic) {
            return Err(PublishError::TopicUnavailable(reason));
        }
        Err(PublishError::Unavailable(reason))
    }

    fn note_failure(&self, name: &str) -> Unheard {
        let failed = clock::now();
        let mut state = self.state();
        let ill = || Topic { own: None, open: 0, unheard: 0, failed };
        let topic = state.topics.entry(name.into()).or_insert_with(ill);
        topic.unheard += 1;
        topic.failed = failed;
        Unheard { apart: self.clone(), topic: name.into() }
    }

    /// One question at a time, for all that wait in vain.
    fn question(&self, topic: &str) -> Shared<BoxFuture<'static, bool>> {
        let mut state = self.state();
        match &state.question {
            Some(asked) if asked.peek().is_none() => asked.clone(),
            Some(_) | None => {
                let asked = (self.0.ask)(topic).shared();
                state.question = Some(asked.clone());
                asked
            }
        }
    }

    /// Whether the topic is apart from now on.
    fn set_apart(&self, name: &str) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        let apart = state.topics.values().filter(|topic| topic.own.is_some()).count();
        let Some(topic) = state.topics.get_mut(name) else { return false };
        if topic.own.is_none() && apart < MOST {
            topic.own = (self.0.open)();
            if topic.own.is_some() {
                tracing::warn!(topic = name, "a topic is not available while its broker is; others go on without it");
            }
        }
        topic.own.is_some()
    }

    /// See [`Publisher::close`].
    pub(super) fn close(&self) -> BoxFuture<'_, ()> {
        let mut publishers = vec![Arc::clone(&self.0.main)];
        let mut state = self.state();
        state.is_closed = true;
        publishers.extend(state.topics.values().filter_map(|topic| topic.own.clone()));
        drop(state);
        Box::pin(async move {
            join_all(publishers.iter().map(|publisher| publisher.close())).await;
        })
    }

    /// Whole after every step.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event of a topic that is apart, until it has a result.
struct UnderWay {
    apart: Apart,
    topic: Box<str>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(topic) = self.apart.state().topics.get_mut(&self.topic) {
            topic.open = topic.open.saturating_sub(1);
        }
    }
}

/// Lasts until a caller has heard of a failure, or has stopped listening.
struct Unheard {
    apart: Apart,
    topic: Box<str>,
}

impl Drop for Unheard {
    fn drop(&mut self) {
        let mut state = self.apart.state();
        let Some(topic) = state.topics.get_mut(&self.topic) else { return };
        topic.unheard -= 1;
        // It was the broker.
        if topic.unheard == 0 && topic.own.is_none() {
            state.topics.remove(&self.topic);
        }
    }
}

impl fmt::Debug for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apart").field("apart", &self.state().topics.len()).finish_non_exhaustive()
    }
}
