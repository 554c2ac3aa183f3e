//! Before any page: who asks, and whether an order comes from a page of ours.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};

use super::form::Form;
use super::session::{Session, cookie};
use super::{Console, layout, sign_in};
use crate::clock;
use crate::http::admin::access::{Access, Authority, Denied};
use crate::http::admin::cross_site;
use crate::http::body;
use crate::http::peer::Peer;

/// Files of ours, and nothing else: no script within a page, no style, no frame, no other origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// What every answer carries. Without a referrer browsers would send `Origin: null` with our own forms, so pages of
/// this origin get one.
const FIELDS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Who looks at a page.
#[derive(Debug, Clone)]
pub(super) struct Operator {
    /// What let them in.
    pub(super) authority: Authority,
    /// How they call themselves, as far as they have said.
    pub(super) name: Box<str>,
    /// What their forms carry.
    pub(super) token: Box<str>,
    /// Whether there is a session to be ended.
    pub(super) has_session: bool,
}

/// Lets in whom the API would let in.
pub(super) async fn guard(State(console): State<Console>, request: Request, next: Next) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    if let Some(why) = cross_site::foreign(&parts) {
        return layout::refusal(StatusCode::FORBIDDEN, why, None);
    }
    let form = match read(&console, &parts, body).await {
        Ok(form) => form,
        Err(refused) => return refused,
    };
    let cookie = cookie(&parts.headers).map(str::to_owned);
    let session = cookie.as_deref().and_then(|cookie| console.sessions.find(cookie, clock::now()));
    let authority = match admit(&console, &mut parts, session.as_ref()).await {
        Ok(authority) => authority,
        Err(denied @ Denied::OtherName) => {
            return layout::refusal(StatusCode::FORBIDDEN, &denied.to_string(), None);
        }
        Err(_) if session.is_none() && comes_from_elsewhere(&parts) => return layout::once_more(&parts.uri),
        Err(denied) => {
            let why = session.is_some().then(|| denied.to_string());
            return sign_in::ask(&console, &parts.uri, &form, why.as_deref());
        }
    };
    let has_session = session.is_some();
    let cookie = cookie.as_deref().filter(|_| has_session);
    let operator = Operator {
        authority,
        name: session.map(|session| session.name).unwrap_or_default(),
        token: console.sessions.token(cookie),
        has_session,
    };
    if parts.method == Method::POST && !console.sessions.made(form.get("form"), cookie) {
        let is_ours = parts.headers.contains_key(ORIGIN) && cross_site::is_of_this_origin(&parts);
        return layout::stale(&operator, is_ours.then(|| (parts.uri.path(), &form)));
    }
    parts.extensions.insert(operator);
    parts.extensions.insert(form);
    next.run(Request::from_parts(parts, Body::empty())).await
}

/// What a form has sent.
pub(super) async fn read(console: &Console, parts: &Parts, body: Body) -> Result<Form, Response<Body>> {
    if parts.method != Method::POST {
        return Ok(Form::default());
    }
    let bytes = body::read(body, console.parts().body).await;
    bytes
        .map(|bytes| Form::read(&bytes))
        .map_err(|error| layout::refusal(StatusCode::PAYLOAD_TOO_LARGE, &format!("Nothing was done: {error}."), None))
}

/// By the same door as the API, with what opened the session; what else the browser says of itself does not count.
async fn admit(console: &Console, parts: &mut Parts, session: Option<&Session>) -> Result<Authority, Denied> {
    parts.headers.remove(AUTHORIZATION);
    if let Some(session) = session {
        show(parts, &session.credential)?;
    }
    let admitted = enter(console, parts).await;
    parts.headers.remove(AUTHORIZATION);
    admitted
}

/// Puts a credential where the API looks for one.
pub(super) fn show(parts: &mut Parts, credential: &str) -> Result<(), Denied> {
    let mut field = HeaderValue::try_from(format!("Bearer {credential}")).map_err(|_| Denied::NoToken)?;
    field.set_sensitive(true);
    parts.headers.insert(AUTHORIZATION, field);
    Ok(())
}

/// Who it is, by what the request shows.
pub(super) async fn enter(console: &Console, parts: &Parts) -> Result<Authority, Denied> {
    let nobody = std::net::IpAddr::from([0, 0, 0, 0]);
    let peer = parts.extensions.get::<Peer>().map_or(nobody, |peer| peer.addr.ip());
    console.parts().access.admit(peer, parts).await
}

/// Whether a link of another site led here: the browser keeps the cookie back then, though there may be one.
fn comes_from_elsewhere(parts: &Parts) -> bool {
    parts.method == Method::GET && parts.headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
}

/// Whether anybody has to sign in.
pub(super) fn is_open(console: &Console) -> bool {
    matches!(console.parts().access, Access::Machine | Access::Database)
}

/// Whether somebody may come without a name of their own.
pub(super) fn takes_a_token(console: &Console) -> bool {
    matches!(console.parts().access, Access::Credentials { token: Some(_), .. })
}

/// What is the same for all answers.
pub(super) async fn fields(request: Request, next: Next) -> Response<Body> {
    let mut response = next.run(request).await.into_response();
    let headers = response.headers_mut();
    for (name, value) in FIELDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
