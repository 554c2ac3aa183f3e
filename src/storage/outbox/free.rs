//! Early events whose time has come, since whom they waited for is sent.

use super::{line, record, rows, stored};
use crate::clock::Timestamp;
use crate::inbox::store::attribute;
use crate::outbox::event::EventId;
use crate::outbox::store::{Conclusion, How};
use crate::sealer::Sealer;
use crate::storage::conn::{Conn, Row};
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

const COLUMNS: [Column; 5] = [
    Column::int("v_state"),
    Column::text("v_queue"),
    Column::int("v_lane"),
    Column::int("v_from"),
    Column::int("v_position"),
];

/// The early ones of a sent event's key. Few: the lane's early ones are walked over.
static EARLY: Statement = Statement::new(|dialect, size| {
    let index = dialect.by_index("events_by_state");
    let (of_lane, _) = dialect.of_lane();
    let of_key = format!(
        "SELECT e.position, e.attributes, k.position AS sent, e.id FROM events AS e{index} CROSS JOIN events AS k \
         WHERE {of_lane} AND k.position = v.v_position AND e.event_key = k.event_key"
    );
    format!("SELECT p.position, p.attributes, p.sent, p.id FROM {}", dialect.for_each(&COLUMNS, size, &of_key))
});

/// Makes due now what `sent` frees.
pub(super) async fn early<'a>(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    queue: &str,
    now: Timestamp,
    sent: impl IntoIterator<Item = &'a Conclusion>,
) -> sqlx::Result<()> {
    let frees = |conclusion: &'a Conclusion| match &conclusion.how {
        How::Sent { frees, .. } => frees.map(|version| (conclusion.position, conclusion.lane.number, version)),
        How::Retry { .. }
        | How::Later { .. }
        | How::Early { .. }
        | How::Parked { .. }
        | How::GivenBack
        | How::Waiting => None,
    };
    let frees: Vec<_> = sent.into_iter().filter_map(frees).collect();
    let row = |(position, lane, _): &(i64, u32, i64)| -> [Value<'_>; 5] {
        [stored::EARLY.into(), queue.into(), i64::from(*lane).into(), 0.into(), (*position).into()]
    };
    let mut free = Vec::new();
    for row in rows::query(conn, &EARLY, &[], &frees.iter().map(row).collect::<Vec<_>>()).await? {
        let (sent, version) = (row.int(2)?, version(&row, sealer)?);
        if frees.iter().any(|(position, _, freed)| *position == sent && version == Some(*freed)) {
            free.push(row.int(0)?);
        }
    }
    line::make_due(conn, now, free).await
}

/// One whose attributes can't be read is due in time, and parked then.
fn version(row: &Row, sealer: &Sealer) -> sqlx::Result<Option<i64>> {
    let attributes = record::attributes(EventId(row.array(3)?), row.maybe_bytes(1)?, sealer).unwrap_or_default();
    Ok(attributes.get(attribute::VERSION).and_then(|version| version.parse().ok()))
}
