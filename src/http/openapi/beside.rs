//! An upstream's own document, as clients of the gateway see its service: what the gateway forwards, with what a policy
//! adds to it.

use std::sync::Arc;

use http::{Method, Uri};
use serde_json::{Map, Value, json};

use super::problems::{self, Audience};
use crate::entry::KeySource;
use crate::http::route::{Guard, Keyless, Mode, Route};
use crate::problem::{Details, Situation};
use crate::routing::Router;

/// What the component that describes a problem is called in a document of somebody else.
const SCHEMA: &str = "OncegateProblem";

/// Why a document can't be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotShown {
    /// It is no JSON, or something else in JSON.
    #[error("it is no OpenAPI document in JSON, of version 3.0 or 3.1")]
    NoDocument,
}

/// What an upstream's document is compared with.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// All routes.
    pub routes: &'a Router<Arc<Route>>,
    /// Whose document it is.
    pub upstream: &'a str,
    /// Where clients reach the gateway; empty: where they have the document from.
    pub base: &'a str,
}

impl View<'_> {
    /// `document` without what the gateway does not forward, with the header and the answers of routes that have a
    /// policy, and with the gateway as its server.
    ///
    /// # Errors
    /// If it is no document.
    pub fn of(&self, document: &[u8]) -> Result<Value, NotShown> {
        let mut document: Value = serde_json::from_slice(document).map_err(|_| NotShown::NoDocument)?;
        let is_known = document["openapi"].as_str().is_some_and(|version| version.starts_with("3."));
        if !is_known || !document["paths"].is_object() {
            return Err(NotShown::NoDocument);
        }
        let prefix = prefix(&document);
        let shared = document["components"]["responses"].clone();
        let mut is_guarded = false;
        if let Some(paths) = document["paths"].as_object_mut() {
            for (path, item) in paths.iter_mut() {
                let Some(item) = item.as_object_mut() else { continue };
                item.remove("servers");
                item.retain(|member, operation| match method(member) {
                    None => true,
                    Some(method) => {
                        match (self.route(&method, &format!("{prefix}{path}")), operation.as_object_mut()) {
                            (Some(route), Some(operation)) => {
                                operation.remove("servers");
                                if let Some(guard) = route.guard.as_deref().filter(|guard| guards(guard, &method)) {
                                    is_guarded = true;
                                    guarded(operation, guard, &shared);
                                }
                                true
                            }
                            (_, _) => false,
                        }
                    }
                });
            }
            paths.retain(|_, item| {
                item.as_object().is_some_and(|item| item.keys().any(|member| method(member).is_some()))
            });
        }
        document["servers"] = json!([{ "url": server(self.base, &prefix) }]);
        if is_guarded {
            let schema = <Details<'static> as utoipa::PartialSchema>::schema();
            document["components"]["schemas"][SCHEMA] = serde_json::to_value(schema).unwrap_or_default();
            for status in statuses() {
                document["components"]["responses"][component(status)] =
                    problems::response(Audience::Clients, status, SCHEMA);
            }
        }
        Ok(document)
    }

    /// The route that takes requests of a template, if it leads to this upstream. A parameter is stood for by a text
    /// that no literal segment has.
    fn route(&self, method: &Method, template: &str) -> Option<&Arc<Route>> {
        let mut path = String::with_capacity(template.len());
        let mut depth = 0_u32;
        for letter in template.chars() {
            match letter {
                '{' => {
                    depth += 1;
                    path.push('~');
                }
                '}' => depth = depth.saturating_sub(1),
                letter if depth == 0 => path.push(letter),
                _ => {}
            }
        }
        crate::routing::check(&path).ok()?;
        let found = self.routes.find(method, &path).ok()?;
        (found.value.upstream.name() == self.upstream).then_some(found.value)
    }
}

/// Whether the guard decides about requests of this method.
fn guards(guard: &Guard, method: &Method) -> bool {
    let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method);
    !is_safe && guard.mode.now() != Mode::Observe
}

fn method(member: &str) -> Option<Method> {
    match member {
        "get" => Some(Method::GET),
        "put" => Some(Method::PUT),
        "post" => Some(Method::POST),
        "delete" => Some(Method::DELETE),
        "options" => Some(Method::OPTIONS),
        "head" => Some(Method::HEAD),
        "patch" => Some(Method::PATCH),
        "trace" => Some(Method::TRACE),
        _ => None,
    }
}

/// The path in front of all others, which the gateway passes on as it is.
fn prefix(document: &Value) -> String {
    let server = document["servers"][0]["url"].as_str().unwrap_or_default();
    let path = match server.parse::<Uri>() {
        Ok(uri) if !server.contains('{') => uri.path().to_owned(),
        Ok(_) | Err(_) => String::new(),
    };
    path.trim_end_matches('/').to_owned()
}

fn server(base: &str, prefix: &str) -> String {
    match format!("{}{prefix}", base.trim_end_matches('/')) {
        empty if empty.is_empty() => "/".to_owned(),
        url => url,
    }
}

/// What the gateway may answer a guarded request by itself.
fn statuses() -> Vec<u16> {
    let of_guarded = |situation: &Situation| {
        !matches!(
            situation,
            Situation::NoRoute
                | Situation::MethodNotAllowed
                | Situation::KeyUnknown
                | Situation::HeadTooLarge
                | Situation::UriTooLong
        )
    };
    let mut statuses: Vec<u16> =
        Situation::ALL.into_iter().filter(of_guarded).map(|situation| situation.facts().status.as_u16()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn component(status: u16) -> String {
    format!("Oncegate{}", problems::name(Audience::Clients, status))
}

fn guarded(operation: &mut Map<String, Value>, guard: &Guard, shared: &Value) {
    let parameters = operation.entry("parameters").or_insert_with(|| json!([]));
    if let Some(parameters) = parameters.as_array_mut() {
        let is_key = |parameter: &Value| {
            parameter["in"] == "header"
                && parameter["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case("idempotency-key"))
        };
        parameters.retain(|parameter| !is_key(parameter));
        parameters.push(key(guard));
    }
    let responses = operation.entry("responses").or_insert_with(|| json!({}));
    let Some(responses) = responses.as_object_mut() else { return };
    for (_, response) in responses.iter_mut().filter(|(status, _)| status.starts_with('2')) {
        whole(response, shared);
        for (name, header) in headers() {
            response["headers"][name] = header;
        }
    }
    for status in statuses() {
        match responses.get_mut(&status.to_string()) {
            None => {
                let response = json!({ "$ref": format!("#/components/responses/{}", component(status)) });
                responses.insert(status.to_string(), response);
            }
            // The service's own, or the gateway's.
            Some(response) => {
                whole(response, shared);
                response["content"]["application/problem+json"] = problems::content(Audience::Clients, status, SCHEMA);
            }
        }
    }
}

/// A response that is written out: to one that others share nothing can be added.
fn whole(response: &mut Value, shared: &Value) {
    let name = response["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/responses/"));
    if let Some(found) = name.and_then(|name| shared.get(name)) {
        *response = found.clone();
    }
    if let Some(response) = response.as_object_mut() {
        response.remove("$ref");
        response.entry("description").or_insert_with(|| json!("As the service says."));
    }
}

fn key(guard: &Guard) -> Value {
    let alternatives = guard.sources.alternatives();
    let is_header = |source: &KeySource| matches!(source, KeySource::Header);
    let only_by_header = alternatives.iter().all(|alternative| alternative.sources().iter().any(is_header));
    let by_header = alternatives.iter().any(|alternative| alternative.sources().iter().any(is_header));
    let description = match (only_by_header, by_header) {
        (true, _) => "Chosen by the client for one operation, and kept for every retry of it.".to_owned(),
        (false, true) => format!(
            "Chosen by the client for one operation, and kept for every retry of it. The key is the first that is \
             there of {}.",
            guard.sources
        ),
        (false, false) => format!("Not needed: the key is {}.", guard.sources),
    };
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "required": only_by_header && guard.keyless == Keyless::Refused,
        "description": description,
        "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
        "example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
    })
}

fn headers() -> [(&'static str, Value); 3] {
    let header = |description: &str, example: &str| json!({ "description": description, "schema": { "type": "string" }, "example": example });
    [
        (
            "Idempotency-Key",
            header("The key under which the request is known.", "\"8e03978e-40d5-43dd-bc93-6894a57f9324\""),
        ),
        ("Idempotent-Replayed", header("Whether it is the answer to an earlier request.", "false")),
        ("Idempotency-Key-Expires", header("Until when the answer is kept.", "Sun, 06 Nov 1994 08:49:37 GMT")),
    ]
}
