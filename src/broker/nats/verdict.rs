//! What an error of the client means for an event.

use std::error::Error as _;

use async_nats::jetstream::context::{PublishError as ClientError, PublishErrorKind};
use async_nats::jetstream::{Error as ServerError, ErrorCode};

use crate::broker::PublishError;

/// The server's word on an event, or why there is none.
pub(super) fn of(error: &ClientError) -> PublishError {
    let text = error.to_string();
    match error.kind() {
        // Nobody answers. See `owner`, which asks why.
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence => PublishError::Refused(text),
        PublishErrorKind::MaxPayloadExceeded => PublishError::Never(text),
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe | PublishErrorKind::MaxAckPending => {
            PublishError::Unavailable(text)
        }
        PublishErrorKind::Other => match error.source().and_then(|source| source.downcast_ref::<ServerError>()) {
            Some(server) => of_server(server),
            // The connection's task has ended, or the answer is none.
            None => PublishError::Unavailable(text),
        },
    }
}

/// What the server says is wrong.
pub(super) fn of_server(error: &ServerError) -> PublishError {
    let text = error.to_string();
    match error.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            PublishError::Never(text)
        }
        // Not about this event: the server takes none at all.
        ErrorCode::JETSTREAM_NOT_ENABLED
        | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT
        | ErrorCode::CLUSTER_NOT_ACTIVE
        | ErrorCode::CLUSTER_NOT_AVAILABLE
        | ErrorCode::CLUSTER_NOT_LEADER
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED => PublishError::Unavailable(text),
        // A full stream, a sealed one, one that is moved.
        _ => PublishError::Refused(text),
    }
}
