//! Documentation served from the binary.

use serde_json::Value;

use super::gateway::{Gateway, Settings};
use super::upstream::{Upstream, answer};
use crate::servers::database::{Database, Kind};

const ROUTES: &str = r#"
    [[upstreams]]
    name = "shop"
    urls = ["http://127.0.0.1:1"]

    [[routes]]
    name = "order"
    match = "POST|GET /v1/orders/{shop}"
    upstream = "shop"
    idempotency = { key = ["body:/order_no", "header"] }

    [[routes]]
    name = "rest"
    match = "* /v1/free/*"
    upstream = "shop"

    [[routes]]
    name = "elsewhere"
    match = "POST /v1/elsewhere"
    upstream = "up"
    idempotency = { key = ["header"] }
"#;

/// The service's own document: one guarded operation that knows 409 by itself, others that are passed on, that lead
/// elsewhere, or nowhere.
const DOCUMENT: &str = r##"{
    "openapi": "3.0.3",
    "info": { "title": "Shop", "version": "7" },
    "servers": [{ "url": "http://internal:9090/v1" }],
    "paths": {
        "/orders/{shop}": {
            "parameters": [{ "name": "shop", "in": "path", "required": true, "schema": { "type": "string" } }],
            "post": {
                "parameters": [{ "name": "idempotency-key", "in": "header", "schema": { "type": "integer" } }],
                "responses": {
                    "201": { "$ref": "#/components/responses/Ordered" },
                    "409": { "description": "Sold out", "content": { "text/plain": { "schema": { "type": "string" } } } }
                }
            },
            "get": { "responses": { "200": { "description": "All" } } },
            "delete": { "responses": { "204": { "description": "Gone" } } }
        },
        "/free/a": { "post": { "responses": { "200": { "description": "Passed on" } } } },
        "/elsewhere": { "post": { "responses": { "200": { "description": "Another service's" } } } },
        "/internal": { "get": { "responses": { "200": { "description": "Not forwarded" } } } }
    },
    "components": { "responses": { "Ordered": { "description": "Ordered" } } }
}"##;

async fn start(upstream: &Upstream, settings: Settings<'_>) -> Gateway {
    Gateway::again(Database::create(Kind::Sqlite).await, &upstream.url(), ROUTES, settings).await
}

#[tokio::test]
async fn the_document_and_its_pages_come_from_the_binary_and_ask_for_nothing_outside() {
    let upstream = Upstream::counting().await;
    let gateway = start(&upstream, &[("server.docs", "public"), ("server.prefix", "/-")]).await;
    let document = gateway.call("GET", "/-/openapi.json").send().await;
    assert_eq!((document.status, document.field("content-type")), (200, Some("application/json")));
    let document = document.json();
    assert_eq!(document["servers"][0]["url"], "/-");
    assert!(document["paths"]["/idempotency/requests/{key}"]["get"]["responses"]["404"]["$ref"].is_string());

    let enter = gateway.call("GET", "/-/docs").send().await;
    assert_eq!((enter.status, enter.field("location")), (303, Some("docs/")));
    for (file, content_type) in [
        ("", "text/html"),
        ("swagger-ui.css", "text/css"),
        ("swagger-ui-bundle.js", "text/javascript"),
        ("swagger-initializer.js", "text/javascript"),
        ("favicon-32x32.png", "image/png"),
    ] {
        let served = gateway.call("GET", &format!("/-/docs/{file}")).send().await;
        assert_eq!(served.status, 200, "{file}");
        assert!(served.field("content-type").unwrap().starts_with(content_type), "{served:?}");
        let policy = served.field("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("http"), "{policy}");
        let text = String::from_utf8_lossy(&served.body);
        if file.is_empty() || file == "swagger-initializer.js" {
            assert!(!text.contains("http:") && !text.contains("https:") && !text.contains("{{config}}"), "{text}");
        }
        if file == "swagger-initializer.js" {
            assert!(text.contains("../openapi.json") && text.contains(r#""validatorUrl": "none""#), "{text}");
        }
    }
    for (path, status) in [("/-/docs/../secret", 404), ("/-/docs/nothing", 404), ("/-/openapi/nobody", 404)] {
        let refused = gateway.call("GET", path).send().await;
        assert_eq!(
            (refused.status, refused.field("content-type")),
            (status, Some("application/problem+json")),
            "{path}"
        );
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn what_is_not_public_is_not_ours() {
    let upstream = Upstream::counting().await;
    for docs in ["admin", "off"] {
        let gateway = start(&upstream, &[("server.docs", docs)]).await;
        for path in ["/openapi.json", "/openapi/shop", "/docs", "/docs/"] {
            gateway.call("GET", path).send().await.is_problem(404, "no-route");
        }
    }
}

#[tokio::test]
async fn an_upstreams_document_is_shown_as_its_clients_see_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.json");
    std::fs::write(&path, DOCUMENT).unwrap();
    let upstream = Upstream::counting().await;
    let file = format!("file:{}", path.display());
    let settings = [
        ("server.docs", "public"),
        ("server.public_url", "https://pay.example.com"),
        ("upstreams.shop.openapi", &*file),
    ];
    let gateway = start(&upstream, &settings).await;
    let shown = gateway.call("GET", "/openapi/shop").send().await;
    assert_eq!(shown.status, 200, "{shown:?}");
    let shown = shown.json();
    assert_eq!(shown["servers"], serde_json::json!([{ "url": "https://pay.example.com/v1" }]));
    let paths: Vec<&String> = shown["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["/free/a", "/orders/{shop}"], "what the gateway forwards to this service");
    assert!(shown["paths"]["/orders/{shop}"].get("delete").is_none());

    let order = &shown["paths"]["/orders/{shop}"]["post"];
    let keys: Vec<&Value> = order["parameters"].as_array().unwrap().iter().collect();
    assert_eq!(keys.len(), 1, "its own description of the header gives way: {keys:?}");
    assert_eq!((&keys[0]["name"], &keys[0]["required"]), (&"Idempotency-Key".into(), &false.into()));
    assert!(keys[0]["description"].as_str().unwrap().contains("body:/order_no"));
    let responses = &order["responses"];
    assert_eq!(responses["201"]["description"], "Ordered");
    assert!(responses["201"]["headers"]["Idempotent-Replayed"].is_object());
    assert_eq!(responses["409"]["description"], "Sold out");
    let conflict = &responses["409"]["content"];
    assert!(conflict["text/plain"].is_object());
    let examples = conflict["application/problem+json"]["examples"].as_object().unwrap();
    assert_eq!(examples.keys().collect::<Vec<_>>(), ["outcome-unknown", "processing", "response-not-kept"]);
    for status in ["400", "401", "403", "410", "413", "422", "502", "503", "504"] {
        let reference = responses[status]["$ref"].as_str().unwrap().strip_prefix("#/components/responses/").unwrap();
        let problem = &shown["components"]["responses"][reference]["content"]["application/problem+json"];
        assert!(!problem["examples"].as_object().unwrap().is_empty(), "{status}");
    }
    let schema = &shown["components"]["schemas"]["OncegateProblem"];
    assert!(schema["required"].as_array().unwrap().contains(&"retry".into()), "{schema}");

    for unguarded in [&shown["paths"]["/orders/{shop}"]["get"], &shown["paths"]["/free/a"]["post"]] {
        assert_eq!(unguarded["responses"].as_object().unwrap().len(), 1, "nothing is added");
    }
    let page = gateway.call("GET", "/docs/swagger-initializer.js").send().await;
    assert!(String::from_utf8_lossy(&page.body).contains("../openapi/shop"));
}

#[tokio::test]
async fn a_document_behind_a_url_is_asked_for_and_bounded() {
    let service = Upstream::start(|number, request| match (&*request.target, number) {
        ("/own/openapi.json", 1) => answer("200 OK", &[("content-type", "application/json")], DOCUMENT),
        ("/own/openapi.json", 2) => answer("200 OK", &[], "no JSON"),
        ("/own/openapi.json", 3) => answer("200 OK", &[], vec![b' '; (4 << 20) + 1]),
        _ => answer("404 Not Found", &[], ""),
    })
    .await;
    let url = format!("{}/own/openapi.json", service.url());
    let settings = [("server.docs", "public"), ("upstreams.shop.openapi", &*url)];
    let gateway = start(&service, &settings).await;
    assert_eq!(service.count(), 0, "nobody has asked");
    let ask = || gateway.call("GET", "/openapi/shop").send();
    assert_eq!(ask().await.json()["info"]["title"], "Shop");
    ask().await.is_problem(502, "upstream-failed");
    ask().await.is_problem(502, "upstream-unreachable");
    ask().await.is_problem(502, "upstream-unreachable");
}
