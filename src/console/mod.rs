//! The operators' console: pages made here, for a person with a browser, on the operators' listener.
//!
//! Everything works without script; a small one makes the charts move. Nothing is asked of anybody else. What the pages
//! show is escaped by their templates, since keys and answers are what strangers have sent.
//!
//! | who comes | what opens |
//! |---|---|
//! | to a listener without credentials, on this machine | the page, as the API would |
//! | with a session's cookie | the page, if what opened the session opens the API now |
//! | with neither | the form to sign in, which keeps what was sent |
//!
//! Each order comes from a page of this console (`src/console/guard.rs`): by what browsers say of its origin, by the cookie, which
//! they send for pages of this site only, and by a token in the form, which other pages can't read. The API knows no
//! cookie.

mod charts;
mod decisions;
mod event;
mod form;
mod guard;
mod layout;
mod letters;
mod overview;
mod plot;
mod search;
mod session;
mod settle;
mod sign_in;
mod story;
mod table;
mod unknown;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect};
use axum::routing::{get, post};
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use self::session::Sessions;
use crate::http::admin::{Admin, AdminParts};

/// What the pages are made from.
#[derive(Debug, Clone)]
pub(crate) struct Console {
    admin: Admin,
    sessions: Arc<Sessions>,
}

impl Console {
    fn parts(&self) -> &AdminParts {
        self.admin.parts()
    }
}

/// All pages on one screen.
pub fn router(admin: Admin) -> Router {
    let console = Console { admin, sessions: Arc::default() };
    Router::new()
        .route("/console", get(overview::page))
        .route("/console/charts", get(overview::live))
        .route("/console/unknown", get(unknown::page))
        .route("/console/settle", post(settle::act).get(to_unknown))
        .route("/console/search", get(search::page))
        .route("/console/entries/{id}", get(story::page))
        .route("/console/letters", get(letters::page).post(letters::act))
        .route("/console/events/{id}", get(event::page))
        .route("/console/decisions", get(decisions::page))
        .route("/console/sign-out", post(sign_in::leave))
        .route_layer(from_fn_with_state(console.clone(), guard::guard))
        .route("/", get(home))
        .route("/console/", get(home))
        .route("/console/sign-in", get(sign_in::page).post(sign_in::enter))
        .route("/console/console.css", get(css))
        .route("/console/console.js", get(js))
        .route("/console/icon.svg", get(icon))
        .layer(from_fn(guard::fields))
        .with_state(console)
}

async fn home() -> Redirect {
    Redirect::to("/console")
}

/// Where a page that came by an order is loaded again.
async fn to_unknown() -> Redirect {
    Redirect::to("/console/unknown")
}

async fn css() -> Response<Body> {
    file("text/css; charset=utf-8", include_str!("console.css"))
}

async fn js() -> Response<Body> {
    file("text/javascript; charset=utf-8", include_str!("console.js"))
}

async fn icon() -> Response<Body> {
    file("image/svg+xml", include_str!("icon.svg"))
}

/// A file of the console itself: asked for anew each time, since another version may be running by then.
fn file(kind: &'static str, text: &'static str) -> Response<Body> {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text).into_response()
}
