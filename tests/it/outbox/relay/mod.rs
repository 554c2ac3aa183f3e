//! The relay: random schedules of the machine alone, and the whole on real databases, with a broker on a real
//! socket.

mod broker;
mod cleaning;
mod crash;
mod failover;
mod failures;
mod ground;
mod model;
mod overlaps;
mod publishing;
mod sharing;
