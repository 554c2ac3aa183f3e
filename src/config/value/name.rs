//! Names of upstreams, routes, queues and events.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use crate::entry::{MAX_NAMESPACE_BYTES, Namespace};

/// A name: what other settings, overrides, logs and metrics call a part by. Fit to be a namespace, since a
/// route's name is its default one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

/// Why a text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to {MAX_NAMESPACE_BYTES} characters of a-z A-Z 0-9 . _ -")]
pub struct NameError;

impl Name {
    /// A name known when the program is built.
    pub(in crate::config) fn from_static(name: &'static str) -> Self {
        Self(name.into())
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace of this name.
    #[must_use]
    pub fn to_namespace(&self) -> Namespace {
        Namespace::from_stored(&self.0)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Namespace::new(text).map(|_| Self(text.into())).map_err(|_| NameError)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::from_text(deserializer, "a name")
    }
}
