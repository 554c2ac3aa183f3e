//! The story that the demo tells: each line is what a client saw, beside what really happened.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;

use super::DemoError;
use crate::clock;

/// How long the story waits for the lookup to settle what hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// Goes through the story with the gateway at `gateway` and calls `print` with each line.
///
/// # Errors
/// If a request is not answered.
pub async fn tell(gateway: SocketAddr, mut print: impl FnMut(&str)) -> Result<(), DemoError> {
    let shop = Shop { gateway, client: Client::builder(TokioExecutor::new()).build_http() };
    let line = |print: &mut dyn FnMut(&str), what: &str, seen: &str, executed: &str| {
        print(&format!("  {what:<36} {seen:<36} {executed}"))
    };

    let first = shop.pay(1001, 250, "well").await?;
    line(&mut print, "pay order 1001", &first.seen(), &shop.executed(1001).await?);
    let again = shop.pay(1001, 250, "well").await?;
    line(&mut print, "pay order 1001 again", &again.seen(), &shop.executed(1001).await?);
    let storm = shop.storm(1002, 10).await?;
    line(&mut print, "pay order 1002 ten times at once", &storm, &shop.executed(1002).await?);
    let other = shop.pay(1001, 999, "well").await?;
    line(&mut print, "order 1001 with another amount", &other.seen(), &shop.executed(1001).await?);
    let hung = shop.pay(1003, 250, "hang").await?;
    line(&mut print, "pay order 1003, the upstream hangs", &hung.seen(), &shop.executed(1003).await?);
    let held = shop.pay(1003, 250, "hang").await?;
    line(&mut print, "pay order 1003 again at once", &held.seen(), &shop.executed(1003).await?);
    let settled = shop.pay_until_told(1003, 250, "hang").await?;
    line(&mut print, "... and once a lookup has settled it", &settled.seen(), &shop.executed(1003).await?);
    print("\n  What was announced, each payment once:");
    for event in shop.lines("/v1/events", 3, |_| true).await? {
        print(&format!("  {event}"));
    }
    print(
        "\n  What a subscription made of it. Its consumer crashes each time after it has granted the points, before it answers:",
    );
    for order in shop.lines("/v1/points", 3, |line| !line.contains("called: 1,")).await? {
        print(&format!("  {order}"));
    }
    Ok(())
}

/// The curl lines to try, with order numbers that the story did not use.
#[must_use]
pub fn invitation(gateway: SocketAddr) -> String {
    let pay = |order: u32, amount: u32, more: &str| {
        format!(
            "curl -i http://{gateway}/v1/payments -H 'content-type: application/json' -d '{{\"order_no\":{order},\"amount\":{amount}{more}}}'"
        )
    };
    let mut text = String::new();
    let mut say = |what: &str, lines: &[String]| {
        // A String takes everything.
        writeln!(text, "\n# {what}").unwrap_or_default();
        for line in lines {
            writeln!(text, "{line}").unwrap_or_default();
        }
    };
    let executed = |order: u32| format!("curl http://{gateway}/v1/executed/{order}");
    say("pay: 201, Idempotent-Replayed: false", &[pay(2001, 250, "")]);
    say("pay again: the same 201, Idempotent-Replayed: true", &[pay(2001, 250, ""), executed(2001)]);
    let storm = format!(
        "seq 10 | xargs -P10 -I@ curl -s -o /dev/null -w '%{{http_code}}\\n' http://{gateway}/v1/payments -H 'content-type: application/json' -d '{{\"order_no\":2002,\"amount\":250,\"behave\":\"slow\"}}'"
    );
    say("ten at once: one 201, nine 409 (processing)", &[storm, executed(2002)]);
    say("same order, other amount: 422", &[pay(2001, 999, "")]);
    say(
        "an upstream that hangs: 504; again at once: 409 (outcome-unknown); again after 10 s: settled by a lookup, 200 and replayed",
        &[pay(2003, 250, ",\"behave\":\"hang\""), executed(2003)],
    );
    say(
        "an upstream that fails: 500; again: 409 until a lookup made 10 s later says that nothing was executed; then it is paid",
        &[pay(2004, 250, ",\"behave\":\"fail\""), executed(2004)],
    );
    say(
        "the events that the demo's consumer got from the queue, each payment once",
        &[format!("curl http://{gateway}/v1/events")],
    );
    say(
        "the points that a subscription brought: its consumer crashes after it has granted them, is called again with the same key, and grants them once",
        &[format!("curl http://{gateway}/v1/points")],
    );
    say(
        "what the gateway knows of a request",
        &[format!("curl 'http://{gateway}/idempotency/requests/2001?namespace=create-payment'")],
    );
    text
}

/// A client.
struct Shop {
    gateway: SocketAddr,
    client: Client<HttpConnector, Body>,
}

/// An answer as the client saw it.
struct Answer {
    status: StatusCode,
    replayed: bool,
    problem: Option<String>,
}

impl Answer {
    fn seen(&self) -> String {
        let mut seen = format!("-> {}", self.status.as_u16());
        if self.replayed {
            seen.push_str(", Idempotent-Replayed: true");
        }
        if let Some(problem) = &self.problem {
            seen.push_str(", ");
            seen.push_str(problem);
        }
        seen
    }
}

impl Shop {
    async fn pay(&self, order_no: u32, amount: u32, behave: &str) -> Result<Answer, DemoError> {
        let body = serde_json::json!({ "order_no": order_no, "amount": amount, "behave": behave });
        let request = Request::post(format!("http://{}/v1/payments", self.gateway))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))
            .map_err(story)?;
        let (parts, body) = self.client.request(request).await.map_err(story)?.into_parts();
        let body = body.collect().await.map_err(story)?.to_bytes();
        let problem = serde_json::from_slice::<serde_json::Value>(&body).ok();
        let problem = problem.and_then(|problem| Some(problem.get("type")?.as_str()?.rsplit('/').next()?.to_owned()));
        let replayed = parts.headers.get("idempotent-replayed").is_some_and(|value| value == "true");
        Ok(Answer { status: parts.status, replayed, problem })
    }

    async fn storm(&self, order_no: u32, requests: usize) -> Result<String, DemoError> {
        let answers = join_all((0..requests).map(|_| self.pay(order_no, 250, "slow"))).await;
        let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        let count = |status: StatusCode| answers.iter().filter(|answer| answer.status == status).count();
        Ok(format!("-> {} x 201, {} x 409 processing", count(StatusCode::CREATED), count(StatusCode::CONFLICT)))
    }

    async fn pay_until_told(&self, order_no: u32, amount: u32, behave: &str) -> Result<Answer, DemoError> {
        let until: Instant = clock::now() + PATIENCE;
        loop {
            let answer = self.pay(order_no, amount, behave).await?;
            if answer.replayed || clock::now() > until {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The lines of a consumer, once it has so many, and each is `done`.
    async fn lines(&self, path: &str, count: usize, done: impl Fn(&str) -> bool) -> Result<Vec<String>, DemoError> {
        let until: Instant = clock::now() + PATIENCE;
        loop {
            let lines: Vec<String> = self.read(path).await?.lines().map(str::to_owned).collect();
            if (lines.len() >= count && lines.iter().all(|line| done(line))) || clock::now() > until {
                return Ok(lines);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn executed(&self, order_no: u32) -> Result<String, DemoError> {
        Ok(self.read(&format!("/v1/executed/{order_no}")).await?.trim().to_owned())
    }

    async fn read(&self, path: &str) -> Result<String, DemoError> {
        let request = Request::get(format!("http://{}{path}", self.gateway)).body(Body::empty()).map_err(story)?;
        let body = self.client.request(request).await.map_err(story)?.into_body().collect().await.map_err(story)?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    }
}

fn story(error: impl std::fmt::Display) -> DemoError {
    DemoError::Story(error.to_string())
}
