//! Problem responses, from the table of situations.

use serde_json::{Map, Value, json};

use crate::problem::Situation;

/// What an operation says in place of a problem's description: [`refer`] puts the shared response there.
const PROBLEM: &str = "problem";

/// Whom problems are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// Whoever sends requests.
    Clients,
    /// Whoever uses the operators' endpoints.
    Operators,
}

/// What the response for problems of `status` is called among the components.
pub(super) fn name(audience: Audience, status: u16) -> String {
    match audience {
        Audience::Clients => format!("Problem{status}"),
        Audience::Operators => format!("OperatorProblem{status}"),
    }
}

/// Puts references in the place of an operation's problems and says of which statuses they are.
pub(super) fn refer(operation: &mut Map<String, Value>, audience: Audience) -> Vec<u16> {
    let mut statuses = Vec::new();
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    for (status, response) in responses.into_iter().flatten() {
        if response["description"] == PROBLEM
            && let Ok(status) = status.parse()
        {
            *response = json!({ "$ref": format!("#/components/responses/{}", name(audience, status)) });
            statuses.push(status);
        }
    }
    statuses
}

/// The response for problems of `status`, with an example of each; `schema` is the component that describes a problem.
pub(super) fn response(audience: Audience, status: u16, schema: &str) -> Value {
    let titles: Vec<&str> = of(audience, status).map(|situation| situation.facts().title).collect();
    let mut response = json!({
        "description": format!("{}.", titles.join("; or: ")),
        "content": { "application/problem+json": content(audience, status, schema) },
        "headers": {
            "Proxy-Status": {
                "description": "RFC 9209: tells the gateway's own answers from the service's.",
                "schema": { "type": "string" },
                "example": "oncegate; error=http_request_denied",
            },
        },
    });
    if of(audience, status).any(|situation| situation == Situation::Unauthenticated) {
        response["headers"]["WWW-Authenticate"] = json!({
            "description": "How to authenticate, where callers have tokens.",
            "schema": { "type": "string" },
            "example": "Bearer error=\"invalid_token\"",
        });
    }
    if of(audience, status).any(waits) {
        response["headers"]["Retry-After"] = json!({
            "description": "After how many seconds the same request may be sent again.",
            "schema": { "type": "integer", "minimum": 1 },
            "example": 1,
        });
    }
    response
}

/// The same as a content of a response that says something else as well.
pub(super) fn content(audience: Audience, status: u16, schema: &str) -> Value {
    let examples: Map<String, Value> = of(audience, status)
        .map(|situation| (situation.facts().slug.to_owned(), json!({ "value": example(situation) })))
        .collect();
    json!({ "schema": { "$ref": format!("#/components/schemas/{schema}") }, "examples": examples })
}

fn of(audience: Audience, status: u16) -> impl Iterator<Item = Situation> {
    let is_told = move |situation: &Situation| match audience {
        Audience::Clients => !situation.is_for_operators(),
        Audience::Operators => situation.is_for_operators() || is_for_all(*situation),
    };
    Situation::ALL.into_iter().filter(is_told).filter(move |situation| situation.facts().status.as_u16() == status)
}

/// What is answered wherever somebody asks with credentials, and with a body.
fn is_for_all(situation: Situation) -> bool {
    matches!(
        situation,
        Situation::Unauthenticated
            | Situation::Forbidden
            | Situation::BodyTimeout
            | Situation::BodyTooLarge
            | Situation::Unavailable
    )
}

fn waits(situation: Situation) -> bool {
    matches!(
        situation,
        Situation::Processing | Situation::OutcomeUnknown | Situation::RoutePaused | Situation::Unavailable
    )
}

fn example(situation: Situation) -> Value {
    let facts = situation.facts();
    let mut example = json!({
        "type": format!("/problems/{}", facts.slug),
        "title": facts.title,
        "status": facts.status.as_u16(),
        "detail": facts.detail,
        "retry": facts.retry,
        "request_id": "0f9b7f6ae3c14c2e9d6e4b8a51c07d3e",
    });
    if situation == Situation::ResponseNotKept {
        example["original_status"] = json!(201);
    }
    example
}
