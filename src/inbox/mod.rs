//! Messages from a queue, each handled effectively once.
//!
//! Queues deliver at least once: a producer sends again after a time-out, a consumer dies between its commit and its
//! acknowledgement, a group deals its messages out anew. A consumer in Rust makes that harmless in its own database: the
//! record that a message was handled is written **in the transaction of the effect**, so that there is never one without
//! the other.
//!
//! ```no_run
//! use oncegate::inbox::{Begun, Inbox, Message};
//!
//! # async fn run(pool: sqlx::PgPool, order_no: &str, payload: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! let inbox = Inbox::setup("postgres://localhost/shop").open("points").await?;
//!
//! let message = Message::new(order_no)?.payload(payload);
//! if !inbox.seen(&message).await {
//!     let mut tx = pool.begin().await?;
//!     if let Begun::First(receipt) = inbox.begin(&mut *tx, &message).await? {
//!         sqlx::query("UPDATE customers SET points = points + 19 WHERE name = 'ada'").execute(&mut *tx).await?;
//!         receipt.commit(tx).await?;
//!     }
//! }
//! // Acknowledge it here: after the commit, or because somebody else's was there before.
//! # Ok(())
//! # }
//! ```
//!
//! A [`Consumer`] does this in a loop: with retries, order per key, dead letters, and acknowledgements after the commit.
//! Whole services: `examples/points.rs`, which says what a crash at each line leaves, and `examples/shop.rs`.
//!
//! # Which strategy
//!
//! Recording messages is one way to handle them once, and not always the cheapest one that does.
//!
//! | strategy | what it is | use it when | cost | where it ends |
//! |---|---|---|---|---|
//! | natural idempotence | the effect is the same however often: `SET email = …`, an upsert of the whole state | it is so | none: 1 | anything relative (`points + 19`) and anything outside of the row; an old message that comes late overwrites a newer one |
//! | unique key | the effect *is* a row that has the message's key: `INSERT … ON CONFLICT DO NOTHING`, and the count decides | one award, one shipment, one booking per order | one insert: 1.2 | what else the message does must depend on that count; other content under the same key goes unnoticed |
//! | record in the transaction | [`Inbox::begin`] | any effect in one database: the rule, where nothing below it on this list is better | one insert, one read before the commit: 2.3, and 3.0 with marks in Redis; in batches less than no guard one by one, 0.6 | at the [retention](RETENTION); and at the database's border, see below |
//! | state machine | [`StateMachine::transition`]: an update that needs the state before | rows with a status: payments, orders, shipments | one update: 1.3 | only the change itself is guarded; it can't tell a second message from the first one come again where both lead to the same state |
//! | version | [`Message::version`], or [`Versioned::advance_to`] on the row itself | messages carry the whole state and a number that grows | one insert or update more than the record, on one row an entity: 7.7 with marks in Redis | messages that say a *change*: none of those may be left out |
//! | mark only | remember the message in Redis, beside the effect | a second effect is a nuisance and no damage: a mail, a cache | one round trip to Redis | a crash between effect and mark repeats the effect, or loses it if the mark comes first; Redis forgets. Not offered here |
//!
//! They go together, and for money they should: the record tells duplicates, the version what is stale, and the state
//! machine still knows when the record has been forgotten.
//!
//! **What leaves the database** (a call to a payment provider, a mail) is in no transaction. Give the other side the
//! message's key as its idempotency key; or write an event in the transaction, and let a relay publish it.
//!
//! # Costs
//!
//! The numbers are times per message on PostgreSQL, each in a transaction of its own with one update, against the same
//! without any guard; medians of `cargo bench --bench inbox` on an idle machine (benches/README.md has their spread).
//!
//! # The order of things
//!
//! 1. **Filters** first: a local cache and, where there is one, marks in Redis. They hold what was committed, for an hour,
//!    and spare the database the question. They decide nothing: delete all of them, stop Redis, and the database still
//!    knows. One in a hundred of their answers is verified, so that a database which has lost a commit is found out.
//! 2. **The row** decides. Who comes second while the first one's transaction is open waits for its end, for a bounded
//!    time; then it is a duplicate, or the first one, or [`Busy`](Error::Busy), and never a guess.
//! 3. **The commit** makes effect and record true together. [`Receipt::commit`] checks before that the record still is
//!    there, since databases roll back what a caller believes to be open: PostgreSQL after a failed statement whose error
//!    was swallowed, MySQL after a deadlock.
//! 4. **The filters** learn of it, after the outermost commit only.
//! 5. **The acknowledgement** comes last. A crash before it brings the message again, as a duplicate.
//!
//! What a crash leaves after each step is in [`consumer`].
//!
//! # On each database
//!
//! | | PostgreSQL | MySQL, MariaDB | SQLite |
//! |---|---|---|---|
//! | begin with | `pool.begin()` | `pool.begin()` | `pool.begin_with("BEGIN IMMEDIATE")`, WAL and a `busy_timeout` |
//! | waits for another transaction | [`Options::wait`] | `innodb_lock_wait_timeout` of the session: 50 s unless it is set | `busy_timeout`, for any writer |
//! | isolation | READ COMMITTED; in stricter ones a concurrent duplicate is [`Busy`](Error::Busy) | any | the only one |
//!
//! # The queue door
//!
//! For handlers that speak HTTP, subscriptions of a gateway: messages are kept in the same durable work table as the
//! outbox's events, and worked from there.
//!
//! A message becomes a *delivery*: a row of `events` in the queue `sub:<subscription>`. The commit that keeps it is
//! what it is acknowledged for. From then on it is the relay's, as an event is: leased, in order per key, tried
//! again, counted, parked; only that "publish" means "deliver to the handler".
//!
//! [`receiver`] receives, keeps and acknowledges; [`deliverer`] is what the relay publishes with. Both make the same
//! thing of a message, by the pure [`rules`].

pub mod alert;
pub mod consumer;
pub mod dead_letter;
pub mod deliverer;
pub mod effects;
pub mod error;
pub mod filters;
pub mod handler;
pub mod heard;
mod intake;
pub mod message;
mod meters;
pub mod order;
pub mod receiver;
pub mod reconcile;
mod request;
pub mod retention;
pub mod rules;
pub mod source;
pub mod store;
pub mod subscription;
pub mod transaction;
pub(crate) mod verdict;

pub use consumer::{Consumer, Policy, Transactions};
pub use error::Error;
pub use handler::{DeadLetter, Delivery, Handler, HandlerError, Reason};
pub use message::{Message, MessageDigest, MessageError};
pub use retention::RETENTION;
pub use transaction::{Begun, Inbox, Options, Receipt};

pub use crate::outbox::result;
pub use crate::storage::{
    Advanced, CallerTransaction, RowKey, StateMachine, Transitioned, TxConnection, TxPool, Versioned,
};
