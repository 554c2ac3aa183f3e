//! Two processes, an outbox, a broker and people, and what must be true of them.

mod checks;
mod ending;

use std::collections::BTreeMap;
use std::time::Duration;

use oncegate::broker::{CONFIRMED, Ordering, PublishError};
use oncegate::clock::{self, Instant, millis};
use oncegate::engine::ledger::{Guarded, StoreError};
use oncegate::outbox::event::OnFailure;
use oncegate::outbox::relay::{LaneCall, Ticket};
use oncegate::outbox::store::{How, RelayId, Turn};
use rand::RngExt as _;
use rand::rngs::SmallRng;

use super::outbox::{BYTES, Row, State, Table};
use super::process::{self, Call, Process, WINDOW, WINDOW_BYTES};

const KEYS: u8 = 5;
const LANES: u32 = 3;

/// What the broker makes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    Good,
    /// So many times.
    Refused(u32),
    Never,
    /// Not now, so many times.
    Later(u32),
    /// Its topic is not available, so many times.
    Away(u32),
    /// Waits for another one of its key, so many times.
    Early(u32),
    /// Ends whoever publishes it.
    Deadly,
}

/// An event's story.
#[derive(Debug)]
struct Story {
    nature: Nature,
    key: u8,
    holds: OnFailure,
    /// Steps of its transaction.
    begun: usize,
    committed: Option<usize>,
    /// How often it was published.
    calls: usize,
    /// When it reached the broker, and whether that was confirmed.
    receipts: Vec<(usize, bool)>,
    /// The receipt whose confirm made it sent.
    sent_by: Option<usize>,
    /// How often another event killed the relay that had this one in its hands.
    neighbours_deaths: u32,
    /// Whether it was parked without holding, so that later ones went on.
    was_skipped: bool,
}

pub(super) struct World {
    start: Instant,
    now: Instant,
    steps: usize,
    ordering: Ordering,
    table: Table,
    processes: Vec<Process>,
    stories: BTreeMap<i64, Story>,
    broker_is_up: bool,
    /// Whether broker and database do what they are asked, as they do in the end.
    is_calm: bool,
    receipts: usize,
    relays: u8,
}

impl World {
    pub(super) fn new(ordering: Ordering, _: &mut SmallRng) -> Self {
        let now = clock::now();
        let mut world = Self {
            start: now,
            now,
            steps: 0,
            ordering,
            table: Table::new(LANES),
            processes: Vec::new(),
            stories: BTreeMap::new(),
            broker_is_up: true,
            is_calm: false,
            receipts: 0,
            relays: 0,
        };
        world.begin_process();
        world.begin_process();
        world
    }

    fn begin_process(&mut self) {
        self.relays = self.relays.wrapping_add(1);
        self.processes.push(Process::new(RelayId([self.relays; 16]), self.ordering, self.now));
    }

    pub(super) fn step(&mut self, rng: &mut SmallRng) {
        self.steps += 1;
        let index = rng.random_range(0..self.processes.len());
        match rng.random_range(0..1000) {
            0..120 => self.begin_event(rng),
            120..220 => self.commit_one(rng),
            220..420 => self.processes[index].ask(self.now),
            420..580 => self.publish(index, rng),
            580..680 => self.apply(index, rng),
            680..780 => self.processes[index].hear(self.now),
            780..900 => self.end_call(index, rng),
            900..950 => self.pass(Duration::from_millis(rng.random_range(1..60))),
            950..954 => self.pass(Duration::from_millis(rng.random_range(500..1500))),
            954..964 => self.broker_is_up = !self.broker_is_up,
            964..970 => self.kill(index),
            970..976 => self.processes[index].machine.stop(self.now),
            976..980 => {
                self.processes[index].machine.stop(self.now);
                self.processes[index].machine.give_up(self.now);
            }
            980..988 => self.table.crash(),
            _ => self.decide(rng),
        }
        self.replace_the_done();
        self.check_bounds();
    }

    /// A transaction that will write an event begins: the database gives out a position.
    fn begin_event(&mut self, rng: &mut SmallRng) {
        let nature = match rng.random_range(0..26) {
            0..14 => Nature::Good,
            14..16 => Nature::Refused(rng.random_range(1..=2)),
            16 => Nature::Refused(u32::MAX),
            17..19 => Nature::Never,
            19..21 => Nature::Later(rng.random_range(1..=5)),
            21..23 => Nature::Early(rng.random_range(1..=5)),
            23..25 => Nature::Away(rng.random_range(1..=3)),
            _ => Nature::Deadly,
        };
        let key = rng.random_range(0..KEYS);
        let holds = if rng.random_bool(0.5) { OnFailure::Hold } else { OnFailure::Skip };
        let position = i64::try_from(self.stories.len()).unwrap() + 1;
        let begun = self.steps;
        let story = Story {
            nature,
            key,
            holds,
            begun,
            committed: None,
            calls: 0,
            receipts: Vec::new(),
            sent_by: None,
            neighbours_deaths: 0,
            was_skipped: false,
        };
        self.stories.insert(position, story);
        if rng.random_bool(0.8) {
            self.commit(position);
        }
    }

    fn commit_one(&mut self, rng: &mut SmallRng) {
        let open = self.stories.iter().filter(|(_, story)| story.committed.is_none());
        let open: Vec<i64> = open.map(|(position, _)| *position).collect();
        if !open.is_empty() {
            self.commit(open[rng.random_range(0..open.len())]);
        }
    }

    fn commit(&mut self, position: i64) {
        let story = self.stories.get_mut(&position).unwrap();
        story.committed = Some(self.steps);
        self.table.insert(position, story.key, story.holds);
        // Everybody is told, or finds it by polling.
        if position % 2 == 0 {
            self.processes.iter_mut().for_each(|process| process.machine.woken());
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.table.now = millis(self.now - self.start);
    }

    /// A process hands events to the broker.
    fn publish(&mut self, index: usize, rng: &mut SmallRng) {
        let most = if rng.random_bool(0.5) { 1 } else { WINDOW };
        for _ in 0..most {
            let process = &mut self.processes[index];
            process.machine.tick(self.now);
            let Some((ticket, outgoing)) = process.machine.next_call(self.now) else { return };
            assert_eq!(outgoing.sequence, ticket.position);
            let story = self.stories.get_mut(&ticket.position).unwrap();
            if story.nature == Nature::Deadly {
                let beside = self.table.in_hands_of(self.processes[index].relay).into_iter();
                for position in beside.filter(|position| *position != ticket.position) {
                    self.stories.get_mut(&position).unwrap().neighbours_deaths += 1;
                }
                return self.kill(index);
            }
            self.check_turn_of_early(index, &ticket);
            let process = &mut self.processes[index];
            let story = self.stories.get_mut(&ticket.position).unwrap();
            story.calls += 1;
            let is_lost = !self.is_calm && rng.random_bool(0.05);
            let result = match &mut story.nature {
                _ if !self.broker_is_up || is_lost => Err(PublishError::Unavailable("away".to_owned())),
                Nature::Good | Nature::Refused(0) | Nature::Later(0) | Nature::Early(0) | Nature::Away(0) => CONFIRMED,
                Nature::Later(left) => {
                    *left -= 1;
                    Err(PublishError::Later("in progress".to_owned()))
                }
                Nature::Away(left) => {
                    *left -= 1;
                    Err(PublishError::TopicUnavailable("no leader".to_owned()))
                }
                Nature::Early(left) => {
                    *left -= 1;
                    Err(PublishError::Early("another one is missing".to_owned()))
                }
                Nature::Refused(left) => {
                    *left -= u32::from(*left != u32::MAX);
                    Err(PublishError::Refused("full".to_owned()))
                }
                Nature::Never => Err(PublishError::Never("never".to_owned())),
                Nature::Deadly => unreachable!("nobody lives to tell"),
            };
            let arrives = result.is_ok() || (is_lost && rng.random_bool(0.5));
            let receipt = arrives.then(|| {
                self.receipts += 1;
                story.receipts.push((self.receipts, result.is_ok()));
                self.receipts
            });
            process.calls.push(Call { ticket, result, receipt });
        }
    }

    fn end_call(&mut self, index: usize, rng: &mut SmallRng) {
        let process = &mut self.processes[index];
        if !process.calls.is_empty() {
            let call = rng.random_range(0..process.calls.len());
            process.end_call(call, self.now, rng.random_range(0.0..1.0));
        }
    }

    /// The database does what a process has asked for, or does not, or does and can't say so.
    fn apply(&mut self, index: usize, rng: &mut SmallRng) {
        let luck = if self.is_calm { 99 } else { rng.random_range(0..100) };
        let asked = self.processes[index].turn.as_ref().filter(|(_, answer)| answer.is_none());
        if let Some(turn) = asked.map(|(turn, _)| turn.clone()) {
            let cut = || Err(StoreError::CommitUnknown("cut".to_owned()));
            let answer = match luck {
                0..5 => Err(StoreError::Unavailable("away".to_owned())),
                5..8 => cut(),
                _ => {
                    let turned = self.turn(index, &turn);
                    if luck < 12 { cut() } else { Ok(turned) }
                }
            };
            self.processes[index].turn = Some((turn, Some(answer)));
            return;
        }
        let process = &mut self.processes[index];
        let (relay, lease) = (process.relay, process::options().lease);
        if let Some((call, _, answer @ None)) = &mut process.lanes {
            let is_lost = luck < 5;
            if luck >= 3 {
                *answer = Some(match call {
                    LaneCall::Lease(taking) => Some(self.table.lease(relay, lease, *taking)).filter(|_| !is_lost),
                    LaneCall::Release(lanes) => {
                        self.table.release(relay, lanes);
                        None
                    }
                    LaneCall::Retire => {
                        self.table.retire(relay);
                        None
                    }
                });
            } else {
                *answer = Some(None);
            }
        }
    }

    fn turn(&mut self, index: usize, turn: &Turn) -> oncegate::outbox::store::Turned {
        let before: Vec<State> = turn.conclusions.iter().map(|one| self.table.rows[&one.position].state).collect();
        let turned = self.table.turn(turn);
        for ((conclusion, done), before) in turn.conclusions.iter().zip(&turned.concluded).zip(before) {
            let is_news = *done == Guarded::Done && before != self.table.rows[&conclusion.position].state;
            match &conclusion.how {
                How::Sent { .. } if is_news => self.check_sent(index, conclusion.position, conclusion.lane.epoch),
                How::Parked { reason, .. } if is_news => self.check_parked(conclusion.position, reason),
                // Later ones of its key go on.
                How::Early { .. } => self.stories.get_mut(&conclusion.position).unwrap().was_skipped = true,
                How::Sent { .. }
                | How::Parked { .. }
                | How::Retry { .. }
                | How::Later { .. }
                | How::GivenBack
                | How::Waiting => {}
            }
        }
        self.check_attempts();
        turned
    }

    /// The process ends in the middle of everything, and another one begins.
    fn kill(&mut self, index: usize) {
        self.processes.swap_remove(index);
        self.begin_process();
    }

    fn replace_the_done(&mut self) {
        if let Some(index) = self.processes.iter().position(|process| process.machine.is_done()) {
            self.kill(index);
        }
    }

    /// A person retries or discards a parked event.
    fn decide(&mut self, rng: &mut SmallRng) {
        self.table.flush();
        let parked = self.table.rows.iter_mut().filter(|(_, row)| row.state == State::Parked);
        let mut parked: Vec<(&i64, &mut Row)> = parked.collect();
        if parked.is_empty() {
            return;
        }
        let index = rng.random_range(0..parked.len());
        let (position, row) = &mut parked[index];
        self.stories.get_mut(position).unwrap().neighbours_deaths = 0;
        if rng.random_bool(0.5) {
            row.state = State::Discarded;
            row.in_line = false;
        } else {
            row.redrives += 1;
            **row = Row { state: State::Ready, attempts: 0, deaths: 0, deferrals: 0, counted: 0, ..row.clone() };
        }
    }

    /// From now on nothing goes wrong but what events are, and everything must come to its end.
    pub(super) fn end(&mut self, rng: &mut SmallRng) {
        self.is_calm = true;
        self.broker_is_up = true;
        for _ in 0..WINDOW * self.stories.len() {
            self.commit_one(rng);
        }
        for _ in 0..3000 {
            for index in 0..self.processes.len() {
                self.work(index, rng);
            }
            self.replace_the_done();
            if self.unfinished().is_none() {
                return self.check_first_receipts();
            }
            self.pass(Duration::from_millis(20));
        }
        panic!("{:?} has no end: {:#?}", self.unfinished(), self.processes);
    }

    fn work(&mut self, index: usize, rng: &mut SmallRng) {
        self.processes[index].ask(self.now);
        self.apply(index, rng);
        self.apply(index, rng);
        self.processes[index].hear(self.now);
        let relay = self.processes[index].relay;
        self.publish(index, rng);
        if self.processes.get(index).is_some_and(|process| process.relay == relay) {
            for _ in 0..WINDOW {
                self.end_call(index, rng);
            }
        }
        self.check_bounds();
    }
}
