//! What the handler's answer means. Its contract: 2xx only after its effect is committed, anything else only if it has
//! none.
//!
//! | answer | means |
//! |---|---|
//! | 2xx | done |
//! | 408, 409, 425, 429, 5xx | again, after a pause |
//! | 401, 403, 404, 405, 407, 421, 3xx | the subscription pauses: a deploy gone wrong must not dead-letter a topic |
//! | other 4xx | never: a person decides |

use http::StatusCode;

use crate::upstream::{OutcomeRules, Statuses};

/// What the handler's answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its effect is committed.
    Done,
    /// Not now.
    Again,
    /// Not this message, ever.
    Never,
    /// Nothing at all, now: it is not the handler that answers, or not for us.
    Nobody,
}

impl Heard {
    pub(super) fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=299 => Self::Done,
            300..=399 | 401 | 403 | 404 | 405 | 407 | 421 => Self::Nobody,
            408 | 409 | 425 | 429 => Self::Again,
            400..=499 => Self::Never,
            _ => Self::Again,
        }
    }
}

/// What this makes of outcomes: anything but 2xx had no effect. After an attempt whose outcome is unknown nothing but
/// 2xx settles it, since the handler speaks of the last call alone.
#[must_use]
pub fn outcomes() -> OutcomeRules {
    let not_executed = (300..=999).filter_map(|code| StatusCode::from_u16(code).ok()).collect();
    OutcomeRules { not_executed, settles: Statuses::default() }
}

#[cfg(test)]
mod tests {
    use super::Heard::{Again, Done, Never, Nobody};
    use super::*;
    use crate::upstream::{Class, classify};

    #[test]
    fn answers_mean_what_the_contract_says() {
        let table: [(&[u16], Heard); 4] = [
            (&[200, 201, 202, 204, 299], Done),
            (&[408, 409, 425, 429, 500, 501, 502, 503, 504, 599, 999], Again),
            (&[301, 302, 304, 307, 308, 401, 403, 404, 405, 407, 421], Nobody),
            (&[400, 402, 406, 410, 411, 413, 415, 418, 422, 424, 431, 451], Never),
        ];
        for (codes, heard) in table {
            for code in codes {
                let status = StatusCode::from_u16(*code).unwrap();
                assert_eq!(Heard::of(status), heard, "{code}");
                let (first, later) = (classify(status, &outcomes(), 1), classify(status, &outcomes(), 2));
                let expected = if heard == Done { [Class::Completed; 2] } else { [Class::NotExecuted, Class::Unknown] };
                assert_eq!([first, later], expected, "{code}");
            }
        }
    }
}
