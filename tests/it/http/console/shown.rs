//! What pages show, and what they never do.

use super::{browse, lose, secret, see, sign_in, start, url};
use crate::http::client::Call;
use crate::http::gateway::Gateway;
use crate::http::upstream::{Step, Upstream};
use crate::servers::database::Kind;

/// A key that would be a script, if anybody took it for one.
const SCRIPT: &str = "lost<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";

fn pay(gateway: &Gateway, key: &str) -> Call {
    gateway.pay(&format!("\"{}\"", key.replace('"', "\\\"")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_as_it_is_and_never_run() {
    let upstream = Upstream::start(|_, _| vec![Step::Close]).await;
    let gateway = crate::http::operators::start(Kind::Sqlite, &upstream, &[]).await;
    assert_eq!(pay(&gateway, SCRIPT).send().await.status, 502);
    let browser = browse(&gateway);
    let is_harmless = || {
        browser.wait_until("the key, as it is", |text| text.contains("<script>document.title='owned'</script>"));
        assert!(browser.run("return document.title").as_str().unwrap().ends_with("Oncegate"));
        assert_eq!(browser.run("return document.querySelectorAll('img, script:not([src])').length"), 0);
    };
    is_harmless();
    browser.click("tbody th a");
    browser.wait_until("its story", |text| text.contains("What happened"));
    is_harmless();
    browser.click("[value=completed]");
    browser.fill("#body", SCRIPT);
    browser.fill("#reason", SCRIPT);
    browser.click("[value=preview]");
    browser.wait_until("what it does", |text| text.contains("Nothing is done yet"));
    is_harmless();
    browser.click("[value=carry]");
    browser.wait_until("settled", |text| text.contains("Settled"));
    is_harmless();
    browser.open(&url(&gateway, "/console/decisions"));
    is_harmless();
    browser.open(&url(&gateway, "/console/search"));
    browser.fill("#q", SCRIPT);
    browser.click("main button");
    is_harmless();
    let answer = browser.run("return document.querySelector('tbody th a').href");
    browser.open(&format!("{}?data=true", answer.as_str().unwrap()));
    is_harmless();
}

#[tokio::test]
async fn a_request_is_found_by_its_key_and_its_story_told() {
    let (gateway, _upstream) = start().await;
    assert_eq!(gateway.pay("order-7").send().await.status, 201);
    let entry = lose(&gateway, "lost").await;
    let cookie = sign_in(&gateway, secret()).await;
    let found = see(&gateway, &cookie, "/console/search?q=order-7").await;
    assert!(found.contains(">completed</span>") && !found.contains(">lost</a>"), "{found}");
    assert!(see(&gateway, &cookie, "/console/search?q=order-8").await.contains("No request of this key"));
    let id = found.split("/console/entries/").nth(1).unwrap()[..64].to_owned();
    let story = see(&gateway, &cookie, &format!("/console/entries/{id}")).await;
    for told in ["its key was claimed", "completed with 201", "com.example.paid", "Show headers and body"] {
        assert!(story.contains(told), "{told}: {story}");
    }
    // Nobody sees an answer who has not asked for it.
    assert!(!story.contains("&quot;payment&quot;"), "{story}");
    assert!(see(&gateway, &cookie, &format!("/console/entries/{id}?data=true")).await.contains("&quot;payment&quot;"));
    let by_id = super::visit(&gateway, &format!("/console/search?q={id}")).field("cookie", &cookie).send().await;
    assert_eq!((by_id.status, by_id.field("location")), (303, Some(&*format!("/console/entries/{id}"))));
    let unknown = see(&gateway, &cookie, &format!("/console/entries/{}", entry["id"].as_str().unwrap())).await;
    assert!(unknown.contains("became unknown") && unknown.contains("waits for a person"), "{unknown}");
    let nothing = super::visit(&gateway, &format!("/console/entries/{}", "0".repeat(64))).field("cookie", &cookie);
    assert_eq!(nothing.send().await.status, 404);
}

#[tokio::test]
async fn the_list_is_filtered_and_comes_in_pages() {
    let (gateway, _upstream) = start().await;
    for number in 0..3 {
        lose(&gateway, &format!("lost-{number}")).await;
    }
    let cookie = sign_in(&gateway, secret()).await;
    let count = async |query: &str| {
        see(&gateway, &cookie, &format!("/console/unknown{query}")).await.matches("name=\"pick\"").count()
    };
    assert_eq!(count("").await, 3);
    assert_eq!(count("?key=lost-1").await, 1);
    assert_eq!((count("?route=pay").await, count("?route=other").await), (3, 0));
    assert_eq!((count("?minutes=0").await, count("?minutes=60").await), (3, 0));
    assert_eq!(count("?minutes=nonsense&show=7&after=x").await, 3, "what makes no sense is passed over");
}
