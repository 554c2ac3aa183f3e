//! Where a subscription's messages come from: a broker, or a table of our own database.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::store::{Cursor, Deposits};
use crate::broker::embedded::subscriber::EmbeddedSubscriber;
use crate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};

/// Where messages come from.
pub enum Source {
    /// A broker, which is told what is kept.
    Broker(Box<dyn Subscriber>),
    /// An embedded queue, whose cursor moves in the transaction that keeps them.
    Table(Table),
}

/// A topic of an embedded queue, and a consumer's cursor in it.
pub struct Table {
    /// Reads it, from the cursor on.
    pub subscriber: EmbeddedSubscriber,
    /// Whose cursor it is.
    pub consumer: Box<str>,
    /// The cursor.
    pub deposits: Arc<dyn Deposits>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broker(_) => "Broker",
            Self::Table(_) => "Table",
        })
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("subscriber", &self.subscriber).finish_non_exhaustive()
    }
}

/// What was received, in order.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) messages: Vec<Received>,
    /// Of an embedded queue: where the cursor is, and whose it is; and the positions of the messages.
    cursor: Option<(Cursor, VecDeque<i64>)>,
}

/// A part of a batch that is kept in one transaction.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) messages: Vec<Received>,
    pub(super) cursor: Option<Cursor>,
}

impl Batch {
    /// Takes the next part out: so many messages, or so many bytes of data, at most, but one in any case.
    pub(super) fn next_piece(&mut self, most: usize, most_bytes: usize) -> Option<Piece> {
        let mut bytes = 0;
        let count = self.messages.iter().take(most).take_while(|message| {
            let is_first = bytes == 0;
            bytes += message.data.len() + 1;
            is_first || bytes <= most_bytes
        });
        let count = count.count();
        if count == 0 {
            return None;
        }
        let rest = self.messages.split_off(count);
        let messages = std::mem::replace(&mut self.messages, rest);
        let cursor = self.cursor.as_mut().map(|(cursor, positions)| {
            let to = positions.drain(..count).next_back().unwrap_or(cursor.from);
            let step = Cursor { to, ..cursor.clone() };
            cursor.from = to;
            step
        });
        Some(Piece { messages, cursor })
    }
}

impl Source {
    pub(super) async fn receive(&mut self) -> Result<Batch, SubscribeError> {
        match self {
            Self::Broker(subscriber) => Ok(Batch { messages: subscriber.receive().await?, cursor: None }),
            Self::Table(table) => table.receive().await,
        }
    }

    pub(super) async fn ack(&mut self, receipts: &[Receipt]) -> Result<(), SubscribeError> {
        match self {
            Self::Broker(subscriber) => subscriber.ack(receipts).await,
            Self::Table(_) => Ok(()),
        }
    }

    pub(super) async fn close(&mut self) {
        match self {
            Self::Broker(subscriber) => subscriber.close().await,
            Self::Table(_) => {}
        }
    }
}

impl Table {
    /// Waits until there are messages behind the cursor, which others may move meanwhile.
    async fn receive(&mut self) -> Result<Batch, SubscribeError> {
        let (queue, topic) = (self.subscriber.options().queue.clone(), self.subscriber.options().topic.clone());
        loop {
            let from = self.deposits.position(&queue, &topic, &self.consumer).await;
            let from = from.map_err(|error| SubscribeError::Unavailable(error.to_string()))?;
            self.subscriber.go_on_after(from);
            let messages = self.subscriber.look().await?;
            if !messages.is_empty() {
                let positions = self.subscriber.positions().collect();
                let (queue, topic, consumer) = (queue.into(), topic.into(), self.consumer.clone());
                let cursor = Cursor { queue, topic, consumer, from, to: from };
                return Ok(Batch { messages, cursor: Some((cursor, positions)) });
            }
            tokio::time::sleep(self.subscriber.options().poll).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn batch(sizes: &[usize], cursor: Option<i64>) -> Batch {
        let message = |(index, size): (usize, &usize)| Received {
            receipt: Receipt(index as u64),
            id: None,
            place: "".into(),
            key: None,
            content_type: None,
            attributes: Vec::new(),
            data: Bytes::from(vec![0; *size]),
            redelivered: false,
        };
        let messages = sizes.iter().enumerate().map(message).collect();
        let named = |from| Cursor { queue: "q".into(), topic: "t".into(), consumer: "c".into(), from, to: from };
        let cursor = cursor.map(|from| (named(from), (10..).take(sizes.len()).collect()));
        Batch { messages, cursor }
    }

    fn pieces(mut batch: Batch, most: usize, most_bytes: usize) -> Vec<(usize, Option<(i64, i64)>)> {
        let next = || batch.next_piece(most, most_bytes);
        let shown = |piece: Piece| (piece.messages.len(), piece.cursor.map(|cursor| (cursor.from, cursor.to)));
        std::iter::from_fn(next).map(shown).collect()
    }

    #[test]
    fn a_batch_is_cut_by_number_and_by_size() {
        assert_eq!(pieces(batch(&[1; 5], None), 2, 1000), [(2, None), (2, None), (1, None)]);
        assert_eq!(pieces(batch(&[40, 40, 40], None), 10, 100), [(2, None), (1, None)]);
        assert_eq!(pieces(batch(&[1, 500, 1], None), 10, 100), [(1, None), (1, None), (1, None)], "a large one alone");
        assert_eq!(pieces(batch(&[0; 3], None), 10, 2), [(2, None), (1, None)], "empty ones have rows too");
        assert_eq!(pieces(batch(&[], None), 10, 100), []);
    }

    #[test]
    fn the_cursor_goes_with_each_piece() {
        let steps = [(2, Some((7, 11))), (1, Some((11, 12)))];
        assert_eq!(pieces(batch(&[1; 3], Some(7)), 2, 1000), steps);
    }
}
