//! Dead letters, in a browser.

use super::{browse, secret, see, sign_in, start, url};
use crate::http::gateway::Gateway;
use crate::servers::outbox::written;

/// Parks what is there, as events or as deliveries.
async fn park(gateway: &Gateway, keys: &[&str], queue: &str) {
    for key in keys {
        assert_eq!(gateway.pay(key).send().await.status, 201);
    }
    let sql = format!(
        "UPDATE events SET state = 4, epoch = NULL, attempts = 8, queue = '{queue}', reason = 'there is no such topic' \
         WHERE queue = 'default'"
    );
    let sent = || written(&gateway.database);
    crate::http::eventually(sent, |events| events.iter().all(|event| event.state.starts_with('5'))).await;
    gateway.database.stranger().await.run(&sql).await;
}

async fn states(gateway: &Gateway) -> Vec<String> {
    let mut states: Vec<_> =
        written(&gateway.database).await.into_iter().map(|event| event.state[..1].to_owned()).collect();
    states.sort_unstable();
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_sent_again_or_discarded_after_a_look() {
    let (gateway, _upstream) = start().await;
    park(&gateway, &["a", "b", "c"], "gone").await;
    let browser = browse(&gateway);
    browser.open(&url(&gateway, "/console/letters?of=deliveries"));
    browser.wait_until("no deliveries", |text| text.contains("None."));
    browser.open(&url(&gateway, "/console/letters"));
    browser.wait_until("three", |text| text.matches("there is no such topic").count() == 3);
    browser.click("tr:nth-child(1) [name=pick]");
    browser.click("tr:nth-child(2) [name=pick]");
    browser.click("[value=edit]");
    browser.wait_until("the form for two", |text| text.contains("2\u{a0}letters"));
    browser.click("[value=retry]");
    browser.click("[value=preview]");
    browser.wait_until("the reason is missing", |text| text.contains("Say why"));
    assert_eq!(browser.run("return document.querySelector('[value=retry]').checked"), true);
    browser.fill("#reason", "the topic is there now");
    browser.click("[value=preview]");
    browser.wait_until("what it does", |text| text.contains("Nothing is done yet") && text.contains("same id"));
    assert_eq!(states(&gateway).await, ["4", "4", "4"]);
    browser.click("[value=carry]");
    browser.wait_until("done", |text| text.contains("done for 2 of 2"));
    assert_eq!(states(&gateway).await, ["1", "1", "4"]);

    browser.open(&url(&gateway, "/console/letters"));
    browser.click("tbody th a");
    browser.wait_until("its page", |text| text.contains("What is to be done?"));
    browser.click("[value=discard]");
    browser.fill("#reason", "nobody wants it");
    browser.click("[value=preview]");
    browser.wait_until("what it does", |text| text.contains("Never sent"));
    browser.click("[value=carry]");
    browser.wait_until("discarded", |text| {
        text.contains("Discarded: it is never sent")
            && text.contains("Ann: discard, when")
            && text.contains("nobody wants it")
    });
    assert_eq!(states(&gateway).await, ["1", "1", "6"]);
}

#[tokio::test]
async fn parked_deliveries_are_told_from_parked_events_and_data_is_shown_on_demand() {
    let (gateway, _upstream) = start().await;
    park(&gateway, &["a", "b"], "sub:points").await;
    let cookie = sign_in(&gateway, secret()).await;
    let page = see(&gateway, &cookie, "/console/letters?of=deliveries").await;
    assert_eq!(page.matches("there is no such topic").count(), 2, "{page}");
    assert!(!see(&gateway, &cookie, "/console/letters").await.contains("there is no such topic"));
    let overview = see(&gateway, &cookie, "/console").await;
    assert!(overview.contains("<b>2</b><span>parked deliveries</span>"), "{overview}");
    let id = page.split("/console/events/").nth(1).unwrap()[..32].to_owned();
    let shown = see(&gateway, &cookie, &format!("/console/events/{id}")).await;
    assert!(!shown.contains("&quot;amount&quot;") && shown.contains("Show the data"), "{shown}");
    assert!(see(&gateway, &cookie, &format!("/console/events/{id}?data=true")).await.contains("&quot;amount&quot;"));
}
