//! Addresses of other services.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;
use serde::{Deserialize, Deserializer};

/// The URL of a store: a scheme and whatever its driver takes, but no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceUrl(String);

/// Why a text is no such URL. The text is not repeated where it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServiceUrlError {
    /// Nothing before a colon.
    #[error("a URL begins with its scheme and a colon")]
    NoScheme,
    /// `user:password@`.
    #[error("a URL never holds a password: give it as the key `password`, \"env:NAME\" or \"file:/path\"")]
    Password,
}

impl ServiceUrl {
    /// `memory:`.
    pub(in crate::config) fn memory() -> Self {
        Self("memory:".to_owned())
    }

    /// The URL as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands before the first colon.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }
}

impl FromStr for ServiceUrl {
    type Err = ServiceUrlError;

    fn from_str(text: &str) -> Result<Self, ServiceUrlError> {
        let (scheme, rest) = text.split_once(':').ok_or(ServiceUrlError::NoScheme)?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.');
        if scheme.is_empty() || !scheme.bytes().all(plain) {
            return Err(ServiceUrlError::NoScheme);
        }
        let authority = rest.strip_prefix("//").and_then(|rest| rest.split(['/', '?', '#']).next());
        let userinfo = authority.and_then(|authority| authority.rsplit_once('@')).map(|(userinfo, _)| userinfo);
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        if userinfo.is_some_and(|userinfo| userinfo.contains(':'))
            || query.split('&').any(|pair| pair.starts_with("password="))
        {
            return Err(ServiceUrlError::Password);
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for ServiceUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `from_text`, which shows the value.
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Where an upstream or the gateway itself is reached: `http` or `https`, a host and a port, no path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(Uri);

/// Why a text is no origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write http:// or https://, a host and a port, and nothing after it, such as \"http://127.0.0.1:9090\"")]
pub struct OriginError;

impl Origin {
    /// The origin as a URI with the path `/`.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.0
    }

    /// Whether it is reached through TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }
}

/// Where something is posted to: `http` or `https`, a host and a port, a path and a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl(Uri);

/// Why a text is no such URL. The text is not repeated where it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write http:// or https://, a host and a path, without a user, such as \"http://127.0.0.1:9091/points\"")]
pub struct HttpUrlError;

impl HttpUrl {
    /// Scheme, host and port: what an upstream is reached by.
    #[must_use]
    pub fn origin(&self) -> String {
        let scheme = self.0.scheme_str().unwrap_or_default();
        format!("{scheme}://{}", self.0.authority().map_or("", |authority| authority.as_str()))
    }

    /// Whether it never leaves this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self.0.host().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// The path and query.
    #[must_use]
    pub fn target(&self) -> &str {
        self.0.path_and_query().map_or("/", |target| target.as_str())
    }

    /// Whether it is reached through TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }
}

impl FromStr for HttpUrl {
    type Err = HttpUrlError;

    fn from_str(text: &str) -> Result<Self, HttpUrlError> {
        let uri: Uri = text.parse().map_err(|_| HttpUrlError)?;
        let scheme = uri.scheme().is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let authority = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        if scheme && authority && !text.contains('#') { Ok(Self(uri)) } else { Err(HttpUrlError) }
    }
}

impl<'de> Deserialize<'de> for HttpUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `from_text`, which shows the value.
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let uri: Uri = text.parse().map_err(|_| OriginError)?;
        let scheme = uri.scheme().is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let authority = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        let bare = uri.path() == "/" && uri.query().is_none() && !text.contains('#');
        if scheme && authority && bare { Ok(Self(uri)) } else { Err(OriginError) }
    }
}

/// Without a trailing slash.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_string().trim_end_matches('/'))
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::from_text(deserializer, "a URL such as \"http://127.0.0.1:9090\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        for text in ["postgres://me:pw@db/x", "redis://:pw@host", "mysql://db/x?password=pw", "redis://a@b:pw@host/0"] {
            let error = text.parse::<ServiceUrl>().unwrap_err();
            assert_eq!(error, ServiceUrlError::Password, "{text}");
            assert!(!error.to_string().contains("pw"));
        }
        for text in
            ["sqlite://oncegate.db", "memory:", "postgres://me@db:5432/x?sslmode=require", "redis+sentinel://a:1,b:2/x"]
        {
            assert!(text.parse::<ServiceUrl>().is_ok(), "{text}");
        }
        assert_eq!("redis+cluster://a:1".parse::<ServiceUrl>().unwrap().scheme(), "redis+cluster");
        assert_eq!("oncegate.db".parse::<ServiceUrl>(), Err(ServiceUrlError::NoScheme));
    }

    #[test]
    fn an_origin_has_no_path_and_no_credentials() {
        for text in ["http://127.0.0.1:9090", "https://pay.example", "http://[::1]:80/"] {
            assert_eq!(text.parse::<Origin>().unwrap().to_string(), text.trim_end_matches('/'));
        }
        for text in
            ["127.0.0.1:9090", "ftp://a", "http://a/b", "http://a?b", "http://u:p@a", "http://", "/", "http://a#b"]
        {
            assert_eq!(text.parse::<Origin>(), Err(OriginError), "{text}");
        }
    }

    #[test]
    fn what_is_posted_to_has_an_origin_and_a_target() {
        let parts = |text: &str| text.parse().map(|url: HttpUrl| (url.origin(), url.target().to_owned(), url.is_tls()));
        let expected = |origin: &str, target: &str, tls| Ok((origin.to_owned(), target.to_owned(), tls));
        assert_eq!(parts("http://a:9091/points?x=1"), expected("http://a:9091", "/points?x=1", false));
        assert_eq!(parts("https://[::1]"), expected("https://[::1]", "/", true));
        for text in ["", "a", "/a", "ftp://a/b", "http://u:hunter2@a/b", "http:///a", "http://a/#b"] {
            assert_eq!(parts(text), Err(HttpUrlError), "{text}");
        }
    }
}
