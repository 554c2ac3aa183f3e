//! The answer made of a stored one.

use axum::body::Body;
use http::Response;

use crate::entry::StoredResponse;

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
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode, header};
    use http_body::Body as _;

    #[test]
    fn an_answer_goes_out_as_it_was_stored() {
        let mut headers = HeaderMap::new();
        headers.append(header::LINK, HeaderValue::from_static("</a>"));
        headers.append(header::LINK, HeaderValue::from_static("</b>"));
        let stored = StoredResponse { status: StatusCode::CREATED, headers, body: Bytes::from_static(b"x") };
        let again = response(&stored);
        assert_eq!((again.status(), again.headers()), (StatusCode::CREATED, &stored.headers));
        assert_eq!(again.body().size_hint().exact(), Some(1));
    }
}
