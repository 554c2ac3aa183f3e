//! All that outlives a process, and the calls that are on their way to it.
//!
//! Every call to an adapter is a place at which a schedule decides: it is *on its way*, then it is *done* and its answer
//! is on the way back, then it is *told*. In between anything may happen, to whoever asked as well. What is on its way
//! when its process is killed arrives later, or never.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use futures_util::future::{BoxFuture, FutureExt as _};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::events::Events;
use crate::ledger::Tables;
use crate::marks::MarkTable;
use crate::upstream::Upstream;

/// All that outlives a process.
pub(crate) struct World {
    pub(crate) rng: SmallRng,
    /// The database's time, in milliseconds.
    pub(crate) now: i64,
    pub(crate) tables: Tables,
    pub(crate) marks: MarkTable,
    pub(crate) upstream: Upstream,
    pub(crate) events: Events,
    pub(crate) calls: Vec<Call>,
    /// From then on every call is made at once, and well.
    pub(crate) is_calm: bool,
    /// Whether most of what is asked for is not answered.
    pub(crate) is_ill: bool,
    /// How many calls are made at once before, of a hundred.
    pub(crate) at_once: u32,
    /// What must never be, and was.
    pub(crate) wrongs: Vec<String>,
    /// Evidence that could not be kept, since the store was away.
    pub(crate) evidence_lost: bool,
    story: DefaultHasher,
    told: Option<String>,
}

/// Shared by the processes and the schedule. One thread: nobody ever waits for it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<World>>);

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Luck {
    /// It is done, and said to be.
    Well,
    /// It is not done, and said not to be.
    Refused(Failed),
    /// It is done, and nobody hears of it.
    Unheard,
}

/// Why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Nothing was done.
    Away,
    /// Nothing was done, and at once again it may be.
    Conflict,
    /// It was done or not.
    Unclear,
}

/// A call.
pub(crate) struct Call {
    pub(crate) process: u32,
    pub(crate) what: &'static str,
    work: Option<Work>,
    tell: Box<dyn FnOnce() + Send>,
}

type Work = Box<dyn FnOnce(&mut World, Luck) + Send>;

struct Slot<T> {
    result: Option<Result<T, Failed>>,
    is_told: bool,
    waker: Option<Waker>,
}

impl Call {
    pub(crate) fn is_on_its_way(&self) -> bool {
        self.work.is_some()
    }
}

impl Shared {
    pub(crate) fn new(seed: u64, is_told: bool) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let at_once = [0, 60, 90][rng.random_range(0..3)];
        Self(Arc::new(Mutex::new(World {
            now: 1_000_000,
            tables: Tables::default(),
            marks: MarkTable::default(),
            upstream: Upstream::new(),
            events: Events::new(&mut rng),
            rng,
            calls: Vec::new(),
            is_calm: false,
            is_ill: false,
            at_once,
            wrongs: Vec::new(),
            evidence_lost: false,
            story: DefaultHasher::new(),
            told: is_told.then(String::new),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call on its way, at once, and returns its answer to come.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        process: u32,
        what: &'static str,
        work: impl FnOnce(&mut World) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failed>> {
        let slot = Arc::new(Mutex::new(Slot { result: None, is_told: false, waker: None }));
        let mut world = self.lock();
        let world = &mut *world;
        // Lines of calls keep their order only if none of them is made before its turn.
        let is_at_once = world.is_calm || what != "publish" && world.rng.random_range(0..100) < world.at_once;
        if is_at_once {
            world.note(process, what, "at once");
            let done = work(world);
            *slot.lock().unwrap() = Slot { result: Some(Ok(done)), is_told: true, waker: None };
        } else {
            let (done, told) = (slot.clone(), slot.clone());
            world.calls.push(Call {
                process,
                what,
                work: Some(Box::new(move |world, luck| {
                    let result = match luck {
                        Luck::Well => Ok(work(world)),
                        Luck::Refused(failed) => Err(failed),
                        Luck::Unheard => {
                            work(world);
                            Err(Failed::Unclear)
                        }
                    };
                    done.lock().unwrap().result = Some(result);
                })),
                tell: Box::new(move || {
                    let mut slot = told.lock().unwrap();
                    slot.is_told = true;
                    if let Some(waker) = slot.waker.take() {
                        waker.wake();
                    }
                }),
            });
        }
        let answered = std::future::poll_fn(move |context| {
            let mut slot = slot.lock().unwrap();
            if slot.is_told
                && let Some(result) = slot.result.take()
            {
                return Poll::Ready(result);
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        });
        answered.boxed()
    }
}

impl World {
    /// Does what the call asks for, if its luck lets it.
    pub(crate) fn carry_out(&mut self, index: usize, luck: Luck) {
        let call = &mut self.calls[index];
        let (process, what) = (call.process, call.what);
        if let Some(work) = call.work.take() {
            match luck {
                Luck::Well => self.note(process, what, "is done"),
                Luck::Refused(_) => self.note(process, what, "is not done"),
                Luck::Unheard => self.note(process, what, "is done, unheard"),
            }
            work(self, luck);
        }
    }

    /// Tells whoever asked, if it still is there.
    pub(crate) fn tell(&mut self, index: usize) -> u32 {
        let call = self.calls.remove(index);
        self.note(call.process, call.what, "is told");
        (call.tell)();
        call.process
    }

    /// What a killed process had on its way arrives, or never does. Nobody hears of what was done.
    pub(crate) fn cut_off(&mut self, process: u32) {
        let rng = &mut self.rng;
        self.calls.retain(|call| call.process != process || call.is_on_its_way() && rng.random_bool(0.5));
    }

    /// What happened, in order: the same for the same seed.
    pub(crate) fn note(&mut self, process: u32, what: &str, how: &str) {
        (process, what, how, self.now).hash(&mut self.story);
        if let Some(told) = &mut self.told {
            writeln!(told, "{:>6} ms  process {process}: {what} {how}", self.now - 1_000_000).unwrap();
        }
    }

    pub(crate) fn wrong(&mut self, wrong: String) {
        self.note(0, "WRONG:", &wrong);
        self.wrongs.push(wrong);
    }

    /// What happened, as a number and, if it is wanted, as a text.
    pub(crate) fn story(&mut self) -> (u64, Option<String>) {
        (self.story.finish(), self.told.take())
    }
}
