//! `[auth]`: who the caller is.

use ipnet::IpNet;
use serde::Deserialize;

use super::value::FieldName;
use crate::auth::ScopeKind;

/// `[auth]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// Where a caller's identity comes from. Default "none".
    pub mode: AuthMode,
    /// Settings of the mode "header". Default none.
    pub header: Option<HeaderAuth>,
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

impl Auth {
    /// The scope of routes that name none: as narrow as the credentials tell, but a tenant's users share
    /// their orders.
    #[must_use]
    pub fn default_scope(&self) -> ScopeKind {
        match (self.mode, &self.header) {
            (AuthMode::None, _) => ScopeKind::Global,
            (AuthMode::Header, Some(header)) if header.tenant_header.is_some() => ScopeKind::Tenant,
            (AuthMode::Header, _) => ScopeKind::Subject,
        }
    }
}
