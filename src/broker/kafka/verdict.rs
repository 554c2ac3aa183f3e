//! What an error of the client means for an event.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::broker::PublishError;

/// The delivery report's word on an event, or why it could not be queued.
pub(super) fn of(error: &KafkaError) -> PublishError {
    use RDKafkaErrorCode as Code;
    let text = error.to_string();
    match error.rdkafka_error_code() {
        Some(Code::MessageSizeTooLarge | Code::InvalidTopic) => PublishError::Never(text),
        Some(
            // A topic that does not exist yet, or that others may write to.
            Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::UnknownPartition
            | Code::TopicAuthorizationFailed
            // The topic's own rules: limits, the schema that a broker checks.
            | Code::PolicyViolation
            | Code::InvalidRecord
            | Code::InvalidMessage
            | Code::InvalidTimestamp
            | Code::UnsupportedForMessageFormat
            | Code::MessageBatchTooLarge,
        ) => PublishError::Refused(text),
        // Perhaps of the partition alone.
        Some(Code::MessageTimedOut) => PublishError::TopicUnavailable(text),
        // Not reachable, not enough replicas, purged, fatal: nothing about this event.
        Some(_) => PublishError::Unavailable(text),
        // A topic with a zero byte.
        None if matches!(error, KafkaError::Nul(_)) => PublishError::Never(text),
        None => PublishError::Unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_blamed_only_for_what_is_its_own() {
        use RDKafkaErrorCode as Code;
        let of = |code| of(&KafkaError::MessageProduction(code));
        assert!(matches!(of(Code::MessageSizeTooLarge), PublishError::Never(_)));
        assert!(matches!(of(Code::UnknownTopic), PublishError::Refused(_)));
        assert!(matches!(of(Code::TopicAuthorizationFailed), PublishError::Refused(_)));
        assert!(matches!(of(Code::MessageTimedOut), PublishError::TopicUnavailable(_)));
        for code in [
            Code::QueueFull,
            Code::Fatal,
            Code::PurgeInflight,
            Code::NotEnoughReplicas,
            Code::ClusterAuthorizationFailed,
            Code::AllBrokersDown,
        ] {
            assert!(matches!(of(code), PublishError::Unavailable(_)), "{code:?}");
        }
    }
}
