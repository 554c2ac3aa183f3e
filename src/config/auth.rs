//! `[auth]`: who the caller is.

use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};

use super::value::{FieldName, HttpUrl, Period, Secret, from_text};
use crate::auth::ScopeKind;
use crate::auth::jwt::Algorithm;

/// `[auth]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// Where a caller's identity comes from. Default "none".
    pub mode: AuthMode,
    /// Settings of the mode "header". Default none.
    pub header: Option<HeaderAuth>,
    /// Settings of the mode "jwt". Default none.
    pub jwt: Option<JwtAuth>,
}

/// Where a caller's identity comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMode {
    /// Nowhere: all callers are one, and every scope is global.
    #[default]
    None,
    /// A trusted proxy in front has authenticated the caller and says so in a header.
    Header,
    /// An issuer has signed a token that says who the caller is.
    Jwt,
}

/// `[auth.header]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderAuth {
    /// Networks of the proxies that are believed. From anywhere else the headers count as forged. No
    /// default: this list is the authentication.
    pub trusted: Vec<IpNet>,
    /// The field with the subject. Default `x-subject`.
    #[serde(default = "subject_header")]
    pub subject_header: FieldName,
    /// The field with the tenant. Default none: the scope of a route is the subject.
    #[serde(default)]
    pub tenant_header: Option<FieldName>,
}

fn subject_header() -> FieldName {
    FieldName::from_static("x-subject")
}

/// `[auth.jwt]`. Keys come from just one of `secret`, `public_key` and `jwks`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtAuth {
    /// The `iss` of tokens. One only: another issuer's subject of the same name is somebody else. No default.
    pub issuer: String,
    /// The `aud` of tokens, one of these. No default: a token for another service must not pay here.
    pub audience: Audience,
    /// The algorithms that count, whatever a token says. No default: they follow from the issuer's keys.
    pub algorithms: Vec<JwtAlgorithm>,
    /// Secrets that the issuer signs with, for HS256 and its like. While one changes there are two. Default none.
    #[serde(default)]
    pub secret: Vec<Secret>,
    /// Public keys of the issuer in PEM. While one changes there are two. Default none.
    #[serde(default)]
    pub public_key: Vec<Secret>,
    /// The issuer's JSON Web Key Set. Default none.
    #[serde(default)]
    pub jwks: Option<JwksLocation>,
    /// PEM file of authorities that the key set's URL is trusted by, besides the public ones. Default none.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// How old the key set gets. Default 10 min: how long a withdrawn key still counts.
    #[serde(default = "refresh")]
    pub refresh: Period,
    /// The least time between two fetches: after a failure, and for tokens that name an unknown key. Default 10 s:
    /// strangers can't make the gateway flood the issuer.
    #[serde(default = "cooldown")]
    pub cooldown: Period,
    /// How long a fetch may take; a token that names a new key waits for it. Default 5 s.
    #[serde(default = "fetch_timeout")]
    pub timeout: Period,
    /// How far the issuer's clock may differ from ours. Default 30 s.
    #[serde(default = "leeway")]
    pub leeway: Period,
    /// The claim with the subject. Default `sub`.
    #[serde(default = "subject_claim")]
    pub subject_claim: String,
    /// The claim with the tenant. Default none: the scope of a route is the subject.
    #[serde(default)]
    pub tenant_claim: Option<String>,
    /// The claim with what the token grants, for `required_scopes`. Default `scope` (RFC 8693).
    #[serde(default = "scope_claim")]
    pub scope_claim: String,
    /// The field in which upstreams are told the subject. Default none.
    #[serde(default)]
    pub subject_header: Option<FieldName>,
    /// The field in which upstreams are told the tenant. Default none.
    #[serde(default)]
    pub tenant_header: Option<FieldName>,
    /// The field in which upstreams are told what the token grants. Default none.
    #[serde(default)]
    pub scope_header: Option<FieldName>,
}

fn refresh() -> Period {
    Period::secs(600)
}

fn cooldown() -> Period {
    Period::secs(10)
}

fn fetch_timeout() -> Period {
    Period::secs(5)
}

fn leeway() -> Period {
    Period::secs(30)
}

fn subject_claim() -> String {
    "sub".to_owned()
}

fn scope_claim() -> String {
    "scope".to_owned()
}

/// Whom tokens are meant for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected an audience, or a list of audiences")]
pub enum Audience {
    /// One.
    One(String),
    /// One of these.
    OneOf(Vec<String>),
}

impl Audience {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(audience) => std::slice::from_ref(audience),
            Self::OneOf(audiences) => audiences,
        }
    }
}

/// An algorithm, by the standard's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JwtAlgorithm(Algorithm);

impl JwtAlgorithm {
    /// The algorithm.
    #[must_use]
    pub fn get(self) -> Algorithm {
        self.0
    }
}

impl<'de> Deserialize<'de> for JwtAlgorithm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "an algorithm such as \"RS256\"").map(Self)
    }
}

/// Where a key set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksLocation {
    /// At its issuer.
    Url(HttpUrl),
    /// In a file, which may be replaced while the gateway runs.
    File(PathBuf),
}

/// Why a text is no place of a key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write \"https://issuer/path\" or \"file:/path\"")]
pub struct JwksLocationError;

impl FromStr for JwksLocation {
    type Err = JwksLocationError;

    fn from_str(text: &str) -> Result<Self, JwksLocationError> {
        match text.strip_prefix("file:") {
            Some("") => Err(JwksLocationError),
            Some(path) => Ok(Self::File(path.into())),
            None => text.parse().map(Self::Url).map_err(|_| JwksLocationError),
        }
    }
}

impl<'de> Deserialize<'de> for JwksLocation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `from_text`, which shows the value: a URL may hold a key of an API.
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Auth {
    /// The scope of routes that name none: as narrow as the credentials tell, but a tenant's users share
    /// their orders.
    #[must_use]
    pub fn default_scope(&self) -> ScopeKind {
        match (self.mode, self.names_tenants()) {
            (AuthMode::None, _) => ScopeKind::Global,
            (AuthMode::Header | AuthMode::Jwt, true) => ScopeKind::Tenant,
            (AuthMode::Header | AuthMode::Jwt, false) => ScopeKind::Subject,
        }
    }

    /// Whether credentials name a tenant.
    #[must_use]
    pub fn names_tenants(&self) -> bool {
        match self.mode {
            AuthMode::None => false,
            AuthMode::Header => self.header.as_ref().is_some_and(|header| header.tenant_header.is_some()),
            AuthMode::Jwt => self.jwt.as_ref().is_some_and(|jwt| jwt.tenant_claim.is_some()),
        }
    }
}
