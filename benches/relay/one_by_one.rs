//! What the relay is measured against: read the next event, publish it, await the confirm, mark it, commit. As
//! lean as that can be: one process, one connection, no lease, no count of attempts, three round trips and one
//! commit an event.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oncegate::broker::Publisher;
use oncegate::clock::{self, Timestamp};
use oncegate::outbox::event::{Envelope, EventId, Outgoing};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::ground::Ground;

/// As many indexes as the outbox has, and the one that this reads through in place of the relay's.
const INDEX: &str = "DROP INDEX events_by_state; CREATE INDEX events_by_state ON events (state, position)";

/// Whatever the planner believes of the table, only the index has this order.
const NEXT: &str = "SELECT position, id, queue, topic, event_key, type, source, route, content_type, data, created_at \
     FROM events WHERE (state, position) >= (1, 0) AND state <= 1 ORDER BY state, position LIMIT 1";

const MARK: &str = "UPDATE events SET state = 5, attempts = attempts + 1, \
     changed_at = (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint, \
     due_at = (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint + 86400000 WHERE position = $1 AND state = 1";

pub(crate) struct OneByOne {
    pub(crate) ground: Ground,
    publisher: Arc<dyn Publisher>,
}

impl OneByOne {
    pub(crate) async fn new(mut ground: Ground, publisher: Arc<dyn Publisher>) -> Self {
        sqlx::raw_sql(INDEX).execute(&mut ground.connection).await.unwrap();
        Self { ground, publisher }
    }

    /// Publishes all that is ready, and says how long that took.
    pub(crate) async fn drain(&mut self) -> Duration {
        let begun = clock::now();
        let connection = &mut self.ground.connection;
        while let Some(row) = sqlx::query(NEXT).fetch_optional(&mut *connection).await.unwrap() {
            self.publisher.publish(outgoing(&row)).await.unwrap();
            let marked = sqlx::query(MARK).bind(row.get::<i64, _>(0)).execute(&mut *connection).await.unwrap();
            assert_eq!(marked.rows_affected(), 1);
        }
        begun.elapsed()
    }
}

fn outgoing(row: &PgRow) -> Outgoing {
    let text = |column: usize| Box::from(row.get::<&str, _>(column));
    let event = Envelope {
        id: EventId(row.get::<&[u8], _>(1).try_into().unwrap()),
        queue: text(2),
        topic: text(3),
        key: text(4),
        kind: text(5),
        source: text(6),
        route: text(7),
        content_type: text(8),
        traceparent: None,
        attributes: [].into(),
        data: Bytes::copy_from_slice(row.get(9)),
    };
    Outgoing {
        event,
        sequence: row.get(0),
        epoch: 1,
        time: Timestamp(row.get(10)),
        attempts: 1,
        tried: false,
        redrives: 0,
    }
}

/// Publishes `count` events of one key without a database, each once the one before is confirmed, and says how long
/// that took: what a round trip an event bounds.
pub(crate) async fn publish(publisher: &dyn Publisher, count: u32) -> Duration {
    let begun = clock::now();
    for number in 0..count {
        let mut id = [0; 16];
        id[12..].copy_from_slice(&number.to_be_bytes());
        let text = |text: &str| Box::from(text);
        let event = Envelope {
            id: EventId(id),
            queue: text("default"),
            topic: text(crate::brokers::TOPIC),
            key: text("order-0"),
            kind: text("com.example.payment.created"),
            source: text("/pay"),
            route: text("pay"),
            content_type: text("application/json"),
            traceparent: None,
            attributes: [].into(),
            data: Bytes::from_static(br#"{"id":"pay_5f1d7a9c","order_no":"order-0","status":"paid","amount":1250}"#),
        };
        let outgoing = Outgoing {
            event,
            sequence: i64::from(number),
            epoch: 1,
            time: Timestamp(1_790_000_000_000),
            attempts: 1,
            tried: false,
            redrives: 0,
        };
        publisher.publish(outgoing).await.unwrap();
    }
    begun.elapsed()
}
