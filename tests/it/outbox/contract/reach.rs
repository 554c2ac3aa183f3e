//! Looks that go on where the last one ended.

use oncegate::outbox::store::{How, Reach, Turn, Turned, Want};

use super::{Ground, HOUR, Holder, SENT, more, new, positions, retry};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_look_goes_on_where_the_last_one_ended_and_no_further_than_that_one_saw,
    nothing_is_passed_over_that_was_promised_to_come_first,
    another_connection_looks_at_the_whole_lane,
    what_left_a_stopped_line_is_looked_for_from_the_beginning,
    what_found_no_room_is_where_the_next_look_begins,
);

/// Looks at lane 0, within a reach.
async fn look(holder: &Holder<'_>, limit: u32, reach: Reach) -> Turned {
    let wants = vec![Want { reach, ..holder.want(0, limit) }];
    holder.apply(&Turn { wants, ..holder.empty() }).await
}

/// Where the next look goes on; its only lane is 0.
fn next(turned: &Turned) -> Reach {
    assert_eq!(more(turned).len(), 1);
    turned.more[0].1
}

async fn a_look_goes_on_where_the_last_one_ended_and_no_further_than_that_one_saw(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = ground.commit_many(0, "a", 5).await;
    let holder = ground.holder().await;
    let first = look(&holder, 2, Reach::WHOLE).await;
    assert_eq!(positions(&first.acquired), all[..2]);
    // Ready again, below: it is the relay that knows of it, and looks at the whole.
    holder.conclude(&[(&first.acquired[0], How::GivenBack)]).await;
    let late = ground.commit(new(0, "a")).await;
    let second = look(&holder, 2, next(&first)).await;
    assert_eq!(positions(&second.acquired), all[2..4]);
    let third = look(&holder, 9, next(&second)).await;
    assert_eq!(positions(&third.acquired), all[4..], "what came after the whole look has to wait");
    let whole = look(&holder, 9, next(&third)).await;
    assert_eq!(positions(&whole.acquired), [all[0], late]);
    assert_eq!(whole.more, []);
}

/// Of one key, the first commits late, and the second begins only then, while the lane is looked at in parts.
async fn nothing_is_passed_over_that_was_promised_to_come_first(kind: Kind) {
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    let mut slow = ground.database.stranger().await;
    let (first, insert) = match kind {
        // There is one writer, so a lower position can't come later by itself.
        Kind::Sqlite => {
            let place = ground.commit(new(0, "other")).await;
            ground.run(&format!("DELETE FROM events WHERE position = {place}")).await;
            (place, Some(ground.insert(new(0, "a"), Some(place))))
        }
        Kind::Postgres | Kind::MySql => {
            slow.run("BEGIN").await;
            slow.run(&ground.insert(new(0, "a"), None)).await;
            (slow.number("SELECT MAX(position) FROM events").await, None)
        }
    };
    let others = ground.commit_many(0, "other", 3).await;
    let turned = look(&holder, 1, Reach::WHOLE).await;
    assert_eq!(positions(&turned.acquired), others[..1]);
    match insert {
        Some(insert) => slow.run(&insert).await,
        None => slow.run("COMMIT").await,
    };
    let second = ground.commit(new(0, "a")).await;
    let turned = look(&holder, 9, next(&turned)).await;
    assert_eq!(positions(&turned.acquired), others[1..], "not the second without the first");
    let turned = look(&holder, 9, next(&turned)).await;
    assert_eq!(positions(&turned.acquired), [first, second]);
}

/// Between two connections a database may crash, and what it had not to keep is ready again.
async fn another_connection_looks_at_the_whole_lane(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = ground.commit_many(0, "a", 3).await;
    let holder = ground.holder().await;
    let turned = look(&holder, 1, Reach::WHOLE).await;
    ground.run(&format!("UPDATE events SET epoch = NULL, attempts = 0 WHERE position = {}", all[0])).await;
    ground.database.stranger().await.kill_the_others().await;
    let reach = match kind {
        // It is no server, and its connections are as good as new.
        Kind::Sqlite => Reach { session: next(&turned).session + 1, ..next(&turned) },
        Kind::Postgres | Kind::MySql => next(&turned),
    };
    let turned = look(&holder, 9, reach).await;
    assert_eq!(positions(&turned.acquired), all);
}

async fn what_left_a_stopped_line_is_looked_for_from_the_beginning(kind: Kind) {
    let ground = Ground::new(kind).await;
    let [a, b] = [ground.commit(new(0, "a")).await, ground.commit(new(0, "b")).await];
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], retry(HOUR)), (&acquired[1], retry(HOUR))]).await;
    let behind = ground.commit_many(0, "a", 3).await;
    assert_eq!(holder.acquire().await, []);
    let others = ground.commit_many(0, "other", 3).await;
    let turned = look(&holder, 1, Reach::WHOLE).await;
    assert_eq!(positions(&turned.acquired), others[..1]);
    let reach = next(&turned);
    assert!(reach.from > behind[2]);

    let due = async |position| ground.run(&format!("UPDATE events SET due_at = 1 WHERE position = {position}")).await;
    due(a).await;
    let first = look(&holder, 1, reach).await;
    assert_eq!((positions(&first.acquired), next(&first).from), (vec![a], reach.from));
    // Another one has the room.
    due(b).await;
    let wants = vec![Want { reach: next(&first), ..holder.want(0, 1) }];
    let conclusions = super::conclusions(&[(&first.acquired[0], SENT)]);
    let turned = holder.apply(&Turn { conclusions, wants, ..holder.empty() }).await;
    assert_eq!((positions(&turned.acquired), next(&turned).from), (vec![b], 0));
    let turned = look(&holder, 1, next(&turned)).await;
    assert_eq!(positions(&turned.acquired), behind[..1]);
    // Nothing is wanted.
    let conclusions = super::conclusions(&[(&turned.acquired[0], SENT)]);
    let turned = holder.apply(&Turn { conclusions, ..holder.empty() }).await;
    assert_eq!((next(&turned).from, next(&turned).to), (0, Reach::WHOLE.to));
    assert_eq!(positions(&look(&holder, 9, next(&turned)).await.acquired)[..1], behind[1..2]);
}

/// Bytes end a look in the middle of what it found.
async fn what_found_no_room_is_where_the_next_look_begins(kind: Kind) {
    let ground = Ground::new(kind).await;
    let mut all = Vec::new();
    for bytes in [10, 1000, 10] {
        all.push(ground.commit(super::New { bytes, ..new(0, "a") }).await);
    }
    let holder = ground.holder().await;
    let tight = Turn { wants: vec![holder.want(0, 9)], bytes: 100, ..holder.empty() };
    let turned = holder.apply(&tight).await;
    assert_eq!(positions(&turned.acquired), all[..1]);
    assert_eq!(next(&turned).from, all[0] + 1);
    let turned = look(&holder, 9, next(&turned)).await;
    assert_eq!(positions(&turned.acquired), all[1..]);
}
