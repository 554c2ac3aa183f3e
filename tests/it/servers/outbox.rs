//! The outbox's rows, as somebody with a client sees them.

use sqlx::Row as _;

use super::database::{Database, Kind, Stranger};

/// An event as it lies in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) id: String,
    pub(crate) queue: String,
    pub(crate) lane: String,
    pub(crate) key: String,
    /// State, attempts, and whether it holds its key, with dots in between.
    pub(crate) state: String,
    pub(crate) reason: String,
    pub(crate) route: String,
    pub(crate) topic: String,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) content_type: String,
    pub(crate) traceparent: String,
    pub(crate) data: String,
}

/// All events of `database`, in the order of their positions. What is NULL is `-`.
pub(crate) async fn written(database: &Database) -> Vec<Written> {
    let (id, data) = match database.kind {
        Kind::Postgres => ("encode(id, 'hex')", "convert_from(data, 'UTF8')"),
        Kind::Sqlite => ("lower(hex(id))", "CAST(data AS TEXT)"),
        Kind::MySql => ("lower(hex(id))", "data"),
    };
    let sql = format!(
        "SELECT CONCAT_WS('|', {id}, queue, lane, event_key, CONCAT_WS('.', state, attempts, holds), \
         COALESCE(reason, '-'), route, topic, type, source, content_type, COALESCE(traceparent, '-'), {data}) \
         FROM events ORDER BY position"
    );
    texts(&mut database.stranger().await, &sql).await.iter().map(|row| Written::read(row)).collect()
}

impl Written {
    fn read(row: &str) -> Self {
        let parts: Vec<String> = row.splitn(13, '|').map(ToOwned::to_owned).collect();
        let [id, queue, lane, key, state, reason, route, topic, kind, source, content_type, traceparent, data] =
            <[String; 13]>::try_from(parts).unwrap();
        Self { id, queue, lane, key, state, reason, route, topic, kind, source, content_type, traceparent, data }
    }

    /// Whether it is, or will be, parked without having been published.
    pub(crate) fn is_unfit(&self) -> bool {
        self.reason != "-"
    }
}

/// A delivery as it lies in the table. What is NULL is `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// As [`Written::state`] begins: 1 ready, 2 retrying, 3 waiting, 4 parked, 5 sent, 6 discarded, 7 early.
    pub(crate) state: u8,
    pub(crate) attempts: u32,
    pub(crate) deferrals: u32,
    pub(crate) deaths: u32,
    pub(crate) result: String,
    pub(crate) key: String,
    pub(crate) reason: String,
    pub(crate) attributes: String,
    pub(crate) data: String,
}

/// The events of `queue`, in the order of their positions.
pub(crate) async fn delivered(database: &Database, queue: &str) -> Vec<Delivered> {
    let (data, attributes) = match database.kind {
        Kind::Postgres => ("convert_from(data, 'UTF8')", "attributes"),
        Kind::Sqlite => ("CAST(data AS TEXT)", "attributes"),
        Kind::MySql => ("data", "attributes"),
    };
    let sql = format!(
        "SELECT CONCAT_WS('|', state, attempts, deferrals, deaths, COALESCE(result, '-'), event_key, \
         COALESCE(reason, '-'), COALESCE({attributes}, '-'), {data}) FROM events WHERE queue = '{queue}' ORDER BY position"
    );
    texts(&mut database.stranger().await, &sql).await.iter().map(|row| Delivered::read(row)).collect()
}

impl Delivered {
    fn read(row: &str) -> Self {
        let parts: Vec<String> = row.splitn(9, '|').map(ToOwned::to_owned).collect();
        let [state, attempts, deferrals, deaths, result, key, reason, attributes, data] =
            <[String; 9]>::try_from(parts).unwrap();
        let number = |text: &str| text.parse().unwrap();
        let (attempts, deferrals, deaths) = (number(&attempts), number(&deferrals), number(&deaths));
        let state = state.parse().unwrap();
        Self { state, attempts, deferrals, deaths, result, key, reason, attributes, data }
    }
}

/// The first column of all rows: a text.
pub(crate) async fn texts(stranger: &mut Stranger, sql: &str) -> Vec<String> {
    let query = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
    match stranger {
        Stranger::Sqlite(connection) => {
            query.fetch_all(connection).await.unwrap().iter().map(|row| row.get_unchecked(0)).collect()
        }
        Stranger::Postgres(connection) => {
            query.fetch_all(connection).await.unwrap().iter().map(|row| row.get_unchecked(0)).collect()
        }
        Stranger::MySql(connection) => {
            query.fetch_all(connection).await.unwrap().iter().map(|row| row.get_unchecked(0)).collect()
        }
    }
}
