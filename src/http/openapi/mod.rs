//! The OpenAPI documents: our own, generated from the code, and upstreams' beside it.

pub mod beside;
mod problems;

use serde_json::{Map, Value, json};
use utoipa::OpenApi as _;

use self::problems::Audience;
use super::{admin, endpoints};
use crate::problem::Details;

/// Operations are described where they are answered.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Oncegate",
        description = "The gateway's own endpoints. Whatever else is sent to it goes to the services behind it, whose \
                       documents are shown beside this one.\n\n\
                       On every route with a policy: a request carries an `Idempotency-Key` (or a business number that \
                       the route names), which the client keeps across its retries. The first request is executed; \
                       every other one gets the first one's answer, with `Idempotent-Replayed: true`. What the gateway \
                       answers by itself is `application/problem+json`, whose `retry` says what may be sent next.",
        contact(name = "Oncegate", url = "https://github.com/oncegate/oncegate")
    ),
    paths(
        endpoints::healthz,
        endpoints::readyz,
        endpoints::problem,
        endpoints::request_state,
        super::token::issue,
        super::docs::openapi,
        super::docs::beside,
        endpoints::metrics,
    ),
    components(schemas(Details<'static>)),
    tags(
        (name = "requests", description = "What became of a request"),
        (name = "documentation", description = "What the gateway answers, for people and programs"),
        (name = "health", description = "For load balancers and orchestrators"),
        (name = "operators", description = "On the operators' listener, `server.admin_listen`"),
    )
)]
struct Document;

/// Where the operators' listener is, unless configured otherwise.
const ADMIN: &str = "http://127.0.0.1:8081";

/// The document of our own endpoints, as it is in `openapi/oncegate.json`.
#[must_use]
pub fn document() -> Value {
    let mut document = Document::openapi();
    document.merge(admin::Document::openapi());
    let mut document = serde_json::to_value(document).unwrap_or_default();
    document["servers"] = json!([{ "url": "http://127.0.0.1:8080", "description": "server.listen" }]);
    document["components"]["securitySchemes"] = security();
    let mut statuses = Vec::new();
    for operation in operations(&mut document) {
        if operation.get("tags").is_some_and(|tags| tags == &json!(["operators"])) {
            let server = json!([{ "url": ADMIN, "description": "server.admin_listen" }]);
            operation.insert("servers".to_owned(), server);
        }
        let audience = audience(operation);
        statuses.extend(problems::refer(operation, audience).into_iter().map(|status| (audience, status)));
    }
    for (audience, status) in statuses {
        let name = problems::name(audience, status);
        document["components"]["responses"][name] = problems::response(audience, status, "Details");
    }
    document
}

/// Who is answered: operators are told by what they may show.
fn audience(operation: &Map<String, Value>) -> Audience {
    let ways = operation.get("security").and_then(Value::as_array);
    match ways.into_iter().flatten().any(|way| way.get("operator").is_some()) {
        true => Audience::Operators,
        false => Audience::Clients,
    }
}

/// The document as text, one line per value.
///
/// # Errors
/// Never: it is made of JSON.
pub fn text() -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(&document())? + "\n")
}

/// The document as a gateway serves it that clients reach at `base`.
pub(super) fn served(base: &str) -> Value {
    let mut document = document();
    document["servers"] = json!([{ "url": if base.is_empty() { "/" } else { base } }]);
    document
}

/// How callers say who they are, by `auth.mode`.
fn security() -> Value {
    json!({
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "With `auth.mode = \"jwt\"`: an access token of the configured issuer."
        },
        "operator": {
            "type": "http",
            "scheme": "bearer",
            "description": "The operators' token, `server.admin_token`. With `auth.mode = \"jwt\"` an access token that \
                            grants `oncegate:admin` does as well. Without a token, only this machine is answered."
        },
        "subject": {
            "type": "apiKey",
            "in": "header",
            "name": "X-Subject",
            "description": "With `auth.mode = \"header\"`: set by the proxy in front, under the configured name, never \
                            by clients."
        },
    })
}

/// All operations of a document.
fn operations(document: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let items = paths.filter_map(Value::as_object_mut).flatten();
    items
        .filter(|(method, _)| METHODS.contains(&method.as_str()))
        .filter_map(|(_, operation)| operation.as_object_mut())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_document_is_what_the_code_says() {
        let committed: Value = serde_json::from_str(include_str!("../../../openapi/oncegate.json")).unwrap();
        assert!(committed == document(), "write it anew: oncegate openapi > openapi/oncegate.json");
    }

    #[test]
    fn every_operation_has_an_example_a_summary_and_an_id_of_its_own() {
        let mut document = document();
        let mut ids = std::collections::BTreeSet::new();
        for operation in operations(&mut document) {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()), "{id}");
            let successes = operation["responses"].as_object().unwrap().iter();
            for (status, response) in successes.filter(|(status, _)| status.starts_with('2')) {
                let contents = response["content"].as_object().unwrap();
                assert!(contents.values().all(|content| content.get("example").is_some()), "{id} {status}");
            }
            let parameters = operation.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
            assert!(parameters.iter().all(|parameter| parameter.get("example").is_some()), "{id}");
            assert!(ids.insert(id.clone()), "{id} twice");
        }
        assert!(ids.len() >= 26);
    }
}
