//! What is true of each situation: the texts that clients read.

use http::StatusCode;

use super::{Facts, Retry, Situation};

impl Situation {
    /// What is true of the situation whenever it arises.
    #[must_use]
    pub const fn facts(self) -> Facts {
        match self {
            Self::KeyMissing | Self::KeyInvalid | Self::KeyReused | Self::KeyExpired | Self::KeyUnknown => {
                self.facts_of_key()
            }
            Self::TokenInvalid | Self::TokenExpired => self.facts_of_token(),
            Self::Processing | Self::OutcomeUnknown | Self::ResponseNotKept => self.facts_of_entry(),
            Self::UpstreamUnreachable | Self::UpstreamFailed | Self::UpstreamTimeout => self.facts_of_upstream(),
            Self::RoutePaused | Self::Unavailable => self.facts_of_gateway(),
            Self::NoEntry
            | Self::NotConfigured
            | Self::EntryChanged
            | Self::StateNotNamed
            | Self::NotSettled
            | Self::OrderInvalid => self.facts_of_operator(),
            Self::Unauthenticated
            | Self::Forbidden
            | Self::NoRoute
            | Self::MethodNotAllowed
            | Self::BadRequest
            | Self::BodyTimeout
            | Self::BodyTooLarge
            | Self::HeadTooLarge
            | Self::UriTooLong => self.facts_of_request(),
        }
    }

    const fn facts_of_key(self) -> Facts {
        let (slug, status, title, detail, retry) = match self {
            Self::KeyMissing => (
                "key-missing",
                StatusCode::BAD_REQUEST,
                "An idempotency key is required",
                "Nothing was executed. Send the request again with an Idempotency-Key header (or the business number that this route uses), and keep that key for every retry of the same payment.",
                Retry::NewKey,
            ),
            Self::KeyReused => (
                "key-reused",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The key belongs to another request",
                "This request was not executed: its key was used before for a request that said something else. The earlier one stands as it is. If this is a new payment, give it a key of its own; if it is a retry, send exactly what was sent first.",
                Retry::No,
            ),
            Self::KeyExpired => (
                "key-expired",
                StatusCode::GONE,
                "The request was completed before, and its answer is no longer kept",
                "Nothing was executed now: a request with this key was completed longer ago than answers are kept. Do not pay again; ask for the payment's status instead.",
                Retry::No,
            ),
            Self::KeyUnknown => (
                "key-unknown",
                StatusCode::NOT_FOUND,
                "No request with this key is known",
                "Nothing was executed under this key, as far as the gateway knows. The payment itself, with this key, is safe to send.",
                Retry::SameKey,
            ),
            _ => (
                "key-invalid",
                StatusCode::BAD_REQUEST,
                "The idempotency key can't be read",
                "Nothing was executed. Send one key of 1 to 255 bytes: a quoted string (RFC 9651) or visible ASCII without , ; \" and \\.",
                Retry::NewKey,
            ),
        };
        Facts { slug, status, title, detail, retry, proxy_error: "http_request_error" }
    }

    const fn facts_of_token(self) -> Facts {
        let (slug, title, detail, retry) = match self {
            Self::TokenExpired => (
                "token-expired",
                "The token's time is over, and nothing was done with it",
                "Nothing was executed with this token. Get a new one from POST /idempotency/tokens, and send the request with that.",
                Retry::NewKey,
            ),
            _ => (
                "token-invalid",
                "The token does not permit this request",
                "This request was not executed. Get a token from POST /idempotency/tokens with the credentials that pay, for this route and for just what will be sent, and send the request with that.",
                Retry::No,
            ),
        };
        let status = StatusCode::FORBIDDEN;
        Facts { slug, status, title, detail, retry, proxy_error: "http_request_denied" }
    }

    const fn facts_of_entry(self) -> Facts {
        let (slug, title, detail, retry) = match self {
            Self::Processing => (
                "processing",
                "The first request with this key is still being executed",
                "This request was not executed a second time. Send it again with the same key after the time in Retry-After to get the first one's answer.",
                Retry::SameKey,
            ),
            Self::ResponseNotKept => (
                "response-not-kept",
                "The request was completed, but its answer was not kept",
                "Nothing was executed now: the first request was completed with the status in original_status; its answer was too large to keep, or was cut. Do not pay again; ask for the payment's status instead.",
                Retry::No,
            ),
            _ => (
                "outcome-unknown",
                "Nobody knows yet whether the first request was executed",
                "The first request with this key was sent, and its outcome never arrived: the money may or may not have moved. Nothing is sent a second time. Keep the same key and ask again after the time in Retry-After; do not start a new payment.",
                Retry::SameKey,
            ),
        };
        Facts { slug, status: StatusCode::CONFLICT, title, detail, retry, proxy_error: "http_request_denied" }
    }

    const fn facts_of_upstream(self) -> Facts {
        let (slug, status, title, detail, proxy_error) = match self {
            Self::UpstreamUnreachable => (
                "upstream-unreachable",
                StatusCode::BAD_GATEWAY,
                "The service behind the gateway could not be reached",
                "Nothing was sent, so nothing was executed. The same request with the same key is safe to send again.",
                "destination_unavailable",
            ),
            Self::UpstreamTimeout => (
                "upstream-timeout",
                StatusCode::GATEWAY_TIMEOUT,
                "The service behind the gateway did not answer in time",
                "The request was sent; the money may or may not have moved. Keep the same key and ask again with it; do not start a new payment.",
                "http_response_timeout",
            ),
            _ => (
                "upstream-failed",
                StatusCode::BAD_GATEWAY,
                "The connection to the service behind the gateway was lost",
                "The request was sent, and no answer came back; the money may or may not have moved. Keep the same key and ask again with it; do not start a new payment.",
                "connection_terminated",
            ),
        };
        Facts { slug, status, title, detail, retry: Retry::SameKey, proxy_error }
    }

    const fn facts_of_gateway(self) -> Facts {
        let (slug, title, detail, proxy_error) = match self {
            Self::RoutePaused => (
                "route-paused",
                "This operation is switched to replays only",
                "Nothing was executed: the operator has paused new requests of this kind. The same request with the same key is safe to send again later.",
                "http_request_denied",
            ),
            _ => (
                "unavailable",
                "The gateway can't record requests now",
                "Nothing was executed: without a record of it, no request is forwarded. The same request with the same key is safe to send again after the time in Retry-After.",
                "proxy_internal_error",
            ),
        };
        Facts { slug, status: StatusCode::SERVICE_UNAVAILABLE, title, detail, retry: Retry::SameKey, proxy_error }
    }

    const fn facts_of_request(self) -> Facts {
        const NOTHING: &str = "Nothing was executed.";
        const CUT: &str = "Nothing was executed. The same request with the same key is safe to send again, whole.";
        let (slug, status, title, detail, retry) = match self {
            Self::Unauthenticated => (
                "unauthenticated",
                StatusCode::UNAUTHORIZED,
                "Credentials are missing or not valid",
                NOTHING,
                Retry::No,
            ),
            Self::Forbidden => {
                ("forbidden", StatusCode::FORBIDDEN, "The credentials do not allow this operation", NOTHING, Retry::No)
            }
            Self::NoRoute => ("no-route", StatusCode::NOT_FOUND, "Nothing is served at this path", NOTHING, Retry::No),
            Self::MethodNotAllowed => (
                "method-not-allowed",
                StatusCode::METHOD_NOT_ALLOWED,
                "The path is served for other methods",
                NOTHING,
                Retry::No,
            ),
            Self::BodyTimeout => {
                ("body-timeout", StatusCode::REQUEST_TIMEOUT, "The request's body came too slowly", CUT, Retry::SameKey)
            }
            Self::BodyTooLarge => {
                ("body-too-large", StatusCode::PAYLOAD_TOO_LARGE, "The request's body is too large", NOTHING, Retry::No)
            }
            Self::HeadTooLarge => (
                "head-too-large",
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "The request's header is too large",
                NOTHING,
                Retry::No,
            ),
            Self::UriTooLong => {
                ("uri-too-long", StatusCode::URI_TOO_LONG, "The request's address is too long", NOTHING, Retry::No)
            }
            _ => {
                ("bad-request", StatusCode::BAD_REQUEST, "The request can't be read without doubt", CUT, Retry::SameKey)
            }
        };
        Facts { slug, status, title, detail, retry, proxy_error: "http_request_error" }
    }
}
