//! The table of switches, on each database.

use oncegate::engine::desk::Actor;
use oncegate::engine::switches::{Kind, Order, PAUSED, Switches as _};

use crate::servers::database::{Kind as Database, fresh, on_each_database};

on_each_database!(
    a_switch_stays_as_it_was_turned_last_and_each_turn_is_on_record,
    of_people_who_turn_one_at_once_each_comes_after_another,
);

fn order(kind: Kind, setting: Option<&str>, reason: &str) -> Order {
    let by = Actor { name: "ann\0".into(), authority: "token".into() };
    Order { kind, name: "pay".into(), setting: setting.map(Into::into), by, reason: reason.into() }
}

async fn a_switch_stays_as_it_was_turned_last_and_each_turn_is_on_record(kind: Database) {
    let (database, store) = fresh(kind).await;
    assert_eq!(store.switched().await.unwrap(), []);
    let turn = async |order: Order| store.turn(&order).await.unwrap().was;
    assert_eq!(turn(order(Kind::Route, Some("observe"), "one")).await, None);
    assert_eq!(turn(order(Kind::Subscription, Some(PAUSED), "two")).await, None);
    assert_eq!(turn(order(Kind::Route, Some("replay_only"), "three")).await.as_deref(), Some("observe"));
    let found = store.switched().await.unwrap();
    let said: Vec<_> =
        found.iter().map(|switch| (switch.kind, &*switch.name, &*switch.setting, &*switch.reason)).collect();
    assert_eq!(said, [(Kind::Route, "pay", "replay_only", "three"), (Kind::Subscription, "pay", PAUSED, "two")]);
    assert_eq!((&*found[0].by.name, &*found[0].by.authority), ("ann\u{fffd}", "token"));
    assert!(found[0].at >= found[1].at, "{found:?}");

    assert_eq!(turn(order(Kind::Route, None, "four")).await.as_deref(), Some("replay_only"));
    assert_eq!(turn(order(Kind::Route, None, "five")).await, None);
    assert_eq!(store.switched().await.unwrap().len(), 1);
    let turns = store.turns(None, None, 10).await.unwrap();
    let said: Vec<_> = turns.iter().map(|turn| (turn.was.as_deref(), turn.setting.as_deref(), &*turn.reason)).collect();
    let replay = Some("replay_only");
    let expected = [
        (None, None, "five"),
        (replay, None, "four"),
        (Some("observe"), replay, "three"),
        (None, Some(PAUSED), "two"),
        (None, Some("observe"), "one"),
    ];
    assert_eq!(said, expected);
    assert_eq!((&turns[4].by, turns[4].at, &*turns[4].name), (&found[0].by, found[1].at.min(turns[4].at), "pay"));
    let reasons = async |of, before, limit| {
        let turns = store.turns(of, before, limit).await.unwrap();
        turns.into_iter().map(|turn| turn.reason.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(reasons(Some(Kind::Subscription), None, 10).await, ["two"]);
    assert_eq!(reasons(Some(Kind::Route), Some(turns[1].number), 1).await, ["three"]);

    let mut asking = database.stranger().await;
    let mut count = async |what: &str| asking.number(&format!("SELECT COUNT(*) FROM switch_actions {what}")).await;
    assert_eq!(count("").await, 5);
    assert_eq!(count("WHERE was IS NULL AND setting IS NULL").await, 1);
    assert_eq!(count("WHERE was = 'replay_only' AND setting IS NULL AND acted_at > 0").await, 1);
    // What a newer version has switched is none of ours.
    asking
        .run("INSERT INTO switches (kind, name, setting, actor, authority, reason, changed_at) VALUES ('queue', 'q', 'x', 'y', 'z', '', 0)")
        .await;
    assert_eq!(store.switched().await.unwrap().len(), 1);
}

async fn of_people_who_turn_one_at_once_each_comes_after_another(kind: Database) {
    let (database, store) = fresh(kind).await;
    let other = database.open();
    let words: Vec<String> = (0..8).map(|number| format!("mode-{number}")).collect();
    let turns = words.iter().enumerate().map(|(number, word)| {
        let store = if number % 2 == 0 { &store } else { &other };
        let order = order(Kind::Route, Some(word), "x");
        async move {
            loop {
                // Locked out by another one: nothing was done.
                if let Ok(turned) = store.turn(&order).await {
                    return turned.was.map(String::from);
                }
            }
        }
    });
    let mut were = futures_util::future::join_all(turns).await;
    let last = store.switched().await.unwrap()[0].setting.to_string();
    were.push(Some(last));
    let mut expected: Vec<_> = words.into_iter().map(Some).chain([None]).collect();
    were.sort_unstable();
    expected.sort_unstable();
    assert_eq!(were, expected, "each found what exactly one other had left");
    let recorded = database.stranger().await.number("SELECT COUNT(*) FROM switch_actions").await;
    assert_eq!(recorded, 8);
}
