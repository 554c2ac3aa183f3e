//! What an answer's status says about whether the request was executed.

use http::StatusCode;

/// A set of statuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statuses(Box<[StatusCode]>);

impl FromIterator<StatusCode> for Statuses {
    fn from_iter<I: IntoIterator<Item = StatusCode>>(statuses: I) -> Self {
        Self(statuses.into_iter().collect())
    }
}

impl Statuses {
    /// Whether `status` is in the set.
    #[must_use]
    pub fn contains(&self, status: StatusCode) -> bool {
        self.0.contains(&status)
    }
}

/// Which statuses mean what, by the route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRules {
    /// The upstream answers these before it acts: the same key may run again.
    pub not_executed: Statuses,
    /// Client errors that are an answer to an entry that was Unknown. Any other may only mean that the
    /// upstream has seen the key before ("key in use").
    pub settles: Statuses,
}

/// Refusals that common servers and gateways give before the application acts: credentials, routing, size,
/// media type, early data, rate limits.
const NOT_EXECUTED: [StatusCode; 10] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
];

impl Default for OutcomeRules {
    fn default() -> Self {
        Self { not_executed: NOT_EXECUTED.into_iter().collect(), settles: Statuses::default() }
    }
}

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It happened, and this is its answer. Final.
    Completed,
    /// It did not happen: the same key may run again.
    NotExecuted,
    /// It may or may not have happened.
    Unknown,
}

/// Classifies an answer to the `attempt`-th execution, from 1.
///
/// - 2xx, 3xx and 4xx are Completed; 5xx, 408 and anything that is no final status are Unknown.
/// - What the route lists as not executed is, but for the first attempt only: above 1 an earlier attempt is
///   Unknown, and that this one did not run says nothing of the other.
/// - For the same reason a 4xx settles a later attempt only if the route lists it as settling.
#[must_use]
pub fn classify(status: StatusCode, rules: &OutcomeRules, attempt: u32) -> Class {
    let first = attempt <= 1;
    if status.is_informational() {
        return Class::Unknown;
    }
    if first && rules.not_executed.contains(status) {
        return Class::NotExecuted;
    }
    if status.is_success() || status.is_redirection() {
        return if !first && rules.not_executed.contains(status) { Class::Unknown } else { Class::Completed };
    }
    let answers = status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT;
    if answers && (first || rules.settles.contains(status)) { Class::Completed } else { Class::Unknown }
}

#[cfg(test)]
mod tests {
    use super::Class::{Completed, NotExecuted, Unknown};
    use super::*;

    fn status(code: u16) -> StatusCode {
        StatusCode::from_u16(code).unwrap()
    }

    fn rules(not_executed: &[u16], settles: &[u16]) -> OutcomeRules {
        let set = |codes: &[u16]| codes.iter().copied().map(status).collect();
        OutcomeRules { not_executed: set(not_executed), settles: set(settles) }
    }

    #[test]
    fn by_default_only_what_is_certain_is_final() {
        let rules = OutcomeRules::default();
        let table: [(&[u16], Class, Class); 4] = [
            (&[200, 201, 202, 204, 299, 301, 303, 304], Completed, Completed),
            (&[400, 402, 406, 409, 410, 412, 418, 422, 424, 451, 499], Completed, Unknown),
            (&[401, 403, 404, 405, 413, 415, 421, 425, 429, 431], NotExecuted, Unknown),
            (&[100, 101, 102, 103, 408, 500, 501, 502, 503, 504, 511, 599, 600, 999], Unknown, Unknown),
        ];
        for (codes, first, later) in table {
            for &code in codes {
                assert_eq!(classify(status(code), &rules, 1), first, "{code}, first attempt");
                assert_eq!(classify(status(code), &rules, 2), later, "{code}, second attempt");
            }
        }
    }

    #[test]
    fn a_listed_5xx_or_408_is_not_executed_on_the_first_attempt_only() {
        let rules = rules(&[503, 408], &[]);
        for code in [503, 408] {
            assert_eq!(classify(status(code), &rules, 1), NotExecuted);
            assert_eq!(classify(status(code), &rules, 2), Unknown);
        }
        assert_eq!(classify(status(404), &rules, 1), Completed, "the list replaces the defaults");
    }

    #[test]
    fn after_an_unknown_attempt_a_4xx_settles_only_if_listed() {
        let rules = rules(&[404], &[402, 404, 408, 500]);
        assert_eq!(classify(status(402), &rules, 2), Completed);
        assert_eq!(classify(status(404), &rules, 2), Completed, "listed as settling, the route's own word");
        assert_eq!(classify(status(404), &rules, 1), NotExecuted);
        assert_eq!(classify(status(409), &rules, 3), Unknown);
        assert_eq!(classify(status(408), &rules, 2), Unknown, "a time-out is no answer");
        assert_eq!(classify(status(500), &rules, 2), Unknown, "a 5xx is no answer");
    }

    #[test]
    fn a_listed_success_does_not_complete() {
        let rules = rules(&[202], &[]);
        assert_eq!(classify(status(202), &rules, 1), NotExecuted);
        assert_eq!(classify(status(202), &rules, 2), Unknown);
    }
}
