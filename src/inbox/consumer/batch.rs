//! Several messages in one transaction.

use futures_util::future::join_all;

use super::single::roll_back;
use super::{Consumer, Ending, Item};
use crate::broker::subscriber;
use crate::inbox::handler::{Delivery, Handler};
use crate::inbox::message::Message;
use crate::inbox::transaction::{Begun, Receipt};
use crate::storage::{CallerTransaction as _, TxPool};

impl<P: TxPool, H: Handler<P::Connection>> Consumer<P, H> {
    /// Handles what it can of `items` in one transaction, and leaves in `items` what is to be handled one by one: all
    /// of it, where one has failed.
    pub(super) async fn handle_together(&self, items: &mut Vec<&Item>) -> Vec<subscriber::Receipt> {
        let endings = self.end_together(items).await;
        let mut ended = Vec::new();
        let mut endings = endings.into_iter();
        items.retain(|item| {
            let Some(ending) = endings.next().flatten() else { return true };
            self.count(ending);
            ended.push(item.received.receipt);
            false
        });
        ended
    }

    /// How each of `items` has ended, if it has: what is not asked for, and what was not committed, has not.
    async fn end_together(&self, items: &[&Item]) -> Vec<Option<Ending>> {
        let seen = join_all(items.iter().map(|item| self.is_seen(item))).await;
        let mut endings: Vec<_> = seen.iter().map(|seen| seen.then_some(Ending::Duplicate)).collect();
        let asked: Vec<usize> =
            (0..items.len()).filter(|place| !seen[*place] && items[*place].message.is_ok()).collect();
        if asked.len() > 1 {
            let items: Vec<_> = asked.iter().map(|place| items[*place]).collect();
            let together = tokio::time::timeout(self.policy.timeout, self.in_one_transaction(&items)).await;
            for (place, ending) in asked.into_iter().zip(together.ok().flatten().unwrap_or_default()) {
                endings[place] = Some(ending);
            }
        }
        endings
    }

    async fn is_seen(&self, item: &Item) -> bool {
        match &item.message {
            Ok(message) => self.inbox.seen(message).await,
            Err(_) => false,
        }
    }

    /// `None` if nothing was committed, or nobody knows.
    async fn in_one_transaction(&self, items: &[&Item]) -> Option<Vec<Ending>> {
        let messages: Vec<Message> = items.iter().filter_map(|item| item.message.clone().ok()).collect();
        let noted = self.begin_together(items).await.ok()?;
        let mut tx = self.pool.begin().await.ok()?;
        let Some((endings, receipts)) = self.handle_on(tx.connection(), items, &messages).await else {
            roll_back::<P>(tx).await;
            return None;
        };
        self.commit(tx, receipts, &noted).await.ok()?;
        let known = messages.iter().zip(&endings).filter(|(_, ending)| **ending == Ending::Duplicate);
        join_all(known.map(|(message, _)| self.inbox.remember(message))).await;
        Some(endings)
    }

    /// Where one is a conflict, nothing ends here: it is told again, alone, and given up, before a newer version of its
    /// entity makes it stale.
    async fn handle_on(
        &self,
        tx: &mut P::Connection,
        items: &[&Item],
        messages: &[Message],
    ) -> Option<(Vec<Ending>, Vec<Receipt>)> {
        let begun = self.inbox.begin_many(tx, messages).await.ok()?;
        let first_or_over: Vec<Result<Receipt, Ending>> =
            begun.into_iter().map(first_or_over).collect::<Option<_>>()?;
        let (mut endings, mut receipts) = (Vec::with_capacity(items.len()), Vec::new());
        for ((item, message), begun) in items.iter().zip(messages).zip(first_or_over) {
            endings.push(match begun {
                Ok(receipt) => {
                    let previous = receipt.previous();
                    let delivery = Delivery { received: &item.received, message, previous, attempt: 1 };
                    self.call(tx, &delivery).await.ok()?;
                    receipts.push(receipt);
                    Ending::Applied
                }
                Err(ending) => ending,
            });
        }
        Some((endings, receipts))
    }
}

/// What is to be handled, or how it has ended; `None` for a conflict.
fn first_or_over(begun: Begun) -> Option<Result<Receipt, Ending>> {
    match begun {
        Begun::First(receipt) => Some(Ok(receipt)),
        Begun::Duplicate => Some(Err(Ending::Duplicate)),
        Begun::Stale { .. } => Some(Err(Ending::Stale)),
        Begun::Conflict => None,
    }
}
