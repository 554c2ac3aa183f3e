//! One row per entity: the newest version that was applied.

use std::collections::HashMap;

use super::Item;
use super::records::digest;
use crate::entry::{EntryId, Namespace};
use crate::inbox::verdict::{AppliedVersion, Verdict, by_version};
use crate::storage::conn::Conn;
use crate::storage::dialect::{Dialect, MAX_ROWS};
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

const COLUMNS: [Column; 6] = [
    Column::bytes("v_id"),
    Column::text("v_consumer"),
    Column::text("v_entity"),
    Column::int("v_version"),
    Column::bytes("v_digest"),
    Column::int("v_nonce"),
];

/// On MySQL the update that changes nothing takes the lock that the call needs later anyway: an insert that ignores
/// what is there takes a weaker one, and two calls that each hold it would wait for each other.
static INSERT: Statement = Statement::new(|dialect, size| {
    let target = "inbox_versions (id, consumer, entity, version, digest, nonce, changed_at)";
    let now = dialect.now();
    let select = format!("v.v_id, v.v_consumer, v.v_entity, v.v_version, v.v_digest, v.v_nonce, {now}");
    let filter = "v.v_nonce IS NOT NULL ORDER BY v.v_id";
    match dialect {
        Dialect::MySql => dialect.insert_or_lock(&COLUMNS, size, target, &select, filter, "inbox_versions.version"),
        Dialect::Postgres | Dialect::Sqlite => dialect.insert_new(&COLUMNS, size, target, &select, filter),
    }
});

static LOCK: Statement = Statement::new(|dialect, size| {
    let (among, lock) = (dialect.among(size), dialect.for_update());
    format!("SELECT e.id, e.nonce, e.version, e.digest FROM inbox_versions AS e WHERE e.id{among} ORDER BY e.id{lock}")
});

const ADVANCED: [Column; 3] = [Column::bytes("v_id"), Column::int("v_version"), Column::bytes("v_digest")];

static ADVANCE: Statement = Statement::new(|dialect, size| {
    dialect.update_of(
        "inbox_versions AS e",
        "e.id = v.v_id",
        &ADVANCED,
        size,
        &format!("version = v.v_version, digest = v.v_digest, changed_at = {}", dialect.now()),
        "e.version < v.v_version",
    )
});

/// The entities of a call, their rows locked until its transaction's end.
#[derive(Debug)]
pub(super) struct Versions {
    entities: HashMap<EntryId, Entity>,
}

#[derive(Debug)]
struct Entity {
    /// As the row has it.
    stored: AppliedVersion,
    /// As the messages of this call leave it; `None` before the first of them.
    applied: Option<AppliedVersion>,
}

impl Versions {
    /// Locks the entities of `items`. One that has no row gets the first of its messages', which is then the first
    /// in any case.
    pub(super) async fn lock(
        conn: &mut Conn<'_>,
        consumer: &Namespace,
        items: &[&Item<'_>],
        nonce: i64,
    ) -> sqlx::Result<Self> {
        let mut seeds: HashMap<EntryId, &Item<'_>> = HashMap::new();
        for item in items {
            if let Some(entity) = item.entity {
                seeds.entry(entity).or_insert(item);
            }
        }
        let mut seeds: Vec<_> = seeds.into_iter().collect();
        seeds.sort_unstable_by_key(|(id, _)| *id);
        let mut entities = HashMap::with_capacity(seeds.len());
        for chunk in seeds.chunks(MAX_ROWS) {
            let rows: Vec<_> = chunk.iter().filter_map(|(id, item)| row(consumer, id, item, nonce)).collect();
            let values = conn.dialect().bind_rows(&rows);
            conn.execute(INSERT.text(conn.dialect(), rows.len()), &values).await?;
            let ids: Vec<_> = chunk.iter().map(|(id, _)| [Value::from(&id.0)]).collect();
            let values = conn.dialect().bind_rows(&ids);
            for row in conn.query(LOCK.text(conn.dialect(), ids.len()), &values).await? {
                let stored = AppliedVersion { number: row.int(2)?, digest: digest(&row, 3)? };
                let is_new = row.int(1)? == nonce;
                entities.insert(EntryId(row.array(0)?), Entity { stored, applied: (!is_new).then_some(stored) });
            }
        }
        Ok(Self { entities })
    }

    /// What `item`, whose key is new, is by its version; the next one is compared with it.
    pub(super) fn decide(&mut self, item: &Item<'_>) -> Verdict {
        let version = item.message.version.as_ref();
        let entity = item.entity.and_then(|id| self.entities.get_mut(&id));
        let Some((version, entity)) = version.zip(entity) else { return Verdict::First { previous: None } };
        let verdict = by_version(version.number, item.message.digest, entity.applied);
        if let Verdict::First { .. } = verdict {
            entity.applied = Some(AppliedVersion { number: version.number, digest: item.message.digest });
        }
        verdict
    }

    /// Writes what has advanced.
    pub(super) async fn write(self, conn: &mut Conn<'_>) -> sqlx::Result<()> {
        let advanced = |(id, entity): (EntryId, Entity)| {
            entity.applied.filter(|applied| *applied != entity.stored).map(|applied| (id, applied))
        };
        let mut advanced: Vec<_> = self.entities.into_iter().filter_map(advanced).collect();
        advanced.sort_unstable_by_key(|(id, _)| *id);
        for chunk in advanced.chunks(MAX_ROWS) {
            let rows: Vec<_> = chunk.iter().map(|(id, applied)| advanced_row(id, applied)).collect();
            let values = conn.dialect().bind_rows(&rows);
            conn.execute(ADVANCE.text(conn.dialect(), rows.len()), &values).await?;
        }
        Ok(())
    }
}

fn row<'a>(consumer: &'a Namespace, id: &'a EntryId, item: &'a Item<'_>, nonce: i64) -> Option<[Value<'a>; 6]> {
    let version = item.message.version.as_ref()?;
    Some([
        (&id.0).into(),
        consumer.as_str().into(),
        version.entity.as_str().into(),
        version.number.into(),
        item.message.digest.as_ref().map(|digest| &digest.0[..]).into(),
        nonce.into(),
    ])
}

fn advanced_row<'a>(id: &'a EntryId, applied: &'a AppliedVersion) -> [Value<'a>; 3] {
    [(&id.0).into(), applied.number.into(), applied.digest.as_ref().map(|digest| &digest.0[..]).into()]
}
