//! The service behind: what was sent to it, what really happened there, and what nobody may ever do to it.

use bytes::Bytes;
use oncegate::engine::policy::Found;
use oncegate::entry::Nonce;

use crate::desk::by_hand;
use crate::requests::{KEYS, Rule, answer, rule};
use crate::world::World;

/// How long after it was sent the service begins a request at most, in milliseconds: what a route declares when it
/// believes in "absent".
pub(crate) const BEGINS_WITHIN: i64 = 2_000;

/// Each key's story.
pub(crate) struct Upstream {
    pub(crate) stories: [Story; KEYS],
    effects: u32,
}

/// What really happened to one key.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) sends: Vec<Send>,
    /// What took effect: the request that did, and its answer. More than one only where a person was wrong.
    pub(crate) effects: Vec<(usize, Bytes)>,
    /// So many sends, and what they came to, do not count any more: a person has said that nothing has happened.
    let_go: (usize, usize),
}

/// One request on its way, and what became of it.
#[derive(Debug)]
pub(crate) struct Send {
    variant: usize,
    pub(crate) nonce: Nonce,
    pub(crate) process: u32,
    pub(crate) at: i64,
    state: Sent,
    /// What its process has heard.
    pub(crate) heard: Option<Heard>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    OnItsWay,
    Took,
    Ended,
}

/// What a process hears of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    Completed(Bytes),
    NotExecuted,
    Nothing,
}

/// How the service takes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    Completes,
    Refuses,
    /// It ends in an error that says nothing.
    Fails {
        effect: bool,
    },
}

impl Story {
    /// A person says that nothing has happened: the key is new again, come what may.
    pub(crate) fn is_let_go(&mut self) {
        self.let_go = (self.sends.len(), self.effects.len());
    }

    /// What took effect since.
    pub(crate) fn effect(&self) -> Option<&(usize, Bytes)> {
        self.effects[self.let_go.1..].first()
    }
}

impl Upstream {
    pub(crate) fn new() -> Self {
        Self { stories: std::array::from_fn(|_| Story::default()), effects: 0 }
    }
}

impl World {
    /// The first byte leaves. Whether it may is the first promise of all.
    pub(crate) fn send(&mut self, key: usize, variant: usize, attempt: u32, nonce: Nonce, process: u32) -> usize {
        let now = self.now;
        let story = &self.upstream.stories[key];
        let sends = &story.sends[story.let_go.0..];
        let is_known_not_executed = |send: &Send| send.heard == Some(Heard::NotExecuted);
        let may_still_begin = |send: &Send| send.state == Sent::OnItsWay && now - send.at <= BEGINS_WITHIN;
        let is_wrong = match rule(key) {
            Rule::Hold => !sends.iter().all(is_known_not_executed),
            Rule::LookUp => {
                let mut open = sends.iter().filter(|send| !is_known_not_executed(send));
                story.effect().is_some() || open.any(may_still_begin)
            }
            // The service honours the key: it may be sent again, as another attempt and the same request.
            Rule::Forward => {
                let mut open = sends.iter().filter(|send| !is_known_not_executed(send));
                open.any(|send| attempt == 1 || send.variant != variant)
            }
        };
        if is_wrong {
            let wrong = format!("key {key}: attempt {attempt} of request {variant} is sent, although {story:?}");
            self.wrong(wrong);
        }
        self.note(process, "upstream", &format!("is sent key {key}, request {variant}, attempt {attempt}"));
        let send = Send { variant, nonce, process, at: now, state: Sent::OnItsWay, heard: None };
        let sends = &mut self.upstream.stories[key].sends;
        sends.push(send);
        sends.len() - 1
    }

    /// The request arrives.
    pub(crate) fn receive(&mut self, key: usize, send: usize, plan: Plan) -> Heard {
        let now = self.now;
        let Upstream { stories, effects } = &mut self.upstream;
        let story = &mut stories[key];
        let Send { variant, at, .. } = story.sends[send];
        story.sends[send].state = Sent::Ended;
        if now - at > BEGINS_WITHIN {
            return Heard::Nothing;
        }
        if let Some((_, body)) = story.effect()
            && rule(key) == Rule::Forward
        {
            return Heard::Completed(body.clone());
        }
        let has_effect = match plan {
            Plan::Completes => true,
            Plan::Refuses => false,
            Plan::Fails { effect } => effect,
        };
        if has_effect {
            story.sends[send].state = Sent::Took;
            *effects += 1;
            let body = Bytes::from(format!(r#"{{"key":{key},"effect":{effects}}}"#));
            let before = story.effect().cloned();
            if send < story.let_go.0 {
                // The person was wrong about this one, however late it is.
                story.effects.insert(story.let_go.1, (variant, body.clone()));
                story.let_go.1 += 1;
            } else {
                story.effects.push((variant, body.clone()));
                if let Some(before) = before {
                    self.wrong(format!("key {key}: request {variant} takes effect after {before:?}"));
                }
            }
            if plan == Plan::Completes {
                return Heard::Completed(body);
            }
        }
        if plan == Plan::Refuses { Heard::NotExecuted } else { Heard::Nothing }
    }

    /// What the service says when it is asked.
    pub(crate) fn look_up(&self, key: usize) -> Found {
        match self.upstream.stories[key].effect() {
            Some((_, body)) => Found::Completed(answer(body)),
            None => Found::Absent,
        }
    }

    /// A caller of `key` was answered with `body`, as what happened.
    pub(crate) fn answered(&mut self, key: usize, variant: usize, body: &Bytes) {
        let effects = &self.upstream.stories[key].effects;
        if *body != by_hand(key) && !effects.contains(&(variant, body.clone())) {
            let wrong =
                format!("key {key}: request {variant} is answered {body:?}, although {effects:?} is what happened");
            self.wrong(wrong);
        }
    }
}
