//! What an endpoint's answer means for an event.

use http::{HeaderMap, StatusCode, header};

use crate::broker::{CONFIRMED, PublishError, Published};

/// Longest `Retry-After` that is repeated to people: an HTTP-date has 29 characters.
const MAX_RETRY_AFTER: usize = 40;

/// Judges an answer by its head. The table is in the documentation of [the module](super).
pub(super) fn of(status: StatusCode, headers: &HeaderMap) -> Published {
    match status.as_u16() {
        200..=299 => CONFIRMED,
        413 | 422 => Err(PublishError::Never(text(status, headers))),
        400 if is_json(headers) => Err(PublishError::Never(text(status, headers))),
        _ => Err(PublishError::Refused(text(status, headers))),
    }
}

/// Whether somebody may have answered for an endpoint that is not there, or takes nothing at all now.
pub(super) fn is_silence(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

/// A program that has looked at the event says what is wrong in JSON, more or less. Proxies speak HTML.
fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type == "application/json" || media_type.ends_with("+json")
}

pub(super) fn text(status: StatusCode, headers: &HeaderMap) -> String {
    let mut text = format!("the endpoint answered {status}");
    if status.is_redirection() {
        text.push_str("; redirects are not followed");
    }
    let retry_after = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    if let Some(retry_after) = retry_after.filter(|value| value.len() <= MAX_RETRY_AFTER) {
        text.push_str("; Retry-After: ");
        text.push_str(retry_after);
    }
    text
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn verdict(status: u16, fields: &[(header::HeaderName, &'static str)]) -> Published {
        let fields = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        of(StatusCode::from_u16(status).unwrap(), &fields.collect())
    }

    #[test]
    fn only_what_is_certain_is_final() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(verdict(status, &[]), CONFIRMED, "{status}");
        }
        for status in [413, 422] {
            assert!(matches!(verdict(status, &[]), Err(PublishError::Never(_))), "{status}");
        }
        for status in [
            301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 415, 418, 421, 425, 429,
            431, 500, 501, 502, 503, 504, 599, 999,
        ] {
            assert!(matches!(verdict(status, &[]), Err(PublishError::Refused(_))), "{status}");
        }
    }

    #[test]
    fn a_400_is_final_from_a_program_and_not_from_a_proxy() {
        for (content_type, certain) in [
            ("application/json", true),
            ("application/problem+json; charset=utf-8", true),
            ("text/html", false),
            ("text/plain", false),
        ] {
            let verdict = verdict(400, &[(header::CONTENT_TYPE, content_type)]);
            assert_eq!(matches!(verdict, Err(PublishError::Never(_))), certain, "{content_type}");
        }
    }

    #[test]
    fn people_are_told_when_the_endpoint_wants_to_be_asked_again() {
        let refused = verdict(429, &[(header::RETRY_AFTER, "120")]);
        assert_eq!(
            refused,
            Err(PublishError::Refused("the endpoint answered 429 Too Many Requests; Retry-After: 120".to_owned()))
        );
        let long = "0000000000000000000000000000000000000000000000000001";
        let refused = verdict(503, &[(header::RETRY_AFTER, long)]).unwrap_err().to_string();
        assert!(!refused.contains(long), "{refused}");
    }
}
