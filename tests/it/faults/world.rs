//! An upstream, a database, gateways and their clients, and what must hold at the end.

use std::net::SocketAddr;
use std::time::Duration;

use super::client::{Client, End};
use super::eventually;
use super::gateway::{Gateway, Settings};
use super::load::{History, Load};
use super::upstream::{Script, Upstream};
use crate::servers::database::Database;

/// How long payments take under load: long enough that faults meet some under way.
const PAYMENT: Duration = Duration::from_millis(20);

/// Lines of each gateway's log that a failed test shows.
const LOG_LINES: usize = 60;

#[derive(Debug)]
pub(super) struct World {
    pub(super) database: Database,
    pub(super) upstream: Upstream,
    pub(super) client: Client,
    pub(super) gateways: Vec<Gateway>,
}

impl World {
    /// `count` gateways with `settings` on an empty `database`.
    pub(super) async fn start(database: Database, settings: &Settings, count: usize) -> Self {
        Self::start_with(database, settings, count, Script::Within(PAYMENT)).await
    }

    pub(super) async fn start_with(database: Database, settings: &Settings, count: usize, script: Script) -> Self {
        let upstream = Upstream::start(script).await;
        let gateways = (0..count).map(|_| Gateway::start(settings, &upstream)).collect();
        Self::around(database, upstream, gateways)
    }

    pub(super) fn around(database: Database, upstream: Upstream, gateways: Vec<Gateway>) -> Self {
        Self { database, upstream, client: Client::new(), gateways }
    }

    /// Starts one more gateway.
    pub(super) fn join(&mut self, settings: &Settings) {
        self.gateways.push(Gateway::start(settings, &self.upstream));
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways.iter().map(|gateway| gateway.address).collect()
    }

    pub(super) fn load(&self) -> Load {
        Load::start(&self.client, &self.addresses())
    }

    /// Sends `key` to gateway `number` in the background.
    pub(super) fn post_later(
        &self,
        number: usize,
        key: &str,
    ) -> tokio::task::JoinHandle<Option<super::client::Answer>> {
        let (client, address, key) = (self.client.clone(), self.gateways[number].address, key.to_owned());
        tokio::spawn(async move { client.post(address, &key).await })
    }

    /// Waits until the upstream has seen `key`.
    pub(super) async fn dispatched(&self, key: &str) {
        eventually("the upstream sees the request", async || self.upstream.seen(key) > 0).await;
    }

    /// Rows in `state`: 1 in progress, 2 unknown, 3 completed.
    pub(super) async fn entries(&self, state: u8) -> i64 {
        self.count(&format!("entries WHERE state = {state}")).await
    }

    /// Gateways whose lease ran out, or that ended.
    pub(super) async fn ended_instances(&self) -> i64 {
        self.count("instances WHERE state = 2").await
    }

    async fn count(&self, what: &str) -> i64 {
        self.database.stranger().await.number(&format!("SELECT COUNT(*) FROM {what}")).await
    }

    /// Waits until nothing is in progress, then checks every key of `history`, and returns how many are held.
    pub(super) async fn settle(&self, history: &History) -> usize {
        eventually("nothing is in progress", async || self.entries(1).await == 0).await;
        let addresses = self.addresses();
        let mut held = 0;
        for (number, (key, ends)) in history.iter().enumerate() {
            assert!(self.upstream.seen(key) <= 1, "{key} was paid twice: {ends:?}");
            let on_record = ends.iter().any(|end| matches!(end, End::Answered(answer) if answer.recorded));
            let last = self.client.pay(&addresses[number % addresses.len()..][..1], key).await;
            for end in ends.iter().chain([&last]) {
                let End::Answered(answer) = end else { continue };
                assert_eq!(answer.body, Upstream::answer(key), "{key}: {ends:?}");
                assert_eq!(self.upstream.seen(key), 1, "{key}: {ends:?}");
            }
            match last {
                End::Answered(answer) => assert!(answer.replayed, "{key} was not on record: {ends:?}"),
                End::Held => {
                    assert!(!on_record, "{key} was lost: {ends:?}");
                    held += 1;
                }
            }
        }
        println!("{} keys, {held} held", history.len());
        held
    }

    /// As [`Self::settle`], where the route's policy settles what is unknown: every key ends with its answer, and its
    /// attempts arrived at the upstream as `allowed`.
    pub(super) async fn settle_all(&self, history: &History, allowed: impl Fn(&[u32]) -> bool) {
        eventually("nothing is in progress", async || self.entries(1).await == 0).await;
        let addresses = self.addresses();
        let mut again = 0;
        for (number, (key, ends)) in history.iter().enumerate() {
            let address = [addresses[number % addresses.len()]];
            eventually("it has its answer", async || matches!(self.client.pay(&address, key).await, End::Answered(_)))
                .await;
            let End::Answered(last) = self.client.pay(&address, key).await else { panic!("{key}: {ends:?}") };
            assert!(last.replayed, "{key} is not on record: {last:?}");
            for end in ends.iter().chain([&End::Answered(last)]) {
                let End::Answered(answer) = end else { continue };
                assert_eq!(answer.body, Upstream::answer(key), "{key}: {ends:?}");
            }
            let attempts = self.upstream.attempts(key);
            assert!(allowed(&attempts), "{key} arrived as {attempts:?}: {ends:?}");
            again += attempts.len() - 1;
        }
        println!("{} keys, {again} sent again", history.len());
        assert_eq!((self.entries(1).await, self.entries(2).await), (0, 0));
    }
}

/// A failed test tells what its gateways had to say.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for gateway in &self.gateways {
                let log = gateway.log();
                let last: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                eprintln!("gateway {}:\n{}", gateway.address, last.join("\n"));
            }
        }
    }
}
