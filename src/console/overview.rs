//! What happens now.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use http::{Response, StatusCode};
use maud::{Markup, html};

use super::guard::Operator;
use super::layout::{self, Here};
use super::words::{counted, long};
use super::{Console, charts};

/// `GET /console`.
pub(super) async fn page(State(console): State<Console>, Extension(operator): Extension<Operator>) -> Response<Body> {
    let content = html! {
        h1 { "Overview" }
        noscript { meta http-equiv="refresh" content="5"; }
        p.notice #state role="status" {}
        div #live { (now(&console).await) }
        p.hint {
            "What this process did in the last five minutes; how much waits is counted in the whole store. \
             The outbox is measured every ten seconds. The same numbers are at "
            code { "/metrics" } " and " code { "/stats" } "."
        }
    };
    layout::page(&operator, Here::Overview, "Overview", &content)
}

/// `GET /console/charts`: the part of it that moves.
pub(super) async fn live(State(console): State<Console>) -> Response<Body> {
    layout::fragment(StatusCode::OK, now(&console).await)
}

async fn now(console: &Console) -> Markup {
    html! {
        (waiting(console).await)
        (charts::all(&console.admin))
    }
}

async fn waiting(console: &Console) -> Markup {
    let Ok(waiting) = console.admin.waiting().await else {
        return html! { p.alert { "The store does not answer. What waits for a person is not known." } };
    };
    let oldest = waiting.unknown.oldest.map(|oldest| format!("oldest: {}", long(oldest)));
    html! {
        ul.tiles {
            (tile("/console/unknown", waiting.unknown.count, "outcome unknown", oldest.as_deref()))
            (tile("/console/letters?of=events", waiting.parked.events, "parked events", None))
            (tile("/console/letters?of=deliveries", waiting.parked.deliveries, "parked deliveries", None))
        }
    }
}

fn tile(target: &str, count: u64, what: &str, more: Option<&str>) -> Markup {
    html! {
        li {
            a.tile.card.wants[count > 0] href=(target) {
                b { (counted(count)) }
                span { (what) }
                @if let Some(more) = more { small { (more) } }
            }
        }
    }
}
