//! A broker in memory whose every failure a test decides: what is not acknowledged comes again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use oncegate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};
use tokio::sync::Notify;

/// The broker's side of one group, which has one member at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Broker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    more: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Received>,
    /// Delivered and not acknowledged, in order.
    delivered: Vec<Received>,
    acked: Vec<String>,
    next: u64,
    /// Acks and receptions that fail before one works.
    failing_acks: u32,
    failing_receptions: u32,
    closed: u32,
}

/// Most messages of one reception.
const AT_ONCE: usize = 64;

impl Broker {
    /// Takes messages (data, and what they are ordered by), each under an id of its own.
    pub(super) fn send<'a>(&self, messages: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut state = self.0.state.lock().unwrap();
        for (data, key) in messages {
            state.next += 1;
            let number = state.next;
            state.waiting.push_back(Received {
                receipt: Receipt(number),
                id: Some(format!("id-{number}").into()),
                place: number.to_string().into(),
                key: (!key.is_empty()).then(|| key.into()),
                content_type: None,
                attributes: Vec::new(),
                data: Bytes::copy_from_slice(data.as_bytes()),
                redelivered: false,
            });
        }
        self.0.more.notify_one();
    }

    /// Whether all was acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.0.state.lock().unwrap();
        state.waiting.is_empty() && state.delivered.is_empty()
    }

    /// What was acknowledged, in order.
    pub(super) fn acked(&self) -> Vec<String> {
        self.0.state.lock().unwrap().acked.clone()
    }

    pub(super) fn fail_acks(&self, times: u32) {
        self.0.state.lock().unwrap().failing_acks = times;
    }

    pub(super) fn fail_receptions(&self, times: u32) {
        self.0.state.lock().unwrap().failing_receptions = times;
    }

    /// How often a member has left.
    pub(super) fn closed(&self) -> u32 {
        self.0.state.lock().unwrap().closed
    }

    pub(super) fn subscriber(&self) -> Member {
        Member(Arc::clone(&self.0))
    }
}

pub(super) struct Member(Arc<Shared>);

impl Member {
    fn take(&self) -> Option<Result<Vec<Received>, SubscribeError>> {
        let mut state = self.0.state.lock().unwrap();
        if state.failing_receptions > 0 {
            state.failing_receptions -= 1;
            return Some(Err(SubscribeError::Unavailable("by the test".to_owned())));
        }
        let again = std::mem::take(&mut state.delivered);
        for mut received in again.into_iter().rev() {
            received.redelivered = true;
            state.waiting.push_front(received);
        }
        let count = state.waiting.len().min(AT_ONCE);
        let batch: Vec<_> = state.waiting.drain(..count).collect();
        state.delivered.clone_from(&batch);
        (!batch.is_empty()).then_some(Ok(batch))
    }
}

impl Subscriber for Member {
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>> {
        Box::pin(async {
            loop {
                match self.take() {
                    Some(taken) => return taken,
                    None => self.0.more.notified().await,
                }
            }
        })
    }

    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>> {
        Box::pin(async move {
            let mut state = self.0.state.lock().unwrap();
            if state.failing_acks > 0 {
                state.failing_acks -= 1;
                // So that it is delivered again though nothing new comes.
                self.0.more.notify_one();
                return Err(SubscribeError::Unavailable("by the test".to_owned()));
            }
            for receipt in receipts {
                let place = state.delivered.iter().position(|received| received.receipt == *receipt);
                let received = state.delivered.remove(place.expect("of the last reception, once"));
                state.acked.push(super::text(&received));
            }
            Ok(())
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.0.state.lock().unwrap().closed += 1 })
    }
}
