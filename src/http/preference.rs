//! `Prefer: wait=N` (RFC 7240, section 4.3): how long a client is willing to wait for another request's
//! answer.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// How long the client prefers to wait, at most `cap`; `None` if it does not say. Of several the first counts
/// (section 2).
#[must_use]
pub fn wait(headers: &HeaderMap, cap: Duration) -> Option<Duration> {
    let lines = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = lines.flat_map(|line| line.split(','));
    preferences.find_map(seconds).map(|seconds| Duration::from_secs(seconds).min(cap))
}

fn seconds(preference: &str) -> Option<u64> {
    let (name, value) = preference.split(';').next()?.split_once('=')?;
    let value = value.trim().trim_matches('"');
    name.trim().eq_ignore_ascii_case("wait").then(|| value.parse().ok())?
}

/// Tells the client which preference was honoured.
pub fn applied(headers: &mut HeaderMap, wait: Duration) {
    if let Ok(value) = HeaderValue::try_from(format!("wait={}", wait.as_secs())) {
        headers.insert(PREFERENCE_APPLIED, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_readable_wait_counts_and_is_capped() {
        let table = [
            ("wait=5", Some(5)),
            ("respond-async, wait=5", Some(5)),
            ("WAIT=\"5\"; x=1", Some(5)),
            ("wait = 5", Some(5)),
            ("wait=0", Some(0)),
            ("wait=3, wait=5", Some(3)),
            ("wait=99999", Some(10)),
            ("wait=-1", None),
            ("wait", None),
            ("waiting=5", None),
        ];
        for (value, seconds) in table {
            let mut headers = HeaderMap::new();
            headers.insert(PREFER, HeaderValue::from_static(value));
            assert_eq!(wait(&headers, Duration::from_secs(10)), seconds.map(Duration::from_secs), "{value}");
        }
    }
}
