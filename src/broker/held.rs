//! What a subscriber has handed out and not acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::subscriber::{Receipt, Received};

/// What a message says of itself, whatever the broker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Said {
    pub(super) id: Option<Box<str>>,
    pub(super) key: Option<Box<str>>,
    pub(super) content_type: Option<Box<str>>,
    pub(super) attributes: Vec<(Box<str>, Box<str>)>,
    pub(super) data: Bytes,
}

/// Messages that were handed out, by their receipts, each with what the broker knows it by (`T`).
///
/// Cleared when the connection or assignment is over that the messages came with: a receipt is never used twice, so
/// one of before names nothing any more, and no broker is told about a message by the name of another.
#[derive(Debug)]
pub(super) struct Held<T> {
    next: u64,
    messages: BTreeMap<Receipt, (T, Received)>,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self { next: 0, messages: BTreeMap::new() }
    }
}

impl<T: Clone> Held<T> {
    /// Hands a message out, behind those before it.
    pub(super) fn hand_out(&mut self, name: T, place: Box<str>, redelivered: bool, said: Said) -> Received {
        let receipt = Receipt(self.next);
        self.next += 1;
        let Said { id, key, content_type, attributes, data } = said;
        let received = Received { receipt, id, place, key, content_type, attributes, data, redelivered };
        self.messages.insert(receipt, (name, received.clone()));
        received
    }

    /// What was handed out and not acknowledged, once more; `None` if there is no such thing.
    pub(super) fn again(&mut self) -> Option<Vec<Received>> {
        if self.messages.is_empty() {
            return None;
        }
        let again = self.messages.values_mut().map(|(_, received)| {
            received.redelivered = true;
            received.clone()
        });
        Some(again.collect())
    }

    /// What the broker knows `receipts` by, in the order of handing out: first those before which nothing is held
    /// that is not among them, then the others.
    pub(super) fn named(&self, receipts: &[Receipt]) -> (Vec<T>, Vec<T>) {
        let wanted: BTreeSet<_> = receipts.iter().copied().collect();
        let (mut first, mut others, mut gap) = (Vec::new(), Vec::new(), false);
        for (receipt, (name, _)) in &self.messages {
            match (wanted.contains(receipt), gap) {
                (true, false) => first.push(name.clone()),
                (true, true) => others.push(name.clone()),
                (false, _) => gap = true,
            }
        }
        (first, others)
    }

    /// What the broker knows those by that are held.
    pub(super) fn names(&self) -> impl Iterator<Item = &T> {
        self.messages.values().map(|(name, _)| name)
    }

    /// They are acknowledged.
    pub(super) fn forget(&mut self, receipts: &[Receipt]) {
        for receipt in receipts {
            self.messages.remove(receipt);
        }
    }

    /// Keeps those of which `keep` says so: the others come again, with other receipts.
    #[cfg(feature = "kafka")]
    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.messages.retain(|_, (name, _)| keep(name));
    }

    /// What they came with is over: they come again, with other receipts.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(names: &[u64]) -> (Held<u64>, Vec<Receipt>) {
        let mut held = Held::default();
        let receipts = names.iter().map(|name| held.hand_out(*name, "".into(), false, Said::default()).receipt);
        let receipts = receipts.collect();
        (held, receipts)
    }

    #[test]
    fn what_is_not_acknowledged_is_handed_out_again_with_its_receipt() {
        let (mut held, receipts) = held(&[7, 8, 9]);
        held.forget(&receipts[1..2]);
        let again = held.again().unwrap();
        assert_eq!(again.iter().map(|received| received.receipt).collect::<Vec<_>>(), [receipts[0], receipts[2]]);
        assert!(again.iter().all(|received| received.redelivered));
        held.forget(&receipts);
        assert_eq!(held.again(), None);
    }

    #[test]
    fn the_beginning_is_told_from_what_comes_behind_a_gap() {
        let (held, receipts) = held(&[7, 8, 9, 10]);
        let named = |places: &[usize]| held.named(&places.iter().map(|place| receipts[*place]).collect::<Vec<_>>());
        assert_eq!(named(&[1, 0]), (vec![7, 8], vec![]));
        assert_eq!(named(&[0, 2, 3]), (vec![7], vec![9, 10]));
        assert_eq!(named(&[3]), (vec![], vec![10]));
        assert_eq!(named(&[]), (vec![], vec![]));
    }

    #[test]
    fn a_receipt_of_before_names_nothing() {
        let (mut held, receipts) = held(&[7, 8]);
        held.clear();
        let fresh = held.hand_out(7, "".into(), true, Said::default());
        assert!(!receipts.contains(&fresh.receipt));
        assert_eq!(held.named(&receipts), (vec![], vec![]));
        held.forget(&receipts);
        assert_eq!(held.named(&[fresh.receipt]), (vec![7], vec![]));
    }
}
