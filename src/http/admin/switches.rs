//! What people switch while gateways run.

use serde_json::{Value, json};

use super::access::Authority;
use super::given::{MAX_REASON_BYTES, actor, given_text};
use super::{Admin, store_problem};
use crate::engine::switches::{Kind, Order, Switch};
use crate::problem::{Problem, Situation};

impl Admin {
    pub(super) async fn read_switches(&self) -> Result<(), Problem> {
        self.0.switches.step().await.map_err(|error| store_problem(&error))
    }

    /// Turns a switch, and tells how it was set before.
    pub(super) async fn turn(
        &self,
        kind: Kind,
        name: &str,
        setting: Option<&str>,
        (reason, who): (&str, Option<&str>),
        authority: &Authority,
    ) -> Result<Option<Box<str>>, Problem> {
        let (by, reason) = (actor(who, authority)?, given_text("reason", reason, MAX_REASON_BYTES)?);
        let order = Order { kind, name: name.into(), setting: setting.map(Into::into), by, reason };
        self.0.switches.turn(&order).await.map(|turned| turned.was).map_err(|error| store_problem(&error))
    }
}

/// Who has turned a switch, and why.
pub(super) fn switched(switch: &Switch) -> Value {
    json!({
        "to": switch.setting,
        "actor": switch.by.name,
        "authority": switch.by.authority,
        "reason": switch.reason,
        "at_ms": switch.at.0,
    })
}

/// Of what is not configured.
pub(super) fn nothing() -> Problem {
    Problem::new(Situation::NotConfigured)
}
