//! What the events of a request need of it, rendered when it is claimed and stored with the claim: whoever
//! completes the entry later, even after a crash, has it all.
//!
//! Encoded, all integers big-endian: format `1` (u8); the trace (text); the number of keys (u16), per key the
//! event's name (text) and the key (text); the number of parts (u16), per part its pointer (text), whether it was
//! there (u8) and its JSON (bytes); the body's kind (u8) and, where it is whole, content type (text) and bytes. A
//! text is preceded by its length as u16, bytes as u32.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, header};

use super::key::EventKey;
use super::rule::EventRule;
use super::trace::traceparent;
use super::unmet::Unmet;
use crate::entry::json;
use crate::entry::source::Sent;
use crate::entry::{Pointer, StoredResponse};

const FORMAT: u8 = 1;

/// Most bytes of a request that are stored with its claim for its events. Larger than any event that a broker
/// takes by default, and small enough for one statement on each database.
pub const LARGEST_SEED: usize = 4 << 20;

/// A request, as far as events may speak of it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What keys may be taken from.
    pub sent: Sent<'a>,
    /// Its header fields, as received.
    pub headers: &'a HeaderMap,
    /// Its whole body.
    pub body: &'a Bytes,
}

/// What the events of a request need of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seed {
    traceparent: Option<Box<str>>,
    /// By the event's name.
    keys: Vec<(Box<str>, Box<str>)>,
    /// JSON values by their pointers; `None` for one that leads to nothing.
    parts: Vec<(Box<str>, Option<Bytes>)>,
    body: Body,
}

/// What is kept of a request's body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Body {
    /// Nothing: no event speaks of it.
    #[default]
    NotKept,
    /// Nothing: it is encoded.
    Encoded,
    /// Nothing: it is more than [`LARGEST_SEED`].
    TooLarge,
    /// All of it.
    Whole { content_type: Box<str>, bytes: Bytes },
}

/// What an event says of a request or response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) content_type: Box<str>,
    pub(super) bytes: Bytes,
}

impl Seed {
    /// What the events of `rules` need of a request. `fresh` makes a trace for one that has none.
    #[must_use]
    pub(super) fn of<'r>(
        rules: impl Iterator<Item = &'r EventRule> + Clone,
        asked: &Asked<'_>,
        fresh: [u8; 24],
    ) -> Self {
        let mut seed = Self { traceparent: Some(traceparent(asked.headers, fresh)), ..Self::default() };
        for rule in rules.clone() {
            if let EventKey::Request(sources) = &rule.key
                && let Ok(Some(found)) = sources.resolve(&asked.sent)
            {
                seed.keys.push((rule.name.clone(), found.key.as_str().into()));
            }
        }
        let is_needed = rules.clone().any(|rule| rule.data.needs_request());
        if is_needed && is_encoded(asked.headers) {
            seed.body = Body::Encoded;
        } else if is_needed {
            seed.keep(rules, asked);
        }
        seed
    }

    fn keep<'r>(&mut self, rules: impl Iterator<Item = &'r EventRule> + Clone, asked: &Asked<'_>) {
        for pointer in rules.clone().flat_map(|rule| rule.data.request_pointers()) {
            let text: Box<str> = pointer.to_string().into();
            if self.parts.iter().all(|(known, _)| *known != text) {
                let found = json::excerpt(asked.body, pointer).ok().flatten();
                self.parts.push((text, found.map(|found| asked.body.slice_ref(found.as_bytes()))));
            }
        }
        if rules.clone().any(|rule| rule.data.needs_whole_request()) {
            self.body =
                Body::Whole { content_type: content_type(asked.headers, asked.body), bytes: asked.body.clone() };
        }
        if self.kept() > LARGEST_SEED {
            self.parts.clear();
            self.body = Body::TooLarge;
        }
    }

    /// The bytes kept of the request.
    fn kept(&self) -> usize {
        let parts: usize = self.parts.iter().filter_map(|(_, part)| part.as_ref()).map(Bytes::len).sum();
        match &self.body {
            Body::Whole { bytes, .. } => parts + bytes.len(),
            Body::NotKept | Body::Encoded | Body::TooLarge => parts,
        }
    }

    /// The request's trace.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// The key of the event called `event`, where it comes from the request.
    pub(super) fn key_of(&self, event: &str) -> Option<&str> {
        self.keys.iter().find(|(name, _)| **name == *event).map(|(_, key)| &**key)
    }

    /// The request's JSON value at `pointer`; `None` if there was none.
    pub(super) fn part(&self, pointer: &Pointer) -> Result<Option<&Bytes>, Unmet> {
        let text = pointer.to_string();
        match self.parts.iter().find(|(known, _)| **known == *text) {
            Some((_, part)) => Ok(part.as_ref()),
            None => Err(self.why_not()),
        }
    }

    /// The whole request.
    pub(super) fn request(&self) -> Result<Content, Unmet> {
        match &self.body {
            Body::Whole { content_type, bytes } => {
                Ok(Content { content_type: content_type.clone(), bytes: bytes.clone() })
            }
            Body::NotKept | Body::Encoded | Body::TooLarge => Err(self.why_not()),
        }
    }

    fn why_not(&self) -> Unmet {
        match self.body {
            Body::Encoded => Unmet::RequestEncoded,
            Body::TooLarge => Unmet::TooLarge,
            Body::NotKept | Body::Whole { .. } => Unmet::RequestNotKept,
        }
    }

    /// Appends the encoded form.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(FORMAT);
        put_text(out, self.traceparent.as_deref().unwrap_or_default());
        out.put_u16(count(self.keys.len()));
        for (event, key) in &self.keys {
            put_text(out, event);
            put_text(out, key);
        }
        out.put_u16(count(self.parts.len()));
        for (pointer, part) in &self.parts {
            put_text(out, pointer);
            out.put_u8(u8::from(part.is_some()));
            put_bytes(out, part.as_deref().unwrap_or_default());
        }
        match &self.body {
            Body::NotKept => out.put_u8(0),
            Body::Encoded => out.put_u8(1),
            Body::TooLarge => out.put_u8(2),
            Body::Whole { content_type, bytes } => {
                out.put_u8(3);
                put_text(out, content_type);
                put_bytes(out, bytes);
            }
        }
    }

    /// Reads the encoded form; `None` if it is of another version, or damaged. Never panics.
    #[must_use]
    pub fn decode(mut encoded: Bytes) -> Option<Self> {
        let from = &mut encoded;
        if from.try_get_u8().ok()? != FORMAT {
            return None;
        }
        let traceparent = Some(take_text(from)?).filter(|trace| !trace.is_empty());
        let mut seed = Self { traceparent, ..Self::default() };
        for _ in 0..from.try_get_u16().ok()? {
            seed.keys.push((take_text(from)?, take_text(from)?));
        }
        for _ in 0..from.try_get_u16().ok()? {
            let (pointer, is_there) = (take_text(from)?, from.try_get_u8().ok()? == 1);
            let part = take_bytes(from)?;
            seed.parts.push((pointer, is_there.then_some(part)));
        }
        seed.body = match from.try_get_u8().ok()? {
            0 => Body::NotKept,
            1 => Body::Encoded,
            2 => Body::TooLarge,
            3 => Body::Whole { content_type: take_text(from)?, bytes: take_bytes(from)? },
            _ => return None,
        };
        from.is_empty().then_some(seed)
    }
}

fn count(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// Texts are names, keys, pointers and media types: all far shorter than 64 KiB.
fn put_text(out: &mut BytesMut, text: &str) {
    let text = if text.len() > usize::from(u16::MAX) { "" } else { text };
    out.put_u16(count(text.len()));
    out.put_slice(text.as_bytes());
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}

fn take_text(from: &mut Bytes) -> Option<Box<str>> {
    let len = usize::from(from.try_get_u16().ok()?);
    let bytes = (len <= from.len()).then(|| from.split_to(len))?;
    str::from_utf8(&bytes).ok().map(Into::into)
}

fn take_bytes(from: &mut Bytes) -> Option<Bytes> {
    let len = usize::try_from(from.try_get_u32().ok()?).ok()?;
    (len <= from.len()).then(|| from.split_to(len))
}

/// The response, as an event passes it on.
pub(super) fn content_of(response: &StoredResponse) -> Content {
    Content { content_type: content_type(&response.headers, &response.body), bytes: response.body.clone() }
}

/// Whether a body is not what its content type says before it is decoded.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// The declared content type, or, where there is none that can be passed on, what the body is.
fn content_type(headers: &HeaderMap, body: &[u8]) -> Box<str> {
    /// The column's bound.
    const LONGEST: usize = 255;
    let declared = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    match declared.filter(|declared| (1..=LONGEST).contains(&declared.len())) {
        Some(declared) => declared.into(),
        None if json::is_json(body) => "application/json".into(),
        None => "application/octet-stream".into(),
    }
}

#[cfg(test)]
mod tests;
