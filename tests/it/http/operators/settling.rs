//! Unknown entries, settled one by one.

use std::time::Duration;

use oncegate::clock;
use oncegate::engine::marks::{Mark, MarkState};
use oncegate::entry::fingerprint::SecretId;
use oncegate::entry::{EntryId, Fingerprint, Nonce};
use oncegate::marks::{self, MarksOptions};
use serde_json::json;

use super::{RAW, admin, forgetful, get, is_by_hand, lose, not_executed, on, only, paid, settle, start};
use crate::http::eventually;
use crate::http::upstream::{Gate, Step, Upstream, after, answer, created};
use crate::servers::database::{Kind, on_each_database};
use crate::servers::outbox::written;
use crate::servers::redis::Redis;

on_each_database!(
    a_payment_that_happened_is_settled_with_its_answer_and_its_events,
    a_payment_that_did_not_happen_runs_again,
    a_late_answer_to_what_was_settled_is_kept_and_shown,
);

async fn a_payment_that_happened_is_settled_with_its_answer_and_its_events(kind: Kind) {
    let upstream = forgetful().await;
    let gateway = start(kind, &upstream, &[RAW]).await;
    let entry = lose(&gateway, "lost").await;
    assert_eq!(
        (&entry["state"], &entry["scope"], &entry["route"]),
        (&json!("unknown"), &json!("global"), &json!("pay"))
    );
    gateway.pay("lost").send().await.is_problem(409, "outcome-unknown");

    let settled = settle(&gateway, &entry, &paid()).send().await;
    assert_eq!(settled.status, 200, "{settled:?}");
    is_by_hand(&gateway.pay("lost").send().await);
    gateway.pay("lost").body("{\"amount\":2}").send().await.is_problem(422, "key-reused");
    assert_eq!(upstream.count(), 1, "nothing was sent again");
    // As if it had completed at once: what the request said, and what it was answered.
    let events = written(&gateway.database).await;
    let data = "{\"request\":{\"amount\":1},\"response\":{\"payment\":7}}";
    assert_eq!(events.iter().map(|event| &*event.data).collect::<Vec<_>>(), [data]);
    assert_eq!(settled.json()["events"], json!([events[0].id]));

    let target = format!("/entries/{}?data=true", entry["id"].as_str().unwrap());
    let story = get(&gateway, &target).await;
    assert_eq!((&story["state"], &story["answer"]["body"]), (&json!("completed"), &json!("{\"payment\":7}")));
    assert_eq!((&story["events"][0]["id"], &story["events"][0]["name"]), (&json!(events[0].id), &json!("paid")));
    let decision = &story["decisions"][0];
    assert_eq!(
        (&decision["actor"], &decision["reason"], &decision["outcome"], &decision["authority"]),
        (&json!("ann"), &json!("seen at the bank"), &json!("completed"), &json!("token"))
    );
    assert_eq!(get(&gateway, "/decisions").await["decisions"].as_array().unwrap().len(), 1);
    settle(&gateway, &story, &not_executed()).send().await.is_problem(409, "not-settled");
    let page = get(&gateway, "/entries?state=completed&limit=1").await;
    assert_eq!((&page["entries"][0]["id"], page["next"].is_string()), (&entry["id"], true));
    let next = format!("/entries?state=completed&after={}", page["next"].as_str().unwrap());
    assert_eq!(get(&gateway, &next).await["entries"], json!([]));
}

async fn a_payment_that_did_not_happen_runs_again(kind: Kind) {
    let upstream = forgetful().await;
    let gateway = start(kind, &upstream, &[RAW]).await;
    let entry = lose(&gateway, "lost").await;
    assert_eq!(settle(&gateway, &entry, &not_executed()).send().await.status, 200);
    settle(&gateway, &entry, &not_executed()).send().await.is_problem(404, "no-entry");
    let story = get(&gateway, &format!("/entries/{}", entry["id"].as_str().unwrap())).await;
    assert_eq!((&story["state"], &story["decisions"][0]["actor"]), (&json!("none"), &json!("bob")));
    assert!(written(&gateway.database).await.is_empty());
    let again = gateway.pay("lost").send().await;
    assert_eq!(again.told(), (201, "{\"payment\":2}", Some("false")));
    assert_eq!((upstream.count(), written(&gateway.database).await.len()), (2, 1));
}

/// The upstream answers after the time-out, and after a person has decided; once as decided, once otherwise.
async fn a_late_answer_to_what_was_settled_is_kept_and_shown(kind: Kind) {
    let gate = Gate::new();
    let hung = gate.clone();
    let upstream = Upstream::start(move |number, request| match request.field("idempotency-key") {
        Some("hang-1" | "hang-2") if number <= 2 => after(&hung, answer("201 Created", &[], "late")),
        _ => created(number),
    })
    .await;
    let gateway = start(kind, &upstream, &[RAW, ("upstreams.up.timeout", "300ms")]).await;
    let (one, other) = tokio::join!(gateway.pay("hang-1").send(), gateway.pay("hang-2").send());
    assert_eq!((one.status, other.status), (504, 504));
    let one = only(&gateway, "/entries?key=hang-1").await;
    let other = only(&gateway, "/entries?key=hang-2").await;
    assert_eq!(settle(&gateway, &one, &paid()).send().await.status, 200);
    assert_eq!(settle(&gateway, &other, &not_executed()).send().await.status, 200);
    assert_eq!(gateway.pay("hang-2").send().await.told(), (201, "{\"payment\":3}", Some("false")));

    gate.cancel();
    let story = async |entry: &serde_json::Value| {
        get(&gateway, &format!("/entries/{}?data=true", entry["id"].as_str().unwrap())).await
    };
    let came = |story: &serde_json::Value| story["decisions"][0]["late_answer_was"]["body"] == "late";
    let told = eventually(|| story(&one), came).await;
    assert_eq!((&told["late_answer"], &told["late_answer_was"]["body"]), (&json!(true), &json!("late")));
    is_by_hand(&gateway.pay("hang-1").send().await);
    // What was said not to be executed was: the key ran twice, and whoever looks at the decision sees it.
    let told = eventually(|| story(&other), came).await;
    assert_eq!(told["answer"]["body"], "{\"payment\":3}", "what ran again stands");
    assert_eq!(only(&gateway, "/entries?state=completed&late_answer=true").await["id"], one["id"]);
    let alerted = crate::http::client::Call::new(gateway.admin(), "GET", "/metrics").send().await;
    assert!(String::from_utf8_lossy(&alerted.body).contains("oncegate_fenced_completions_total"));
    assert_eq!(written(&gateway.database).await.len(), 2);
}

#[tokio::test]
async fn what_is_not_as_it_was_seen_is_left_alone() {
    let gate = Gate::new();
    let open = gate.clone();
    let upstream = Upstream::start(move |number, request| match request.field("idempotency-key") {
        Some("runs") => after(&open, created(number)),
        Some("lost") => vec![Step::Close],
        _ => created(number),
    })
    .await;
    let gateway = start(Kind::Sqlite, &upstream, &[RAW]).await;
    let running = tokio::spawn(gateway.pay("runs").send());
    upstream.reached(1).await;
    let entry = only(&gateway, "/entries?key=runs").await;
    assert_eq!(entry["state"], "in_progress");
    let refused = settle(&gateway, &entry, &not_executed()).send().await;
    refused.is_problem(409, "not-settled");
    assert!(refused.json()["detail"].as_str().unwrap().contains("in progress"), "{refused:?}");
    gate.cancel();
    assert_eq!(running.await.unwrap().status, 201);
    settle(&gateway, &entry, &paid()).send().await.is_problem(409, "not-settled");

    let entry = lose(&gateway, "lost").await;
    let target = format!("/entries/{}/settle", entry["id"].as_str().unwrap());
    let call = || admin(&gateway, "POST", &target).body(paid().to_string());
    call().send().await.is_problem(428, "state-not-named");
    call().field("if-match", "*").send().await.is_problem(428, "state-not-named");
    for other in ["\"0123456789abcdef0123456789abcdef\"", "nonsense", "W/\"0\""] {
        call().field("if-match", other).send().await.is_problem(412, "entry-changed");
    }
    let absent = json!({ "id": "ab".repeat(32), "version": entry["version"] });
    settle(&gateway, &absent, &paid()).send().await.is_problem(404, "no-entry");
    for word in [json!({}), json!({ "outcome": "completed", "reason": "x", "actor": "y" }), json!(null)] {
        settle(&gateway, &entry, &word).send().await.is_problem(400, "order-invalid");
    }
    gateway.pay("lost").send().await.is_problem(409, "outcome-unknown");
    assert_eq!(settle(&gateway, &entry, &paid()).send().await.status, 200);
}

/// Whatever it says, its request was forwarded, and so will the next one be.
#[tokio::test]
async fn what_was_only_observed_is_not_settled() {
    let upstream = Upstream::always(vec![Step::Close]).await;
    let gateway = start(Kind::Sqlite, &upstream, &[(".mode", "observe")]).await;
    assert_eq!(gateway.pay("lost").send().await.status, 502);
    let found = |page: &serde_json::Value| page["entries"].as_array().is_some_and(|entries| entries.len() == 1);
    let page = eventually(|| get(&gateway, "/entries"), found).await;
    for word in [paid(), not_executed()] {
        let refused = settle(&gateway, &page["entries"][0], &word).send().await;
        refused.is_problem(409, "not-settled");
        assert!(refused.json()["detail"].as_str().unwrap().contains("observed"), "{refused:?}");
    }
    assert!(written(&gateway.database).await.is_empty());
}

/// Two gateways with one Redis, and a mark that was left behind by a process that died.
#[tokio::test]
async fn all_gateways_tell_what_was_settled_at_one() {
    let redis = Redis::start();
    let upstream = forgetful().await;
    let marks = [RAW, ("marks.url", &*redis.url)];
    let one = start(Kind::Sqlite, &upstream, &marks).await;
    let other = on(one.database.shared(), &upstream, &marks).await;
    for (key, word) in [("lost-1", paid()), ("lost-2", not_executed())] {
        let entry = lose(&one, key).await;
        other.pay(key).send().await.is_problem(409, "outcome-unknown");
        assert_eq!(settle(&other, &entry, &word).send().await.status, 200);
        let here = one.pay(key).send().await;
        assert_eq!(here.status, 201);
        // What has just been executed there is in progress here, until its mark says that it is done.
        let there = eventually(|| other.pay(key).send(), |answer| answer.status != 409).await;
        assert_eq!(there.status, 201);
        if word["outcome"] == "completed" {
            is_by_hand(&here);
            is_by_hand(&there);
        } else {
            assert_eq!(here.field("idempotent-replayed"), Some("false"));
            there.is_replay_of(&here);
        }
    }
    assert_eq!(upstream.count(), 3);
    assert_eq!(written(&one.database).await.len(), 2);
}

/// The mark remembers a completion that the database has lost, and so the next claim was held. Left where it is, it would
/// have every later one held as well.
#[tokio::test]
async fn a_mark_does_not_outlive_what_a_person_has_decided() {
    let redis = Redis::start();
    let upstream = forgetful().await;
    let gateway = start(Kind::Sqlite, &upstream, &[RAW, ("marks.url", &*redis.url)]).await;
    let entry = lose(&gateway, "lost").await;
    let marks = marks::connect(&MarksOptions { url: redis.url.clone(), ..MarksOptions::default() }).unwrap();
    let id = EntryId::from_hex(entry["id"].as_str().unwrap()).unwrap();
    let expires = clock::wall().after(Duration::from_secs(600));
    let left_behind = Mark {
        nonce: Nonce::random(),
        fingerprint: Fingerprint { version: 1, secret: SecretId([1; 4]), digest: [1; 32] },
        state: MarkState::Completed { expires, response: None },
    };
    assert!(marks.complete(id, &left_behind, Duration::from_secs(600)).await.unwrap());
    assert_eq!(settle(&gateway, &entry, &not_executed()).send().await.status, 200);
    assert_eq!(marks.get(id).await.unwrap(), None);
    assert_eq!(gateway.pay("lost").send().await.told(), (201, "{\"payment\":2}", Some("false")));
}
