//! A document's spelling by meaning.

use std::borrow::Cow;
use std::ops::Range;

use super::reader::{Container, Event, NotJson, Reader, Text};
use crate::entry::number::{self, ExponentTooLarge};
use crate::entry::pointer::{Pointer, Token};
use crate::entry::spelling::put;

/// Deepest nesting that counts by meaning. Requests nest a few levels; 64 bounds the recursion here, and the
/// copying, since a level whose members have to be sorted copies what is inside it once more.
pub(in crate::entry) const MAX_DEPTH: usize = 64;

/// The document has no spelling by meaning: it counts by bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::entry) struct CountsByBytes;

impl From<NotJson> for CountsByBytes {
    fn from(_: NotJson) -> Self {
        Self
    }
}

impl From<ExponentTooLarge> for CountsByBytes {
    fn from(_: ExponentTooLarge) -> Self {
        Self
    }
}

/// Appends the spelling of `body`: two documents have one spelling exactly if they mean the same, which is
/// if their values are equal up to the order of members, white space, escapes, and the writing of numbers.
///
/// Where a pointer of `ignore` leads to a member, the member is absent from the spelling. Where it leads to
/// an element of an array, the element's value does not count but its place does, since the elements after
/// it would mean something else in another place.
///
/// Spelled are: `N`, `T`, `F`; a number's own spelling; `"` and a text; `[` values `]`; `{` (text, value)
/// sorted by text `}`; `_` for an ignored value. Texts are preceded by their length.
///
/// # Errors
/// If `body` counts by bytes: it is not JSON in UTF-8, has a member name twice in one object, half a
/// surrogate pair, an exponent beyond 64 bits, or more than [`MAX_DEPTH`] levels. Readers differ in what
/// they make of those, so nobody can say that two of them mean the same. Nothing is appended then.
pub(in crate::entry) fn spell(body: &[u8], ignore: &[Pointer], out: &mut Vec<u8>) -> Result<(), CountsByBytes> {
    let start = out.len();
    let result = Reader::new(body).map_err(CountsByBytes::from).and_then(|reader| {
        let mut speller = Speller { reader, out, scratch: Vec::new() };
        speller.document(ignore)?;
        speller.reader.finish().map_err(CountsByBytes::from)
    });
    if result.is_err() {
        out.truncate(start);
    }
    result
}

struct Speller<'a, 'o> {
    reader: Reader<'a>,
    out: &'o mut Vec<u8>,
    /// Where members wait while they are put in order; kept to be used again.
    scratch: Vec<u8>,
}

/// A member already in the spelling.
struct Member<'a> {
    name: Cow<'a, str>,
    /// Where its name and value are; empty if it is ignored.
    spelled: Range<usize>,
}

/// What of the ignored pointers concerns one member or element.
#[derive(Default)]
struct Ignored<'p> {
    /// A pointer leads to this very value.
    whole: bool,
    /// What remains of those that lead further inside.
    inside: Vec<&'p [Token]>,
}

impl<'p> Ignored<'p> {
    fn step(&self, leads_here: impl Fn(&Token) -> bool) -> Self {
        let mut below = Self::default();
        for (token, rest) in self.inside.iter().filter_map(|steps| steps.split_first()) {
            if leads_here(token) {
                below.add(rest);
            }
        }
        below
    }

    fn add(&mut self, steps: &'p [Token]) {
        if steps.is_empty() {
            self.whole = true;
        } else {
            self.inside.push(steps);
        }
    }
}

impl<'a> Speller<'a, '_> {
    fn document(&mut self, ignore: &[Pointer]) -> Result<(), CountsByBytes> {
        let mut ignored = Ignored::default();
        for pointer in ignore {
            ignored.add(pointer.steps());
        }
        let first = self.reader.next()?;
        self.in_place(first, &ignored)
    }

    /// A value that keeps its place where it is ignored.
    fn in_place(&mut self, first: Event<'a>, ignored: &Ignored<'_>) -> Result<(), CountsByBytes> {
        let start = self.out.len();
        self.value(first, ignored)?;
        if ignored.whole {
            self.out.truncate(start);
            self.out.push(b'_');
        }
        Ok(())
    }

    fn value(&mut self, first: Event<'a>, ignored: &Ignored<'_>) -> Result<(), CountsByBytes> {
        match first {
            Event::Null => self.out.push(b'N'),
            Event::Bool(true) => self.out.push(b'T'),
            Event::Bool(false) => self.out.push(b'F'),
            Event::Number(text) => number::spell(text, self.out)?,
            Event::String(text) => {
                self.out.push(b'"');
                put(self.out, decode(text)?.as_bytes());
            }
            Event::Begin(_) if self.reader.depth() > MAX_DEPTH => return Err(CountsByBytes),
            Event::Begin(Container::Array) => self.array(ignored)?,
            Event::Begin(Container::Object) => self.object(ignored)?,
            // The reader gives neither where a value must come.
            Event::Name(_) | Event::End => return Err(CountsByBytes),
        }
        Ok(())
    }

    fn array(&mut self, ignored: &Ignored<'_>) -> Result<(), CountsByBytes> {
        self.out.push(b'[');
        for index in 0.. {
            match self.reader.next()? {
                Event::End => break,
                first => self.in_place(first, &ignored.step(|token| token.index == Some(index)))?,
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, ignored: &Ignored<'_>) -> Result<(), CountsByBytes> {
        self.out.push(b'{');
        let start = self.out.len();
        let mut members = Vec::new();
        while let Event::Name(name) = self.reader.next()? {
            members.push(self.member(decode(name)?, ignored)?);
        }
        self.sort(start, members)?;
        self.out.push(b'}');
        Ok(())
    }

    fn member(&mut self, name: Cow<'a, str>, ignored: &Ignored<'_>) -> Result<Member<'a>, CountsByBytes> {
        let ignored = ignored.step(|token| *token.name == name);
        let start = self.out.len();
        put(self.out, name.as_bytes());
        let first = self.reader.next()?;
        self.value(first, &ignored)?;
        if ignored.whole {
            self.out.truncate(start);
        }
        Ok(Member { name, spelled: start..self.out.len() })
    }

    /// Puts the members spelled from `start` on in the order of their names.
    fn sort(&mut self, start: usize, mut members: Vec<Member<'a>>) -> Result<(), CountsByBytes> {
        if members.is_sorted_by(|one, next| one.name < next.name) {
            return Ok(());
        }
        members.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        if members.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(CountsByBytes);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.out[start..]);
        self.out.truncate(start);
        for Member { spelled, .. } in members {
            self.out.extend_from_slice(&self.scratch[spelled.start - start..spelled.end - start]);
        }
        Ok(())
    }
}

fn decode(text: Text<'_>) -> Result<Cow<'_, str>, CountsByBytes> {
    text.decode().ok_or(CountsByBytes)
}

#[cfg(test)]
mod tests;
