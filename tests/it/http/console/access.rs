//! Who sees the console, and whose orders it follows.

use serde_json::json;

use super::{form_token, lose, post, secret, see, sign_in, start, text, url, visit};
use crate::http::client::rest;
use crate::http::gateway::Gateway;
use crate::http::issuer::{RULES, Signer};
use crate::http::operators::{ADMIN, RAW, forgetful, get};
use crate::http::upstream::Upstream;
use crate::servers::browser::Browser;

#[tokio::test]
async fn a_session_opens_pages_and_never_the_api() {
    let (gateway, _upstream) = start().await;
    let asked = visit(&gateway, "/console/search?q=1").send().await;
    assert_eq!(asked.status, 401);
    let page = text(&asked);
    assert!(page.contains("name=\"credential\"") && page.contains("value=\"/console/search?q=1\""), "{page}");

    let token = form_token(&page);
    let wrong = post(&gateway, "/console/sign-in", &[("form", &token), ("credential", "wrong"), ("name", "Zoe")]);
    let wrong = wrong.send().await;
    assert_eq!((wrong.status, wrong.field("set-cookie")), (401, None));
    assert!(text(&wrong).contains("value=\"Zoe\"") && !text(&wrong).contains("value=\"wrong\""), "{wrong:?}");

    let right = [("form", &*token), ("credential", secret()), ("next", "https://evil.example/")];
    let told = post(&gateway, "/console/sign-in", &right).send().await;
    assert_eq!((told.status, told.field("location")), (303, Some("/console")));
    let set = told.field("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/console", "Max-Age=28800"] {
        assert!(set.contains(part), "{part} in {set}");
    }
    assert!(!set.contains("Secure") && !set.contains(secret()), "{set}");
    // A proxy in front ends TLS.
    let by_tls = post(&gateway, "/console/sign-in", &right).replace("origin", "https://gateway.test").send().await;
    assert!(by_tls.field("set-cookie").unwrap().ends_with("; Secure"), "{by_tls:?}");

    let cookie = set.split(';').next().unwrap();
    let page = see(&gateway, cookie, "/console").await;
    assert!(page.contains("Sign out") && !page.contains(secret()));
    for target in ["/entries", "/stats", "/decisions"] {
        visit(&gateway, target).field("cookie", cookie).send().await.is_problem(401, "unauthenticated");
    }
    // Nor does the API's header open a page.
    assert_eq!(visit(&gateway, "/console").field("authorization", super::TOKEN).send().await.status, 401);

    let out = post(&gateway, "/console/sign-out", &[("form", &form_token(&page))]).field("cookie", cookie);
    let out = out.send().await;
    assert!(out.status == 303 && out.field("set-cookie").unwrap().contains("Max-Age=0"), "{out:?}");
    assert_eq!(visit(&gateway, "/console").field("cookie", cookie).send().await.status, 401);
}

#[tokio::test]
async fn only_forms_of_the_session_itself_are_followed() {
    let (gateway, _upstream) = start().await;
    let entry = lose(&gateway, "lost").await;
    let (one, other) = (sign_in(&gateway, secret()).await, sign_in(&gateway, secret()).await);
    let [ours, theirs] = [&one, &other].map(|cookie| see(&gateway, cookie, "/console/unknown"));
    let (ours, theirs) = (form_token(&ours.await), form_token(&theirs.await));
    let pick = format!("{}.{}", entry["id"].as_str().unwrap(), entry["version"].as_str().unwrap());
    let order = |token: &str| {
        let fields = [
            ("form", token),
            ("pick", &pick),
            ("step", "carry"),
            ("outcome", "not_executed"),
            ("reason", "x"),
            ("actor", "mallory"),
        ];
        post(&gateway, "/console/settle", &fields).field("cookie", &one)
    };
    for refused in [
        order(""),
        order(&theirs),
        order(&"0".repeat(64)),
        order(&ours).replace("origin", "http://evil.example"),
        order(&ours).replace("origin", "null"),
        order(&ours).replace("sec-fetch-site", "cross-site"),
        order(&ours).replace("sec-fetch-site", "same-site"),
    ] {
        let told = refused.send().await;
        assert_eq!(told.status, 403, "{told:?}");
    }
    assert_eq!(order(&ours).replace("cookie", "oncegate_console=").send().await.status, 401);
    gateway.pay("lost").send().await.is_problem(409, "outcome-unknown");
    // What was typed in stays with whoever is of this site, and is not shown to others.
    let stale = text(&order("").send().await);
    assert!(stale.contains("Go on where you were") && stale.contains("mallory") && !stale.contains("carry"), "{stale}");
    assert!(!text(&order("").replace("origin", "null").send().await).contains("mallory"));
    assert_eq!(order(&ours).send().await.status, 303);
    assert_eq!(get(&gateway, "/decisions").await["decisions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_access_token_opens_the_console_as_long_as_it_opens_the_api() {
    let upstream = forgetful().await;
    let by_secret =
        [("auth.jwt.algorithms", "[\"HS256\"]"), ("auth.jwt.secret", "[\"env:SECRET\"]"), ("auth.jwt.leeway", "1s")];
    let settings = [&ADMIN[..1], RULES, &by_secret[..], &[RAW]].concat();
    let gateway = Gateway::start(&upstream, &settings).await;
    let issuer = Signer::hs256("a secret of at least thirty-two bytes");
    let page = text(&visit(&gateway, "/console").send().await);
    assert!(!page.contains("name=\"name\""), "whose access token it is, is known: {page}");
    let granted = |claims| issuer.token("ann", claims);
    for refused in ["nonsense".to_owned(), granted(json!({})), granted(json!({ "scope": "payments" }))] {
        let fields = [("form", &*form_token(&page)), ("credential", &*refused)];
        assert_eq!(post(&gateway, "/console/sign-in", &fields).send().await.status, 401);
    }
    let admin = json!({ "scope": "oncegate:admin" });
    let cookie = sign_in(&gateway, &granted(admin.clone())).await;
    assert!(see(&gateway, &cookie, "/console").await.contains("<span>ann</span>"));
    // It ends, and the session with it.
    let mut short = admin;
    short["exp"] = json!(crate::http::issuer::now() + 10);
    let cookie = sign_in(&gateway, &granted(short)).await;
    let ask = || visit(&gateway, "/console").field("cookie", &cookie).send();
    let ended = crate::http::eventually(ask, |answer| answer.status == 401).await;
    assert!(text(&ended).contains("id=\"why\""), "{ended:?}");
}

#[tokio::test]
async fn without_a_token_this_machine_sees_it_under_its_own_names() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &ADMIN[..1]).await;
    // A page whose name leads here: its browser sends that name.
    assert_eq!(visit(&gateway, "/console").send().await.status, 403);
    let mut own = tokio::net::TcpStream::connect(gateway.admin()).await.unwrap();
    let request = format!("GET /console HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", gateway.admin());
    tokio::io::AsyncWriteExt::write_all(&mut own, request.as_bytes()).await.unwrap();
    let told = rest(&mut own).await;
    assert!(
        told.starts_with("HTTP/1.1 200") && told.contains("Needs a person") && !told.contains("Sign out"),
        "{told}"
    );
    let order = post(&gateway, "/console/settle", &[("step", "carry")]);
    let own_names = order.replace("origin", "http://localhost");
    assert_eq!(own_names.send().await.status, 403);
    // On the public listener there is nothing of it.
    gateway.call("GET", "/console").send().await.is_problem(404, "no-route");
}

#[tokio::test]
async fn every_page_keeps_strangers_scripts_frames_and_caches_out() {
    let (gateway, _upstream) = start().await;
    let cookie = sign_in(&gateway, secret()).await;
    let targets = ["/console", "/console/unknown", "/console/sign-in", "/console/console.js", "/console/charts"];
    for target in targets.into_iter().chain(["/console/entries/x", "/console/search?q=%3Cb%3E"]) {
        let page = visit(&gateway, target).field("cookie", &cookie).send().await;
        let policy = page.field("content-security-policy").unwrap_or_else(|| panic!("{target}"));
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"] {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{target}: {policy}");
        }
        let kept = page.field("cache-control").unwrap();
        assert!(kept == "no-store" || target.ends_with(".js") && kept == "no-cache", "{target}: {kept}");
        assert_eq!(page.field("x-content-type-options"), Some("nosniff"), "{target}");
    }
}

/// Browsers keep the cookie back when a link of another site leads here: a page of ours asks once more.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_message_leads_where_it_should() {
    let (gateway, _upstream) = start().await;
    lose(&gateway, "lost").await;
    let browser = super::browse(&gateway);
    let message = format!("data:text/html,<a href='{}'>look</a>", url(&gateway, "/console/search?q=lost"));
    browser.open(&message);
    browser.click("a");
    browser.wait_until("the page", |text| text.contains("outcome unknown"));
    let nobody = Browser::start(800, 600);
    nobody.open(&message);
    nobody.click("a");
    nobody.wait_until("the form", |text| text.contains("Sign in"));
}
