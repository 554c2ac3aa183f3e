//! Ownership: this process's lease, and the watch over the others'.
//!
//! Every process is an instance that renews its lease in the database; entries in progress name it. An
//! instance whose renewal counter stood still for a whole lease is expired by whoever noticed, with a
//! compare-and-set on that counter. Only time in which the observer itself renewed without a gap counts, so
//! that a pause of the database, or of the observer, expires nobody.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::instances::{Instances, Peer, Renewed};
use super::ledger::StoreError;
use crate::clock::{self, Instant, Timestamp};
use crate::entry::InstanceId;

/// How leases are timed.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTiming {
    /// How long an instance counts as alive after its last renewal.
    pub lease: Duration,
    /// How often it renews.
    pub renew: Duration,
}

impl Default for LeaseTiming {
    /// A lease of 30 s survives five failed renewals; an orphan is noticed within a minute.
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), renew: Duration::from_secs(5) }
    }
}

/// This process's lease.
pub(super) struct Ownership {
    instances: Arc<dyn Instances>,
    name: String,
    timing: LeaseTiming,
    lease: Mutex<Lease>,
    watch: Mutex<Watch>,
    /// Whether the instance has ended of its own will: a renewal that comes after must not begin a new one.
    ended: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    id: InstanceId,
    /// When the last successful renewal was *begun*: the database counts from later.
    renewed: Instant,
    /// The same by the machine's wall clock, which goes on while the machine is suspended.
    renewed_wall: Timestamp,
    /// When its answer came: the database's time was read before.
    answered: Instant,
    /// The database's time at that renewal.
    database: Timestamp,
}

impl Lease {
    fn new(id: InstanceId, (renewed, renewed_wall): (Instant, Timestamp), database: Timestamp) -> Self {
        Self { id, renewed, renewed_wall, answered: clock::now(), database }
    }

    /// How old the last renewal is. The monotonic clock may stand still while the machine is suspended, the
    /// wall clock may be set back: the one that says more is believed. One that was set forward costs at
    /// most the wait for the next renewal.
    fn age(&self) -> Duration {
        self.renewed.elapsed().max(clock::wall().since(self.renewed_wall))
    }
}

/// Now, on both of this machine's clocks.
fn begin() -> (Instant, Timestamp) {
    (clock::now(), clock::wall())
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ownership").field("lease", &self.lease()).finish_non_exhaustive()
    }
}

impl Ownership {
    /// Registers a new instance and renews it once.
    pub(super) async fn begin(
        instances: Arc<dyn Instances>,
        name: String,
        timing: LeaseTiming,
    ) -> Result<Self, StoreError> {
        let lease = Mutex::new(Lease::new(InstanceId::random(), begin(), Timestamp(0)));
        let watch = Mutex::new(Watch::new(timing));
        let ownership = Self { instances, name, timing, lease, watch, ended: AtomicBool::new(false) };
        ownership.register().await?;
        Ok(ownership)
    }

    async fn register(&self) -> Result<(), StoreError> {
        let (id, begun) = (InstanceId::random(), begin());
        self.instances.register(id, &self.name).await?;
        if let Renewed::Alive { now, .. } = self.instances.renew(id).await? {
            self.set(Lease::new(id, begun, now));
        }
        Ok(())
    }

    /// The instance that claims are made under now.
    pub(super) fn id(&self) -> InstanceId {
        self.lease().id
    }

    /// Whether the lease lasts at least `needed` from now, as this process sees it. A process that was
    /// suspended sees here that it was.
    pub(super) fn lasts(&self, needed: Duration) -> bool {
        let ends = self.ended.load(Ordering::Acquire);
        !ends && self.lease().age().saturating_add(needed) <= self.timing.lease
    }

    /// The same for what was claimed under `id`: once that instance has been expired, what it had in progress
    /// is no longer this process's to execute, however well its next instance stands.
    pub(super) fn lasts_for(&self, id: InstanceId, needed: Duration) -> bool {
        let lease = self.lease();
        lease.id == id && self.lasts(needed)
    }

    /// The database's time, as far as this process can tell without asking. Late rather than early: what has
    /// expired there has expired here.
    pub(super) fn database_now(&self) -> Timestamp {
        let lease = self.lease();
        lease.database.after(lease.age())
    }

    /// The database's time at the least, for what must not be believed too early.
    pub(super) fn database_now_at_least(&self) -> Timestamp {
        let lease = self.lease();
        lease.database.after(lease.answered.elapsed())
    }

    /// Renews the lease and expires those peers that stood still. An expired instance begins again under a
    /// new id; what it had in progress is orphaned like anybody else's.
    pub(super) async fn step(&self) -> Result<(), StoreError> {
        if self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        let (id, begun) = (self.id(), begin());
        let peers = match self.instances.renew(id).await? {
            Renewed::Alive { now, peers } => {
                self.set(Lease::new(id, begun, now));
                self.watch.lock().unwrap_or_else(PoisonError::into_inner).observe(now, &peers)
            }
            Renewed::Expired if self.ended.load(Ordering::Acquire) => return Ok(()),
            Renewed::Expired => {
                tracing::error!(instance = %id, "lease was lost: what was in progress here becomes unknown");
                self.watch.lock().unwrap_or_else(PoisonError::into_inner).forget();
                return self.register().await;
            }
        };
        for peer in peers {
            if self.instances.expire(peer).await? {
                tracing::warn!(instance = %peer.id, "another gateway's lease ran out: its unfinished requests become unknown");
            }
        }
        Ok(())
    }

    /// Forgets instances that ended long ago.
    pub(super) async fn forget(&self, age: Duration) -> Result<(), StoreError> {
        self.instances.forget(age).await.map(drop)
    }

    /// Ends the instance. Nothing can be claimed under it from then on.
    pub(super) async fn end(&self) -> Result<(), StoreError> {
        self.ended.store(true, Ordering::Release);
        self.instances.retire(self.id()).await
    }

    fn lease(&self) -> Lease {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, lease: Lease) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
    }
}

/// Since when each peer's counter stands still, on the database's clock.
#[derive(Debug)]
struct Watch {
    timing: LeaseTiming,
    seen: HashMap<InstanceId, (i64, Timestamp)>,
    last: Option<Timestamp>,
}

impl Watch {
    fn new(timing: LeaseTiming) -> Self {
        Self { timing, seen: HashMap::new(), last: None }
    }

    fn forget(&mut self) {
        self.seen.clear();
        self.last = None;
    }

    /// Takes what a renewal of our own just told, and says whose lease is over.
    fn observe(&mut self, now: Timestamp, peers: &[Peer]) -> Vec<Peer> {
        // A gap in our own renewals means that the database or this process stood still, and so perhaps
        // everybody: what was seen before it says nothing about the peers.
        if self.last.is_some_and(|last| now.since(last) > self.timing.renew * 2) {
            self.seen.clear();
        }
        self.last = Some(now);
        let mut seen = HashMap::new();
        let mut over = Vec::new();
        for peer in peers {
            let since = match self.seen.get(&peer.id) {
                Some((renewals, since)) if *renewals == peer.renewals => *since,
                Some(_) | None => now,
            };
            if peer.dead || now.since(since) >= self.timing.lease {
                over.push(*peer);
            }
            seen.insert(peer.id, (peer.renewals, since));
        }
        self.seen = seen;
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer { id: InstanceId([1; 16]), renewals: 7, dead: false };

    fn watch() -> Watch {
        Watch::new(LeaseTiming::default())
    }

    fn observe(watch: &mut Watch, second: i64, peer: Peer) -> bool {
        !watch.observe(Timestamp(second * 1000), &[peer]).is_empty()
    }

    #[test]
    fn a_peer_that_stands_still_for_a_whole_lease_is_over() {
        let mut watch = watch();
        for second in (100..130).step_by(5) {
            assert!(!observe(&mut watch, second, PEER), "at {second}");
        }
        assert!(observe(&mut watch, 130, PEER));
    }

    #[test]
    fn a_peer_that_renews_is_never_over() {
        let mut watch = watch();
        for step in 0..20 {
            let renewed = Peer { renewals: step / 4, ..PEER };
            assert!(!observe(&mut watch, step * 5, renewed), "at step {step}");
        }
    }

    #[test]
    fn a_gap_in_our_own_renewals_expires_nobody() {
        let mut watch = watch();
        assert!(!observe(&mut watch, 100, PEER));
        assert!(!observe(&mut watch, 200, PEER), "the database was paused, not the peer alone");
        for second in (205..230).step_by(5) {
            assert!(!observe(&mut watch, second, PEER), "at {second}");
        }
        assert!(observe(&mut watch, 230, PEER), "a whole lease after the gap it is over");
    }

    #[test]
    fn a_peer_known_to_be_dead_is_over_at_once() {
        assert!(observe(&mut watch(), 100, Peer { dead: true, ..PEER }));
    }
}
