//! Browsers of other origins (the Fetch standard, section 3.2, "CORS protocol").
//!
//! An answer is replayed to whoever may see it, and the origin that asks need not be the one that asked first:
//! so the fields are never stored, and the gateway makes them anew for every answer, its own included. Where it
//! does, what an upstream says of origins is left out.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::middleware::map_response;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, Uri};
use tower_http::cors::{AllowMethods, AllowOrigin, CorsLayer};

/// Whose scripts may call.
#[derive(Debug, Clone)]
pub struct CorsOptions {
    /// The origins, such as `https://shop.example`.
    pub origins: Vec<Uri>,
    /// Whether they may send cookies and the like.
    pub credentials: bool,
    /// Fields that a script may send besides [`SENT`].
    pub sent: Vec<HeaderName>,
    /// Fields that a script may read besides [`READ`].
    pub read: Vec<HeaderName>,
    /// How long a browser may remember it.
    pub max_age: Duration,
}

/// What a payment page sends.
pub const SENT: [HeaderName; 5] = [
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("prefer"),
    HeaderName::from_static("x-request-id"),
];

/// What it has to read of an answer in order to go on.
pub const READ: [HeaderName; 9] = [
    header::ETAG,
    header::LOCATION,
    header::RETRY_AFTER,
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("idempotency-key-expires"),
    HeaderName::from_static("idempotent-replayed"),
    HeaderName::from_static("oncegate-recorded"),
    HeaderName::from_static("preference-applied"),
    HeaderName::from_static("x-request-id"),
];

/// What an upstream says of origins.
const UPSTREAMS: [HeaderName; 3] = [
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
];

/// `app` for browsers too: preflights are answered here, and every answer says whose scripts may read it.
pub fn allow(app: Router, options: CorsOptions) -> Router {
    // A URI with an empty path is shown with a slash; browsers send origins without.
    let origins =
        options.origins.iter().filter_map(|uri| HeaderValue::from_str(uri.to_string().trim_end_matches('/')).ok());
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods(AllowMethods::mirror_request())
        .allow_headers(SENT.into_iter().chain(options.sent).collect::<Vec<_>>())
        .expose_headers(READ.into_iter().chain(options.read).collect::<Vec<_>>())
        .allow_credentials(options.credentials)
        .max_age(options.max_age);
    app.layer(map_response(without_upstreams_word)).layer(layer)
}

async fn without_upstreams_word(mut response: Response<Body>) -> Response<Body> {
    for name in &UPSTREAMS {
        response.headers_mut().remove(name);
    }
    response
}
