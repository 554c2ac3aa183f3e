//! What the OpenAPI document says of the operators' endpoints. Each is described where it is answered.

use super::{decisions, deliveries, entries, events, routes, settle, stats, subscriptions, switches};

/// All of them.
#[derive(utoipa::OpenApi)]
#[openapi(paths(
    entries::list,
    entries::show,
    decisions::list,
    settle::one,
    settle::many,
    events::list,
    events::show,
    events::retry,
    events::discard,
    deliveries::list,
    deliveries::show,
    deliveries::retry,
    deliveries::discard,
    routes::list,
    routes::mode,
    switches::list,
    subscriptions::list,
    subscriptions::pause,
    subscriptions::resume,
    stats::stats,
))]
pub(in crate::http) struct Document;

#[cfg(test)]
mod tests {
    use utoipa::OpenApi as _;

    use super::*;

    /// The methods and paths that the router's own text says are served: they can't be asked of it.
    fn served() -> Vec<(&'static str, &'static str)> {
        let lines = include_str!("mod.rs").lines().filter_map(|line| line.trim().strip_prefix(".route(\""));
        let routes = lines.map(|line| line.split_once("\", ").unwrap());
        routes.map(|(path, handler)| (handler.split('(').next().unwrap(), path)).collect()
    }

    #[test]
    fn every_route_is_in_the_document() {
        let document = crate::http::openapi::document();
        // Pages for people are no part of the API.
        for (method, path) in served().into_iter().filter(|(_, path)| !path.starts_with("/console")) {
            assert!(document["paths"][path][method].is_object(), "{method} {path} is not in the document");
        }
    }

    #[test]
    fn what_is_in_the_document_is_served() {
        let (document, served) = (serde_json::to_value(Document::openapi()).unwrap(), served());
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                assert!(served.contains(&(method, path)), "{method} {path} is not served");
            }
        }
    }

    #[test]
    fn every_operation_is_for_operators_and_says_what_goes_wrong() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                assert_eq!(operation["tags"], serde_json::json!(["operators"]), "{path}");
                let is_told = |status: &str| operation["responses"][status]["description"] == "problem";
                let body = if method == "post" { &["400", "408", "413"][..] } else { &[] };
                assert!(["401", "403", "503"].iter().chain(body).all(|status| is_told(status)), "{method} {path}");
                assert_eq!(operation["requestBody"].is_object(), method == "post", "{method} {path}");
                assert_eq!(is_told("404"), path.contains('{'), "{method} {path}");
            }
        }
    }
}
