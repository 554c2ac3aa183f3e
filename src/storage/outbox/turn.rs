//! A relay's turn: conclude, let go what waited, acquire, in one transaction under the lanes' lock.

use std::collections::{HashMap, HashSet};

use super::choose::{Choice, Chooser};
use super::fetch::Key;
use super::{acquire, bury, conclude, fetch, free, lanes, line};
use crate::clock::Timestamp;
use crate::engine::ledger::Guarded;
use crate::outbox::store::{Acquired, Conclusion, How, Lane, MAX_TURN, Reach, Turn, Turned, Want};
use crate::sealer::Sealer;
use crate::storage::conn::Conn;
use crate::storage::transaction::Transaction;

/// How many of a stopped key are looked at once its line moves: what is in hand of it, and what comes along. As
/// many as a relay has in flight of one key.
const LINE_LOOK: i64 = 512;

/// Where a turn takes events up.
struct Ground<'s> {
    sealer: &'s Sealer,
    now: Timestamp,
    /// Of the connection: see [`Reach::session`].
    session: u64,
    /// Those that are held.
    lanes: HashMap<u32, Lane>,
    /// Of them, those in which a key is stopped.
    with_lines: HashSet<u32>,
    /// What is wanted of lanes that are held.
    wants: Vec<Want>,
    /// Keys whose line may have moved.
    moved: Vec<Key>,
}

pub(super) async fn take(transaction: &mut Transaction<'_>, turn: &Turn) -> sqlx::Result<Turned> {
    check_size(turn)?;
    let (now, limit, session) = (transaction.now, transaction.statement_limit, transaction.session());
    let sealer = transaction.sealer;
    let mut conn = transaction.conn();
    let named = named(turn);
    let held = lanes::lock(&mut conn, &turn.queue, turn.relay, &named).await?;
    let is_held = |lane: &Lane| held.iter().any(|(held, _)| held == lane);
    let concluding: Vec<_> = turn.conclusions.iter().filter(|conclusion| is_held(&conclusion.lane)).collect();
    let guarded = conclude::apply(&mut conn, &turn.queue, now, &turn.parking, &concluding).await?;
    let parked = concluding
        .iter()
        .zip(&guarded)
        .filter(|(conclusion, guarded)| matches!(conclusion.how, How::Parked { .. }) && **guarded == Guarded::Done);
    let parked = parked.map(|(conclusion, _)| conclusion.position);
    bury::copy(&mut conn, sealer, limit, now, &turn.parking, parked).await?;
    let done = concluding.iter().zip(&guarded).filter(|(_, guarded)| **guarded == Guarded::Done);
    free::early(&mut conn, sealer, &turn.queue, now, done.map(|(conclusion, _)| *conclusion)).await?;

    let has_lines = held.iter().filter(|(_, has_lines)| *has_lines).map(|(lane, _)| lane.number).collect();
    let (moved, with_lines) = settle_lines(&mut conn, &concluding, has_lines).await?;
    let wants = turn.wants.iter().filter(|want| is_held(&want.lane)).map(|want| in_session(session, *want)).collect();
    let lanes = held.iter().map(|(lane, _)| (lane.number, *lane)).collect();
    let ground = Ground { sealer, now, session, lanes, with_lines, wants, moved };
    let (acquired, more) = acquire(&mut conn, turn, &ground).await?;

    let mut guarded = guarded.into_iter();
    let of_held = |conclusion: &Conclusion| if is_held(&conclusion.lane) { guarded.next() } else { None };
    let concluded = turn.conclusions.iter().map(of_held).map(|held| held.unwrap_or(Guarded::Fenced)).collect();
    let lost = named.into_iter().filter(|lane| !is_held(lane)).collect();
    Ok(Turned { now, lost, concluded, acquired, more })
}

/// Goes on where a look ended only if the server surely has not crashed since.
fn in_session(session: u64, want: Want) -> Want {
    if want.reach.session == session { want } else { Want { reach: Reach::WHOLE, ..want } }
}

fn check_size(turn: &Turn) -> sqlx::Result<()> {
    let wanted: u64 = turn.wants.iter().map(|want| u64::from(want.limit)).sum();
    if turn.conclusions.len() > MAX_TURN || wanted > MAX_TURN as u64 {
        return Err(sqlx::Error::Encode(format!("a turn of more than {MAX_TURN} events").into()));
    }
    Ok(())
}

/// The lanes that the turn speaks of, each once and in the order in which they are locked.
fn named(turn: &Turn) -> Vec<Lane> {
    let concluding = turn.conclusions.iter().map(|conclusion| conclusion.lane);
    let mut lanes: Vec<_> = concluding.chain(turn.wants.iter().map(|want| want.lane)).collect();
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}

/// Brings the lines up to date with what was concluded, and returns the keys whose line may have moved, and the lanes
/// that have lines now. Where no key is stopped, as mostly, nothing is asked.
async fn settle_lines(
    conn: &mut Conn<'_>,
    concluded: &[&Conclusion],
    mut with_lines: HashSet<u32>,
) -> sqlx::Result<(Vec<Key>, HashSet<u32>)> {
    let stops = |how: &How| match how {
        How::Retry { .. } | How::Later { .. } | How::Parked { .. } | How::Waiting => true,
        How::Sent { .. } | How::Early { .. } | How::GivenBack => false,
    };
    let joining: Vec<_> = concluded.iter().filter(|one| stops(&one.how)).collect();
    with_lines.extend(joining.iter().map(|one| one.lane.number));
    if with_lines.is_empty() {
        return Ok((Vec::new(), with_lines));
    }
    line::join(conn, joining.iter().map(|one| one.position)).await?;
    let in_line = concluded.iter().filter(|one| with_lines.contains(&one.lane.number));
    let moved = line::leave(conn, in_line.map(|one| one.position)).await?;
    Ok((moved, with_lines))
}

async fn acquire(
    conn: &mut Conn<'_>,
    turn: &Turn,
    ground: &Ground<'_>,
) -> sqlx::Result<(Vec<Acquired>, Vec<(Lane, Reach)>)> {
    let Ground { sealer, now, lanes, wants, .. } = ground;
    let lost = match &turn.again {
        Some(in_hand) => acquired_before(conn, turn, wants, in_hand).await?,
        None => Vec::new(),
    };
    let looked = if lost.is_empty() { &wants[..] } else { &[] };
    let choice = choose(conn, turn, ground, looked).await?;
    line::write(conn, *now, &choice).await?;
    if lost.is_empty() {
        let reach = |reach: Reach| Reach { session: ground.session, ..reach };
        let more = choice.more.iter().filter_map(|(number, more)| Some((*lanes.get(number)?, reach(*more))));
        Ok((acquire::take(conn, sealer, *now, lanes, &choice.take).await?, more.collect()))
    } else {
        let more = wants.iter().map(|want| (want.lane, Reach::WHOLE)).collect();
        Ok((acquire::read(conn, sealer, lanes, lost).await?, more))
    }
}

/// What an application of the same turn, whose commit was unclear, took into hand.
async fn acquired_before(conn: &mut Conn<'_>, turn: &Turn, wants: &[Want], in_hand: &[i64]) -> sqlx::Result<Vec<i64>> {
    let known: HashSet<i64> = in_hand.iter().copied().collect();
    let lanes: Vec<_> = wants.iter().map(|want| want.lane).collect();
    let found = fetch::find_in_hand(conn, &turn.queue, &lanes).await?;
    Ok(found.into_iter().map(|(position, _)| position).filter(|position| !known.contains(position)).collect())
}

async fn choose(conn: &mut Conn<'_>, turn: &Turn, ground: &Ground<'_>, wants: &[Want]) -> sqlx::Result<Choice> {
    let mut chooser = Chooser::new(wants, turn.bytes, turn.suspects, turn.late);
    let lines = fetch::lines(conn, &turn.queue, &ground.moved, LINE_LOOK).await?;
    let found = fetch::find(conn, &turn.queue, ground.now, wants, &ground.with_lines).await?;
    chooser.retries(found.due);
    for (number, line) in &lines {
        if let Some(lane) = ground.lanes.get(number) {
            chooser.line(*lane, line);
        }
    }
    chooser.ready(found.ready, found.newest);
    Ok(chooser.done())
}
