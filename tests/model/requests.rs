//! What a schedule sends: few keys, so that everything meets at the same one.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{HeaderMap, Method, StatusCode};
use oncegate::engine::policy::{Found, KeyKind, Lookup, LookupPolicy, OnUnknown, Tombstones};
use oncegate::engine::{Arrival, Policy};
use oncegate::entry::fingerprint::{self, Fingerprint, Meaning, Rules, Secrets};
use oncegate::entry::source::Sent;
use oncegate::entry::{Answer, EntryId, Identity, Key, Namespace, Scope, StoredResponse};
use oncegate::outbox::data::Data;
use oncegate::outbox::key::EventKey;
use oncegate::outbox::lane::Lanes;
use oncegate::outbox::rule::{EventRule, EventRules};
use oncegate::outbox::seed::{Asked, Seed};

use crate::upstream::BEGINS_WITHIN;
use crate::world::Shared;

/// One of each rule, and one more that differs from the first in whose it is.
pub(crate) const KEYS: usize = 4;

/// Requests of one key that mean different things.
pub(crate) const VARIANTS: usize = 2;

/// Lanes of the queue.
pub(crate) const LANES: u32 = 2;

/// How long an execution waits for its answer.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(800);

/// What an unknown outcome of the key's route leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Hold,
    LookUp,
    Forward,
}

pub(crate) fn rule(key: usize) -> Rule {
    [Rule::Hold, Rule::Hold, Rule::LookUp, Rule::Forward][key]
}

/// What is the same in each schedule: digests take long in a build for tests.
struct Prepared {
    secrets: Secrets,
    events: EventRules,
    identities: Vec<Identity>,
    ids: Vec<EntryId>,
    requests: Vec<Vec<(Meaning, Fingerprint, Arc<Seed>)>>,
}

static PREPARED: LazyLock<Prepared> = LazyLock::new(|| {
    let secrets = Secrets::new(vec![b"the secret of all tests".to_vec()]).unwrap();
    let lanes = Lanes::from_iter([("default".into(), NonZeroU32::new(LANES).unwrap())]);
    let asked = EventRule {
        data: Data::Request,
        key: EventKey::Request(serde_json::from_str(r#""body:/no""#).unwrap()),
        ..EventRule::new("asked", "com.example.asked", "orders")
    };
    let rules = vec![asked, EventRule::new("answered", "com.example.answered", "payments")];
    let events = EventRules::new("pay", rules, &lanes).unwrap();
    let owner = |key: usize| match key {
        0 => Scope::tenant("a").unwrap(),
        1 => Scope::tenant("b").unwrap(),
        _ => Scope::Global,
    };
    let namespace = |key: usize| Namespace::new(["hold", "hold", "look-up", "forward"][key]).unwrap();
    let identities: Vec<_> = (0..KEYS)
        .map(|key| Identity { namespace: namespace(key), scope: owner(key), key: Key::from_business("1").unwrap() })
        .collect();
    let request = |key: usize, variant: usize| {
        let headers = HeaderMap::new();
        let body = Bytes::from(format!(r#"{{"no":"{key}","amount":{variant}}}"#));
        let parts = fingerprint::Parts {
            method: &Method::POST,
            path: "/pay",
            query: None,
            headers: &headers,
            body: body.clone(),
        };
        let meaning = Meaning::of(parts, &Rules::default());
        let sent = Sent { body: Some(&body), ..Sent::default() };
        let seed = events.seed(&Asked { sent, headers: &headers, body: &body }, [0; 24]);
        let fingerprint = secrets.fingerprint(&meaning);
        (meaning, fingerprint, Arc::new(seed))
    };
    let requests = (0..KEYS).map(|key| (0..VARIANTS).map(|variant| request(key, variant)).collect()).collect();
    let ids = identities.iter().map(Identity::id).collect();
    Prepared { secrets, events, identities, ids, requests }
});

pub(crate) fn secrets() -> Secrets {
    PREPARED.secrets.clone()
}

pub(crate) fn id(key: usize) -> EntryId {
    PREPARED.ids[key]
}

/// What the service answers with, as it is kept.
pub(crate) fn answer(body: &Bytes) -> Answer {
    let (status, headers) = (StatusCode::CREATED, HeaderMap::new());
    Answer::Response(Arc::new(StoredResponse { status, headers, body: body.clone() }))
}

/// The three routes of one process.
pub(crate) struct Routes {
    policies: [Arc<Policy>; 3],
}

impl Routes {
    pub(crate) fn new(world: &Shared, process: u32) -> Self {
        let lookup = LookupPolicy {
            lookup: Arc::new(Asks { world: world.clone(), process }),
            business_keys_only: false,
            absent_means_not_executed_after: Some(Duration::from_millis(BEGINS_WITHIN as u64)),
            first: Duration::from_millis(500),
            max: Duration::from_secs(1),
        };
        let rules =
            [("hold", OnUnknown::Hold), ("look-up", OnUnknown::Lookup(lookup)), ("forward", OnUnknown::Forward)];
        let hour = Duration::from_secs(3600);
        let policies = rules.map(|(route, on_unknown)| {
            Arc::new(Policy {
                route: route.into(),
                namespace: Namespace::new(route).unwrap(),
                retention: hour,
                tombstones: Tombstones { header: Some(hour), business: None },
                on_unknown,
                events: PREPARED.events.clone(),
                budget: Duration::from_millis(1200),
            })
        });
        Self { policies }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.iter()
    }

    pub(crate) fn arrival(&self, key: usize, variant: usize, wait: Duration) -> Arrival {
        let (meaning, fingerprint, seed) = &PREPARED.requests[key][variant];
        let policy = match rule(key) {
            Rule::Hold => &self.policies[0],
            Rule::LookUp => &self.policies[1],
            Rule::Forward => &self.policies[2],
        };
        Arrival {
            id: PREPARED.ids[key],
            identity: PREPARED.identities[key].clone(),
            meaning: meaning.clone(),
            fingerprint: *fingerprint,
            kind: KeyKind::Header,
            seed: seed.clone(),
            policy: policy.clone(),
            wait,
        }
    }
}

/// Asks the service what became of a request.
struct Asks {
    world: Shared,
    process: u32,
}

impl Lookup for Asks {
    fn lookup<'a>(&'a self, id: EntryId, _: &'a Identity) -> BoxFuture<'a, Found> {
        let key = PREPARED.ids.iter().position(|other| *other == id).unwrap();
        let asked = self.world.call(self.process, "look up", move |world| world.look_up(key));
        asked.map(|told| told.unwrap_or(Found::Undecided)).boxed()
    }
}
