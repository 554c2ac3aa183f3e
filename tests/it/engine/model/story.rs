//! What really happened to one key, as the upstream knows it.

use std::sync::{Arc, Mutex};

use oncegate::engine::policy::Found;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::Shared;
use crate::engine::upstream::answer;

/// How one execution ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    NotExecuted,
    /// Nobody can tell; it took effect or not.
    Unknown {
        effect: bool,
    },
    /// The answer comes after the time-out.
    Late {
        effect: bool,
    },
    PanicBefore,
    PanicAfter {
        effect: bool,
    },
}

impl End {
    pub(super) fn random(rng: &mut StdRng) -> Self {
        let effect = rng.random();
        match rng.random_range(0..12) {
            0..4 => Self::Completed,
            4..7 => Self::NotExecuted,
            7..9 => Self::Unknown { effect },
            9 => Self::Late { effect },
            10 => Self::PanicBefore,
            _ => Self::PanicAfter { effect },
        }
    }

    fn has_effect(self) -> bool {
        match self {
            Self::Completed => true,
            Self::NotExecuted | Self::PanicBefore => false,
            Self::Unknown { effect } | Self::Late { effect } | Self::PanicAfter { effect } => effect,
        }
    }
}

/// What the key's route does about an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Hold,
    Lookup,
    Forward,
}

/// One key's.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) rule: Rule,
    /// What took effect: the request that did, and its answer.
    pub(super) effect: Option<(&'static str, &'static str)>,
    /// Executions under way, or listened to.
    running: usize,
    /// Whether an execution ended in another way than "not executed".
    touched: bool,
    /// What must never be, and was.
    pub(super) wrongs: Vec<String>,
}

/// An execution under way. Dropped, it is not any more, however it ended.
pub(super) struct Running {
    story: Shared<Story>,
    end: End,
    is_over: bool,
}

impl Story {
    pub(super) fn new(rule: Rule) -> Shared<Self> {
        Arc::new(Mutex::new(Self { rule, effect: None, running: 0, touched: false, wrongs: Vec::new() }))
    }

    /// The first byte arrives. Returns what is answered where it takes effect.
    pub(super) fn begin(this: &Shared<Self>, variant: &'static str, number: u32, end: End) -> (Running, &'static str) {
        let mut story = this.lock().unwrap();
        let is_wrong = match story.rule {
            Rule::Hold => story.running > 0 || story.touched,
            Rule::Lookup => story.running > 0 || story.effect.is_some(),
            // The upstream honours the key: it may be sent again, as another attempt and the same request.
            Rule::Forward => {
                number == 1 && (story.running > 0 || story.touched)
                    || story.effect.is_some_and(|(first, _)| first != variant)
            }
        };
        if is_wrong {
            let wrong = format!("attempt {number} of {variant} to end {end:?} although {story:?}");
            story.wrongs.push(wrong);
        }
        story.running += 1;
        if end.has_effect() && story.effect.is_none() {
            story.effect = Some((variant, Box::leak(format!("effect {}", rand::random::<u32>()).into_boxed_str())));
        }
        let body = story.effect.map_or("no effect", |(_, body)| body);
        (Running { story: this.clone(), end, is_over: false }, body)
    }

    /// What the upstream says when it is asked.
    pub(super) fn look_up(&self) -> Found {
        match self.effect {
            // What is on its way may still take effect: the time after which absence is believed covers it.
            _ if self.running > 0 => Found::Undecided,
            Some((_, body)) => Found::Completed(answer(body)),
            None => Found::Absent,
        }
    }

    pub(super) fn replayed(&mut self, variant: &str, body: &[u8]) {
        if self.effect.is_none_or(|(first, effect)| first != variant || effect.as_bytes() != body) {
            let wrong = format!("{variant} was answered {:?} although {self:?}", String::from_utf8_lossy(body));
            self.wrongs.push(wrong);
        }
    }
}

impl Running {
    /// It ended as it was to.
    pub(super) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut story = self.story.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        story.running -= 1;
        // Killed in the middle, nobody can tell.
        story.touched |= !self.is_over || self.end != End::NotExecuted;
    }
}
