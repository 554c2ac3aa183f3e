//! Who takes a subject.
//!
//! A subject that no stream takes and one whose stream has no leader just now look the same to who publishes: nobody
//! answers. The first is for a person to mend, and its events are refused; the second mends itself. The servers that
//! manage streams know them all, whether or not they have leaders.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::context::{Context, GetStreamByNameErrorKind};
use tokio::sync::Mutex;

use crate::broker::PublishError;
use crate::clock::{self, Instant};

/// How long an answer is believed: a whole window of events may find nobody at once.
const BELIEVED: Duration = Duration::from_secs(1);

/// Most answers that are kept.
const MOST: usize = 256;

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    Nobody,
    Stream(String),
    /// Nobody says.
    Unknown(String),
}

/// The answers of one connection.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<HashMap<Box<str>, (Instant, Owner)>>);

impl Owners {
    /// What to say of an event to `subject` that nobody answered: `text` is the client's word for that.
    pub(super) async fn verdict(&self, context: &Context, subject: &str, text: String) -> PublishError {
        match self.owner(context, subject).await {
            Owner::Nobody => PublishError::Refused(format!("no stream takes {subject}: {text}")),
            Owner::Stream(name) => PublishError::TopicUnavailable(format!("stream {name} has no leader: {text}")),
            Owner::Unknown(error) => {
                let reason = format!("{text}; whether a stream takes {subject} is not known: {error}");
                PublishError::TopicUnavailable(reason)
            }
        }
    }

    /// One asks, the others wait for the answer.
    async fn owner(&self, context: &Context, subject: &str) -> Owner {
        let mut answers = self.0.lock().await;
        let now = clock::now();
        if let Some((at, owner)) = answers.get(subject)
            && now < *at + BELIEVED
        {
            return owner.clone();
        }
        let owner = match context.stream_by_subject(subject).await {
            Ok(name) => Owner::Stream(name),
            Err(error) => match error.kind() {
                GetStreamByNameErrorKind::NotFound => Owner::Nobody,
                GetStreamByNameErrorKind::Request
                | GetStreamByNameErrorKind::InvalidSubject
                | GetStreamByNameErrorKind::JetStream(_) => Owner::Unknown(error.to_string()),
            },
        };
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(subject.into(), (clock::now(), owner.clone()));
        owner
    }
}
