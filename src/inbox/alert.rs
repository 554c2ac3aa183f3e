//! Telling people that a subscription needs them: once per episode, not per message.
//!
//! | from | by | to | told |
//! |---|---|---|---|
//! | well | the handler refuses everything (404, 401, ...) | ill | at once: it is paused |
//! | well | the handler can't be reached, or our own store | ill | nothing yet: a restart takes seconds |
//! | ill, untold | the same, a minute later | ill | it is paused |
//! | ill | the handler says something about a message | well | nothing yet: one that flaps is told of once |
//! | well, told | the same, a minute later | well, untold | it goes on |
//! | any | dead letters where there were none | the same | how many there are |
//! | any | more of them, an hour later | the same | how many there are |

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, header};
use serde_json::json;
use tokio::time::timeout;

use crate::clock::{self, Instant};
use crate::upstream::{Exchange, Permit, Upstream, read_answer};

/// How long a handler may be out of reach before anybody is told: longer than a restart.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a handler must be well until it is told that deliveries go on: a process of several that refuses while the
/// others answer would else be told of with each message.
const CALM: Duration = Duration::from_secs(60);

/// How long dead letters that were told of stay quiet, though there are more.
const REMIND: Duration = Duration::from_secs(3600);

/// How long a call to whoever is alerted may take. Nobody waits for it.
const CALL: Duration = Duration::from_secs(10);

/// How much of the answer is read, so that the connection can be used again.
const ANSWER_BYTES: usize = 16 * 1024;

/// Something that people are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Nothing is delivered any more, and why.
    Paused(Box<str>),
    /// Deliveries go on.
    Resumed,
    /// So many messages wait for a person.
    DeadLetters(u64),
    /// Nothing is received any more, and why.
    Stuck(Box<str>),
}

/// How the handler was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// It said something about a message, good or bad.
    Well,
    /// It is not the handler that answers, or not for us: waiting won't help.
    Refuses,
    /// Nobody answers; it may come back by itself.
    Away,
}

/// What was told, and what is going on.
#[derive(Debug, Default)]
struct Episode {
    ill_since: Option<Instant>,
    /// Since when it has been well, where it has been ill.
    well_since: Option<Instant>,
    /// Whether people believe that nothing is delivered.
    is_told: bool,
    /// How many dead letters were told of, and when.
    dead: Option<(u64, Instant)>,
}

impl Episode {
    fn found(&mut self, sign: Sign, reason: &str, now: Instant) -> Option<News> {
        if sign == Sign::Well {
            self.ill_since = None;
            self.well_since.get_or_insert(now);
            return self.calmed(now);
        }
        self.well_since = None;
        let since = *self.ill_since.get_or_insert(now);
        let is_due = sign == Sign::Refuses || now.duration_since(since) >= PATIENCE;
        if !is_due || self.is_told {
            return None;
        }
        self.is_told = true;
        Some(News::Paused(reason.into()))
    }

    /// Whether it is time to tell that deliveries go on.
    fn calmed(&mut self, now: Instant) -> Option<News> {
        let is_calm = self.well_since.is_some_and(|since| now.duration_since(since) >= CALM);
        (is_calm && std::mem::take(&mut self.is_told)).then_some(News::Resumed)
    }

    fn dead_letters(&mut self, count: u64, now: Instant) -> Option<News> {
        let is_news = match self.dead {
            _ if count == 0 => {
                self.dead = None;
                false
            }
            None => true,
            Some((told, at)) => count > told && now.duration_since(at) >= REMIND,
        };
        if is_news {
            self.dead = Some((count, now));
        }
        is_news.then_some(News::DeadLetters(count))
    }
}

/// Tells of one subscription: by a log line, by metrics, and by a call to a URL where there is one.
#[derive(Clone)]
pub struct Alerts(Arc<Inner>);

struct Inner {
    subscription: Box<str>,
    episode: Mutex<Episode>,
    bell: Option<Bell>,
    paused: metrics::Gauge,
}

/// Where news are posted to.
#[derive(Debug, Clone)]
pub struct Bell {
    /// The host.
    pub upstream: Upstream,
    /// The path and query.
    pub target: Uri,
}

impl fmt::Debug for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alerts").field("subscription", &self.0.subscription).finish_non_exhaustive()
    }
}

impl Alerts {
    /// Tells of `subscription`.
    #[must_use]
    pub fn new(subscription: &str, bell: Option<Bell>) -> Self {
        let paused = metrics::gauge!("oncegate_subscription_paused", "subscription" => String::from(subscription));
        paused.set(0.0);
        Self(Arc::new(Inner { subscription: subscription.into(), episode: Mutex::default(), bell, paused }))
    }

    /// Notes how the handler was found.
    pub(super) fn found(&self, sign: Sign, reason: &str) {
        let inner = &self.0;
        let news = inner.episode().found(sign, reason, clock::now());
        inner.paused.set(if sign == Sign::Well { 0.0 } else { 1.0 });
        self.tell(news);
    }

    /// Notes how many messages wait for a person. Called now and then, it also finds that an episode is over.
    pub fn dead_letters(&self, count: u64) {
        let now = clock::now();
        let news = {
            let mut episode = self.0.episode();
            [episode.calmed(now), episode.dead_letters(count, now)]
        };
        news.into_iter().for_each(|news| self.tell(news));
    }

    /// Tells that receiving can't go on without a person. The caller says so once.
    pub(super) fn stuck(&self, reason: &str) {
        self.tell(Some(News::Stuck(reason.into())));
    }

    fn tell(&self, news: Option<News>) {
        let Some(news) = news else { return };
        let subscription = &self.0.subscription;
        match &news {
            News::Paused(reason) => {
                tracing::error!(%subscription, %reason, "nothing is delivered until the handler answers for itself");
            }
            News::Resumed => tracing::info!(%subscription, "deliveries go on"),
            News::DeadLetters(count) => {
                tracing::error!(%subscription, count, "messages can't be handled, and wait for a person");
            }
            News::Stuck(reason) => {
                tracing::error!(%subscription, %reason, "nothing more is received until a person has seen to it");
            }
        }
        if let Some(bell) = &self.0.bell {
            // In a task of its own: whoever does not answer delays nobody.
            tokio::spawn(bell.clone().ring(subscription.clone(), news));
        }
    }
}

impl Inner {
    fn episode(&self) -> std::sync::MutexGuard<'_, Episode> {
        self.episode.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl News {
    /// In one word, for programs.
    fn word(&self) -> &'static str {
        match self {
            Self::Paused(_) => "paused",
            Self::Resumed => "resumed",
            Self::DeadLetters(_) => "dead_letters",
            Self::Stuck(_) => "stuck",
        }
    }

    fn text(&self, subscription: &str) -> String {
        match self {
            Self::Paused(reason) => format!("{subscription}: nothing is delivered: {reason}"),
            Self::Resumed => format!("{subscription}: deliveries go on"),
            Self::DeadLetters(count) => format!("{subscription}: {count} messages can't be handled"),
            Self::Stuck(reason) => format!("{subscription}: nothing more is received: {reason}"),
        }
    }
}

impl Bell {
    async fn ring(self, subscription: Box<str>, news: News) {
        let body = json!({ "subscription": subscription, "alert": news.word(), "text": news.text(&subscription) });
        let body = Bytes::from(body.to_string());
        let mut request = Request::new(body.clone());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        let permit = Permit::until(clock::now() + CALL);
        let reason = match timeout(CALL, self.upstream.send(request, permit)).await {
            Ok(Exchange::Answered { parts, body }) => {
                read_answer(body, ANSWER_BYTES, clock::now() + CALL).await;
                match parts.status.is_success() {
                    true => return,
                    false => format!("it answered {}", parts.status),
                }
            }
            Ok(Exchange::NotSent(failure) | Exchange::Lost(failure)) => failure.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        tracing::warn!(%subscription, %reason, "whoever is to be alerted was not reached");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paused(reason: &str) -> Option<News> {
        Some(News::Paused(reason.into()))
    }

    #[test]
    fn a_handler_that_refuses_everything_is_told_at_once_and_once() {
        let (mut episode, now) = (Episode::default(), clock::now());
        assert_eq!(episode.found(Sign::Well, "", now), None);
        assert_eq!(episode.found(Sign::Refuses, "404", now), paused("404"));
        assert_eq!(episode.found(Sign::Refuses, "404", now + REMIND), None);
        assert_eq!(episode.found(Sign::Away, "refused", now + REMIND), None);
        assert_eq!(episode.found(Sign::Well, "", now + REMIND), None, "it may flap");
        assert_eq!(episode.found(Sign::Well, "", now + REMIND + CALM), Some(News::Resumed));
        assert_eq!(episode.found(Sign::Refuses, "401", now + REMIND + CALM), paused("401"), "another episode");
    }

    #[test]
    fn one_of_two_handlers_that_refuses_is_told_once() {
        let (mut episode, start) = (Episode::default(), clock::now());
        let at = |tenths| start + Duration::from_millis(100) * tenths;
        let signs = [(Sign::Refuses, "404"), (Sign::Well, "")];
        let told: Vec<News> = (0..1200)
            .filter_map(|place| {
                let (sign, reason) = signs[place as usize % 2];
                episode.found(sign, reason, at(place))
            })
            .collect();
        assert_eq!(told, [News::Paused("404".into())]);
        assert_eq!(episode.calmed(at(1199) + CALM / 2), None);
        assert_eq!(episode.calmed(at(1199) + CALM), Some(News::Resumed), "also if no message comes");
        assert_eq!(episode.calmed(at(1199) + CALM), None);
    }

    #[test]
    fn a_handler_that_is_away_is_told_only_when_it_stays_away() {
        let (mut episode, now) = (Episode::default(), clock::now());
        assert_eq!(episode.found(Sign::Away, "refused", now), None);
        assert_eq!(episode.found(Sign::Well, "", now + PATIENCE / 2), None, "nobody has heard of it");
        assert_eq!(episode.found(Sign::Away, "refused", now + PATIENCE), None);
        assert_eq!(episode.found(Sign::Away, "refused", now + PATIENCE * 2), paused("refused"));
        assert_eq!(episode.found(Sign::Away, "refused", now + PATIENCE * 3), None);
        assert_eq!(episode.found(Sign::Well, "", now + PATIENCE * 4), None);
        assert_eq!(episode.found(Sign::Well, "", now + PATIENCE * 4 + CALM), Some(News::Resumed));
    }

    #[test]
    fn dead_letters_are_told_with_their_number_and_not_each() {
        let (mut episode, now) = (Episode::default(), clock::now());
        let told = |count| Some(News::DeadLetters(count));
        assert_eq!(episode.dead_letters(0, now), None);
        assert_eq!(episode.dead_letters(3, now), told(3));
        assert_eq!(episode.dead_letters(300, now + REMIND / 2), None);
        assert_eq!(episode.dead_letters(300, now + REMIND), told(300));
        assert_eq!(episode.dead_letters(299, now + REMIND * 3), None, "they become fewer");
        assert_eq!(episode.dead_letters(0, now + REMIND * 3), None);
        assert_eq!(episode.dead_letters(1, now + REMIND * 3), told(1));
    }
}
