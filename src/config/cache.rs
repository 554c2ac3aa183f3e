//! `[cache]`: completed responses in this process's memory.

use serde::Deserialize;

use super::value::ByteSize;

/// `[cache]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// The most memory for responses. Default 64 MiB: some 30,000 answers of 2 kB. `0B` turns it off.
    pub bytes: ByteSize,
}

impl Default for Cache {
    fn default() -> Self {
        Self { bytes: ByteSize::mib(64) }
    }
}
