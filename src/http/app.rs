//! All routes on one screen: our own endpoints under the prefix; everything else is the door's.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{get, post};
use http::{Request, Response};

use super::admin::{self, Admin};
use super::docs::{self, Shown};
use super::endpoints::{self, Endpoints, StatusAccess};
use super::token;

/// What answers on the public listener.
pub fn public(endpoints: Endpoints, prefix: &str) -> Router {
    let mut own = Router::new()
        .route("/healthz", get(endpoints::healthz))
        .route("/readyz", get(endpoints::readyz))
        .route("/problems/{slug}", get(endpoints::problem));
    if endpoints.status != StatusAccess::Off {
        own = own.route("/idempotency/requests/{key}", get(endpoints::request_state));
    }
    if endpoints.docs.shown() == Shown::Publicly {
        own = documented(own);
    }
    if endpoints.gateway.0.tokens.is_some() {
        own = own.route("/idempotency/tokens", post(token::issue));
    }
    // Another method on one of our paths is not ours either: an upstream may well serve it.
    let own = own.method_not_allowed_fallback(door);
    let router = if prefix.is_empty() { own } else { Router::new().nest(prefix, own) };
    router.fallback(door).with_state(endpoints)
}

/// What answers on the operators' listener. What monitoring asks for needs no credentials, nor do documents.
pub fn admin(endpoints: Endpoints, admin: Admin) -> Router {
    let own = Router::new()
        .route("/healthz", get(endpoints::healthz))
        .route("/readyz", get(endpoints::readyz))
        .route("/problems/{slug}", get(endpoints::problem))
        .route("/metrics", get(endpoints::metrics));
    let own = match endpoints.docs.shown() {
        Shown::Publicly | Shown::ToOperators => documented(own),
        Shown::Nowhere => own,
    };
    own.with_state(endpoints).merge(admin::router(admin))
}

/// With documentation.
fn documented(router: Router<Endpoints>) -> Router<Endpoints> {
    router
        .route("/openapi.json", get(docs::openapi))
        .route("/openapi/{upstream}", get(docs::beside))
        .route("/docs", get(docs::enter))
        .route("/docs/", get(docs::page))
        .route("/docs/{*file}", get(docs::file))
}

async fn door(State(endpoints): State<Endpoints>, request: Request<Body>) -> Response<Body> {
    endpoints.gateway.handle(request).await
}
