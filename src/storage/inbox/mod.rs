//! What the queue door keeps: the contract of [`crate::inbox::store`].

mod cursors;
mod records;
mod versions;

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Store;
use super::error::classify;
use super::events::{self, NewRow};
use super::text::Statement;
use super::transaction::{Transaction, within};
use crate::clock::millis;
use crate::engine::ledger::StoreError;
use crate::inbox::store::{
    ConsumerId, Cursor, Deposited, Deposits, MAX_DEPOSIT, NewDelivery, Standing, Version, queue_of,
};

/// How often a deposit may be rolled back over others who keep some of the same messages: where two lock the same rows
/// the database ends one of them, who finds the other's rows there when it comes again.
const DEADLOCKS: u32 = 5;

static DEPOSIT: Statement = Statement::new(|dialect, size| events::insert(dialect, size, "v.v_place >= 0"));

impl Deposits for Store {
    fn deposit<'a>(
        &'a self,
        deliveries: &'a [NewDelivery],
        cursor: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Deposited, StoreError>> {
        Box::pin(async move {
            let mut tries = 1..DEADLOCKS;
            loop {
                let mut transaction = self.begin().await?;
                let work = within(self.statement_timeout, deposit(&mut transaction, deliveries, cursor)).await;
                match transaction.end(work).await {
                    Err(StoreError::Conflict(_)) if tries.next().is_some() => {}
                    end => return end,
                }
            }
        })
    }

    fn position<'a>(
        &'a self,
        queue: &'a str,
        topic: &'a str,
        consumer: &'a str,
    ) -> BoxFuture<'a, Result<i64, StoreError>> {
        Box::pin(async move {
            let found = self.query(&cursors::POSITION, &[queue.into(), topic.into(), consumer.into()]).await?;
            let position = found.first().map_or(Ok(0), |row| row.int(0));
            position.map_err(|error| classify(&error))
        })
    }

    fn enlist<'a>(
        &'a self,
        queue: &'a str,
        topic: &'a str,
        consumer: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let mut conn = transaction.conn();
            let work = within(self.statement_timeout, cursors::enlist(&mut conn, queue, topic, consumer)).await;
            transaction.end(work).await
        })
    }

    fn standings(&self) -> BoxFuture<'_, Result<Vec<Standing>, StoreError>> {
        Box::pin(cursors::standings(self))
    }

    fn forget_cursor<'a>(&'a self, id: &'a ConsumerId) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let mut conn = transaction.conn();
            let work = within(self.statement_timeout, cursors::forget(&mut conn, id)).await;
            transaction.end(work).await
        })
    }

    fn version<'a>(
        &'a self,
        subscription: &'a str,
        entity: &'a str,
    ) -> BoxFuture<'a, Result<Option<Version>, StoreError>> {
        Box::pin(async move {
            let found = self.query(&versions::READ, &[subscription.into(), entity.into()]).await?;
            found.first().map(versions::read).transpose().map_err(|error| classify(&error))
        })
    }

    fn advance<'a>(
        &'a self,
        subscription: &'a str,
        entity: &'a str,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<Version, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = versions::advance(&mut transaction, subscription, entity, version);
            let work = within(self.statement_timeout, work).await;
            transaction.end(work).await
        })
    }

    fn still_newer<'a>(&'a self, subscription: &'a str, entity: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, versions::touch(&mut transaction, subscription, entity)).await;
            transaction.end(work).await
        })
    }

    fn forget_versions<'a>(
        &'a self,
        subscription: &'a str,
        keep: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let queue = queue_of(subscription);
            let values = [subscription.into(), millis(keep).into(), (&*queue).into(), i64::from(limit).into()];
            let over = self.query(&versions::OVER, &values).await?;
            if over.is_empty() {
                return Ok(0);
            }
            let mut transaction = self.begin().await?;
            let mut conn = transaction.conn();
            let work = versions::forget(&mut conn, &over, subscription, millis(keep));
            let work = within(self.statement_timeout, work).await;
            transaction.end(work).await
        })
    }
}

async fn deposit(
    transaction: &mut Transaction<'_>,
    deliveries: &[NewDelivery],
    cursor: Option<&Cursor>,
) -> sqlx::Result<Deposited> {
    if deliveries.len() > MAX_DEPOSIT {
        return Err(sqlx::Error::Encode(format!("more than {MAX_DEPOSIT} deliveries at once").into()));
    }
    let (now, limit, sealer) = (transaction.now, transaction.statement_limit, transaction.sealer);
    let mut conn = transaction.conn();
    if let Some(cursor) = cursor
        && !cursors::advance(&mut conn, cursor).await?
    {
        return Ok(Deposited::Overtaken);
    }
    // One that can't be delivered is parked by its turn, in its place among those of its key.
    let rows = deliveries.iter().map(|delivery| NewRow::new(&delivery.entry, &[], &delivery.event, sealer));
    let rows: Vec<_> = rows.collect::<sqlx::Result<_>>()?;
    let new = events::write(&mut conn, limit, now, &DEPOSIT, &rows).await?;
    if new < rows.len() as u64 {
        events::demand(&mut conn, rows.iter().map(|row| row.event.event.id)).await?;
    }
    Ok(Deposited::Done { new: usize::try_from(new).unwrap_or(usize::MAX) })
}
