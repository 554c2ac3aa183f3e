//! Settling in a browser: one, many, and what goes wrong on the way.

use super::{browse, lose, start, url};
use crate::http::operators::get;
use crate::servers::outbox::written;

#[tokio::test(flavor = "multi_thread")]
async fn one_is_settled_after_a_look_at_what_it_does() {
    let (gateway, upstream) = start().await;
    lose(&gateway, "lost").await;
    let browser = browse(&gateway);
    browser.click("tbody th a");
    browser.wait_until("the story", |text| text.contains("What became of it?"));
    browser.click("[value=completed]");
    browser.fill("#body", "{\"payment\":7}");
    browser.click("[value=preview]");
    // What is missing is said, and what was typed in is there.
    browser.wait_until("the reason is missing", |text| text.contains("Say why"));
    assert_eq!(browser.run("return document.getElementById('body').value"), "{\"payment\":7}");
    assert_eq!(browser.run("return document.querySelector('[value=completed]').checked"), true);
    assert_eq!(browser.run("return document.getElementById('actor').value"), "Ann");
    assert_eq!(browser.run("return document.activeElement.id"), "wrong");
    browser.fill("[name=status]", "0");
    browser.fill("#reason", "seen in the books");
    browser.click("[value=preview]");
    browser.wait_until("2000 is no status", |text| text.contains("from 200 to 499"));
    assert_eq!(browser.run("return document.getElementById('reason').value"), "seen in the books");
    browser.fill("[name=status]", "\u{e003}\u{e003}\u{e003}\u{e003}201");
    browser.click("[value=preview]");
    browser.wait_until("what it does", |text| {
        text.contains("Nothing is done yet") && text.contains("believes to have paid") && text.contains("1\u{a0}event")
    });
    gateway.pay("lost").send().await.is_problem(409, "outcome-unknown");
    browser.click("[value=carry]");
    browser.wait_until("settled", |text| text.contains("Settled: it happened") && text.contains("completed with 201"));
    let replay = gateway.pay("lost").send().await;
    assert_eq!(replay.told(), (201, "{\"payment\":7}", Some("true")));
    assert_eq!(replay.field("content-type"), Some("application/json"));
    assert_eq!((upstream.count(), written(&gateway.database).await.len()), (1, 1));
    let decided = get(&gateway, "/decisions").await;
    let decision = &decided["decisions"][0];
    assert_eq!((decision["actor"].as_str(), decision["reason"].as_str()), (Some("Ann"), Some("seen in the books")));
    browser.open(&url(&gateway, "/console/decisions"));
    browser.wait_until("on record", |text| text.contains("seen in the books") && text.contains("it happened"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_settled_and_one_that_has_changed_is_left_alone() {
    let (gateway, upstream) = start().await;
    for number in 0..4 {
        lose(&gateway, &format!("lost-{number}")).await;
    }
    let browser = browse(&gateway);
    browser.click("[value=edit]");
    browser.wait_until("nothing is picked", |text| text.contains("Pick at least one"));
    browser.open(&url(&gateway, "/console/unknown"));
    browser.click("a[href*='pick=all']");
    browser.wait_for("return document.querySelectorAll('[name=pick]:checked').length === 4");
    browser.click("tr:nth-child(4) [name=pick]");
    browser.click("[value=edit]");
    browser.wait_until("the form for three", |text| text.contains("Settle 3\u{a0}requests"));
    browser.click("[value=not_executed]");
    browser.fill("#reason", "the books have none of them");
    browser.click("[value=preview]");
    browser.wait_until("what it does", |text| text.contains("pays a second time"));
    browser.click("[value=edit]");
    browser.wait_until("changed again", |text| text.contains("What became of it?"));
    assert_eq!(browser.run("return document.getElementById('reason').value"), "the books have none of them");
    browser.click("[value=preview]");
    browser.wait_until("what it does", |text| text.contains("would be settled"));
    // Somebody else is faster with one of them.
    let entry = get(&gateway, "/entries?key=lost-1").await["entries"][0].clone();
    let word = serde_json::json!({ "outcome": "not_executed", "reason": "x", "actor": "bob" });
    assert_eq!(crate::http::operators::settle(&gateway, &entry, &word).send().await.status, 200);
    browser.click("[value=carry]");
    browser.wait_until("two of three", |text| text.contains("Settled: 2 of 3") && text.contains("left alone"));
    assert_eq!(gateway.pay("lost-0").send().await.field("idempotent-replayed"), Some("false"));
    gateway.pay("lost-3").send().await.is_problem(409, "outcome-unknown");
    assert_eq!(upstream.count(), 5);
    assert_eq!(get(&gateway, "/decisions").await["decisions"].as_array().unwrap().len(), 3);
    browser.open(&url(&gateway, "/console/unknown"));
    browser.wait_for("return document.querySelectorAll('[name=pick]').length === 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_in_outlives_the_session() {
    let (gateway, _upstream) = start().await;
    lose(&gateway, "lost").await;
    let browser = browse(&gateway);
    browser.click("tbody th a");
    browser.wait_until("the story", |text| text.contains("What became of it?"));
    browser.click("[value=not_executed]");
    browser.fill("#reason", "a long story that nobody wants to type in again");
    browser.tell("Network.clearBrowserCookies", &serde_json::json!({}));
    browser.click("[value=preview]");
    browser.wait_until("the form to sign in", |text| text.contains("what you typed in is kept"));
    browser.fill("#credential", "wrong");
    browser.click("main button");
    browser.wait_until("refused", |text| text.contains("does not open"));
    browser.fill("#credential", super::secret());
    browser.click("main button");
    browser.wait_until("signed in", |text| text.contains("Nothing was done yet"));
    browser.click("main button");
    browser.wait_until("the preview", |text| text.contains("a long story that nobody") && text.contains("second time"));
    browser.click("[value=carry]");
    browser.wait_until("settled", |text| text.contains("Settled: it did not happen"));
    assert_eq!(gateway.pay("lost").send().await.status, 201);
}

#[tokio::test]
async fn what_is_picked_is_settled_as_it_was_seen_or_not_at_all() {
    let (gateway, _upstream) = start().await;
    let entry = lose(&gateway, "lost").await;
    let cookie = super::sign_in(&gateway, super::secret()).await;
    let token = super::form_token(&super::see(&gateway, &cookie, "/console/unknown").await);
    let id = entry["id"].as_str().unwrap();
    let order = async |pick: &str, step: &str| {
        let fields = [
            ("form", &*token),
            ("pick", pick),
            ("step", step),
            ("outcome", "not_executed"),
            ("reason", "x"),
            ("actor", "ann"),
        ];
        super::post(&gateway, "/console/settle", &fields).field("cookie", &cookie).send().await
    };
    let another = format!("{id}.{}", "0".repeat(32));
    for step in ["preview", "carry"] {
        let told = super::text(&order(&another, step).await);
        assert!(told.contains("left alone: the entry has changed since it was seen"), "{told}");
    }
    for nothing in ["", id, "x.y"] {
        assert_eq!(order(nothing, "carry").await.status, 422);
    }
    gateway.pay("lost").send().await.is_problem(409, "outcome-unknown");
    let seen = format!("{id}.{}", entry["version"].as_str().unwrap());
    assert_eq!(order(&seen, "carry").await.status, 303);
    // Sent once more, it finds nothing to do.
    assert!(super::text(&order(&seen, "carry").await).contains("Settled: 0 of 1"));
    assert_eq!(get(&gateway, "/decisions").await["decisions"].as_array().unwrap().len(), 1);
}
