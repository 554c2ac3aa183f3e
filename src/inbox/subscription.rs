//! A subscription at run time.

use std::sync::Arc;

use http::{HeaderMap, Uri};

use super::order::Gap;
use super::rules::Rules;
use crate::engine::Policy;
use crate::http::route::{Forwarding, IdentityCheck};
use crate::outbox::event::OnFailure;

/// A subscription at run time.
#[derive(Debug)]
pub struct Subscription {
    /// What logs, metrics and records call it.
    pub name: Box<str>,
    /// Which messages of its queue are meant.
    pub topic: Box<str>,
    /// What makes two messages one, and which comes first.
    pub rules: Rules,
    /// What a version means that is not the next one; `None`: nothing.
    pub gap: Option<Gap>,
    /// How often a message is delivered that the handler refuses.
    pub attempts: u32,
    /// What becomes of later messages of a key when one of it can't be handled.
    pub on_failure: OnFailure,
    /// What it wants of the engine.
    pub policy: Arc<Policy>,
    /// How its messages go out.
    pub forwarding: Arc<Forwarding>,
    /// Where they are posted to: a path and a query.
    pub target: Uri,
    /// Fields that are sent along.
    pub headers: HeaderMap,
    /// Whether what gives its messages their identity is what the store has on record.
    pub identity: IdentityCheck,
}

#[cfg(test)]
pub(super) mod fixture {
    use std::time::Duration;

    use super::*;
    use crate::engine::policy::{OnUnknown, Tombstones};
    use crate::entry::{Namespace, fingerprint};
    use crate::http::route::{ForwardFormat, ForwardKey};
    use crate::inbox::heard;
    use crate::outbox::rule::EventRules;
    use crate::upstream::{Upstream, UpstreamOptions};

    /// A subscription whose key is `key`, and that delivers to nobody.
    pub(in crate::inbox) fn subscription(key: &str) -> Subscription {
        let upstream = Upstream::new(&UpstreamOptions::new("points", vec!["http://127.0.0.1:1".to_owned()]));
        let (rules, timeout) = (fingerprint::Rules::default(), Duration::from_secs(1));
        Subscription {
            name: "points".into(),
            topic: "payments".into(),
            rules: Rules { key: serde_json::from_str(key).unwrap(), entity: None, version: None, fingerprint: rules },
            gap: None,
            attempts: 3,
            on_failure: OnFailure::Skip,
            policy: Arc::new(Policy {
                route: "sub:points".into(),
                namespace: Namespace::from_stored("sub:points"),
                retention: timeout,
                tombstones: Tombstones { header: None, business: None },
                on_unknown: OnUnknown::Hold,
                events: EventRules::default(),
                budget: timeout,
            }),
            forwarding: Arc::new(Forwarding {
                upstream: upstream.unwrap(),
                timeout,
                late_window: timeout,
                key: ForwardKey::Derived,
                key_format: ForwardFormat::Bare,
                outcomes: heard::outcomes(),
                response_limit: 0,
                excluded: Vec::new(),
            }),
            target: Uri::from_static("/points"),
            headers: HeaderMap::new(),
            identity: IdentityCheck::default(),
        }
    }
}
