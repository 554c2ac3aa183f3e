//! Whose key it is.

use std::fmt;

/// Longest tenant or subject in bytes. Issuers' subjects are at most 255 ASCII characters (OpenID Connect
/// Core 1.0, section 2).
pub const MAX_OWNER_BYTES: usize = 255;

/// Whose key it is. Nobody can see, replay or block an entry of another scope, since the scope is part of
/// the entry's identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One scope for all callers.
    Global,
    /// All subjects of one tenant share it.
    Tenant(Box<str>),
    /// One authenticated subject, where subjects belong to no tenant.
    Subject(Box<str>),
    /// One authenticated subject of one tenant: two tenants may each have an `ann`.
    Member {
        /// Whose subject it is.
        tenant: Box<str>,
        /// The subject.
        subject: Box<str>,
    },
}

/// Why a tenant or subject can't be a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// An empty owner would be one scope shared by all who lack one.
    #[error("the tenant or subject is empty")]
    Empty,
    /// Never truncated: two long owners could meet.
    #[error("the tenant or subject is longer than {MAX_OWNER_BYTES} bytes")]
    TooLong,
}

impl Scope {
    /// The scope of one tenant.
    ///
    /// # Errors
    /// If the tenant is empty or longer than [`MAX_OWNER_BYTES`].
    pub fn tenant(tenant: &str) -> Result<Self, ScopeError> {
        owner(tenant).map(Self::Tenant)
    }

    /// The scope of one subject.
    ///
    /// # Errors
    /// If the subject is empty or longer than [`MAX_OWNER_BYTES`].
    pub fn subject(subject: &str) -> Result<Self, ScopeError> {
        owner(subject).map(Self::Subject)
    }

    /// The scope of one subject of one tenant.
    ///
    /// # Errors
    /// If either is empty or longer than [`MAX_OWNER_BYTES`].
    pub fn member(tenant: &str, subject: &str) -> Result<Self, ScopeError> {
        Ok(Self::Member { tenant: owner(tenant)?, subject: owner(subject)? })
    }

    /// The tenant, where it has one.
    #[must_use]
    pub fn tenant_name(&self) -> Option<&str> {
        match self {
            Self::Tenant(tenant) | Self::Member { tenant, .. } => Some(tenant),
            Self::Global | Self::Subject(_) => None,
        }
    }

    /// The subject, where it has one.
    #[must_use]
    pub fn subject_name(&self) -> Option<&str> {
        match self {
            Self::Subject(subject) | Self::Member { subject, .. } => Some(subject),
            Self::Global | Self::Tenant(_) => None,
        }
    }

    /// A scope as the store has it; `None` if no version of this crate has spelled it so.
    #[must_use]
    pub fn from_stored(spelling: &str) -> Option<Self> {
        match spelling.split_once(':') {
            None => (spelling == "global").then_some(Self::Global),
            Some(("tenant", tenant)) => Self::tenant(tenant).ok(),
            Some(("subject", subject)) => Self::subject(subject).ok(),
            Some(("member", member)) => {
                let (length, both) = member.split_once(':')?;
                let (tenant, subject) = both.split_at_checked(length.parse().ok()?)?;
                Self::member(tenant, subject.strip_prefix(':')?).ok()
            }
            Some(_) => None,
        }
    }
}

fn owner(name: &str) -> Result<Box<str>, ScopeError> {
    if name.is_empty() {
        return Err(ScopeError::Empty);
    }
    if name.len() > MAX_OWNER_BYTES {
        return Err(ScopeError::TooLong);
    }
    Ok(name.into())
}

/// The stored spelling; part of the entry's digest, so it never changes.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            Self::Tenant(tenant) => write!(f, "tenant:{tenant}"),
            Self::Subject(subject) => write!(f, "subject:{subject}"),
            // With its length, so that no `:` of a name can move the border between the two.
            Self::Member { tenant, subject } => write!(f, "member:{}:{tenant}:{subject}", tenant.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_and_a_subject_of_one_name_are_different_scopes() {
        let tenant = Scope::tenant("acme").unwrap();
        let subject = Scope::subject("acme").unwrap();
        assert_ne!(tenant.to_string(), subject.to_string());
        assert_ne!(Scope::subject("global").unwrap().to_string(), Scope::Global.to_string());
    }

    #[test]
    fn a_colon_in_a_name_moves_no_border_between_tenant_and_subject() {
        let (one, other) = (Scope::member("a:b", "c").unwrap(), Scope::member("a", "b:c").unwrap());
        assert_ne!(one.to_string(), other.to_string());
    }

    #[test]
    fn the_stored_spelling_is_read_back() {
        for scope in [
            Scope::Global,
            Scope::tenant("a:b").unwrap(),
            Scope::subject("global").unwrap(),
            Scope::member("a:b", "c").unwrap(),
        ] {
            assert_eq!(Scope::from_stored(&scope.to_string()), Some(scope));
        }
        assert_eq!(Scope::from_stored("team:acme"), None);
    }

    #[test]
    fn an_empty_or_overlong_owner_is_refused_never_truncated() {
        assert_eq!(Scope::tenant(""), Err(ScopeError::Empty));
        assert!(Scope::subject(&"x".repeat(MAX_OWNER_BYTES)).is_ok());
        assert_eq!(Scope::subject(&"x".repeat(MAX_OWNER_BYTES + 1)), Err(ScopeError::TooLong));
    }
}
