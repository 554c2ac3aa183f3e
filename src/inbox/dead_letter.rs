//! What goes to the dead letters: the message as it came, and why it is there.

use super::store::{attribute, subscription_of};
use crate::outbox::event::Envelope;
use crate::outbox::store::DeadLetter;

/// Attributes of a copy, as extensions of CloudEvents: lower case letters and digits only.
pub mod extension {
    /// Why it was parked.
    pub const REASON: &str = "oncegatereason";
    /// What came of it: a [`DeliveryResult`](crate::inbox::result::DeliveryResult).
    pub const RESULT: &str = "oncegateresult";
    /// How often it was tried.
    pub const ATTEMPTS: &str = "oncegateattempts";
    /// The delivery's id, by which people find it.
    pub const DELIVERY: &str = "oncegatedelivery";
    /// The message's own id, where it had one.
    pub const MESSAGE: &str = "oncegatemessage";
    /// The subscription that parked it.
    pub const SUBSCRIPTION: &str = "oncegatesubscription";
}

/// What is known of a delivery that is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parked<'a> {
    /// Why.
    pub reason: &'a str,
    /// What came of it.
    pub result: Option<&'a str>,
    /// How often it was tried.
    pub attempts: u32,
    /// How often a person has had it tried again.
    pub redrives: u32,
}

/// The copy of `delivery` for the dead letters.
#[must_use]
pub fn copy(delivery: Envelope, parked: &Parked<'_>, to: &DeadLetter) -> Envelope {
    let Envelope { id, queue, mut attributes, .. } = delivery;
    let facts = [
        (extension::REASON, Some(parked.reason.into())),
        (extension::RESULT, parked.result.map(Into::into)),
        (extension::ATTEMPTS, Some(parked.attempts.to_string().into())),
        (extension::DELIVERY, Some(id.to_string().into())),
        (extension::MESSAGE, attributes.get(attribute::MESSAGE).cloned()),
        (extension::SUBSCRIPTION, Some(subscription_of(&queue).unwrap_or(&queue).into())),
    ];
    attributes.extend(facts.into_iter().filter_map(|(name, value)| Some((name.into(), value?))));
    let id = id.dead_letter(parked.redrives);
    Envelope { id, queue: to.queue.clone(), topic: to.topic.clone(), attributes, ..delivery }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::outbox::event::EventId;

    fn delivery() -> Envelope {
        let attributes = [("subject", "order 7"), (attribute::MESSAGE, "m-1")];
        Envelope {
            id: EventId([7; 16]),
            queue: "sub:award-points".into(),
            topic: "payments".into(),
            key: "order-7".into(),
            kind: "com.example.paid".into(),
            source: "/payments".into(),
            route: "award-points".into(),
            content_type: "application/json".into(),
            traceparent: None,
            attributes: attributes.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            data: Bytes::from_static(b"{}"),
        }
    }

    fn buried(redrives: u32) -> Envelope {
        let parked = Parked { reason: "the handler answered 422", result: Some("rejected"), attempts: 3, redrives };
        copy(delivery(), &parked, &DeadLetter { queue: "default".into(), topic: "payments.dead".into() })
    }

    #[test]
    fn a_copy_says_what_the_message_said_and_why_it_is_there() {
        let copy = buried(0);
        assert_eq!((&*copy.queue, &*copy.topic, &*copy.key), ("default", "payments.dead", "order-7"));
        assert_eq!((&copy.kind, &copy.data), (&delivery().kind, &delivery().data));
        let said: Vec<(&str, &str)> = copy.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        let expected = [
            ("oncegate-message", "m-1"),
            ("oncegateattempts", "3"),
            ("oncegatedelivery", "07070707070707070707070707070707"),
            ("oncegatemessage", "m-1"),
            ("oncegatereason", "the handler answered 422"),
            ("oncegateresult", "rejected"),
            ("oncegatesubscription", "award-points"),
            ("subject", "order 7"),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn parked_again_it_is_the_same_copy_and_after_a_redrive_another_one() {
        assert_eq!(buried(0).id, buried(0).id);
        assert_ne!(buried(0).id, buried(1).id);
        assert_ne!(buried(0).id, delivery().id);
    }
}
