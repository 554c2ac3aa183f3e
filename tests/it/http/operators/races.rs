//! A person who settles, while others settle too.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{RAW, lose, not_executed, on, only, paid, settle, start};
use crate::http::upstream::{Gate, Step, Upstream, after, answer, created};
use crate::servers::database::{Kind, on_each_database};
use crate::servers::outbox::written;

on_each_database!(
    of_many_operators_one_settles,
    a_person_and_a_late_answer_settle_once,
    a_person_and_lookups_settle_once,
    an_order_whose_commit_is_unclear_is_carried_out_once,
);

async fn decisions(gateway: &crate::http::gateway::Gateway, entry: &Value) -> Vec<Value> {
    let target = format!("/entries/{}", entry["id"].as_str().unwrap());
    let story = super::admin(gateway, "GET", &target).send().await.json();
    story["decisions"].as_array().cloned().unwrap_or_default()
}

async fn of_many_operators_one_settles(kind: Kind) {
    let upstream = super::forgetful().await;
    let one = start(kind, &upstream, &[RAW]).await;
    let other = on(one.database.shared(), &upstream, &[RAW]).await;
    for round in 0..4 {
        let entry = lose(&one, &format!("lost-{round}")).await;
        let orders = (0..6).map(|number| {
            let gateway = if number % 2 == 0 { &one } else { &other };
            let mut word = if number % 3 == 0 { not_executed() } else { paid() };
            word["actor"] = json!(format!("operator {number}"));
            settle(gateway, &entry, &word).send()
        });
        let told = join_all(orders).await;
        let done: Vec<_> = (0..6).filter(|number| told[*number].status == 200).collect();
        let [winner] = done[..] else { panic!("{told:?}") };
        assert!(told.iter().all(|answer| [200, 404, 409, 412].contains(&answer.status)), "{told:?}");
        let decided = decisions(&one, &entry).await;
        assert_eq!(decided.len(), 1, "{decided:?}");
        assert_eq!(decided[0]["actor"], json!(format!("operator {winner}")));
    }
}

/// Either the late answer completes the entry, or the person settles it and the late answer is kept.
async fn a_person_and_a_late_answer_settle_once(kind: Kind) {
    let gates: Vec<Gate> = (0..6).map(|_| Gate::new()).collect();
    let scripted = gates.clone();
    let upstream = Upstream::start(move |_, request| {
        let number: usize = request.field("idempotency-key").unwrap()[1..].parse().unwrap();
        after(&scripted[number], answer("201 Created", &[], "late"))
    })
    .await;
    let gateway = start(kind, &upstream, &[RAW, ("upstreams.up.timeout", "200ms")]).await;
    let paying = (0..6).map(|number| gateway.pay(&format!("h{number}")).send());
    assert!(join_all(paying).await.iter().all(|answer| answer.status == 504));
    for (number, gate) in gates.iter().enumerate() {
        let key = format!("h{number}");
        let entry = only(&gateway, &format!("/entries?key={key}")).await;
        let order = settle(&gateway, &entry, &paid());
        gate.cancel();
        let settled = order.send().await.status;
        let is_settled = |answer: &crate::http::client::Answer| answer.status != 409;
        let replay = crate::http::eventually(|| gateway.pay(&key).send(), is_settled).await;
        match settled {
            200 => {
                super::is_by_hand(&replay);
                let kept = |decided: &Vec<Value>| decided[0]["late_answer_was"]["status"] == 201;
                crate::http::eventually(|| decisions(&gateway, &entry), kept).await;
            }
            409 | 412 => {
                assert_eq!((replay.status, &replay.body[..]), (201, &b"late"[..]));
                assert!(decisions(&gateway, &entry).await.is_empty());
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(written(&gateway.database).await.len(), 6, "one event each, whoever settled");
    assert_eq!(upstream.count(), 6);
}

async fn a_person_and_lookups_settle_once(kind: Kind) {
    let upstream = Upstream::start(|number, request| match &*request.method {
        "GET" => answer("200 OK", &[], "{\"status\":\"paid\"}"),
        _ if number == usize::MAX => created(number),
        _ => vec![Step::Close],
    })
    .await;
    let lookup = [
        RAW,
        (".on_unknown", "lookup"),
        (".lookup.request", "GET /by/{key}"),
        // Only retries ask.
        (".lookup.first", "1h"),
        (".lookup.max", "1h"),
        (".lookup.completed_when", "{ equals = { \"/status\" = \"paid\" } }"),
    ];
    let gateway = start(kind, &upstream, &lookup).await;
    for number in 0..6 {
        let key = format!("k{number}");
        let entry = lose(&gateway, &key).await;
        let order = settle(&gateway, &entry, &paid()).send();
        let (settled, retry) = tokio::join!(order, gateway.pay(&key).send());
        let replay = gateway.pay(&key).send().await;
        match settled.status {
            200 => super::is_by_hand(&replay),
            409 | 412 => assert_eq!(replay.told(), (200, "{\"status\":\"paid\"}", Some("true"))),
            other => panic!("{other} {settled:?}"),
        }
        assert_eq!((retry.status, &retry.body), (replay.status, &replay.body), "whoever asked first was told the same");
        let decided = decisions(&gateway, &entry).await;
        assert_eq!(decided.len(), usize::from(settled.status == 200));
    }
    assert_eq!(written(&gateway.database).await.len(), 6);
}

/// The database ends all connections while an order is on its way: it is carried out whole, once, or not at all.
async fn an_order_whose_commit_is_unclear_is_carried_out_once(kind: Kind) {
    let upstream = super::forgetful().await;
    let gateway = start(kind, &upstream, &[RAW]).await;
    let mut stranger = gateway.database.stranger().await;
    for round in 0..8 {
        let entry = lose(&gateway, &format!("lost-{round}")).await;
        let word = if round % 2 == 0 { paid() } else { not_executed() };
        let order = || settle(&gateway, &entry, &word).send();
        let (told, ()) = tokio::join!(order(), async {
            for _ in 0..3 {
                stranger.kill_the_others().await;
                tokio::task::yield_now().await;
            }
        });
        // Who is told that it is not known asks again, and is told that it was, or does it now.
        let is_told = |answer: &crate::http::client::Answer| answer.status != 503;
        let told = if is_told(&told) { told } else { crate::http::eventually(order, is_told).await };
        assert!([200, 404, 409].contains(&told.status), "{told:?}");
        let ask = || decisions(&gateway, &entry);
        let decided = crate::http::eventually(ask, |decided| !decided.is_empty()).await;
        assert_eq!(decided.len(), 1, "{decided:?}");
    }
    let events = crate::http::eventually(|| written(&gateway.database), |events| events.len() >= 4).await;
    assert_eq!(events.len(), 4);
}
