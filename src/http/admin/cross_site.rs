//! Orders that a page of somebody else's makes a browser send.

use http::header::{CONTENT_TYPE, ORIGIN};
use http::request::Parts;
use http::uri::Authority;

use super::access::host;

/// Why an order is not followed; `None` if it is.
///
/// A page of another origin can't send `application/json` without asking first, and is never allowed to; what browsers
/// say of themselves is believed on top of that, since other programs can say what they like anyway.
pub(super) fn refusal(parts: &Parts) -> Option<&'static str> {
    if let Some(why) = foreign(parts) {
        return Some(why);
    }
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|field| field.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let is_json = parts.method.is_safe() || essence.eq_ignore_ascii_case("application/json");
    (!is_json).then_some("An order is application/json.")
}

/// Why an order is not followed that comes from a page, whatever its content type; `None` if it is.
pub(crate) fn foreign(parts: &Parts) -> Option<&'static str> {
    if parts.method.is_safe() {
        return None;
    }
    if let Some(site) = parts.headers.get("sec-fetch-site")
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Some("The order was sent by a page of another site.");
    }
    if parts.headers.contains_key(ORIGIN) && !is_of_this_origin(parts) {
        return Some("The order was sent by a page of another origin.");
    }
    None
}

/// Whether the page's origin has the host and port that the request is for. The scheme does not count: a proxy in front
/// may end TLS.
pub(crate) fn is_of_this_origin(parts: &Parts) -> bool {
    let mut origins = parts.headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next().filter(|_| origins.next().is_none()) else { return false };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let Some(Ok(origin)) = origin.map(|(_, authority)| authority.parse::<Authority>()) else { return false };
    host(parts).is_some_and(|host| host.as_str().eq_ignore_ascii_case(origin.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn refused(method: &str, fields: &[(&str, &str)]) -> bool {
        let request = Request::builder().method(method).uri("/entries/settle").header("host", "gate:8081");
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        refusal(&request.body(()).unwrap().into_parts().0).is_some()
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

    #[test]
    fn what_browsers_send_for_other_pages_is_refused() {
        for field in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "http://evil.example"),
            ("origin", "http://gate:8082"),
            ("origin", "http://gate:8081.evil.example"),
            ("origin", "null"),
        ] {
            assert!(refused("POST", &[JSON, field]), "{field:?}");
        }
        for form in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""] {
            assert!(refused("POST", &[("content-type", form)]), "{form}");
        }
        assert!(refused("POST", &[]));
    }

    #[test]
    fn programs_and_pages_of_this_origin_are_not() {
        for fields in [
            &[JSON][..],
            &[JSON, ("origin", "http://gate:8081"), ("sec-fetch-site", "same-origin")],
            &[JSON, ("origin", "https://GATE:8081")],
            &[JSON, ("sec-fetch-site", "none")],
        ] {
            assert!(!refused("POST", fields), "{fields:?}");
        }
        assert!(!refused("GET", &[("sec-fetch-site", "cross-site")]));
    }
}
