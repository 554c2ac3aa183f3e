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

    /// The router's own text: what it serves can't be asked of it.
    #[test]
    fn every_route_is_in_the_document() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let mut found = 0;
        for line in include_str!("mod.rs").lines().filter_map(|line| line.trim().strip_prefix(".route(\"")) {
            let (path, handler) = line.split_once("\", ").unwrap();
            if path.starts_with("/console") {
                continue;
            }
            let method = handler.split('(').next().unwrap();
            assert!(document["paths"][path][method].is_object(), "{method} {path} is not in the document");
            found += 1;
        }
        let operations: usize =
            document["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len()).sum();
        assert_eq!(operations, found, "what is in the document is served");
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
