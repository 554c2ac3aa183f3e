//! One schedule: what is done to whom, drawn from a seed, and then a calm in which everything must come to its end.

use std::time::Duration;

use oncegate::entry::{Answer, State};
use oncegate::outbox::event::EventId;
use rand::RngExt as _;

use crate::desk::by_hand;
use crate::process::{Manner, Process, Request};
use crate::requests::{KEYS, Rule, VARIANTS, answer, id, rule};
use crate::upstream::{Heard, Plan, Send};
use crate::world::{Failed, Luck, Shared, World};

/// Steps of one schedule: what it takes for a fault to show is seldom more than a few, and many small schedules find more
/// than few large ones.
const STEPS: std::ops::RangeInclusive<usize> = 10..=70;

/// Rounds of a second in which everything must come to its end: a lease, the times after which a lookup is believed, and
/// some more.
const ROUNDS: usize = 25;

const ROUND: Duration = Duration::from_secs(1);

/// How long anybody listens to the service, in milliseconds.
const LONGEST_EXCHANGE: i64 = 3_000;

/// What became of a schedule.
pub(crate) struct Told {
    /// What must never be, and was.
    pub(crate) wrongs: Vec<String>,
    /// Equal for two runs of one seed.
    pub(crate) fingerprint: u64,
    /// What happened, if it was asked for.
    pub(crate) story: Option<String>,
}

pub(crate) struct Schedule {
    world: Shared,
    processes: Vec<Process>,
    started: u32,
    mark_response_limit: usize,
}

impl Schedule {
    /// Runs the schedule of `seed`.
    pub(crate) fn run(seed: u64, with_story: bool) -> Told {
        oncegate::chance::seed(seed);
        let world = Shared::new(seed, with_story);
        let mark_response_limit = if world.lock().rng.random_bool(0.5) { 4096 } else { 0 };
        let mut schedule = Self { world, processes: Vec::new(), started: 0, mark_response_limit };
        for _ in 0..=schedule.draw(2) {
            let process = schedule.start();
            schedule.processes.push(process);
        }
        let steps = schedule.world.lock().rng.random_range(STEPS);
        for _ in 0..steps {
            schedule.step();
        }
        schedule.calm();
        schedule.check();
        let mut world = schedule.world.lock();
        let (fingerprint, story) = world.story();
        Told { wrongs: std::mem::take(&mut world.wrongs), fingerprint, story }
    }

    fn start(&mut self) -> Process {
        self.started += 1;
        self.world.lock().note(self.started, "process", "starts");
        Process::start(&self.world, self.started, self.mark_response_limit)
    }

    /// Of a thousand.
    fn draw(&self, most: usize) -> usize {
        self.world.lock().rng.random_range(0..most)
    }

    fn step(&mut self) {
        let which = self.draw(self.processes.len());
        match self.draw(1000) {
            0..300 => self.carry_one_out(),
            300..570 => self.tell_one(),
            570..770 => {
                let request = self.request();
                self.processes[which].arrive(request);
            }
            770..920 => self.pass(),
            920..945 => self.kill(which),
            945..950 => self.join(),
            950..965 => self.stand_still(which),
            965..975 => {
                let now = self.now();
                self.processes[which].go_on(now);
            }
            975..979 => {
                let caller = self.draw(8);
                self.processes[which].hang_up(caller);
            }
            979..988 => self.decide(which),
            988..990 => self.toggle_outage(),
            990..993 => self.world.lock().marks.empty(),
            993..995 => self.world.lock().events.crash(),
            _ => self.end(which),
        }
        self.replace_the_ended();
    }

    fn now(&self) -> i64 {
        self.world.lock().now
    }

    fn request(&self) -> Request {
        let rng = &mut self.world.lock().rng;
        let millis = Duration::from_millis;
        let effect = rng.random();
        Request {
            key: rng.random_range(0..KEYS),
            variant: if rng.random_bool(0.1) { rng.random_range(0..VARIANTS) } else { 0 },
            wait: if rng.random_bool(0.3) { millis(1500) } else { Duration::ZERO },
            hesitates: if rng.random_bool(0.2) { millis(rng.random_range(1..4000)) } else { Duration::ZERO },
            slow: if rng.random_bool(0.2) { millis(rng.random_range(1..2000)) } else { Duration::ZERO },
            plan: match rng.random_range(0..10) {
                0..5 => Plan::Completes,
                5..8 => Plan::Refuses,
                _ => Plan::Fails { effect },
            },
            manner: match rng.random_range(0..20) {
                0 => Manner::PanicsBefore,
                1 => Manner::PanicsAfter,
                2 => Manner::Streams,
                _ => Manner::Plain,
            },
        }
    }

    /// One call reaches its goal, or does not.
    fn carry_one_out(&mut self) {
        let mut world = self.world.lock();
        let open: Vec<usize> = (0..world.calls.len()).filter(|index| world.calls[*index].is_on_its_way()).collect();
        if open.is_empty() {
            drop(world);
            return self.tell_one();
        }
        let mut index = open[world.rng.random_range(0..open.len())];
        // Events reach the broker in the order of the calls, and none passes one that failed with its connection.
        let line = (world.calls[index].process, "publish");
        let in_line = |call: &crate::world::Call| call.is_on_its_way() && (call.process, call.what) == line;
        if world.calls[index].what == "publish" {
            index = world.calls.iter().position(in_line).unwrap();
        }
        let luck = match world.rng.random_range(0..100) {
            0..60 if world.is_ill => Luck::Unheard,
            60..85 if world.is_ill => Luck::Refused(Failed::Away),
            0..85 => Luck::Well,
            85..89 => Luck::Refused(Failed::Away),
            89..91 => Luck::Refused(Failed::Conflict),
            91..94 => Luck::Refused(Failed::Unclear),
            _ => Luck::Unheard,
        };
        world.carry_out(index, luck);
        if luck != Luck::Well {
            let behind: Vec<usize> = (0..world.calls.len()).filter(|index| in_line(&world.calls[*index])).collect();
            behind.into_iter().for_each(|index| world.carry_out(index, Luck::Refused(Failed::Away)));
        }
    }

    /// One answer reaches whoever asked.
    fn tell_one(&mut self) {
        let mut world = self.world.lock();
        let done: Vec<usize> = (0..world.calls.len()).filter(|index| !world.calls[*index].is_on_its_way()).collect();
        if done.is_empty() {
            return;
        }
        let index = done[world.rng.random_range(0..done.len())];
        let process = world.tell(index);
        drop(world);
        self.processes.iter().filter(|one| one.number == process).for_each(Process::run);
    }

    fn pass(&mut self) {
        let time = {
            let mut world = self.world.lock();
            let most = if world.rng.random_bool(0.2) { 1500 } else { 120 };
            let time = world.rng.random_range(1..=most);
            world.now += time;
            Duration::from_millis(u64::try_from(time).unwrap())
        };
        self.processes.iter().for_each(|process| process.pass(time));
    }

    /// A process gets no time, perhaps for so long that its lease is gone.
    fn stand_still(&mut self, which: usize) {
        let now = self.now();
        self.processes[which].stands_still.get_or_insert(now);
        if self.draw(3) == 0 {
            self.quiet();
        }
    }

    /// A person settles an Unknown entry, rightly or wrongly.
    fn decide(&mut self, which: usize) {
        let is_unknown = |world: &World, key: &usize| {
            let row = world.tables.rows.get(&id(*key));
            row.is_some_and(|row| matches!(row.entry.state, State::Unknown { .. }))
        };
        let unknown: Vec<usize> = {
            let world = self.world.lock();
            (0..KEYS).filter(|key| is_unknown(&world, key)).collect()
        };
        if !unknown.is_empty() {
            let (key, has_completed) = (unknown[self.draw(unknown.len())], self.draw(3) == 0);
            self.processes[which].decide(key, has_completed);
        }
    }

    /// Most of what is asked for is not answered for a while.
    fn toggle_outage(&mut self) {
        let mut world = self.world.lock();
        world.is_ill = !world.is_ill;
    }

    /// Some seconds in which everybody does what there is to do, but for those who stand still.
    fn quiet(&mut self) {
        let (seconds, at_once) = (self.draw(6) + 1, self.world.lock().at_once);
        self.world.lock().note(0, "quiet", "begins");
        let is_still =
            |number: u32| self.processes.iter().any(|one| one.number == number && one.stands_still.is_some());
        for _ in 0..seconds {
            {
                let mut world = self.world.lock();
                world.at_once = 100;
                while let Some(index) = world.calls.iter().position(|call| !is_still(call.process)) {
                    world.carry_out(index, Luck::Well);
                    world.tell(index);
                }
                world.now += i64::try_from(ROUND.as_millis()).unwrap();
            }
            let living = self.processes.iter().filter(|process| process.stands_still.is_none());
            living.for_each(|process| process.live(ROUND));
        }
        self.world.lock().at_once = at_once;
    }

    fn join(&mut self) {
        if self.processes.len() < 3 {
            let process = self.start();
            self.processes.push(process);
        }
    }

    /// The process ends in the middle of everything, and another one begins.
    fn kill(&mut self, which: usize) {
        let killed = self.processes.swap_remove(which);
        self.world.lock().note(killed.number, "process", "is killed");
        let number = killed.number;
        drop(killed);
        self.world.lock().cut_off(number);
        let process = self.start();
        self.processes.push(process);
    }

    fn end(&mut self, which: usize) {
        let process = &mut self.processes[which];
        if process.stands_still.is_none() && !process.is_ending() {
            self.world.lock().note(process.number, "process", "drains");
            process.end();
        }
    }

    fn replace_the_ended(&mut self) {
        while let Some(which) = self.processes.iter().position(Process::has_ended) {
            self.kill(which);
        }
    }

    /// From now on nothing goes wrong, and everything must come to its end.
    fn calm(&mut self) {
        // Whoever is left does what the others have left behind.
        if self.processes.len() > 1 && self.draw(3) > 0 {
            let killed = self.processes.swap_remove(0);
            self.world.lock().cut_off(killed.number);
        }
        let now = {
            let mut world = self.world.lock();
            (world.is_calm, world.is_ill) = (true, false);
            world.note(0, "calm", "begins");
            while !world.calls.is_empty() {
                world.carry_out(0, Luck::Well);
                world.tell(0);
            }
            world.now
        };
        self.processes.iter_mut().for_each(|process| process.go_on(now));
        let mut settled = 0;
        for _ in 0..ROUNDS {
            self.replace_the_ended();
            self.processes.iter().for_each(|process| process.live(ROUND));
            self.world.lock().now += i64::try_from(ROUND.as_millis()).unwrap();
            settled = if self.unsettled().is_none() { settled + 1 } else { 0 };
            if settled == 2 {
                return;
            }
        }
        let unsettled = self.unsettled().unwrap_or_default();
        self.world.lock().wrong(format!("it has no end: {unsettled}"));
    }

    /// What has not come to its end.
    fn unsettled(&self) -> Option<String> {
        if let Some(process) = self.processes.iter().find(|process| !process.has_answered()) {
            return Some(format!("a caller of process {} has no answer", process.number));
        }
        let world = self.world.lock();
        for key in 0..KEYS {
            let is_under_way = |send: &Send| send.heard.is_none() && send.at > world.now - LONGEST_EXCHANGE;
            if world.upstream.stories[key].sends.iter().any(is_under_way) {
                return Some(format!("a request of key {key} is under way"));
            }
            let state = world.tables.rows.get(&id(key)).map(|row| &row.entry.state);
            match state {
                Some(State::InProgress { .. }) => return Some(format!("key {key} is in progress")),
                Some(State::Unknown { .. }) if rule(key) == Rule::LookUp => {
                    return Some(format!("key {key} is unknown"));
                }
                Some(State::Unknown { .. } | State::Completed { .. } | State::Tombstone { .. }) | None => {}
            }
        }
        world.events.unsent()
    }

    /// What must be true in the end.
    fn check(&self) {
        let mut wrongs = Vec::new();
        let world = self.world.lock();
        let is_alive = |number: u32| self.processes.iter().any(|one| one.number == number && !one.is_ending());
        let mut announced = 0;
        for key in 0..KEYS {
            let story = &world.upstream.stories[key];
            let row = world.tables.rows.get(&id(key));
            let effect = story.effect().map(|(_, body)| answer(body));
            match row.map(|row| &row.entry.state) {
                Some(State::Completed { answer, .. }) => {
                    // What a person says to have happened, counts.
                    let is_given = *answer == self::answer(&by_hand(key));
                    if effect.as_ref() != Some(answer) && !is_given {
                        wrongs.push(format!("key {key} is completed with {answer:?}, and what happened is {effect:?}"));
                    }
                    for name in ["asked", "answered"] {
                        let event = row.and_then(|row| world.events.get(EventId::of(row.entry.origin, name)));
                        announced += usize::from(event.is_some());
                        if event.is_none_or(|event| !says(&event.event.data, name, key, answer)) {
                            wrongs.push(format!("key {key} is completed, and {name} is not announced: {event:?}"));
                        }
                    }
                }
                Some(State::Unknown { .. }) => {}
                None if effect.is_none() => {}
                other => wrongs.push(format!("key {key} is {other:?}, and what happened is {effect:?}")),
            }
            let is_kept = world.tables.has_evidence(id(key)) || world.evidence_lost;
            for send in story.sends.iter().filter(|send| is_alive(send.process)) {
                let is_lost = row.map_or(!is_kept, |row| {
                    let is_its = row.entry.nonce == send.nonce;
                    let is_unfinished = matches!(row.entry.state, State::Unknown { .. } | State::InProgress { .. });
                    if is_its { is_unfinished } else { !is_kept }
                });
                if matches!(send.heard, Some(Heard::Completed(_))) && is_lost {
                    wrongs.push(format!("key {key}: the answer to {send:?} is not kept: {row:?}"));
                }
            }
        }
        if world.events.ids().len() != announced {
            let ids = world.events.ids().len();
            wrongs.push(format!("{ids} events were announced, and {announced} belong to completed requests"));
        }
        drop(world);
        wrongs.into_iter().for_each(|wrong| self.world.lock().wrong(wrong));
    }
}

/// Whether the event says what it is to say.
fn says(data: &[u8], name: &str, key: usize, answer: &Answer) -> bool {
    match (name, answer) {
        ("asked", _) => data.starts_with(format!(r#"{{"no":"{key}","amount":"#).as_bytes()),
        (_, Answer::Response(response)) => data == response.body,
        (_, Answer::StatusOnly(_)) => false,
    }
}
