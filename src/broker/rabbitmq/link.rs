//! A connection in use: what is under way on it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};
use lapin::Event;
use lapin::options::{BasicPublishOptions, BasicQosOptions};
use lapin::types::ShortString;
use tokio::time::timeout;

use super::dial::Dialled;
use super::message;
use super::returns::{Outcome, Returns, Settled, Who};
use crate::broker::line::Job;

/// A connection in use.
pub(super) struct Link {
    pub(super) dialled: Dialled,
    pub(super) events: BoxStream<'static, Event>,
    /// Why the broker takes nothing now.
    pub(super) blocked: Option<String>,
    /// Those under way, by their places in the order of the calls, so with the earliest deadline first.
    pub(super) waiting: BTreeMap<u64, Job>,
    /// Ends as messages are confirmed, also of those whose callers have given up.
    pub(super) confirms: FuturesUnordered<BoxFuture<'static, Outcome>>,
    pub(super) returns: Returns,
    /// The last one published is to be alone under way.
    pub(super) alone: bool,
    /// Queues that are known to be there.
    pub(super) queues: HashSet<Box<str>>,
    next_place: u64,
}

impl Link {
    pub(super) fn new(dialled: Dialled) -> Self {
        let events = dialled.connection.events_listener().boxed();
        let blocked = dialled.connection.status().blocked().then(|| "an alarm".to_owned());
        Self {
            dialled,
            events,
            blocked,
            waiting: BTreeMap::new(),
            confirms: FuturesUnordered::new(),
            returns: Returns::default(),
            alone: false,
            queues: HashSet::new(),
            next_place: 0,
        }
    }

    /// Whether it seems to be alive.
    pub(super) fn is_open(&self) -> bool {
        self.dialled.connection.status().connected() && self.dialled.channel.status().connected()
    }

    /// Hands the event to the client, behind all that were before it.
    pub(super) fn publish(&mut self, exchange: &str, key: ShortString, job: Job, alone: bool) {
        let (place, who) = (self.next_place, Who { id: job.event.event.id, key: key.clone() });
        let (channel, exchange) = (self.dialled.channel.clone(), ShortString::from(exchange));
        let (data, properties) = (job.event.event.data.clone(), message::properties(&job.event));
        let mut confirm = async move {
            let mandatory = BasicPublishOptions { mandatory: true, immediate: false };
            let published = channel.basic_publish(exchange, key, mandatory, &data, properties);
            let result = match published.await {
                Ok(confirm) => confirm.await,
                Err(error) => Err(error),
            };
            Outcome { place, who, result }
        }
        .boxed();
        // Its first step is what puts the message in the client's order.
        let confirm = match (&mut confirm).now_or_never() {
            None => confirm,
            Some(outcome) => std::future::ready(outcome).boxed(),
        };
        self.confirms.push(confirm);
        self.waiting.insert(place, job);
        self.next_place += 1;
        self.alone = alone;
    }

    /// All that is known by now, with what has been returned noted, and whether that leaves a doubt.
    pub(super) fn gather(&mut self, first: Option<Outcome>) -> (Vec<Settled>, bool) {
        let (mut round, mut unclear) = (Vec::new(), false);
        let mut note = |outcome| {
            let (settled, foreign) = self.returns.note(outcome);
            round.push(settled);
            unclear |= foreign;
        };
        first.into_iter().for_each(&mut note);
        while let Some(Some(outcome)) = self.confirms.next().now_or_never() {
            note(outcome);
        }
        (round, unclear)
    }

    /// Waits until the client has worked off all that it had received: any answer of the broker comes behind that.
    pub(super) async fn all_worked_off(&mut self, time_limit: Duration) -> Result<(), String> {
        // Nothing is consumed on this channel, so how many messages it may be sent does not matter.
        let question = self.dialled.channel.basic_qos(0, BasicQosOptions::default());
        match timeout(time_limit, question).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("the connection is lost: {error}")),
            Err(_elapsed) => Err(format!("no answer within {} ms", time_limit.as_millis())),
        }
    }
}
