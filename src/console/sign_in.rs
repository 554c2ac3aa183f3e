//! Signing in and out.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect};
use http::header::{HeaderValue, ORIGIN, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use maud::{Markup, html};

use super::form::Form;
use super::guard::{self, Operator};
use super::session::{cookie, set_cookie};
use super::{Console, layout};
use crate::clock;
use crate::http::admin::access::{ADMIN_SCOPE, Authority, Denied};
use crate::http::admin::cross_site;
use crate::http::peer::Peer;

/// In front of the names of fields that somebody sent whose session was over.
const HELD: &str = "held:";

/// `GET /console/sign-in`.
pub(super) async fn page(State(console): State<Console>) -> Response<Body> {
    if guard::is_open(&console) {
        return Redirect::to("/console").into_response();
    }
    form(&console, StatusCode::OK, &Asked { next: "/console", ..Asked::default() })
}

/// Asks whoever came to `uri` to sign in first, and keeps what they sent.
pub(super) fn ask(console: &Console, uri: &Uri, sent: &Form, why: Option<&str>) -> Response<Body> {
    let target = uri.path_and_query().map_or("/console", |target| target.as_str());
    let held: Vec<_> = sent.fields().map(|(name, value)| (format!("{HELD}{name}"), value)).collect();
    form(console, StatusCode::UNAUTHORIZED, &Asked { next: target, held, why, name: "" })
}

/// What the form says and keeps.
#[derive(Default)]
struct Asked<'a> {
    /// Where they wanted to go.
    next: &'a str,
    held: Vec<(String, &'a str)>,
    why: Option<&'a str>,
    name: &'a str,
}

fn form(console: &Console, status: StatusCode, asked: &Asked<'_>) -> Response<Body> {
    let content = html! {
        h1 { "Sign in" }
        @if !asked.held.is_empty() {
            p.notice { "You are not signed in any more. Nothing was done, and what you typed in is kept: sign in to go on." }
        }
        @if let Some(why) = asked.why { p.alert #why role="alert" { (why) } }
        form.narrow.card method="post" action="/console/sign-in" {
            input type="hidden" name="form" value=(console.sessions.token(None));
            input type="hidden" name="next" value=(asked.next);
            @for (name, value) in &asked.held { input type="hidden" name=(name) value=(value); }
            (field(asked.why.is_some()))
            @if guard::takes_a_token(console) {
                label for="name" { "Your name" }
                input #name name="name" value=(asked.name) autocomplete="name" maxlength="200" aria-describedby="name-says";
                p.hint #name-says { "Kept on record with what you decide. An access token has its own." }
            }
            button { "Sign in" }
        }
    };
    layout::bare(status, "Sign in", &content)
}

fn field(is_wrong: bool) -> Markup {
    html! {
        label for="credential" { "Operators' token, or access token" }
        input #credential name="credential" type="password" required autofocus autocomplete="current-password"
            aria-invalid=[is_wrong.then_some("true")] aria-describedby="credential-says";
        p.hint #credential-says {
            "The token of " code { "server.admin_token" } ", or an access token that grants " code { (ADMIN_SCOPE) } "."
        }
    }
}

/// `POST /console/sign-in`: a session for whom the API would let in.
pub(super) async fn enter(State(console): State<Console>, request: Request) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    if let Some(why) = cross_site::foreign(&parts) {
        return layout::refusal(StatusCode::FORBIDDEN, why, None);
    }
    let sent = match guard::read(&console, &parts, body).await {
        Ok(sent) => sent,
        Err(refused) => return refused,
    };
    let next = Some(sent.get("next")).filter(|next| is_page(next)).unwrap_or("/console");
    let kept = sent.under(HELD);
    let held: Vec<_> = kept.fields().map(|(name, value)| (format!("{HELD}{name}"), value)).collect();
    let refused = |why: &str| {
        let asked = Asked { next, held: held.clone(), why: Some(why), name: sent.get("name") };
        form(&console, StatusCode::UNAUTHORIZED, &asked)
    };
    if !console.sessions.made(sent.get("form"), None) {
        return refused("The gateway has started anew since this page was made. Please sign in again.");
    }
    let credential = sent.get("credential").trim();
    let admitted = match guard::show(&mut parts, credential) {
        Ok(()) => guard::enter(&console, &parts).await,
        Err(denied) => Err(denied),
    };
    let authority = match admitted {
        Ok(authority) => authority,
        Err(denied) => {
            tracing::warn!("somebody tried to sign in to the console in vain");
            let why = if denied == Denied::NoToken { String::new() } else { denied.to_string() };
            return refused(format!("That does not open the console. {why}").trim_end());
        }
    };
    let cookie = console.sessions.begin(credential, sent.some("name").unwrap_or_default(), clock::now());
    let operator = signed_in(&console, authority, &cookie);
    let mut response = match held.is_empty() {
        true => Redirect::to(next).into_response(),
        false => go_on(&operator, next, &kept),
    };
    put(&mut response, &set_cookie(&cookie, is_secure(&parts)));
    response
}

fn signed_in(console: &Console, authority: Authority, cookie: &str) -> Operator {
    Operator { authority, name: Box::default(), token: console.sessions.token(Some(cookie)), has_session: true }
}

/// What somebody sent before they had to sign in.
fn go_on(operator: &Operator, path: &str, kept: &Form) -> Response<Body> {
    let content = html! {
        h1 { "Signed in" }
        p { "Nothing was done yet." }
        (layout::resume(operator, path, kept))
    };
    layout::bare(StatusCode::OK, "Signed in", &content)
}

/// `POST /console/sign-out`.
pub(super) async fn leave(
    State(console): State<Console>,
    Extension(_): Extension<Operator>,
    headers: HeaderMap,
) -> Response<Body> {
    if let Some(cookie) = cookie(&headers) {
        console.sessions.end(cookie);
    }
    let mut response = Redirect::to("/console/sign-in").into_response();
    put(&mut response, &set_cookie("", false));
    response
}

fn put(response: &mut Response<Body>, cookie: &str) {
    if let Ok(value) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(SET_COOKIE, value);
    }
}

/// Whether the browser reaches us by TLS, which may end at a proxy in front: its page's origin says so.
fn is_secure(parts: &Parts) -> bool {
    let by_tls = parts.extensions.get::<Peer>().is_some_and(|peer| peer.tls);
    let origin = parts.headers.get(ORIGIN).map(HeaderValue::as_bytes);
    by_tls || (parts.method == Method::POST && origin.is_some_and(|origin| origin.starts_with(b"https://")))
}

/// Whether it is one of our pages, and not somebody else's.
fn is_page(target: &str) -> bool {
    let rest = target.strip_prefix("/console").filter(|_| target.bytes().all(|byte| byte.is_ascii_graphic()));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?'])) && !target.contains(['\\', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_in_leads_to_pages_of_ours_only() {
        for ours in ["/console", "/console/unknown", "/console?x=1", "/console/search?q=a%20b"] {
            assert!(is_page(ours), "{ours}");
        }
        let others =
            ["", "/", "/entries", "//evil.example", "/consoles", "/console\\evil", "https://evil.example/console"];
        for other in others {
            assert!(!is_page(other), "{other}");
        }
        assert!(!is_page("/console/\r\nset-cookie: a=b"));
    }
}
