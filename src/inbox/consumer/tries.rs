//! How often a message has been tried, also by processes that did not live to say so.

use tokio_util::sync::CancellationToken;

use super::{Consumer, Item};
use crate::engine::ledger::StoreError;
use crate::entry::EntryId;
use crate::inbox::handler::{Handler, HandlerError};
use crate::inbox::transaction::Inbox;
use crate::storage::TxPool;

/// The tries of one message in this process's hands.
pub(super) struct Tries {
    /// `None` for one that nobody can tell from others.
    id: Option<EntryId>,
    is_suspect: bool,
    /// Tries that have ended, or whose process has.
    pub(super) made: u32,
    /// The highest try on record.
    noted: u32,
}

impl Tries {
    pub(super) fn of(inbox: &Inbox, item: &Item) -> Self {
        let id = item.message.as_ref().ok().map(|message| inbox.record_id(message));
        Self { id, is_suspect: item.is_suspect, made: item.tried, noted: item.tried }
    }

    /// Begins the next try, and says its number.
    pub(super) async fn begin(&mut self, inbox: &Inbox) -> Result<u32, StoreError> {
        let number = self.made.saturating_add(1);
        let is_to_be_noted = self.is_suspect || number > 1;
        if let Some(id) = self.id.filter(|_| is_to_be_noted && number > self.noted) {
            inbox.note_attempts(&[(id, number)]).await?;
            self.noted = number;
        }
        Ok(number)
    }

    /// What is to be forgotten with the message's end.
    pub(super) fn on_record(&self) -> &[EntryId] {
        if self.noted > 0 { self.id.as_slice() } else { &[] }
    }
}

impl<P: TxPool, H: Handler<P::Connection>> Consumer<P, H> {
    /// Finds out how often the suspects among `items` were tried; `false` if it is stopped before it knows.
    pub(super) async fn recall_tries(&self, items: &mut [Item], stop: &CancellationToken) -> bool {
        let suspects: Vec<(usize, EntryId)> = items
            .iter()
            .enumerate()
            .filter(|(_, item)| item.is_suspect)
            .filter_map(|(place, item)| Some((place, self.inbox.record_id(item.message.as_ref().ok()?))))
            .collect();
        let ids: Vec<EntryId> = suspects.iter().map(|(_, id)| *id).collect();
        let mut outages = 0;
        loop {
            match self.inbox.attempts(&ids).await {
                Ok(tried) => {
                    for (place, id) in suspects {
                        items[place].tried = tried.get(&id).copied().unwrap_or_default();
                    }
                    return true;
                }
                Err(error) => {
                    let pause = self.outage(&mut outages, &error.to_string());
                    if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return false;
                    }
                }
            }
        }
    }

    /// Puts on record that the suspects among `items` are in their first try, and says who they are.
    pub(super) async fn begin_together(&self, items: &[&Item]) -> Result<Vec<EntryId>, HandlerError> {
        let suspects = items.iter().filter(|item| item.is_suspect);
        let ids: Vec<EntryId> =
            suspects.filter_map(|item| Some(self.inbox.record_id(item.message.as_ref().ok()?))).collect();
        let tries: Vec<_> = ids.iter().map(|id| (*id, 1)).collect();
        self.inbox.note_attempts(&tries).await?;
        Ok(ids)
    }
}
