//! `[server.cors]`: browsers of other origins.

use serde::Deserialize;

use super::value::{FieldName, Origin, Period};

/// `[server.cors]`. Without it, preflights and the upstreams' own fields pass through, and a script of another
/// origin can't read a replay: those fields are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cors {
    /// Whose scripts may call, as browsers send it: `https://shop.example`. No default, and no wildcard: answers
    /// about money are for pages that are known.
    pub origins: Vec<Origin>,
    /// Whether browsers may send cookies and TLS certificates along. Default false.
    #[serde(default)]
    pub credentials: bool,
    /// Fields that scripts may send, besides those that a payment page needs. Default none.
    #[serde(default)]
    pub headers: Vec<FieldName>,
    /// Fields of an answer that scripts may read, besides those of the gateway. Default none.
    #[serde(default)]
    pub expose_headers: Vec<FieldName>,
    /// How long a browser may remember what it was told. Default 10 min.
    #[serde(default = "max_age")]
    pub max_age: Period,
}

fn max_age() -> Period {
    Period::secs(600)
}
