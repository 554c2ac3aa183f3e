//! An event as a message, and what an error says about one.

use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Error, ErrorKind};

use super::dial::SHORT_BYTES;
use crate::broker::PublishError;
use crate::broker::cloud_events::{self, DATA_CONTENT_TYPE};
use crate::outbox::event::Outgoing;

/// Before the name of an attribute.
const PREFIX: &str = "cloudEvents_";

/// A message that outlives a restart of the broker.
const PERSISTENT: u8 = 2;

/// The properties of the message that `outgoing` becomes.
pub(super) fn properties(outgoing: &Outgoing) -> BasicProperties {
    let mut headers = FieldTable::default();
    let mut header = |name: &str, value: &str| {
        headers.insert(format!("{PREFIX}{name}").into(), AMQPValue::LongString(value.into()));
    };
    for (name, value) in cloud_events::attributes(outgoing) {
        header(name, &value);
    }
    let content_type = ShortString::try_new(&*outgoing.event.content_type).ok();
    if content_type.is_none() {
        header(DATA_CONTENT_TYPE, &outgoing.event.content_type);
    }
    let seconds = u64::try_from(outgoing.time.0 / 1000).unwrap_or(0);
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(outgoing.event.id.to_string().into())
        .with_timestamp(seconds)
        .with_headers(headers);
    match content_type {
        Some(content_type) => properties.with_content_type(content_type),
        None => properties,
    }
}

/// The routing key of an event.
pub(super) fn routing_key(outgoing: &Outgoing) -> Result<ShortString, PublishError> {
    ShortString::try_new(&*outgoing.event.topic)
        .map_err(|_| PublishError::Never(format!("its topic is longer than {SHORT_BYTES} bytes")))
}

/// What the broker closed the channel or the connection over, if it was a message.
pub(super) fn complaint(error: &Error) -> Option<&AMQPError> {
    let ErrorKind::ProtocolError(complaint) = error.kind() else { return None };
    match complaint.kind() {
        AMQPErrorKind::Soft(_) => Some(complaint),
        AMQPErrorKind::Hard(hard) => match hard {
            AMQPHardError::FRAMEERROR
            | AMQPHardError::SYNTAXERROR
            | AMQPHardError::COMMANDINVALID
            | AMQPHardError::UNEXPECTEDFRAME
            | AMQPHardError::NOTALLOWED
            | AMQPHardError::NOTIMPLEMENTED => Some(complaint),
            // A stop by an operator, no resources, an error of the broker's own.
            AMQPHardError::CONNECTIONFORCED
            | AMQPHardError::INVALIDPATH
            | AMQPHardError::CHANNELERROR
            | AMQPHardError::RESOURCEERROR
            | AMQPHardError::INTERNALERROR => None,
        },
    }
}

/// The result of the only event that was under way when the broker complained.
pub(super) fn verdict(complaint: &AMQPError) -> PublishError {
    let text = complaint.to_string();
    match complaint.kind() {
        AMQPErrorKind::Soft(soft) => match soft {
            // The exchange: a matter of all events.
            AMQPSoftError::NOTFOUND => PublishError::Unavailable(text),
            // A topic that this user may not write to is a matter of its events; the whole exchange, of all.
            AMQPSoftError::ACCESSREFUSED if text.contains("access to topic") => PublishError::Refused(text),
            AMQPSoftError::ACCESSREFUSED => PublishError::Unavailable(text),
            AMQPSoftError::CONTENTTOOLARGE | AMQPSoftError::PRECONDITIONFAILED => PublishError::Never(text),
            AMQPSoftError::NOROUTE | AMQPSoftError::NOCONSUMERS | AMQPSoftError::RESOURCELOCKED => {
                PublishError::Refused(text)
            }
        },
        AMQPErrorKind::Hard(_) => PublishError::Never(text),
    }
}
