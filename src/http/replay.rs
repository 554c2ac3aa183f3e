//! What of an answer is stored, and the answer made of it again.

use axum::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::{Response, StatusCode};

use crate::entry::StoredResponse;

/// Fields that belong to one exchange and not to the answer: the time and place of sending, credentials and
/// cookies of the first caller, ids and quotas of the first request, and the length, which follows from the
/// body.
const OF_THE_EXCHANGE: [HeaderName; 14] = [
    header::DATE,
    header::SERVER,
    header::VIA,
    header::ALT_SVC,
    header::CONTENT_LENGTH,
    header::SET_COOKIE,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-correlation-id"),
    HeaderName::from_static("x-amzn-requestid"),
    HeaderName::from_static("x-amzn-trace-id"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// Families of such fields. CORS fields speak to the origin that asked first, not to the one that asks now.
const FAMILIES_OF_THE_EXCHANGE: [&str; 4] = ["access-control-", "ratelimit", "x-ratelimit", "x-rate-limit"];

/// The answer as it is stored: without what belongs to one exchange, and without what the route `excluded`.
#[must_use]
pub fn stored(status: StatusCode, headers: &HeaderMap, body: Bytes, excluded: &[HeaderName]) -> StoredResponse {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !of_the_exchange(name) && !excluded.contains(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    StoredResponse { status, headers: kept, body }
}

fn of_the_exchange(name: &HeaderName) -> bool {
    OF_THE_EXCHANGE.contains(name) || FAMILIES_OF_THE_EXCHANGE.iter().any(|family| name.as_str().starts_with(family))
}

/// The stored answer as a response: same status, same fields, same bytes.
#[must_use]
pub fn response(stored: &StoredResponse) -> Response<Body> {
    // An empty body that is made of no bytes announces no length where HTTP forbids one (204, 304).
    let body = if stored.body.is_empty() { Body::empty() } else { Body::from(stored.body.clone()) };
    let mut response = Response::new(body);
    *response.status_mut() = stored.status;
    response.headers_mut().clone_from(&stored.headers);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_belongs_to_one_exchange_is_not_stored_and_the_rest_is_in_order() {
        let mut headers = HeaderMap::new();
        let dropped = [
            "date",
            "set-cookie",
            "www-authenticate",
            "x-request-id",
            "ratelimit",
            "ratelimit-policy",
            "x-ratelimit-remaining",
            "access-control-allow-origin",
            "server",
            "content-length",
            "x-secret",
        ];
        for name in dropped {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        for (name, value) in
            [("location", "/p/1"), ("etag", "\"1\""), ("link", "</a>"), ("link", "</b>"), ("content-type", "text/x")]
        {
            headers.append(name, HeaderValue::from_static(value));
        }
        let excluded = [HeaderName::from_static("x-secret")];
        let stored = stored(StatusCode::CREATED, &headers, Bytes::from_static(b"x"), &excluded);
        for name in dropped {
            assert!(!stored.headers.contains_key(name), "{name}");
        }
        let links: Vec<_> = stored.headers.get_all("link").iter().collect();
        assert_eq!(links, ["</a>", "</b>"]);
        assert_eq!(stored.headers.len(), 5);
        let again = response(&stored);
        assert_eq!((again.status(), again.headers()), (StatusCode::CREATED, &stored.headers));
    }
}
