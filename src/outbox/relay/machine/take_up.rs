//! What a turn took up comes into the relay's hands, or leaves them at once.

use std::sync::Arc;

use super::turns::Stopped;
use super::{Machine, Quarantine, Ticket};
use crate::clock::Instant;
use crate::outbox::relay::lane::Stage;
use crate::outbox::relay::line::{InHand, InHandState, Left, kept_back};
use crate::outbox::store::{Acquired, How, Late};

/// What a row costs in memory beside its data.
const ROW_BYTES: usize = 512;

impl Machine {
    /// `is_alone`: nothing else is in hand, and nothing else came.
    pub(super) fn take_up(&mut self, acquired: Acquired, is_alone: bool, now: Instant) {
        let Acquired { lane, position, id, key, attempts, deferrals, came_early, deaths, redrives, on_failure, event } =
            acquired;
        let rules = self.rules(0.0);
        let has_killed = deaths >= self.options.crash_attempts;
        let key: Arc<str> = key.into();
        let stopped = self.turns.stopped(lane, &key);
        let (is_recalled, late) = (self.stopping || self.health.is_away(), self.options.late);
        let Some(held) = self.lanes.get_mut(&lane.number).filter(|held| held.epoch == lane.epoch) else { return };
        let in_hand = held.line(&key).and_then(|line| line.get(position).map(|event| event.id));
        if in_hand == Some(id) {
            // The database had forgotten that it is in hand.
            return;
        }
        if let Some(how) = held.line(&key).and_then(|line| line.became(position, id, redrives)) {
            // It had forgotten what became of it. Published again now, it would come behind those of its key that are
            // in hand.
            return self.turns.repeat(lane, &key, Left { position, id, bytes: 0, deaths, how, stops: false }, now);
        }
        let is_late = late == Late::Waits && stopped.as_ref().is_some_and(|stopped| stopped.last > position);
        let is_early = came_early || is_late;
        let is_behind = is_early && (stopped.is_some() || held.line(&key).is_some());
        let how = match stopped {
            // One that the database has lost was at its place, and still is in hand.
            _ if in_hand.is_some() => Some(How::GivenBack),
            // Who came early stands behind nobody, since it may stand before whom it waits for.
            _ if is_behind => Some(kept_back()),
            Some(Stopped { how, .. }) => Some(how),
            None if is_recalled || held.stage == Stage::Leaving => Some(How::GivenBack),
            None if deaths > 1 && !has_killed && !is_alone => {
                self.quarantine = Some(Quarantine { lane, recorded: false });
                Some(How::GivenBack)
            }
            None => None,
        };
        if let Some(how) = how {
            // Those of its key that are under way, if any, come before it and say nothing else about it.
            let left = [Left { position, id, bytes: 0, deaths, how, stops: false }];
            if left[0].how == How::GivenBack {
                held.given_back();
            }
            self.turns.conclude(lane, &key, &left, now);
            return;
        }
        let bytes = ROW_BYTES + event.as_ref().map_or(0, |outgoing| outgoing.event.data.len());
        let topic = event.as_ref().map_or_else(|_| Box::default(), |outgoing| outgoing.event.topic.clone());
        let state = match event {
            Ok(_) if has_killed => {
                InHandState::Unpublishable(format!("the relay died {deaths} times while publishing it").into())
            }
            Ok(outgoing) => InHandState::Unpublished(Box::new(outgoing)),
            Err(reason) => InHandState::Unpublishable(reason),
        };
        self.serial += 1;
        let serial = self.serial;
        let event =
            InHand { position, id, serial, attempts, deferrals, deaths, redrives, topic, on_failure, bytes, state };
        held.push(&key, event, &rules);
        self.in_hand += 1;
        self.in_hand_bytes += bytes;
        self.killers += usize::from(deaths > 1);
        self.calls.push_back(Ticket { lane, position, key: Arc::clone(&key), serial });
        self.settle(lane, &key, &rules, now);
    }
}
