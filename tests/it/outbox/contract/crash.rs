//! A database that crashes has what was to be durable.

use super::{Ground, SENT, new};
use crate::servers::database::{Database, Kind};
use crate::servers::postgres::Postgres;

/// Of what nobody waits for, the server writes something now and then. It does not hit each of so many crashes.
const CRASHES: usize = 5;

/// Where somebody waits for the disk between a commit and its broker, nothing is ever forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_concluded_is_durable_and_nobody_waits_for_what_was_only_taken_up() {
    let mut server = tokio::task::block_in_place(|| Postgres::start(&["wal_writer_delay=10s"]));
    let database = Database::create_on(Kind::Postgres, &server.base_url).await;
    let store = database.open();
    store.migrate().await.unwrap();
    oncegate::outbox::store::Outbox::open(&store, super::QUEUE, 4).await.unwrap();
    let ground = Ground { database, store };
    for _ in 0..CRASHES {
        let concluded = ground.commit(new(0, "a")).await;
        let holder = ground.heir().await;
        let acquired = holder.acquire().await;
        let taken = ground.commit(new(1, "b")).await;
        holder.conclude(&acquired.iter().map(|event| (event, SENT)).collect::<Vec<_>>()).await;
        assert_eq!(super::positions(&holder.acquire().await), [taken]);
        assert_eq!(ground.column("attempts", taken).await, 1, "everybody sees it");
        server.crash();
        tokio::task::block_in_place(|| server.recover());
        assert_eq!(ground.state(concluded).await, 5);
        if ground.column("attempts", taken).await == 0 {
            return;
        }
    }
    panic!("it waits for the disk");
}
