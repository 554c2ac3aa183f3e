use std::time::Duration;

use oncegate::outbox::store::{How, Suspects, Turn};

use super::{Ground, New, SENT, new, parked, positions, retry};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    what_a_dead_relay_had_in_hand_is_taken_up_again_and_counted,
    suspects_come_alone_in_their_lane,
    a_suspect_does_not_come_with_those_before_it,
    of_those_with_two_deaths_one_comes_at_a_time,
    a_killer_is_told_from_its_neighbours,
    giving_back_forgets_no_death_and_a_published_attempt_does,
    an_event_that_nobody_can_publish_says_why,
    an_event_that_can_not_be_read_stops_nobody_else,
);

async fn what_a_dead_relay_had_in_hand_is_taken_up_again_and_counted(kind: Kind) {
    let ground = Ground::new(kind).await;
    let position = ground.commit(new(0, "a")).await;
    let dead = ground.holder().await;
    assert_eq!(positions(&dead.acquire().await), [position]);
    let heir = ground.heir().await;
    let acquired = heir.acquire().await;
    assert_eq!((acquired[0].attempts, acquired[0].deaths), (2, 1));
    assert_eq!(acquired[0].lane, heir.lane(0));
    assert_eq!(heir.acquire().await, [], "in hand now");
    heir.conclude(&[(&acquired[0], SENT)]).await;
}

async fn suspects_come_alone_in_their_lane(kind: Kind) {
    let ground = Ground::new(kind).await;
    let in_hand = ground.commit_many(0, "a", 2).await;
    let other = ground.commit(new(1, "b")).await;
    let dead = ground.holder().await;
    assert_eq!(dead.acquire().await.len(), 3);
    let fresh = ground.commit_many(0, "c", 2).await;
    let healthy = ground.commit_many(2, "d", 2).await;
    let before = ground.insert(new(1, "e"), Some(other + 100));
    ground.run(&before).await;

    let heir = ground.heir().await;
    let acquired = heir.acquire().await;
    assert_eq!(positions(&acquired), [vec![in_hand[0], other], healthy].concat(), "one of each lane that has some");
    let acquired = heir.go_on(&[(&acquired[0], SENT)]).await;
    assert_eq!(positions(&acquired), [in_hand[1], other + 100]);
    assert_eq!(acquired[1].deaths, 0);
    let acquired = heir.go_on(&[(&acquired[0], SENT)]).await;
    assert_eq!(positions(&acquired), fresh);
}

async fn of_those_with_two_deaths_one_comes_at_a_time(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (one, two) = (ground.commit(new(0, "a")).await, ground.commit(new(1, "b")).await);
    assert_eq!(ground.holder().await.acquire().await.len(), 2);
    assert_eq!(ground.heir().await.acquire().await.len(), 2, "each alone in its lane");
    let heir = ground.heir().await;
    let leave = Turn { suspects: Suspects::Leave, ..heir.turn() };
    assert_eq!(heir.apply(&leave).await.acquired, []);
    let acquired = heir.acquire().await;
    assert_eq!((positions(&acquired), acquired[0].deaths), (vec![one], 2));
    let turned = heir.apply(&leave).await;
    assert_eq!((turned.acquired, turned.more), (vec![], vec![]), "nothing to ask for again at once");
    let acquired = heir.go_on(&[(&acquired[0], SENT)]).await;
    assert_eq!((positions(&acquired), acquired[0].deaths), (vec![two], 2));
}

/// Whoever comes before a suspect is taken without it.
async fn a_suspect_does_not_come_with_those_before_it(kind: Kind) {
    let ground = Ground::new(kind).await;
    let first = ground.commit(new(0, "a")).await;
    ground.run(&format!("DELETE FROM events WHERE position = {first}")).await;
    let suspect = ground.commit(new(0, "b")).await;
    ground.holder().await.acquire().await;
    ground.run(&ground.insert(new(0, "late"), Some(first))).await;
    let heir = ground.heir().await;
    let acquired = heir.acquire().await;
    assert_eq!(positions(&acquired), [first]);
    assert_eq!(positions(&heir.go_on(&[(&acquired[0], SENT)]).await), [suspect]);
}

/// One event kills every relay that publishes it; those that were in flight beside it are not taken for it.
async fn a_killer_is_told_from_its_neighbours(kind: Kind) {
    const CRASH_ATTEMPTS: u32 = 5;
    let ground = Ground::new(kind).await;
    let (killer, behind) = (ground.commit(new(0, "a")).await, ground.commit(new(0, "b")).await);
    let others = [ground.commit(new(0, "c")).await, ground.commit(new(1, "d")).await, ground.commit(new(2, "e")).await];
    let mut holder = ground.holder().await;
    let mut parked_ones = Vec::new();
    for _ in 0..60 {
        let acquired = holder.acquire().await;
        if acquired.is_empty() {
            break;
        }
        let mut marks = Vec::new();
        let mut dies = false;
        for event in &acquired {
            if event.deaths >= CRASH_ATTEMPTS {
                parked_ones.push((event.position, event.deaths));
                marks.push((event, parked()));
            } else if event.position == killer {
                dies = true;
            } else {
                marks.push((event, SENT));
            }
        }
        // It dies before anything that it has in hand is on record.
        if dies {
            holder = ground.heir().await;
        } else {
            holder.conclude(&marks).await;
        }
    }
    assert_eq!(parked_ones, [(killer, CRASH_ATTEMPTS)]);
    for sent in [&[behind], &others[..]].concat() {
        assert_eq!(ground.state(sent).await, 5);
    }
}

async fn giving_back_forgets_no_death_and_a_published_attempt_does(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit_many(0, "a", 2).await;
    assert_eq!(ground.holder().await.acquire().await.len(), 2);
    let heir = ground.heir().await;
    let suspect = heir.acquire().await;
    assert_eq!((suspect.len(), suspect[0].deaths), (1, 1));
    let again = heir.go_on(&[(&suspect[0], How::GivenBack)]).await;
    assert_eq!(again, suspect, "still alone, and no attempt more");
    let acquired = heir.go_on(&[(&again[0], retry(Duration::ZERO))]).await;
    assert_eq!((positions(&acquired), acquired[0].deaths), (positions(&suspect), 0));
}

/// It is committed ready, with the reason, so that it is parked when its turn comes.
async fn an_event_that_nobody_can_publish_says_why(kind: Kind) {
    let ground = Ground::new(kind).await;
    let unfit = ground.commit(New { unfit: Some("too large"), ..new(0, "a") }).await;
    ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    assert_eq!((positions(&acquired)[0], &acquired[0].event), (unfit, &Err("too large".into())));
    let again = holder.go_on(&[(&acquired[0], How::GivenBack), (&acquired[1], How::GivenBack)]).await;
    assert_eq!(again[0].event, Err("too large".into()), "it stays so");
    assert!(again[1].event.is_ok());
    let after = holder.go_on(&[(&again[0], parked()), (&again[1], How::Waiting)]).await;
    assert_eq!(after, [], "it holds its key");
    assert_eq!(ground.state(unfit).await, 4);
}

async fn an_event_that_can_not_be_read_stops_nobody_else(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (broken, other) = (ground.commit(new(0, "a")).await, ground.commit(new(0, "b")).await);
    let behind = ground.commit(new(0, "a")).await;
    let breaking = match kind {
        Kind::Postgres => "id = '\\x0102'::bytea",
        Kind::MySql => "type = x'c328', event_key = x'c328'",
        Kind::Sqlite => "type = CAST(x'c328' AS TEXT), event_key = CAST(x'c328' AS TEXT)",
    };
    let same_key = breaking.split(", ").nth(1).unwrap_or("attempts = 0");
    ground.run(&format!("UPDATE events SET {breaking} WHERE position = {broken}")).await;
    ground.run(&format!("UPDATE events SET {same_key} WHERE position = {behind}")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    assert_eq!(positions(&acquired), [broken, other, behind]);
    let Err(reason) = &acquired[0].event else { panic!() };
    assert!(reason.contains("can't be read"), "{reason}");
    assert!(acquired[1].event.is_ok());
    let marks = [(&acquired[0], parked()), (&acquired[1], SENT), (&acquired[2], How::Waiting)];
    assert_eq!(holder.go_on(&marks).await, [], "its key is held, whatever it is");
    assert_eq!((ground.state(broken).await, ground.state(behind).await), (4, 3));
}
