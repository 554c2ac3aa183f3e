//! The values that settings are made of, parsed once at the edge.

mod address;
mod api_document;
mod byte_size;
mod header;
mod listen;
mod name;
mod period;
mod queue_url;
mod secret;
mod status;

pub use address::{HttpUrl, HttpUrlError, Origin, OriginError, ServiceUrl, ServiceUrlError};
pub use api_document::{ApiDocument, ApiDocumentError};
pub use byte_size::{ByteSize, ByteSizeError};
pub use header::{FieldName, FieldNameError, FieldValue};
pub use listen::{Listen, ListenError};
pub use name::{Name, NameError};
pub use period::{Period, PeriodError};
pub use queue_url::{QueueUrl, QueueUrlError};
pub use secret::Secret;
pub(super) use secret::resolve;
pub use status::{StatusMatch, Statuses};

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};

/// Deserializes what is written as a string; `expecting` is what an error says instead of "a string".
pub(super) fn from_text<'de, D: Deserializer<'de>, T>(deserializer: D, expecting: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
{
    struct Text<T>(&'static str, PhantomData<T>);
    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(|error| E::custom(format_args!("`{text}`: {error}")))
        }
    }
    deserializer.deserialize_str(Text(expecting, PhantomData))
}
