//! The URLs of an upstream: whose turn it is, and which are left out for a while.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};

use super::options::InvalidUpstream;
use crate::clock::Instant;

/// Most URLs of one upstream; [`Tried`] is one machine word.
pub(super) const MAX_URLS: usize = 64;

/// First pause of a URL that could not be reached. Doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Longest pause: an upstream that comes back is found within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The URLs, taken in turns.
#[derive(Debug)]
pub(super) struct Targets {
    targets: Box<[Target]>,
    next: AtomicUsize,
    /// How long a single request may try a URL whose pause is over before another one tries it too.
    probe: Duration,
}

/// One URL, taken apart once so that no request parses it again.
#[derive(Debug)]
pub(super) struct Target {
    scheme: Scheme,
    authority: Authority,
    /// The `Host` field.
    pub(super) host: HeaderValue,
    /// Whether `failing` holds anything: keeps the lock off the path of a healthy upstream.
    out: AtomicBool,
    failing: Mutex<Option<Failing>>,
}

/// A URL that could not be reached lately.
#[derive(Debug, Clone, Copy)]
struct Failing {
    failures: u32,
    since: Instant,
    retry_at: Instant,
}

/// The URLs that one request has tried.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tried(u64);

impl Tried {
    pub(super) fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }
}

impl Targets {
    pub(super) fn new(urls: &[String], probe: Duration) -> Result<Self, InvalidUpstream> {
        if urls.is_empty() || urls.len() > MAX_URLS {
            return Err(InvalidUpstream::UrlCount(urls.len()));
        }
        let targets = urls.iter().map(|url| Target::parse(url)).collect::<Result<_, _>>()?;
        Ok(Self { targets, next: AtomicUsize::new(0), probe })
    }

    pub(super) fn len(&self) -> usize {
        self.targets.len()
    }

    pub(super) fn get(&self, index: usize) -> &Target {
        &self.targets[index]
    }

    /// The next URL to try: in turns among those that are not left out, else the one whose failure is
    /// longest ago. `None` when all have been tried.
    pub(super) fn pick(&self, now: Instant, tried: Tried) -> Option<usize> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..self.targets.len()).map(|step| start.wrapping_add(step) % self.targets.len());
        let untried = in_turn.filter(|&index| !tried.contains(index));
        if let Some(index) = untried.clone().find(|&index| self.targets[index].may_try(now, self.probe)) {
            return Some(index);
        }
        untried.min_by_key(|&index| self.targets[index].failing().map(|failing| failing.since))
    }

    /// Leaves the URL out for a while. `jitter`, 0 to 1, spreads the pauses of several gateways.
    pub(super) fn failed(&self, index: usize, now: Instant, jitter: f64) {
        let target = &self.targets[index];
        let mut failing = lock(&target.failing);
        let failures = failing.map_or(1, |before| before.failures.saturating_add(1));
        *failing = Some(Failing { failures, since: now, retry_at: now + pause(failures, jitter) });
        target.out.store(true, Ordering::Release);
    }

    /// Takes the URL in again.
    pub(super) fn reached(&self, index: usize) {
        let target = &self.targets[index];
        if target.out.swap(false, Ordering::AcqRel) {
            *lock(&target.failing) = None;
        }
    }
}

impl Target {
    fn parse(url: &str) -> Result<Self, InvalidUpstream> {
        let invalid = || InvalidUpstream::Url(url.to_owned());
        let parts = url.parse::<Uri>().map_err(|_| invalid())?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else { return Err(invalid()) };
        let bare = parts.path_and_query.is_none_or(|path| path == "/");
        let known = scheme == Scheme::HTTP || scheme == Scheme::HTTPS;
        if !bare || !known || authority.as_str().contains('@') {
            return Err(invalid());
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| invalid())?;
        Ok(Self { scheme, authority, host, out: AtomicBool::new(false), failing: Mutex::new(None) })
    }

    /// The address of `path` on this URL. Copies references only.
    pub(super) fn uri(&self, path: Option<PathAndQuery>) -> Uri {
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// Whether a request may go here. When the pause is over, one request does, and the others wait for
    /// what becomes of it.
    fn may_try(&self, now: Instant, probe: Duration) -> bool {
        if !self.out.load(Ordering::Acquire) {
            return true;
        }
        let mut failing = lock(&self.failing);
        match failing.as_mut() {
            None => true,
            Some(failing) if failing.retry_at <= now => {
                failing.retry_at = now + probe;
                true
            }
            Some(_) => false,
        }
    }

    fn failing(&self) -> Option<Failing> {
        *lock(&self.failing)
    }
}

/// A panic elsewhere leaves the value usable: it is written whole.
fn lock(failing: &Mutex<Option<Failing>>) -> std::sync::MutexGuard<'_, Option<Failing>> {
    failing.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn pause(failures: u32, jitter: f64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(LONGEST_PAUSE).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn targets(count: usize) -> Targets {
        let urls: Vec<_> = (0..count).map(|index| format!("http://127.0.0.1:{}", 9000 + index)).collect();
        Targets::new(&urls, Duration::from_secs(1)).unwrap()
    }

    fn picks(targets: &Targets, now: Instant, count: usize) -> Vec<usize> {
        (0..count).map(|_| targets.pick(now, Tried::default()).unwrap()).collect()
    }

    #[test]
    fn urls_take_turns() {
        assert_eq!(picks(&targets(3), clock::now(), 5), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_failing_url_is_left_out_until_its_pause_is_over_and_then_tried_by_one_request() {
        let (targets, now) = (targets(2), clock::now());
        targets.failed(0, now, 1.0);
        assert_eq!(picks(&targets, now, 4), [1, 1, 1, 1]);
        let later = now + FIRST_PAUSE;
        let tried = picks(&targets, later, 4);
        assert_eq!(tried.iter().filter(|&&index| index == 0).count(), 1, "{tried:?}");
        targets.reached(0);
        let tried = picks(&targets, later, 4);
        assert_eq!(tried.iter().filter(|&&index| index == 0).count(), 2, "{tried:?}");
    }

    #[test]
    fn when_all_are_out_the_one_that_failed_longest_ago_is_tried() {
        let (targets, now) = (targets(3), clock::now());
        for (index, age) in [(0, 20), (1, 30), (2, 10)] {
            targets.failed(index, now - Duration::from_millis(age), 1.0);
        }
        assert_eq!(targets.pick(now, Tried::default()), Some(1));
        let mut tried = Tried::default();
        tried.add(1);
        assert_eq!(targets.pick(now, tried), Some(0));
    }

    #[test]
    fn no_url_is_tried_twice_for_one_request() {
        let (targets, now) = (targets(2), clock::now());
        let mut tried = Tried::default();
        for _ in 0..2 {
            tried.add(targets.pick(now, tried).unwrap());
        }
        assert_eq!(targets.pick(now, tried), None);
    }

    #[test]
    fn pauses_double_to_a_bound() {
        let pauses = [1, 2, 3, 30].map(|failures| pause(failures, 1.0));
        assert_eq!(pauses, [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4, LONGEST_PAUSE]);
        assert_eq!(pause(1, 0.0), FIRST_PAUSE / 2);
    }

    #[test]
    fn only_plain_http_urls_are_upstreams() {
        assert!(Target::parse("https://example.test").is_ok());
        for url in ["", "example.test", "ftp://a", "http://a/b", "http://u:p@a", "http://a?x=1", "/a"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn the_uri_keeps_path_and_query_as_they_came() {
        let target = Target::parse("http://a:81").unwrap();
        let path = PathAndQuery::from_static("/p%2Fq?x=%20&x");
        assert_eq!(target.uri(Some(path)).to_string(), "http://a:81/p%2Fq?x=%20&x");
        assert_eq!(target.uri(None).to_string(), "http://a:81/");
    }
}
