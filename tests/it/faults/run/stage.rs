//! Three gateways on PostgreSQL, Redis and RabbitMQ of their own, each over wires of its own, and what stands behind
//! them.

use std::net::SocketAddr;
use std::sync::Arc;

use oncegate::broker::rabbitmq::{RabbitMqOptions, RabbitMqSubscriber, RabbitMqSubscriberOptions};
use tokio::task::block_in_place;

use super::document::document;
use super::nemesis::Sabotage;
use super::service::Service;
use crate::faults::gateway::Gateway;
use crate::servers::database::{Database, Kind};
use crate::servers::postgres::Postgres;
use crate::servers::rabbitmq::RabbitMq;
use crate::servers::redis::Redis;
use crate::servers::wire::Wire;

/// Gateways of a run.
const GATEWAYS: usize = 3;

/// Lines of each gateway's log that a failed run shows.
const LOG_LINES: usize = 40;

/// The topic that the checker reads. What the points are granted for has another one.
pub(super) const AUDIT: &str = "audit";

/// What a gateway is connected to.
#[derive(Debug)]
pub(super) struct Wires {
    pub(super) postgres: Wire,
    pub(super) redis: Wire,
    pub(super) broker: Wire,
    pub(super) service: Wire,
}

impl Wires {
    pub(super) fn all(&self) -> [&Wire; 4] {
        [&self.postgres, &self.redis, &self.broker, &self.service]
    }
}

pub(super) struct Stage {
    pub(super) postgres: Postgres,
    pub(super) database: Database,
    pub(super) redis: Redis,
    pub(super) broker: RabbitMq,
    pub(super) service: Service,
    pub(super) gateways: Vec<Gateway>,
    /// By gateway.
    pub(super) wires: Arc<[Wires]>,
}

impl Stage {
    pub(super) async fn build(sabotage: &[Sabotage]) -> Self {
        let (postgres, redis, broker) = block_in_place(|| (Postgres::start(&[]), Redis::start(), RabbitMq::start()));
        let database = Database::create_on(Kind::Postgres, &postgres.base_url).await;
        let service = Service::start().await;
        let mut wires = Vec::new();
        for _ in 0..GATEWAYS {
            wires.push(Wires {
                postgres: Wire::to(postgres.port).await,
                redis: Wire::to(redis.port).await,
                broker: Wire::to(broker.port).await,
                service: Wire::to(service.port).await,
            });
        }
        let name = database.url.rsplit('/').next().unwrap();
        let start = |wires| Gateway::run(|address| document(address, name, wires, sabotage), None, "TERM");
        let gateways: Vec<Gateway> = wires.iter().map(start).collect();
        block_in_place(|| gateways.iter().for_each(Gateway::await_ready));
        Self { postgres, database, redis, broker, service, gateways, wires: wires.into() }
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways.iter().map(|gateway| gateway.address).collect()
    }

    /// Somebody who reads all that was announced.
    pub(super) fn auditor(&self) -> RabbitMqSubscriber {
        let options = RabbitMqSubscriberOptions::new(RabbitMqOptions::new(&self.broker.url), AUDIT);
        RabbitMqSubscriber::new(options).unwrap()
    }

    /// Has every gateway use another server as its database.
    pub(super) fn move_to(&mut self, postgres: Postgres) {
        for wires in &*self.wires {
            wires.postgres.lead_to(postgres.port);
            wires.postgres.cut();
        }
        self.database.url = self.database.url.replace(&self.postgres.base_url, &postgres.base_url);
        self.postgres = postgres;
    }
}

/// A failed run tells what its gateways had to say.
impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for gateway in &self.gateways {
                let log = gateway.log();
                let last: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
                eprintln!("gateway {}:\n{}", gateway.address, last.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
    }
}
