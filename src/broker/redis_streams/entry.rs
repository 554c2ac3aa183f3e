//! An event as a stream's entry, and what an answer says about it.

use deadpool_redis::redis::{Cmd, RedisError, Value, cmd};

use crate::broker::PublishError;
use crate::broker::cloud_events::{self, DATA_CONTENT_TYPE};
use crate::outbox::event::Outgoing;

/// The command that adds `outgoing` to its stream. `max_len` as in the options.
pub(super) fn add(outgoing: &Outgoing, max_len: u64) -> Cmd {
    let event = &outgoing.event;
    let mut add = cmd("XADD");
    add.arg(&*event.topic);
    if max_len > 0 {
        // About: the server drops whole blocks, which costs next to nothing.
        add.arg("MAXLEN").arg("~").arg(max_len);
    }
    add.arg("*");
    for (name, value) in cloud_events::attributes(outgoing) {
        add.arg(name).arg(&*value);
    }
    if !event.content_type.is_empty() {
        add.arg(DATA_CONTENT_TYPE).arg(&*event.content_type);
    }
    add.arg("data").arg(&event.data[..]);
    add
}

/// What an answer comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server has it.
    Added,
    /// It has not, which says nothing of the connection.
    Failed(PublishError),
    /// It has not, and others on this connection will fare no better.
    Disconnect(PublishError),
}

/// What the server said to [`add`].
pub(super) fn verdict(answer: Value) -> Verdict {
    match answer {
        Value::ServerError(error) => refusal(error.code(), &error.to_string()),
        _ => Verdict::Added,
    }
}

/// What it means that a whole pipeline failed, which the cluster's client makes of an error of one command.
pub(super) fn failure(error: &RedisError) -> Verdict {
    match error.code() {
        Some(code) if !error.is_unrecoverable_error() => refusal(code, &error.to_string()),
        Some(_) | None => Verdict::Disconnect(PublishError::Unavailable(format!("the connection is lost: {error}"))),
    }
}

fn refusal(code: &str, text: &str) -> Verdict {
    let text = text.to_owned();
    match code {
        "READONLY" | "MOVED" | "ASK" | "MASTERDOWN" | "CLUSTERDOWN" | "NOAUTH" | "WRONGPASS" => {
            Verdict::Disconnect(PublishError::Unavailable(text))
        }
        "OOM" | "LOADING" | "MISCONF" | "NOREPLICAS" | "BUSY" | "TRYAGAIN" => {
            Verdict::Failed(PublishError::Unavailable(text))
        }
        // The server has closed the connection: to it the command has no end.
        "ERR" if text.contains("Protocol error") => Verdict::Disconnect(PublishError::Never(text)),
        // Another type under this key, not allowed for this key, and what is not known here: later it may do.
        _ => Verdict::Failed(PublishError::Refused(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_refusal_is_told_from_the_others() {
        let unavailable = |text: &str| PublishError::Unavailable(text.into());
        let table = [
            ("READONLY", "x", Verdict::Disconnect(unavailable("x"))),
            ("MOVED", "x", Verdict::Disconnect(unavailable("x"))),
            ("NOAUTH", "x", Verdict::Disconnect(unavailable("x"))),
            ("OOM", "x", Verdict::Failed(unavailable("x"))),
            ("LOADING", "x", Verdict::Failed(unavailable("x"))),
            ("NOREPLICAS", "x", Verdict::Failed(unavailable("x"))),
            ("WRONGTYPE", "x", Verdict::Failed(PublishError::Refused("x".into()))),
            ("NOPERM", "x", Verdict::Failed(PublishError::Refused("x".into()))),
            ("ERR", "x", Verdict::Failed(PublishError::Refused("x".into()))),
            ("ERR", "Protocol error: y", Verdict::Disconnect(PublishError::Never("Protocol error: y".into()))),
        ];
        for (code, text, expected) in table {
            assert_eq!(refusal(code, text), expected, "{code}");
        }
    }
}
