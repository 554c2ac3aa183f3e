//! Where an OpenAPI document is.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::{HttpUrl, from_text};

/// Where an OpenAPI document is, in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiDocument {
    /// `file:/path`.
    File(PathBuf),
    /// `http://…` or `https://…`.
    Url(HttpUrl),
}

/// Why a text names no such place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write \"file:/path/openapi.json\", or a URL such as \"http://127.0.0.1:9090/openapi.json\"")]
pub struct ApiDocumentError;

impl FromStr for ApiDocument {
    type Err = ApiDocumentError;

    fn from_str(text: &str) -> Result<Self, ApiDocumentError> {
        match text.strip_prefix("file:") {
            Some("") => Err(ApiDocumentError),
            Some(path) => Ok(Self::File(path.into())),
            None => text.parse().map(Self::Url).map_err(|_| ApiDocumentError),
        }
    }
}

impl<'de> Deserialize<'de> for ApiDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "\"file:/path\" or a URL")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_in_a_file_or_behind_a_url() {
        assert_eq!("file:/a/b.json".parse(), Ok(ApiDocument::File("/a/b.json".into())));
        assert!(matches!("https://a:1/b.json".parse(), Ok(ApiDocument::Url(_))));
        for text in ["", "file:", "/a/b.json", "ftp://a/b", "http://user@a/b"] {
            assert_eq!(text.parse::<ApiDocument>(), Err(ApiDocumentError), "{text}");
        }
    }
}
