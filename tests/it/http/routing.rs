//! Which requests go where, and the gateway's own pages.

use oncegate::problem::Situation;

use super::gateway::Gateway;
use super::upstream::Upstream;

const ROUTES: &str = "
    [[routes]]
    name = 'order'
    match = 'GET|POST /v1/orders/{no}'
    upstream = 'up'

    [[routes]]
    name = 'latest'
    match = 'POST /v1/orders/latest'
    upstream = 'up'

    [[routes]]
    name = 'files'
    match = 'PUT /files/*'
    upstream = 'up'
";

#[tokio::test]
async fn a_request_finds_its_route_or_learns_why_not() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::with_routes(&upstream, ROUTES, &[]).await;
    let found = [
        ("POST", "/v1/orders/7"),
        ("GET", "/v1/orders/latest"),
        ("POST", "/v1/orders/a%20b;v=1"),
        ("PUT", "/files/a/b/c"),
        ("GET", "/v1/orders/7?x=/../"),
    ];
    for (method, target) in found {
        assert_eq!(gateway.call(method, target).send().await.status, 201, "{method} {target}");
        assert_eq!(upstream.last().target, target);
    }
    for target in ["/", "/v1", "/v1/orders", "/v1/orders/7/8", "/v2/orders/7", "/V1/orders/7", "/pay/x", "/v1/orders/"]
    {
        gateway.call("POST", target).send().await.is_problem(404, "no-route");
    }
    let wrong = gateway.call("DELETE", "/v1/orders/7").send().await;
    wrong.is_problem(405, "method-not-allowed");
    let mut allowed: Vec<_> = wrong.field("allow").unwrap().split(", ").collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "POST"]);
    assert_eq!(upstream.count(), found.len());
}

#[tokio::test]
async fn a_path_that_two_servers_could_read_differently_is_refused() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::with_routes(&upstream, ROUTES, &[]).await;
    let table = [
        "//pay",
        "/x/../pay",
        "/./pay",
        "/%2e%2E/pay",
        "/..;/pay",
        "/pay%2Fx",
        "/pay%5c",
        "/pay%00",
        "/pay%0a",
        "/pay%zz",
        "/pay%c3",
        "/files//a",
        "/files/..",
    ];
    for target in table {
        let answer = gateway.pay("k").to(target).send().await;
        assert_eq!(answer.problem(), (400, "bad-request".to_owned()), "{target}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn health_readiness_and_problem_pages_are_the_gateways_own() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    for (target, body) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        assert_eq!(gateway.call("GET", target).send().await.told(), (200, body, None));
        gateway.call("POST", target).send().await.is_problem(404, "no-route");
    }
    for facts in Situation::ALL.map(Situation::facts) {
        let page = gateway.call("GET", &format!("/problems/{}", facts.slug)).send().await;
        assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
        assert!(std::str::from_utf8(&page.body).unwrap().contains(facts.title));
    }
    gateway.call("GET", "/problems/other").send().await.is_problem(404, "no-route");
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_prefix_leaves_the_upstreams_own_paths_alone() {
    let upstream = Upstream::counting().await;
    let route = "[[routes]]\nname = 'health'\nmatch = 'GET /healthz'\nupstream = 'up'\n";
    let settings = [("server.prefix", "/-"), ("server.public_url", "https://pay.example.com")];
    let gateway = Gateway::with_routes(&upstream, route, &settings).await;
    assert_eq!(gateway.call("GET", "/healthz").send().await.status, 201);
    assert_eq!(gateway.call("GET", "/-/healthz").send().await.told(), (200, "ok\n", None));
    let problem = gateway.call("GET", "/problems/no-route").send().await;
    assert_eq!(problem.json()["type"], "https://pay.example.com/-/problems/no-route");
    assert_eq!(gateway.call("GET", "/-/problems/no-route").send().await.status, 200);
}
