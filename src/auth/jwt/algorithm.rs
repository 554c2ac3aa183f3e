//! Signature algorithms.

use std::fmt;
use std::str::FromStr;

/// A signature algorithm (RFC 7518, RFC 8037). There is no `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

/// Why a text is no algorithm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is none of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, or with a secret HS256, HS384, HS512"
)]
pub struct UnknownAlgorithm;

impl Algorithm {
    const ALL: [Self; 12] = [
        Self::Hs256,
        Self::Hs384,
        Self::Hs512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// Whether who verifies could sign as well.
    #[must_use]
    pub fn is_symmetric(self) -> bool {
        self.digest_bytes().is_some()
    }

    /// The least secret of a symmetric one, as long as its digest (RFC 7518, section 3.2).
    #[must_use]
    pub fn digest_bytes(self) -> Option<usize> {
        match self {
            Self::Hs256 => Some(32),
            Self::Hs384 => Some(48),
            Self::Hs512 => Some(64),
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => None,
            Self::Es256 | Self::Es384 | Self::EdDsa => None,
        }
    }

    pub(super) fn is(self, told: jsonwebtoken::Algorithm) -> bool {
        self.library() == told
    }

    pub(super) fn library(self) -> jsonwebtoken::Algorithm {
        use jsonwebtoken::Algorithm as Library;
        match self {
            Self::Hs256 => Library::HS256,
            Self::Hs384 => Library::HS384,
            Self::Hs512 => Library::HS512,
            Self::Rs256 => Library::RS256,
            Self::Rs384 => Library::RS384,
            Self::Rs512 => Library::RS512,
            Self::Ps256 => Library::PS256,
            Self::Ps384 => Library::PS384,
            Self::Ps512 => Library::PS512,
            Self::Es256 => Library::ES256,
            Self::Es384 => Library::ES384,
            Self::EdDsa => Library::EdDSA,
        }
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL.into_iter().find(|algorithm| algorithm.to_string() == text).ok_or(UnknownAlgorithm)
    }
}

/// The standard's spelling.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.library())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_standards_and_none_is_no_algorithm() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        for other in ["none", "None", "", "rs256", "ES512", "HS1"] {
            assert_eq!(other.parse::<Algorithm>(), Err(UnknownAlgorithm), "{other}");
        }
    }
}
