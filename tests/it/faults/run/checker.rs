//! What must hold at the end, counted. It reads what clients were told, what the service did, the ledger, the outbox,
//! the queue and the effects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use oncegate::broker::subscriber::Subscriber;
use oncegate::clock;

use super::clients::{Caller, End, History, Route, parts};
use super::nemesis::Done;
use super::service::Paid;
use super::stage::Stage;
use crate::faults::PATIENCE;
use crate::servers::outbox::{texts, written};

/// How long everything may take to come to an end after the last fault.
const SETTLING: Duration = Duration::from_secs(90);

/// Examples that are shown of each violation.
const SHOWN: usize = 3;

/// All that is known at the end.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) history: History,
    pub(super) payments: HashMap<String, Paid>,
    /// The completed entries.
    pub(super) completed: BTreeSet<String>,
    /// Entries in progress, unknown ones whose policy settles them, and events and deliveries that are not over.
    pub(super) unfinished: Vec<String>,
    /// The events of the audit by id, with their payment.
    pub(super) written: BTreeMap<String, String>,
    /// How many kinds of events each payment has.
    pub(super) announced: HashMap<String, usize>,
    /// Events in the order in which they came first: id and payment.
    pub(super) arrived: Vec<(String, String)>,
    /// How often points were granted, by payment.
    pub(super) points: HashMap<String, u32>,
}

/// What is counted, and whether it may be.
#[derive(Debug)]
pub(super) struct Verdict {
    facts: Vec<(String, u64)>,
    /// Name, and what violates it.
    pub(super) violations: Vec<(&'static str, Vec<String>)>,
}

/// Names of what must not be.
pub(super) const EXECUTED: &str = "executions of one key > 1 without an unknown between";
pub(super) const DIFFERS: &str = "answers that differ for one key";
pub(super) const WRONG: &str = "answers that no client should get";
pub(super) const UNTOLD: &str = "answers of what the service did not do";
pub(super) const UNRECORDED: &str = "recorded answers that are not on record";
pub(super) const UNANNOUNCED: &str = "completed without event";
pub(super) const LOST: &str = "events lost";
pub(super) const FOREIGN: &str = "events of nothing";
pub(super) const DISORDER: &str = "order violations per key";
pub(super) const DOUBLED: &str = "effects doubled";
pub(super) const MISSING: &str = "effects missing";
pub(super) const STUCK: &str = "entries, events and deliveries stuck";

impl Verdict {
    pub(super) fn is_clean(&self) -> bool {
        self.violations.iter().all(|(_, found)| found.is_empty())
    }

    pub(super) fn count(&self, name: &str) -> usize {
        self.violations.iter().find(|(one, _)| *one == name).map_or(0, |(_, found)| found.len())
    }

    pub(super) fn of(evidence: &Evidence) -> Self {
        let history = &evidence.history;
        let held = history.values().filter(|ends| ends.last() == Some(&End::Held)).count();
        let not_kept = history.values().filter(|ends| ends.last() == Some(&End::NotKept)).count();
        let executions: usize = evidence.payments.values().map(|paid| paid.attempts.len()).sum();
        let facts = [
            ("payments", history.len()),
            ("executions", executions),
            ("of them held as unknown at the end", held),
            ("of them done, their answer cut", not_kept),
            ("entries completed", evidence.completed.len()),
            ("events written for the audit", evidence.written.len()),
            ("events arrived", evidence.arrived.len()),
            ("points granted", evidence.points.len()),
        ];
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Self {
            facts: facts.map(|(name, number)| (name.to_owned(), count(number))).into(),
            violations: vec![
                (EXECUTED, executed(evidence)),
                (DIFFERS, differing(history)),
                (WRONG, wrong(history)),
                (UNTOLD, untold(evidence)),
                (UNRECORDED, unrecorded(history)),
                (UNANNOUNCED, unannounced(evidence)),
                (LOST, lost(evidence)),
                (FOREIGN, foreign(evidence)),
                (DISORDER, disorder(evidence)),
                (DOUBLED, doubled(evidence)),
                (MISSING, missing(evidence)),
                (STUCK, stuck(evidence)),
            ],
        }
    }

    pub(super) fn with(mut self, caller: &Caller, faults: &Done, settling: Duration) -> Self {
        let tally = &caller.tally;
        self.facts.push(("requests".to_owned(), tally.requests.load(Ordering::Relaxed)));
        self.facts.push(("of them hung up on".to_owned(), tally.hang_ups.load(Ordering::Relaxed)));
        self.facts.push(("seconds until all had come to an end".to_owned(), settling.as_secs()));
        self.facts.extend(faults.iter().map(|(fault, count)| (format!("fault: {fault}"), u64::from(*count))));
        self
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, number) in &self.facts {
            writeln!(f, "{number:>8}  {name}")?;
        }
        writeln!(f, "\nmust be 0:")?;
        for (name, found) in &self.violations {
            writeln!(f, "{:>8}  {name}", found.len())?;
            for example in found.iter().take(SHOWN) {
                writeln!(f, "          {example}")?;
            }
        }
        Ok(())
    }
}

/// An unknown outcome lies between two executions only where the policy sends again, and then each has its own number.
fn executed(evidence: &Evidence) -> Vec<String> {
    let is_twice = |(key, paid): &(&String, &Paid)| {
        let forwards = parts(key).is_some_and(|(_, _, route)| route == Route::Forward);
        let numbers: BTreeSet<u32> = paid.attempts.iter().copied().collect();
        if forwards { numbers.len() < paid.attempts.len() } else { paid.attempts.len() > 1 }
    };
    let told = |(key, paid): (&String, &Paid)| format!("{key}: attempts {:?}", paid.attempts);
    evidence.payments.iter().filter(is_twice).map(told).collect()
}

fn bodies(ends: &[End]) -> BTreeSet<&str> {
    let paid = ends.iter().filter_map(|end| if let End::Paid { body, .. } = end { Some(&**body) } else { None });
    paid.collect()
}

fn differing(history: &History) -> Vec<String> {
    let differs = history.iter().filter(|(_, ends)| bodies(ends).len() > 1);
    differs.map(|(key, ends)| format!("{key}: {:?}", bodies(ends))).collect()
}

fn wrong(history: &History) -> Vec<String> {
    let all = history.iter().flat_map(|(key, ends)| ends.iter().map(move |end| (key, end)));
    all.filter_map(|(key, end)| if let End::Wrong(what) = end { Some(format!("{key}: {what}")) } else { None })
        .collect()
}

fn untold(evidence: &Evidence) -> Vec<String> {
    let done = |key: &str| evidence.payments.get(key).map(|paid| paid.answers.as_slice()).unwrap_or_default();
    let told = evidence.history.iter().flat_map(|(key, ends)| bodies(ends).into_iter().map(move |body| (key, body)));
    told.filter(|(key, body)| !done(key).iter().any(|answer| answer == body))
        .map(|(key, body)| format!("{key}: {body}"))
        .collect()
}

/// Who was told that it is on record, is told the same ever after.
fn unrecorded(history: &History) -> Vec<String> {
    let recorded = |ends: &[End]| ends.iter().any(|end| matches!(end, End::Paid { recorded: true, .. }));
    let is_lost = |ends: &[End]| recorded(ends) && !matches!(ends.last(), Some(End::Paid { .. } | End::NotKept));
    history.iter().filter(|(_, ends)| is_lost(ends)).map(|(key, ends)| format!("{key}: {ends:?}")).collect()
}

fn unannounced(evidence: &Evidence) -> Vec<String> {
    let announced = |key: &&String| evidence.announced.get(*key) == Some(&2);
    evidence.completed.iter().filter(|key| !announced(key)).cloned().collect()
}

fn lost(evidence: &Evidence) -> Vec<String> {
    let arrived: BTreeSet<&str> = evidence.arrived.iter().map(|(id, _)| &**id).collect();
    evidence.written.iter().filter(|(id, _)| !arrived.contains(&***id)).map(|(_, key)| key.clone()).collect()
}

fn foreign(evidence: &Evidence) -> Vec<String> {
    let is_foreign = |(id, key): &&(String, String)| evidence.written.get(id) != Some(key);
    evidence.arrived.iter().filter(is_foreign).map(|(id, key)| format!("{id} of {key}")).collect()
}

/// A client pays one after the other, so that its payments are in order if it was told each time that the last one is on
/// record. Otherwise the commits may have overlapped.
fn disorder(evidence: &Evidence) -> Vec<String> {
    let is_recorded = |end: &End| matches!(end, End::Paid { recorded: true, .. });
    let mut last: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    let mut found = Vec::new();
    for (_, key) in &evidence.arrived {
        let recorded = evidence.history.get(key).is_some_and(|ends| ends.iter().all(is_recorded));
        let Some((client, number, _)) = parts(key).filter(|_| recorded) else { continue };
        if let Some((before, other)) = last.insert(client, (number, key))
            && before > number
        {
            found.push(format!("{key} came after {other}"));
        }
    }
    found
}

fn doubled(evidence: &Evidence) -> Vec<String> {
    let doubled = evidence.points.iter().filter(|(_, count)| **count > 1);
    doubled.map(|(key, count)| format!("{key}: {count} times")).collect()
}

fn missing(evidence: &Evidence) -> Vec<String> {
    let granted = |key: &&String| evidence.points.contains_key(*key);
    evidence.completed.iter().filter(|key| !granted(key)).cloned().collect()
}

fn stuck(evidence: &Evidence) -> Vec<String> {
    let open = evidence.history.iter().filter(|(_, ends)| ends.last() == Some(&End::Open));
    open.map(|(key, _)| key).chain(&evidence.unfinished).cloned().collect()
}

/// Waits until all has come to an end, but not for ever, and gathers what there is.
pub(super) async fn gather(stage: &Stage, mut history: History, caller: &Caller) -> Evidence {
    let unfinished = "SELECT namespace || '/' || idempotency_key || ' in state ' || state FROM entries \
                      WHERE state = 1 OR (state = 2 AND namespace <> 'hold') \
                      UNION ALL SELECT queue || ': ' || convert_from(data, 'UTF8') || ' in state ' || state FROM events \
                      WHERE state <> 5";
    let mut stranger = stage.database.stranger().await;
    let deadline = clock::now() + SETTLING;
    // Each look ends: what never comes to an end is found by the checks.
    while !texts(&mut stranger, unfinished).await.is_empty() {
        if clock::now() > deadline {
            break;
        }
        // What is to be forwarded again needs somebody who asks.
        caller.ask_again(history.iter_mut().filter(|(_, ends)| ends.last() == Some(&End::Open))).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    caller.ask_again(history.iter_mut()).await;
    let events = written(&stage.database).await;
    let paid =
        |data: &str| serde_json::from_str::<serde_json::Value>(data).unwrap()["for"].as_str().unwrap().to_owned();
    let own: Vec<_> = events.iter().filter(|event| event.queue == "default").collect();
    let mut announced: HashMap<String, usize> = HashMap::new();
    for event in &own {
        *announced.entry(paid(&event.data)).or_default() += 1;
    }
    let audited = own.iter().filter(|event| event.topic == super::stage::AUDIT);
    let written: BTreeMap<String, String> = audited.map(|event| (event.id.clone(), paid(&event.data))).collect();
    let arrived = arrived(stage, &written).await;
    let completed = "SELECT idempotency_key FROM entries WHERE state = 3 AND namespace NOT LIKE 'sub:%'";
    Evidence {
        payments: stage.service.payments(),
        completed: texts(&mut stranger, completed).await.into_iter().collect(),
        unfinished: texts(&mut stranger, unfinished).await,
        points: stage.service.points(),
        history,
        written,
        announced,
        arrived,
    }
}

/// What came, in the order in which it came first.
async fn arrived(stage: &Stage, written: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut auditor = stage.auditor();
    let (mut arrived, mut seen) = (Vec::new(), BTreeSet::new());
    while !written.keys().all(|id| seen.contains(id)) {
        let Ok(received) = tokio::time::timeout(PATIENCE, auditor.receive()).await else { break };
        let received = received.unwrap();
        for message in &received {
            let id = message.id.as_deref().unwrap().to_owned();
            let data: serde_json::Value = serde_json::from_slice(&message.data).unwrap();
            if seen.insert(id.clone()) {
                arrived.push((id, data["for"].as_str().unwrap().to_owned()));
            }
        }
        let receipts: Vec<_> = received.iter().map(|message| message.receipt).collect();
        auditor.ack(&receipts).await.unwrap();
    }
    arrived
}

#[test]
fn each_check_finds_what_it_is_for() {
    let paid = |number: u32| format!("{{\"payment\":{number}}}");
    let told = |number| End::Paid { body: paid(number), recorded: true };
    let once = |number| Paid { attempts: vec![1], answers: vec![paid(number)] };
    let keys = ["c0-0-hold", "c0-1-lookup", "c0-2-forward"].map(str::to_owned);
    let all = || keys.iter().cloned().zip(1..);
    let ids = || keys.iter().enumerate().map(|(id, key)| (id.to_string(), key.clone()));
    let sound = || Evidence {
        history: all().map(|(key, number)| (key, vec![told(number), told(number)])).collect(),
        payments: all().map(|(key, number)| (key, once(number))).collect(),
        completed: keys.iter().cloned().collect(),
        unfinished: Vec::new(),
        written: ids().collect(),
        announced: keys.iter().map(|key| (key.clone(), 2)).collect(),
        arrived: ids().collect(),
        points: keys.iter().map(|key| (key.clone(), 1)).collect(),
    };
    assert!(Verdict::of(&sound()).is_clean());
    let first = || keys[0].clone();
    type Spoil<'a> = &'a dyn Fn(&mut Evidence);
    let cases: [(&str, Spoil<'_>); 14] = [
        (EXECUTED, &|all| all.payments.get_mut(&keys[0]).unwrap().attempts.push(2)),
        (EXECUTED, &|all| all.payments.get_mut(&keys[2]).unwrap().attempts.push(1)),
        (DIFFERS, &|all| drop(all.history.insert(first(), vec![told(1), told(2)]))),
        (WRONG, &|all| all.history.get_mut(&keys[0]).unwrap().insert(0, End::Wrong("500".to_owned()))),
        (UNTOLD, &|all| drop(all.history.insert(first(), vec![told(9)]))),
        (UNRECORDED, &|all| all.history.get_mut(&keys[0]).unwrap().push(End::Held)),
        (UNANNOUNCED, &|all| *all.announced.get_mut(&keys[0]).unwrap() = 1),
        (LOST, &|all| drop(all.arrived.remove(0))),
        (FOREIGN, &|all| all.arrived.push(("9".to_owned(), first()))),
        (DISORDER, &|all| all.arrived.swap(0, 1)),
        (DOUBLED, &|all| *all.points.get_mut(&keys[0]).unwrap() = 2),
        (MISSING, &|all| all.points.retain(|key, _| *key != keys[0])),
        (STUCK, &|all| all.unfinished.push(first())),
        (STUCK, &|all| drop(all.history.insert(first(), vec![End::Open]))),
    ];
    for (name, spoil) in cases {
        let mut evidence = sound();
        spoil(&mut evidence);
        assert_eq!(Verdict::of(&evidence).count(name), 1, "{name}");
    }
}
