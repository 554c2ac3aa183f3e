//! The operators' console, with a real browser where a browser makes the difference.

mod access;
mod charts;
mod letters;
mod looks;
mod settling;
mod shown;

use super::client::{Answer, Call};
use super::gateway::Gateway;
use super::operators::{RAW, TOKEN, forgetful, lose};
use super::upstream::Upstream;
use crate::servers::browser::Browser;
use crate::servers::database::Kind;

/// A gateway with operators, and an upstream that loses the first answer of keys that begin with "lost".
async fn start() -> (Gateway, Upstream) {
    let upstream = forgetful().await;
    let gateway = super::operators::start(Kind::Sqlite, &upstream, &[RAW]).await;
    (gateway, upstream)
}

/// The secret that opens the console.
fn secret() -> &'static str {
    TOKEN.strip_prefix("Bearer ").unwrap()
}

/// A form, sent as a browser does that is on a page of the console.
fn post(gateway: &Gateway, target: &str, fields: &[(&str, &str)]) -> Call {
    let body: Vec<String> = fields
        .iter()
        .map(|(name, value)| {
            let value: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
            format!("{name}={value}")
        })
        .collect();
    Call::new(gateway.admin(), "POST", target)
        .replace("content-type", "application/x-www-form-urlencoded")
        .field("origin", "http://gateway.test")
        .field("sec-fetch-site", "same-origin")
        .body(body.join("&"))
}

fn visit(gateway: &Gateway, target: &str) -> Call {
    Call::new(gateway.admin(), "GET", target)
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.to_vec()).unwrap()
}

/// The token of the first form on a page.
fn form_token(page: &str) -> String {
    let rest = page.split("name=\"form\" value=\"").nth(1).unwrap_or_else(|| panic!("no form: {page}"));
    rest.split('"').next().unwrap().to_owned()
}

/// Signs in, and returns the cookie.
async fn sign_in(gateway: &Gateway, credential: &str) -> String {
    let token = form_token(&text(&visit(gateway, "/console/sign-in").send().await));
    let fields = [("form", &*token), ("credential", credential), ("name", "Ann"), ("next", "/console/unknown")];
    let told = post(gateway, "/console/sign-in", &fields).send().await;
    assert_eq!((told.status, told.field("location")), (303, Some("/console/unknown")), "{}", text(&told));
    let cookie = told.field("set-cookie").unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

/// A page as whoever has the cookie sees it.
async fn see(gateway: &Gateway, cookie: &str, target: &str) -> String {
    let page = visit(gateway, target).field("cookie", cookie).send().await;
    assert_eq!(page.status, 200, "{target}: {}", text(&page));
    text(&page)
}

/// A browser that has signed in.
fn browse(gateway: &Gateway) -> Browser {
    let browser = Browser::start(1_200, 1_600);
    browser.open(&url(gateway, "/console/unknown"));
    browser.fill("#credential", secret());
    browser.fill("#name", "Ann");
    browser.click("main button");
    browser.wait_until("signed in", |text| text.contains("Sign out"));
    browser
}

fn url(gateway: &Gateway, target: &str) -> String {
    format!("http://{}{target}", gateway.admin())
}
