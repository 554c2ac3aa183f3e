//! Looks at a lane: what is taken up, in order.

use std::collections::HashMap;

use oncegate::outbox::event::OnFailure;
use oncegate::outbox::store::{Reach, Retries, Suspects, Want};

use super::{BYTES, State, Table};

impl Table {
    /// Where there may be more.
    pub(super) fn look(&mut self, want: Want, look: &mut Looking) -> Option<Reach> {
        let mut stopped: HashMap<u8, bool> = HashMap::new();
        let (mut met, mut taken, mut early) = (0, 0, Vec::new());
        let whole = if want.reach.session == self.session { want.reach } else { Reach::WHOLE };
        let mut reach = whole;
        reach.to = reach.to.min(self.rows.last_key_value().map_or(0, |(newest, _)| *newest));
        let now = self.now;
        let is_due = |due: i64| want.retries == Retries::Due && due <= now;
        let of_lane = self.rows.iter().filter(|(_, row)| row.lane == want.lane.number);
        for position in of_lane.map(|(position, _)| *position).collect::<Vec<_>>() {
            let row = self.rows.get_mut(&position).unwrap();
            let stop = stopped.entry(row.key).or_default();
            let is_in_hand = row.epoch == Some(want.lane.epoch);
            let may_come = match row.state {
                State::Sent | State::Discarded => continue,
                State::Ready if is_in_hand => continue,
                State::Parked => {
                    *stop |= row.holds == OnFailure::Hold;
                    continue;
                }
                State::Retrying { due } => is_due(due),
                State::Early { due } => {
                    early.extend(is_due(due).then_some(position));
                    continue;
                }
                State::Waiting => !*stop,
                // Not seen, though it is there.
                State::Ready if !(whole.from..=whole.to).contains(&position) => {
                    *stop |= row.in_line;
                    continue;
                }
                State::Ready => {
                    met += 1;
                    if met > want.limit {
                        return Some(reach);
                    }
                    if row.came_early {
                        early.push(position);
                        reach.from = position + 1;
                        continue;
                    }
                    if *stop {
                        row.stand_in_line();
                        reach.from = position + 1;
                        continue;
                    }
                    true
                }
            };
            if !may_come {
                *stop = true;
                continue;
            }
            let is_ready = row.state == State::Ready;
            let is_taken = self.take(position, want, look, &mut taken);
            if is_ready && look.taken.last() == Some(&position) {
                reach.from = position + 1;
            }
            if !is_taken {
                return Some(reach);
            }
        }
        let has_more = self.look_at_early(&early, want, look, &mut taken);
        (has_more || whole.to != Reach::WHOLE.to).then_some(Reach::WHOLE)
    }

    /// Those that came early, after all others. They stay so while their key has a line.
    fn look_at_early(&mut self, early: &[i64], want: Want, look: &mut Looking, taken: &mut u32) -> bool {
        for position in early {
            let key = self.rows[position].key;
            let now = self.now;
            if self.rows.values().any(|row| row.key == key && row.in_line) {
                self.rows.get_mut(position).unwrap().put_off(now);
            } else if !self.take(*position, want, look, taken) {
                return true;
            }
        }
        false
    }

    /// Takes it up, and says whether the look goes on: where one finds no room, nothing after it is taken up.
    fn take(&mut self, position: i64, want: Want, look: &mut Looking, taken: &mut u32) -> bool {
        let row = self.rows.get_mut(&position).unwrap();
        let died = u32::from(row.epoch.is_some());
        let deaths = row.deaths + died;
        let fits = look.taken.is_empty() || look.bytes >= BYTES;
        let is_safe = match deaths {
            0 => true,
            1 => *taken == 0,
            _ => *taken == 0 && look.suspects == Suspects::Take,
        };
        if *taken == want.limit || !fits || !is_safe {
            return false;
        }
        row.state = State::Ready;
        row.attempts += 1;
        row.deaths = deaths;
        row.epoch = Some(want.lane.epoch);
        row.counted += died;
        *taken += 1;
        if deaths > 1 {
            look.suspects = Suspects::Leave;
        }
        look.bytes = look.bytes.saturating_sub(BYTES);
        look.taken.push(position);
        deaths == 0
    }
}

/// What a turn has taken so far.
pub(super) struct Looking {
    pub(super) bytes: u64,
    pub(super) suspects: Suspects,
    pub(super) taken: Vec<i64>,
}
