//! The task that owns the connection: takes events in order, publishes without waiting for confirms, and gives
//! each its result.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use lapin::options::ConfirmSelectOptions;
use lapin::{Error, Event};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout_at};

use super::dial::{Dialer, declared};
use super::link::Link;
use super::message;
use super::returns::{Answer, Outcome, Settled};
use super::topology;
use crate::broker::line::{Job, Suspects, fail_all, not_in_time};
use crate::broker::{CONFIRMED, PublishError};
use crate::clock::{self, Instant};

/// Works the line off.
pub(super) struct Worker {
    dialer: Arc<Dialer>,
    jobs: mpsc::Receiver<Job>,
    /// `None`: the next event opens one.
    link: Option<Link>,
    /// A suspect that waits until nothing else is under way.
    held: Option<Job>,
    suspects: Suspects,
    /// No more events come.
    closing: bool,
}

/// What happens next.
enum Next {
    Job(Box<Job>),
    /// Nobody will put an event in line again.
    LineEnds,
    Outcome(Box<Outcome>),
    /// The oldest event under way is not confirmed in time.
    Overdue,
    /// The connection has something to say, or nothing ever again.
    Event(Option<Event>),
    /// All is done.
    Done,
}

impl Next {
    fn job(job: Job) -> Self {
        Self::Job(Box::new(job))
    }
}

impl Worker {
    pub(super) fn new(dialer: Arc<Dialer>, jobs: mpsc::Receiver<Job>) -> Self {
        Self { dialer, jobs, link: None, held: None, suspects: Suspects::default(), closing: false }
    }

    /// Until no more events can come, and each that came has its result.
    pub(super) async fn run(mut self) {
        loop {
            let next = self.next().await;
            match next {
                Next::Job(job) => self.take(*job).await,
                Next::LineEnds => self.closing = true,
                Next::Outcome(outcome) => self.settle(*outcome).await,
                Next::Overdue => self.give_up_overdue(),
                Next::Event(event) => self.heed(event),
                Next::Done => break,
            }
        }
        if let Some(link) = self.link.take() {
            link.dialled.end().await;
        }
    }

    async fn next(&mut self) -> Next {
        let under_way = self.link.as_ref().map_or(0, |link| link.waiting.len());
        if under_way == 0 {
            if let Some(job) = self.held.take() {
                return Next::job(job);
            }
            if self.closing {
                return Next::Done;
            }
        }
        let Some(link) = &mut self.link else {
            return self.jobs.recv().await.map_or(Next::LineEnds, Next::job);
        };
        let alone = under_way == 1 && link.alone;
        let room = under_way < self.dialer.options.in_flight.max(1) && !alone && self.held.is_none() && !self.closing;
        let overdue = link.waiting.first_key_value().map(|(_, job)| job.deadline);
        tokio::select! {
            biased;
            () = sleep_until(overdue.unwrap_or_else(clock::now)), if overdue.is_some() => Next::Overdue,
            Some(outcome) = link.confirms.next(), if !link.confirms.is_empty() => Next::Outcome(Box::new(outcome)),
            event = link.events.next() => Next::Event(event),
            job = self.jobs.recv(), if room => job.map_or(Next::LineEnds, Next::job),
        }
    }

    async fn take(&mut self, job: Job) {
        let Some(job) = job.still_wanted(self.dialer.options.time_limit) else { return };
        if let Some(reason) = self.connect(job.deadline).await.err() {
            self.lose(&reason);
            return job.unavailable(&reason);
        }
        let Some(link) = &mut self.link else { return job.unavailable("not connected") };
        if let Some(reason) = &link.blocked {
            return job.unavailable(&format!("it is blocked: {reason}"));
        }
        let suspect = self.suspects.contains(job.event.event.id);
        if suspect && !link.waiting.is_empty() {
            self.held = Some(job);
            return;
        }
        let key = match message::routing_key(&job.event) {
            Ok(key) => key,
            Err(error) => return job.conclude(Err(error)),
        };
        match self.make_queue(&job).await {
            Ok(()) => {}
            Err(error @ (PublishError::Unavailable(_) | PublishError::TopicUnavailable(_))) => {
                self.lose(&error.to_string());
                return job.conclude(Err(error));
            }
            Err(error) => return job.conclude(Err(error)),
        }
        if let Some(link) = &mut self.link {
            link.publish(&self.dialer.options.exchange, key, job, suspect);
        }
    }

    /// Makes sure that there is a connection that seems to be alive, or says why there is none.
    async fn connect(&mut self, deadline: Instant) -> Result<(), String> {
        match &self.link {
            Some(link) if link.is_open() => return Ok(()),
            // What is under way was before this event, and must not be passed by it.
            Some(link) if !link.waiting.is_empty() => return Err("the connection is lost".to_owned()),
            Some(_) | None => {}
        }
        if let Some(link) = self.link.take() {
            link.dialled.hang_up();
        }
        let dial = async {
            let dialled = self.dialer.dial().await?;
            dialled.channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok::<_, Error>(dialled)
        };
        let dialled = timeout_at(deadline, dial.boxed()).await;
        let dialled = dialled.map_err(|_| "not connected: no answer in time".to_owned())?;
        self.link = Some(Link::new(dialled.map_err(|error| format!("not connected: {error}"))?));
        Ok(())
    }

    /// In the default exchange, sees to it that the queue is there that the topic names.
    async fn make_queue(&mut self, job: &Job) -> Result<(), PublishError> {
        let options = &self.dialer.options;
        let topic = &job.event.event.topic;
        let (Some(link), Some(declared)) = (&mut self.link, declared(options).next()) else { return Ok(()) };
        if !options.exchange.is_empty() || link.queues.contains(topic) {
            return Ok(());
        }
        if topic.is_empty() {
            // The broker would invent a name.
            return Err(PublishError::Never("its topic is empty".to_owned()));
        }
        let made = topology::queue(&link.dialled.connection, topic, declared.queues).boxed();
        match timeout_at(job.deadline, made).await {
            Ok(Ok(())) => {
                link.queues.insert(topic.clone());
                Ok(())
            }
            Ok(Err(error)) if error.is_amqp_soft_error() => Err(PublishError::Refused(error.to_string())),
            Ok(Err(error)) => Err(PublishError::Unavailable(error.to_string())),
            Err(_elapsed) => Err(PublishError::TopicUnavailable(not_in_time(options.time_limit))),
        }
    }

    /// Gives results to all whose outcome is known by now.
    async fn settle(&mut self, first: Outcome) {
        let Some(link) = &mut self.link else { return };
        let (mut round, mut unclear) = link.gather(Some(first));
        loop {
            let Some(link) = &mut self.link else { return };
            let failed = round.iter().any(|settled| matches!(settled.answer, Answer::Failed(_)));
            let later = if unclear && !failed {
                if let Err(reason) = link.all_worked_off(self.dialer.options.time_limit).await {
                    return self.lose(&reason);
                }
                // First all that has been returned is noted, then they are told.
                link.gather(None)
            } else {
                (Vec::new(), false)
            };
            if let Some(error) = self.conclude(round) {
                return self.break_off(&error);
            }
            if later.0.is_empty() {
                return;
            }
            (round, unclear) = later;
        }
    }

    /// Tells the waiters, and returns the first failure: what failed has no result yet.
    fn conclude(&mut self, settled: Vec<Settled>) -> Option<Error> {
        let link = self.link.as_mut()?;
        let mut failure = None;
        for Settled { place, who, answer } in settled {
            if let Answer::Failed(error) = answer {
                failure.get_or_insert(error);
                continue;
            }
            // Given up meanwhile, where there is none. The return of such a one is left for a copy that was published
            // since: theirs are one entry.
            let Some(job) = link.waiting.remove(&place) else { continue };
            let result = match (answer, link.returns.take(&who)) {
                (Answer::Confirmed, None) => CONFIRMED,
                (Answer::Confirmed, Some(reason)) => {
                    // Its queue may have been deleted: the next try makes it again.
                    link.queues.remove(&job.event.event.topic);
                    Err(PublishError::Refused(format!("no queue takes it: {reason}")))
                }
                (Answer::Nack | Answer::Failed(_), _) => Err(PublishError::Refused("it said nack".to_owned())),
            };
            self.suspects.clear(who.id);
            job.conclude(result);
        }
        failure
    }

    /// The broker, or the network, has ended it.
    fn break_off(&mut self, error: &Error) {
        let reason = format!("the connection is lost: {error}");
        let (Some(complaint), Some(link)) = (message::complaint(error), &mut self.link) else {
            return self.lose(&reason);
        };
        if link.waiting.len() > 1 {
            self.suspects.replace(link.waiting.values().map(|job| job.event.event.id));
            return self.lose(&reason);
        }
        if let Some((_, job)) = link.waiting.pop_first() {
            self.suspects.clear(job.event.event.id);
            job.conclude(Err(message::verdict(complaint)));
        }
        if let Some(link) = self.link.take() {
            link.dialled.hang_up();
        }
    }

    fn give_up_overdue(&mut self) {
        let time_limit = self.dialer.options.time_limit;
        let Some(link) = &mut self.link else { return };
        let Some(reason) = link.blocked.clone() else {
            // Where it goes may be ill, and not the broker. What is behind it must not pass it in either case.
            let reason = not_in_time(time_limit);
            if let Some((_, oldest)) = link.waiting.pop_first() {
                oldest.conclude(Err(PublishError::TopicUnavailable(reason.clone())));
            }
            return self.lose(&reason);
        };
        // The connection is as well as the broker: it says what is wrong, and will say when it is over.
        while let Some(job) = link.waiting.first_entry().filter(|job| job.get().is_over()) {
            job.remove().unavailable(&format!("it is blocked: {reason}"));
        }
    }

    fn heed(&mut self, event: Option<Event>) {
        let Some(link) = &mut self.link else { return };
        match event {
            Some(Event::ConnectionBlocked(reason)) => {
                tracing::warn!(reason, "RabbitMQ takes no events");
                link.blocked = Some(reason);
            }
            Some(Event::ConnectionUnblocked) => {
                tracing::info!("RabbitMQ takes events again");
                link.blocked = None;
            }
            Some(Event::Error(error)) if link.waiting.is_empty() => self.lose(&error.to_string()),
            // Of those under way each confirm will say it.
            Some(_) => {}
            None => self.lose("the connection is lost"),
        }
    }

    /// Gives up the connection, and all that is under way or in line.
    fn lose(&mut self, reason: &str) {
        if let Some(mut link) = self.link.take() {
            for (_, job) in std::mem::take(&mut link.waiting) {
                job.unavailable(reason);
            }
            link.dialled.hang_up();
        }
        if let Some(job) = self.held.take() {
            job.unavailable(reason);
        }
        fail_all(&mut self.jobs, reason);
    }
}
