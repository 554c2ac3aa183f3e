//! Who breaks things, and mends them again; and who breaks the engine, to see whether that is seen.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use oncegate::clock;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::block_in_place;
use tokio::time::Instant;

use super::stage::Stage;
use crate::faults::LEASE;
use crate::servers::wire::{Mode, Wire};

/// What can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    GatewayKill,
    GatewayPause,
    GatewayStop,
    RedisKill,
    RedisFlush,
    RedisPause,
    PostgresCrash,
    PostgresBackends,
    PostgresPause,
    PostgresFailover,
    BrokerKill,
    BrokerPause,
    BrokerFull,
    WireCut,
    WireDelay,
    WireHalfOpen,
}

impl Fault {
    pub(super) const ALL: [(Self, &'static str); 16] = [
        (Self::GatewayKill, "gateway-kill"),
        (Self::GatewayPause, "gateway-pause"),
        (Self::GatewayStop, "gateway-stop"),
        (Self::RedisKill, "redis-kill"),
        (Self::RedisFlush, "redis-flush"),
        (Self::RedisPause, "redis-pause"),
        (Self::PostgresCrash, "postgres-crash"),
        (Self::PostgresBackends, "postgres-backends"),
        (Self::PostgresPause, "postgres-pause"),
        (Self::PostgresFailover, "postgres-failover"),
        (Self::BrokerKill, "broker-kill"),
        (Self::BrokerPause, "broker-pause"),
        (Self::BrokerFull, "broker-full"),
        (Self::WireCut, "wire-cut"),
        (Self::WireDelay, "wire-delay"),
        (Self::WireHalfOpen, "wire-half-open"),
    ];

    fn is_of_a_wire(self) -> bool {
        matches!(self, Self::WireCut | Self::WireDelay | Self::WireHalfOpen)
    }
}

/// How the engine is broken, from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sabotage {
    /// An unknown outcome is sent again, to a service that does not honour the key.
    Resend,
    /// The same of messages.
    Redeliver,
    /// Completed entries are forgotten.
    Forget,
    /// Events do not come into being.
    DropEvents,
    /// Events count as sent that were not.
    LoseEvents,
}

impl Sabotage {
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::Resend, "resend"),
        (Self::Redeliver, "redeliver"),
        (Self::Forget, "forget"),
        (Self::DropEvents, "drop-events"),
        (Self::LoseEvents, "lose-events"),
    ];

    /// What it does to the database, again and again.
    fn sql(self) -> Option<&'static str> {
        match self {
            Self::Resend | Self::Redeliver => None,
            Self::Forget => Some("DELETE FROM entries WHERE state = 3 AND random() < 0.3"),
            Self::DropEvents => Some("DELETE FROM events WHERE state = 1 AND queue = 'default' AND random() < 0.2"),
            Self::LoseEvents => {
                Some("UPDATE events SET state = 5 WHERE state = 1 AND queue = 'default' AND random() < 0.2")
            }
        }
    }
}

macro_rules! named {
    ($($what:ty),*) => {$(
        impl fmt::Display for $what {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(Self::ALL.iter().find(|(one, _)| one == self).map_or("", |(_, name)| name))
            }
        }

        impl FromStr for $what {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let known = || Self::ALL.map(|(_, name)| name).join(", ");
                Self::ALL.iter().find(|(_, name)| *name == text).map(|(one, _)| *one)
                    .ok_or_else(|| format!("{text} is none of {}", known()))
            }
        }
    )*};
}
named!(Fault, Sabotage);

/// What was done, how often.
pub(super) type Done = BTreeMap<Fault, u32>;

/// Breaks servers and connections for `period`, one of each at a time, and leaves nothing broken.
pub(super) async fn rage(
    stage: &mut Stage,
    mut rng: SmallRng,
    period: Duration,
    faults: &[Fault],
    sabotage: &[Sabotage],
) -> Done {
    let (connections, servers): (Vec<_>, Vec<_>) = faults.iter().partition(|fault| fault.is_of_a_wire());
    let wires = Arc::clone(&stage.wires);
    let until = clock::now() + period;
    let mut cutter = Nemesis::new(SmallRng::from_rng(&mut rng), connections, until);
    let mut killer = Nemesis::new(rng, servers, until);
    // A task of its own: to start a server again blocks the other one.
    let cutting = tokio::spawn(async move {
        while let Some(fault) = cutter.next().await {
            let wires = wires[cutter.rng.random_range(0..wires.len())].all();
            let wire = wires[cutter.rng.random_range(0..wires.len())];
            cutter.bend(fault, wire).await;
        }
        cutter.done
    });
    let killing = async {
        while let Some(fault) = killer.next().await {
            killer.inflict(fault, stage).await;
            for sql in sabotage.iter().filter_map(|sabotage| sabotage.sql()) {
                stage.database.stranger().await.run(sql).await;
            }
        }
    };
    killing.await;
    let mut done = cutting.await.unwrap();
    done.extend(killer.done);
    done
}

/// Who breaks things of one sort.
struct Nemesis {
    rng: SmallRng,
    /// Each once, and then any.
    once: Vec<Fault>,
    faults: Vec<Fault>,
    until: Instant,
    done: Done,
}

impl Nemesis {
    fn new(mut rng: SmallRng, faults: Vec<Fault>, until: Instant) -> Self {
        let mut once = faults.clone();
        once.shuffle(&mut rng);
        Self { rng, once, faults, until, done: Done::new() }
    }

    /// What is broken next, after a while; `None`: it is over.
    async fn next(&mut self) -> Option<Fault> {
        self.moment(100..700).await;
        let fault = self.once.pop().or_else(|| self.faults.choose(&mut self.rng).copied())?;
        if clock::now() > self.until {
            return None;
        }
        *self.done.entry(fault).or_default() += 1;
        Some(fault)
    }

    async fn moment(&mut self, milliseconds: std::ops::Range<u64>) {
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(milliseconds))).await;
    }

    /// Breaks, waits, mends.
    async fn inflict(&mut self, fault: Fault, stage: &mut Stage) {
        let victim = self.rng.random_range(0..stage.gateways.len());
        match fault {
            Fault::GatewayKill => block_in_place(|| stage.gateways[victim].restart("KILL")),
            Fault::GatewayStop => block_in_place(|| stage.gateways[victim].restart("TERM")),
            Fault::GatewayPause => {
                stage.gateways[victim].signal("STOP");
                tokio::time::sleep(LEASE.mul_f64(self.rng.random_range(0.3..2.0))).await;
                stage.gateways[victim].signal("CONT");
            }
            Fault::RedisFlush => drop(stage.redis.cli(&["FLUSHALL"])),
            Fault::RedisPause => {
                stage.redis.signal("STOP");
                self.moment(100..1500).await;
                stage.redis.signal("CONT");
            }
            Fault::RedisKill => {
                stage.redis.signal("KILL");
                self.moment(100..1500).await;
                block_in_place(|| stage.redis.start_again());
            }
            Fault::PostgresBackends => stage.database.stranger().await.kill_the_others().await,
            Fault::PostgresPause => {
                stage.postgres.process.signal_family("STOP");
                self.moment(200..5000).await;
                stage.postgres.process.signal_family("CONT");
            }
            Fault::PostgresCrash => {
                stage.postgres.crash();
                self.moment(0..1500).await;
                block_in_place(|| stage.postgres.recover());
            }
            Fault::PostgresFailover => {
                let standby = stage.postgres.synchronous_standby().await;
                self.moment(500..1500).await;
                stage.postgres.crash();
                standby.promote().await;
                stage.move_to(standby);
            }
            Fault::BrokerKill => {
                stage.broker.signal("KILL");
                block_in_place(|| stage.broker.start_again());
            }
            Fault::BrokerPause => {
                stage.broker.signal("STOP");
                self.moment(200..3000).await;
                stage.broker.signal("CONT");
            }
            Fault::BrokerFull => {
                let watermark = |to: &str| drop(stage.broker.ctl(&["set_vm_memory_high_watermark", to]));
                block_in_place(|| watermark("0.000001"));
                tokio::time::sleep(Duration::from_millis(self.rng.random_range(200..1500))).await;
                block_in_place(|| watermark("0.4"));
            }
            Fault::WireCut | Fault::WireDelay | Fault::WireHalfOpen => unreachable!("{fault} is of a wire"),
        }
    }

    async fn bend(&mut self, fault: Fault, wire: &Wire) {
        match fault {
            Fault::WireDelay => {
                wire.set(Mode::Late(Duration::from_millis(self.rng.random_range(5..200))));
                self.moment(300..2000).await;
                wire.set(Mode::Whole);
            }
            Fault::WireHalfOpen => {
                wire.set(if self.rng.random() { Mode::Dead } else { Mode::Unanswered });
                self.moment(300..2500).await;
                // What was swallowed never comes: the connections end.
                wire.set_next(Mode::Whole);
                wire.cut();
            }
            _ => wire.cut(),
        }
    }
}
