//! What operators are told.

use http::StatusCode;

use super::{Facts, Retry, Situation};

impl Situation {
    /// Whether only the operators' endpoints answer so.
    #[must_use]
    pub const fn is_for_operators(self) -> bool {
        matches!(
            self,
            Self::NoEntry
                | Self::NotConfigured
                | Self::EntryChanged
                | Self::StateNotNamed
                | Self::NotSettled
                | Self::OrderInvalid
        )
    }

    pub(super) const fn facts_of_operator(self) -> Facts {
        let (slug, status, title, detail) = match self {
            Self::NoEntry => (
                "no-entry",
                StatusCode::NOT_FOUND,
                "There is nothing of this id on record",
                "Nothing was changed. Either it never was, or its time is over; or a request was settled as not executed, and its key is new again.",
            ),
            Self::NotConfigured => (
                "not-configured",
                StatusCode::NOT_FOUND,
                "Nothing of this name is configured here",
                "Nothing was changed, and requests are sent as before. Ask a gateway whose configuration has it.",
            ),
            Self::EntryChanged => (
                "entry-changed",
                StatusCode::PRECONDITION_FAILED,
                "The entry is not what you have seen any more",
                "Nothing was changed. Something else has happened to its request since: look at the entry again before you decide about the money.",
            ),
            Self::StateNotNamed => (
                "state-not-named",
                StatusCode::PRECONDITION_REQUIRED,
                "The order does not say which state it is about",
                "Nothing was changed. Look at the entry, and send its ETag in If-Match: so that nobody decides about money that somebody else has decided about meanwhile.",
            ),
            Self::NotSettled => (
                "not-settled",
                StatusCode::CONFLICT,
                "The entry is none that can be settled",
                "Nothing was changed. Only an entry whose outcome is unknown is given one: what runs may still be executed, and what is completed has its answer.",
            ),
            _ => (
                "order-invalid",
                StatusCode::BAD_REQUEST,
                "The order can't be followed as it is written",
                "Nothing was changed, and nothing was sent.",
            ),
        };
        Facts { slug, status, title, detail, retry: Retry::No, proxy_error: "http_request_error" }
    }
}
