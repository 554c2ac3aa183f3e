//! What pages look like and how they are used: on a telephone, in the dark, by keyboard, without script.

use serde_json::json;

use super::{browse, lose, start, url};
use crate::servers::browser::Browser;

const PAGES: [&str; 7] = [
    "/console",
    "/console/unknown",
    "/console/letters",
    "/console/letters?of=deliveries&all=1",
    "/console/search?q=lost",
    "/console/decisions",
    "/console/sign-in",
];

#[tokio::test(flavor = "multi_thread")]
async fn pages_fit_a_telephone_ask_nobody_else_and_name_what_can_be_pressed() {
    let (gateway, _upstream) = start().await;
    let long = format!("lost{}", "0123456789".repeat(20));
    let entry = lose(&gateway, &long).await;
    assert_eq!(gateway.pay(&format!("fine{}", "9".repeat(200))).send().await.status, 201);
    gateway.database.stranger().await.run("UPDATE events SET state = 4, epoch = NULL, queue = 'gone'").await;
    let browser = browse(&gateway);
    browser.be_a_telephone();
    let story = format!("/console/entries/{}", entry["id"].as_str().unwrap());
    for target in PAGES.iter().copied().chain([&*story]) {
        browser.open(&url(&gateway, target));
        browser.wait_for("return document.readyState === 'complete'");
        let widths = browser.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]");
        assert_eq!(widths, json!([360, 360]), "{target}");
        let asked = "return performance.getEntriesByType('resource').map(one => one.name)";
        let asked = browser.run(asked);
        for name in asked.as_array().unwrap() {
            assert!(name.as_str().unwrap().starts_with(&url(&gateway, "/console/")), "{target}: {name}");
        }
        assert!(!asked.as_array().unwrap().is_empty(), "{target}: not even its own style");
        // Each has a name, and is large enough for a thumb or stands in a text.
        let unnamed = "return [...document.querySelectorAll('a, button, input:not([type=hidden]), select, textarea')]
            .filter(one => !(one.textContent || one.getAttribute('aria-label') || [...(one.labels || [])].map(label => label.textContent).join('')).trim())
            .map(one => one.outerHTML)";
        assert_eq!(browser.run(unnamed), json!([]), "{target}");
        let small = "return [...document.querySelectorAll('button')].filter(one => one.offsetHeight && one.offsetHeight < 40).length";
        assert_eq!(browser.run(small), 0, "{target}");
        assert_eq!(browser.run("return document.querySelectorAll('h1').length"), 1, "{target}");
    }
}

/// The lightness of a color that is spelled `rgb(...)`, from 0 to 1.
const LIGHTNESS: &str = "const light = color => { const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(one => one / 255)
    .map(one => one <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };";

#[tokio::test(flavor = "multi_thread")]
async fn text_can_be_read_by_day_and_by_night() {
    let (gateway, _upstream) = start().await;
    lose(&gateway, "lost").await;
    let browser = browse(&gateway);
    let contrasts = format!(
        "{LIGHTNESS} const behind = one => {{ for (; one; one = one.parentElement) {{ const color = getComputedStyle(one).backgroundColor;
         if (!color.endsWith(', 0)')) return color }} return 'rgb(255, 255, 255)' }};
         return [...document.querySelectorAll('body *')].filter(one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
         .filter(one => one.checkVisibility() && !one.closest('.unseen, .skip, svg'))
         .map(one => {{ const [a, b] = [light(getComputedStyle(one).color), light(behind(one))].sort((x, y) => y - x);
         return [(a + .05) / (b + .05), one.textContent.slice(0, 40)] }}).filter(([contrast]) => contrast < 4.5)"
    );
    let is_dark = format!("{LIGHTNESS} return light(getComputedStyle(document.body).backgroundColor) < .1");
    for dark in [false, true] {
        if dark {
            browser.be_dark();
        }
        for target in ["/console", "/console/unknown", "/console/search?q=lost", "/console/letters"] {
            browser.open(&url(&gateway, target));
            assert_eq!(browser.run(&is_dark), dark, "{target}");
            assert_eq!(browser.run(&contrasts), json!([]), "{target}, dark: {dark}");
        }
    }
}

const TAB: &str = "\u{e004}";
const SPACE: &str = " ";
const ENTER: &str = "\u{e007}";

/// Presses Tab until what has the focus is what is wanted.
fn go_to(browser: &Browser, css: &str) {
    for _ in 0..40 {
        browser.press(TAB);
        if browser.run(&format!("return document.activeElement.matches(\"{css}\")")) == true {
            let ring = browser.run("return getComputedStyle(document.activeElement).outlineStyle");
            assert!(ring != "none", "nobody sees that {css} has the focus");
            return;
        }
    }
    panic!("no key leads to {css}: {}", browser.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_done_by_keyboard() {
    let (gateway, _upstream) = start().await;
    lose(&gateway, "lost").await;
    let browser = browse(&gateway);
    browser.press(TAB);
    assert_eq!(browser.run("return document.activeElement.textContent"), "Skip to the content");
    browser.press(ENTER);
    browser.wait_for("return document.activeElement.id === 'content'");
    go_to(&browser, "[name=pick]");
    browser.press(SPACE);
    browser.open(&url(&gateway, "/console/unknown"));
    go_to(&browser, "tbody th a");
    browser.press(ENTER);
    browser.wait_until("the story", |text| text.contains("What became of it?"));
    go_to(&browser, "[name=outcome]");
    browser.press("\u{e015}");
    browser.press(SPACE);
    go_to(&browser, "#reason");
    browser.press("the books have nothing");
    go_to(&browser, "#actor");
    go_to(&browser, "[value=preview]");
    browser.press(ENTER);
    browser.wait_until("what it does", |text| text.contains("Nothing is done yet"));
    go_to(&browser, "[value=carry]");
    browser.press(ENTER);
    browser.wait_until("settled", |text| text.contains("Settled:"));
    assert_eq!(gateway.pay("lost").send().await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_without_script() {
    let (gateway, _upstream) = start().await;
    lose(&gateway, "lost").await;
    let browser = browse(&gateway);
    browser.tell("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.open(&url(&gateway, "/console"));
    browser.click("a[href='/console/unknown'].tile");
    browser.click("tbody th a");
    browser.click("[value=not_executed]");
    browser.fill("#reason", "the books have nothing");
    browser.click("[value=preview]");
    browser.click("[value=carry]");
    let ask = || gateway.pay("lost").send();
    let told = crate::http::eventually(ask, |answer| answer.status != 409).await;
    assert_eq!(told.status, 201);
}
