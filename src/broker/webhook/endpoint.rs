//! Where an event is posted to: the queue's URL and the event's topic.

use http::uri::PathAndQuery;
use http::{Uri, uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::InvalidWebhook;

/// All but RFC 3986's unreserved characters.
const IN_SEGMENTS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A queue's URL, taken apart.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// `https://host[:port]`.
    pub(super) origin: String,
    /// Without a slash at its end.
    path: String,
    /// With its question mark, or empty.
    query: String,
}

impl Endpoint {
    /// Takes `url` apart. It is not shown if it is wrong: a query may hold a secret.
    pub(super) fn parse(url: &str) -> Result<Self, InvalidWebhook> {
        let uri: Uri = url.parse().map_err(|_| InvalidWebhook::Url)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(InvalidWebhook::Url);
        };
        if !matches!(scheme, "http" | "https") || authority.as_str().contains('@') || url.contains('#') {
            return Err(InvalidWebhook::Url);
        }
        Ok(Self {
            origin: format!("{scheme}://{authority}"),
            path: uri.path().trim_end_matches('/').to_owned(),
            query: uri.query().map_or(String::new(), |query| format!("?{query}")),
        })
    }

    /// Where events of `topic` go: each part of it is a segment of the path.
    pub(super) fn target(&self, topic: &str) -> Result<Uri, String> {
        let mut path = self.path.clone();
        for segment in topic.split('/').filter(|_| !topic.is_empty()) {
            if matches!(segment, "" | "." | "..") {
                return Err(format!("{topic:?} is no path below the queue's URL"));
            }
            path.push('/');
            path.extend(utf8_percent_encode(segment, IN_SEGMENTS));
        }
        if path.is_empty() {
            path.push('/');
        }
        let target = PathAndQuery::try_from(path + &self.query).map_err(|error| error.to_string())?;
        let mut parts = uri::Parts::default();
        parts.path_and_query = Some(target);
        Uri::from_parts(parts).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str, topic: &str) -> Result<String, String> {
        Endpoint::parse(url).unwrap().target(topic).map(|uri| uri.to_string())
    }

    #[test]
    fn a_topic_is_a_path_below_the_url() {
        for (url, topic, expected) in [
            ("https://a", "", "/"),
            ("https://a/hooks", "", "/hooks"),
            ("https://a/hooks/", "payments", "/hooks/payments"),
            ("https://a", "payments/created", "/payments/created"),
            ("https://a/hooks?key=1", "payments", "/hooks/payments?key=1"),
            ("https://a/%C3%A4", "50 % ?#\u{e4}", "/%C3%A4/50%20%25%20%3F%23%C3%A4"),
        ] {
            assert_eq!(target(url, topic).as_deref(), Ok(expected), "{url} {topic}");
        }
    }

    #[test]
    fn no_topic_leaves_the_url() {
        for topic in ["/", "..", "a/../b", "a//b", "./a", "/a", "a/"] {
            assert!(target("https://a/hooks", topic).is_err(), "{topic}");
        }
    }

    #[test]
    fn urls_are_http_without_secrets() {
        assert_eq!(Endpoint::parse("http://a.example:8080/x").unwrap().origin, "http://a.example:8080");
        for url in ["", "a", "/a", "ftp://a", "https://user:hunter2@a/", "https://a/#x", "https://"] {
            let error = Endpoint::parse(url).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
