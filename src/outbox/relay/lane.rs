//! A lane that a relay holds, and the keys of its events in hand.

use std::collections::HashMap;
use std::sync::Arc;

use super::line::{InHand, Left, Line, Rules};
use crate::outbox::store::{How, Reach};

/// How many events the first look at a lane asks for: most lanes have few.
const FIRST_QUOTA: usize = 16;

/// Whether a lane is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// At work.
    Held,
    /// Above the share, or the relay stops: nothing is taken up any more, and it is released once nothing is in
    /// hand.
    Leaving,
}

#[derive(Debug)]
pub(super) struct HeldLane {
    pub(super) epoch: i64,
    pub(super) stage: Stage,
    /// Whether there may be ready events that nobody has looked for.
    pub(super) more: bool,
    /// Where the last look has left them.
    reach: Reach,
    /// Whether the next look must find them wherever they are, whatever a look under way may say.
    anew: bool,
    /// Whether the last look left some.
    pub(super) backlog: bool,
    /// Whether retries may be due.
    pub(super) retries: bool,
    /// How many events the next look asks for: a lane that filled its last look asks for more.
    pub(super) quota: usize,
    pub(super) in_hand: usize,
    /// The event in hand that a relay has died of: nothing more is taken up until it is concluded.
    pub(super) suspect: Option<i64>,
    lines: HashMap<Arc<str>, Line>,
}

impl HeldLane {
    pub(super) fn new(epoch: i64) -> Self {
        Self {
            epoch,
            stage: Stage::Held,
            more: true,
            reach: Reach::WHOLE,
            anew: true,
            backlog: true,
            retries: true,
            quota: FIRST_QUOTA,
            in_hand: 0,
            suspect: None,
            lines: HashMap::new(),
        }
    }

    pub(super) fn push(&mut self, key: &Arc<str>, event: InHand, rules: &Rules) {
        self.in_hand += 1;
        if event.deaths > 0 {
            self.suspect = Some(event.position);
        }
        self.lines.entry(Arc::clone(key)).or_default().push(event, rules);
    }

    pub(super) fn line(&mut self, key: &str) -> Option<&mut Line> {
        self.lines.get_mut(key)
    }

    /// Takes out what has an end in the line of `key`.
    pub(super) fn settle(&mut self, key: &Arc<str>, rules: &Rules) -> Vec<Left> {
        let Some(line) = self.lines.get_mut(key) else { return Vec::new() };
        let left = line.settle(rules);
        if line.is_empty() {
            self.lines.remove(key);
        }
        self.note(&left);
        left
    }

    /// Takes out everything in hand, whatever is under way.
    pub(super) fn abandon(&mut self, rules: &Rules) -> Vec<(Arc<str>, Vec<Left>)> {
        let lines = std::mem::take(&mut self.lines);
        let abandoned: Vec<_> = lines.into_iter().map(|(key, line)| (key, line.abandon(rules))).collect();
        abandoned.iter().for_each(|(_, left)| self.note(left));
        abandoned
    }

    /// Gives back what is not published, as soon as what is under way of its key is back.
    pub(super) fn recall(&mut self, rules: &Rules) -> Vec<(Arc<str>, Vec<Left>)> {
        self.lines.values_mut().for_each(Line::recall);
        let keys: Vec<Arc<str>> = self.lines.keys().cloned().collect();
        let recalled = keys.into_iter().map(|key| {
            let left = self.settle(&key, rules);
            (key, left)
        });
        recalled.collect()
    }

    fn note(&mut self, left: &[Left]) {
        self.in_hand -= left.len();
        if left.iter().any(|event| event.how == How::GivenBack) {
            self.given_back();
        }
        // Whom it frees is due by the same turn.
        self.retries |= left.iter().any(|event| matches!(event.how, How::Sent { frees: Some(_), .. }));
        if left.iter().any(|event| Some(event.position) == self.suspect) {
            self.suspect = None;
        }
    }

    /// Something of it is to be ready again: nobody will tell, and it is before where looks have come to.
    pub(super) fn given_back(&mut self) {
        self.more = true;
        self.anew = true;
    }

    /// The positions of what is in hand.
    pub(super) fn positions(&self) -> impl Iterator<Item = i64> + '_ {
        self.lines.values().flat_map(Line::positions)
    }

    /// A look begins, with this reach.
    pub(super) fn look(&mut self) -> Reach {
        self.more = false;
        self.retries = false;
        let anew = std::mem::take(&mut self.anew);
        if anew { Reach::WHOLE } else { self.reach }
    }

    /// There is more, within this reach.
    pub(super) fn go_on(&mut self, reach: Reach) {
        self.more = true;
        self.reach = reach;
    }

    /// A look that found everything that is ready.
    pub(super) fn emptied(&mut self, found: usize) {
        self.reach = Reach::WHOLE;
        self.backlog = false;
        self.quota = FIRST_QUOTA.max(found);
    }

    /// A look that there is more after.
    pub(super) fn filled(&mut self, most: usize) {
        self.backlog = true;
        self.quota = self.quota.saturating_mul(4).min(most);
    }

    /// Looks at everything again.
    pub(super) fn look_anew(&mut self) {
        self.more = true;
        self.anew = true;
        self.retries = true;
    }
}
