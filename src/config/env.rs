//! The environment: the only part of the crate that reads it.

use std::collections::BTreeMap;

/// Variables with this prefix override keys; `__` separates the path's parts.
const PREFIX: &str = "ONCEGATE__";

/// A snapshot of environment variables.
pub(super) struct Env(BTreeMap<String, String>);

impl Env {
    pub(super) fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(variables.into_iter().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Name, path and value of each variable that overrides a key, in the order of their names, so that a
    /// table comes before what is set inside it.
    pub(super) fn overrides(&self) -> impl Iterator<Item = (&str, Vec<&str>, &str)> {
        self.0.iter().filter_map(|(name, value)| {
            let path = name.strip_prefix(PREFIX)?;
            Some((name.as_str(), path.split("__").collect(), value.as_str()))
        })
    }
}

/// The process's environment. A variable that is not UTF-8 counts as not set.
pub fn process_env() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
