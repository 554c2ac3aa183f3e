//! The task that owns the connection: takes what is in line, sends it in one go, and gives each its result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, RedisError, RedisResult, Value, cmd, from_redis_value};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::RedisStreamsOptions;
use super::entry::{self, Verdict};
use crate::broker::line::{Job, Suspects, fail_all, not_in_time};
use crate::broker::{CONFIRMED, PublishError};
use crate::clock::{self, Instant};
use crate::redis::dial::{Connection, Dialer};

/// Events sent at once: enough that a round trip costs little for each, few enough that an answer comes soon.
const BATCH: usize = 256;

/// Bytes of data sent at once, so that a batch of large events stays as quick. One event may have more.
const BATCH_BYTES: usize = 4 << 20;

/// The longest argument that a server takes unless it is configured otherwise (`proto-max-bulk-len` in Redis'
/// documentation).
const DEFAULT_LARGEST: usize = 512 << 20;

/// Works the line off.
pub(super) struct Worker {
    dialer: Arc<Dialer>,
    options: Arc<RedisStreamsOptions>,
    jobs: mpsc::Receiver<Job>,
    /// `None`: the next event opens one.
    connection: Option<Opened>,
    /// Taken from the line, for the next batch.
    held: Option<Job>,
    suspects: Suspects,
}

struct Opened {
    connection: Connection,
    /// The longest argument in bytes. A server that gets a longer one closes the connection, and its word for that
    /// is often lost with what it has not read: to the sender it would look like an outage, for ever.
    largest: usize,
}

impl Opened {
    async fn new(mut connection: Connection) -> Self {
        let mut ask = cmd("CONFIG");
        ask.arg("GET").arg("proto-max-bulk-len");
        // A server may keep its configuration to itself.
        let told = match connection.send(&ask).await {
            Ok(answer) => from_redis_value::<BTreeMap<String, usize>>(answer).unwrap_or_default(),
            Err(_) => BTreeMap::new(),
        };
        let largest = told.into_values().next().unwrap_or(DEFAULT_LARGEST);
        Self { connection, largest }
    }
}

impl Worker {
    pub(super) fn new(dialer: Arc<Dialer>, options: Arc<RedisStreamsOptions>, jobs: mpsc::Receiver<Job>) -> Self {
        Self { dialer, options, jobs, connection: None, held: None, suspects: Suspects::default() }
    }

    /// Until no more events can come, and each that came has its result.
    pub(super) async fn run(mut self) {
        loop {
            let first = match self.held.take() {
                Some(held) => Some(held),
                None => self.jobs.recv().await,
            };
            let Some(first) = first else { return };
            let batch = self.gather(first);
            if let Some(deadline) = batch.first().map(|job| job.deadline) {
                self.publish(batch, deadline).await;
            }
        }
    }

    /// `first`, and what is in line behind it: not too much, and a suspect alone.
    fn gather(&mut self, first: Job) -> Vec<Job> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some(job) = next {
            let Some(job) = job.still_wanted(self.options.time_limit) else {
                next = self.jobs.try_recv().ok();
                continue;
            };
            let event = &job.event.event;
            let suspect = self.suspects.contains(event.id);
            if event.topic.is_empty() {
                job.conclude(Err(PublishError::Never("its topic is empty".to_owned())));
            } else if !batch.is_empty() && (suspect || bytes + event.data.len() > BATCH_BYTES) {
                self.held = Some(job);
                break;
            } else {
                bytes += event.data.len();
                batch.push(job);
                if suspect || batch.len() == BATCH {
                    break;
                }
            }
            next = self.jobs.try_recv().ok();
        }
        batch
    }

    async fn publish(&mut self, batch: Vec<Job>, deadline: Instant) {
        let outcome = match timeout_at(deadline, self.send(&batch, deadline).boxed()).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(not_in_time(self.options.time_limit)),
        };
        let verdicts = match outcome {
            Ok(verdicts) => verdicts,
            Err(reason) => {
                batch.into_iter().for_each(|job| job.unavailable(&reason));
                return self.lose(&reason);
            }
        };
        let mut behind_fails = None;
        for (job, verdict) in batch.into_iter().zip(verdicts) {
            let result = match verdict {
                Verdict::Added => CONFIRMED,
                Verdict::Failed(error) => Err(error),
                Verdict::Disconnect(error) => {
                    self.connection = None;
                    Err(error)
                }
            };
            if let Err(PublishError::Unavailable(reason)) = &result {
                behind_fails = Some(reason.clone());
            } else {
                self.suspects.clear(job.event.event.id);
            }
            job.conclude(result);
        }
        if let Some(reason) = behind_fails {
            self.fail_line(&reason);
        }
    }

    /// Sends the batch, and returns what came of each, or why nothing is known of any.
    async fn send(&mut self, batch: &[Job], deadline: Instant) -> Result<Vec<Verdict>, String> {
        let Opened { connection, largest } = match &mut self.connection {
            Some(opened) => opened,
            none => {
                let dialled = self.dialer.dial().await.map_err(|error| format!("not connected: {error}"))?;
                none.insert(Opened::new(dialled).await)
            }
        };
        let (fit, too_large): (Vec<usize>, Vec<usize>) =
            (0..batch.len()).partition(|place| batch[*place].event.event.data.len() <= *largest);
        let parts = split(batch, fit, connection.is_cluster());
        let wait = wait_for(&self.options, deadline);
        let sends = parts.iter().map(|places| {
            let commands: Vec<Cmd> =
                places.iter().map(|place| entry::add(&batch[*place].event, self.options.max_len)).collect();
            let (mut connection, topic) = (connection.clone(), &*batch[places[0]].event.event.topic);
            async move {
                let answers = connection.send_in_order(&commands).await;
                let enough = match (&answers, wait) {
                    (Ok(_), Some(wait)) => wait.replicas(&mut connection, topic).await,
                    (Ok(_), None) | (Err(_), _) => Ok(()),
                };
                (answers, enough)
            }
        });
        let answers = join_all(sends).await;
        let refused = Verdict::Failed(PublishError::Never(format!("the server takes at most {largest} bytes")));
        let mut verdicts: BTreeMap<_, _> = too_large.into_iter().map(|place| (place, refused.clone())).collect();
        let mut dropped = Vec::new();
        for (places, (answers, enough)) in parts.iter().zip(answers) {
            if answers.as_ref().is_err_and(RedisError::is_connection_dropped) {
                dropped.extend(places.iter().map(|place| batch[*place].event.event.id));
            }
            verdicts.extend(places.iter().copied().zip(judge(answers, &enough, places.len())));
        }
        if dropped.len() > 1 {
            self.suspects.replace(dropped.into_iter());
        }
        Ok(verdicts.into_values().collect())
    }

    /// Gives up the connection, and all that is in line.
    fn lose(&mut self, reason: &str) {
        self.connection = None;
        self.fail_line(reason);
    }

    /// What is behind a failed event of its key must not pass it.
    fn fail_line(&mut self, reason: &str) {
        if let Some(job) = self.held.take() {
            job.unavailable(reason);
        }
        fail_all(&mut self.jobs, reason);
    }
}

/// What came of each command of one pipeline.
fn judge(answers: RedisResult<Vec<Value>>, enough: &Result<(), String>, number: usize) -> Vec<Verdict> {
    let judge = |answer| match (entry::verdict(answer), enough) {
        (Verdict::Added, Err(reason)) => Verdict::Failed(PublishError::Unavailable(reason.clone())),
        (verdict, _) => verdict,
    };
    match answers {
        Ok(answers) => answers.into_iter().map(judge).collect(),
        Err(error) => vec![entry::failure(&error); number],
    }
}

/// Those of `places` in the batch that go out in one pipeline: all, or those of a stream where each stream may be on a
/// node of its own.
fn split(batch: &[Job], places: Vec<usize>, by_stream: bool) -> Vec<Vec<usize>> {
    let mut pipelines = BTreeMap::<&str, Vec<usize>>::new();
    for place in places {
        let topic = &*batch[place].event.event.topic;
        pipelines.entry(if by_stream { topic } else { "" }).or_default().push(place);
    }
    pipelines.into_values().collect()
}

/// How many replicas must have what was sent, and how long they may take.
#[derive(Debug, Clone, Copy)]
struct Wait {
    replicas: u32,
    time: Duration,
}

/// A quarter of what time is left, so that there is an answer before the deadline, and before a cluster's client gives
/// the node up.
fn wait_for(options: &RedisStreamsOptions, deadline: Instant) -> Option<Wait> {
    let left = deadline.saturating_duration_since(clock::now());
    (options.wait_replicas > 0).then_some(Wait { replicas: options.wait_replicas, time: left / 4 })
}

impl Wait {
    /// Whether enough replicas have all that was sent on this connection, or why not.
    async fn replicas(self, connection: &mut Connection, topic: &str) -> Result<(), String> {
        let mut wait = cmd("WAIT");
        // 0 would mean for ever.
        wait.arg(self.replicas).arg(clock::millis(self.time).max(1));
        // In a cluster, the question about the stream leads to the node that has it.
        let mut lead = cmd("EXISTS");
        lead.arg(topic);
        match connection.send_in_order(&[lead, wait]).await.as_deref() {
            Ok([_, Value::Int(have)]) if *have >= i64::from(self.replicas) => Ok(()),
            Ok([_, Value::Int(have)]) => Err(format!("{have} of {} replicas have it", self.replicas)),
            Ok(_) => Err("it does not say how many replicas have it".to_owned()),
            Err(error) => Err(format!("how many replicas have it is not known: {error}")),
        }
    }
}
