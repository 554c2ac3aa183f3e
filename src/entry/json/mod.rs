//! JSON as Oncegate needs it: one value found by its pointer, and a whole document spelled by its meaning.
//! Both are exact, and both tell where two readers could take a document for different things.

mod reader;
mod spell;

use super::number::plain_integer;
use super::pointer::{Pointer, Token};
use reader::{Container, Event, NotJson, Reader};

pub(super) use spell::{MAX_DEPTH, spell};

/// A value found in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A string, unescaped.
    String(String),
    /// A number written as a plain integer, optionally negative, of any length: its canonical text.
    /// `42.0` and `4.2e1` are [`Found::Other`].
    Integer(String),
    /// Anything else, `null` included.
    Other,
}

/// Two readers of the document could take different values from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value can be read in more than one way")]
pub struct Ambiguous;

/// The value that `pointer` points to; `None` if there is none, or if `body` is not JSON.
///
/// The document may be nested to any depth. A member name that comes twice matters on the way of the
/// pointer only.
///
/// # Errors
/// If a member's name on the way comes twice in its object (compared unescaped), since the upstream could
/// read the other one; or if the value is a string with half a surrogate pair.
pub fn find(body: &[u8], pointer: &Pointer) -> Result<Option<Found>, Ambiguous> {
    match find_strictly(body, pointer.steps(), take) {
        Ok(found) => Ok(found),
        Err(Stop::NotJson) => Ok(None),
        Err(Stop::Ambiguous) => Err(Ambiguous),
    }
}

/// Why a value can't be taken from a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// The document is not JSON.
    NotJson,
    /// Two readers of it could take different values.
    Ambiguous,
}

/// The text of the value that `pointer` points to, exactly as it is written in `body`; `None` if there is none.
///
/// # Errors
/// As [`find`], and if `body` is not JSON.
pub fn excerpt<'a>(body: &'a [u8], pointer: &Pointer) -> Result<Option<&'a str>, Unreadable> {
    find_strictly(body, pointer.steps(), take_text).map_err(|stop| match stop {
        Stop::NotJson => Unreadable::NotJson,
        Stop::Ambiguous => Unreadable::Ambiguous,
    })
}

/// Whether `body` is one JSON document.
#[must_use]
pub fn is_json(body: &[u8]) -> bool {
    matches!(find_strictly(body, &[], pass), Ok(Some(())))
}

/// What stands for the meaning of `document`: equal for two of them exactly if they mean the same, whatever the
/// order of their members and however their numbers are written. `None` where nobody can say what it means.
#[must_use]
pub fn meaning(document: &[u8]) -> Option<Vec<u8>> {
    let mut meaning = Vec::new();
    spell(document, &[], &mut meaning).is_ok().then_some(meaning)
}

/// Why the search ended early.
enum Stop {
    NotJson,
    Ambiguous,
}

impl From<NotJson> for Stop {
    fn from(_: NotJson) -> Self {
        Self::NotJson
    }
}

/// How the value that begins with an event is read to its end, and what is taken of it.
type Take<'a, T> = fn(&mut Reader<'a>, Event<'a>) -> Result<T, Stop>;

fn find_strictly<'a, T>(body: &'a [u8], steps: &[Token], take: Take<'a, T>) -> Result<Option<T>, Stop> {
    let mut reader = Reader::new(body)?;
    let first = reader.next()?;
    let found = seek(&mut reader, first, steps, take)?;
    reader.finish()?;
    Ok(found)
}

/// Reads the value that began with `first` to its end and finds what `steps` lead to inside it.
fn seek<'a, T>(
    reader: &mut Reader<'a>,
    first: Event<'a>,
    steps: &[Token],
    take: Take<'a, T>,
) -> Result<Option<T>, Stop> {
    let Some((step, rest)) = steps.split_first() else {
        return take(reader, first).map(Some);
    };
    match first {
        Event::Begin(Container::Object) => seek_member(reader, step, rest, take),
        Event::Begin(Container::Array) => seek_element(reader, step, rest, take),
        Event::String(_) | Event::Number(_) | Event::Bool(_) | Event::Null | Event::Name(_) | Event::End => Ok(None),
    }
}

fn seek_member<'a, T>(
    reader: &mut Reader<'a>,
    step: &Token,
    rest: &[Token],
    take: Take<'a, T>,
) -> Result<Option<T>, Stop> {
    let mut seen = false;
    let mut found = None;
    while let Event::Name(name) = reader.next()? {
        let first = reader.next()?;
        if name.decode().as_deref() != Some(&*step.name) {
            reader.skip(first)?;
            continue;
        }
        if std::mem::replace(&mut seen, true) {
            return Err(Stop::Ambiguous);
        }
        found = seek(reader, first, rest, take)?;
    }
    Ok(found)
}

fn seek_element<'a, T>(
    reader: &mut Reader<'a>,
    step: &Token,
    rest: &[Token],
    take: Take<'a, T>,
) -> Result<Option<T>, Stop> {
    let mut found = None;
    for index in 0.. {
        match reader.next()? {
            Event::End => break,
            first if step.index == Some(index) => found = seek(reader, first, rest, take)?,
            first => reader.skip(first)?,
        }
    }
    Ok(found)
}

fn take<'a>(reader: &mut Reader<'a>, first: Event<'a>) -> Result<Found, Stop> {
    Ok(match first {
        Event::String(text) => Found::String(text.decode().ok_or(Stop::Ambiguous)?.into_owned()),
        Event::Number(text) => plain_integer(text).map_or(Found::Other, |integer| Found::Integer(integer.into_owned())),
        Event::Begin(_) | Event::End | Event::Name(_) | Event::Bool(_) | Event::Null => {
            reader.skip(first)?;
            Found::Other
        }
    })
}

fn pass<'a>(reader: &mut Reader<'a>, first: Event<'a>) -> Result<(), Stop> {
    Ok(reader.skip(first)?)
}

/// The text of a value, unchanged. A string is read all the same, since readers differ in half a surrogate pair.
fn take_text<'a>(reader: &mut Reader<'a>, first: Event<'a>) -> Result<&'a str, Stop> {
    Ok(match first {
        Event::String(text) => text.decode().map(|_| text.as_written()).ok_or(Stop::Ambiguous)?,
        Event::Number(text) => text,
        Event::Bool(true) => "true",
        Event::Bool(false) => "false",
        Event::Null => "null",
        Event::Begin(_) => {
            let start = reader.offset() - 1;
            reader.skip(first)?;
            reader.written_since(start)
        }
        Event::End | Event::Name(_) => return Err(Stop::NotJson),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_the_values_own_text() {
        let body =
            r#"{ "a": {"n": 1.00e+2, "s":"\u0041"} , "b" : [ 1 , {"x":1,"x":2} ], "t":true, "f":false, "z":null }"#;
        let at = |pointer: &str| excerpt(body.as_bytes(), &Pointer::parse(pointer).unwrap());
        let table = [
            ("/a", r#"{"n": 1.00e+2, "s":"\u0041"}"#),
            ("/a/n", "1.00e+2"),
            ("/a/s", r#""\u0041""#),
            ("/b", r#"[ 1 , {"x":1,"x":2} ]"#),
            ("/t", "true"),
            ("/f", "false"),
            ("/z", "null"),
            ("", body),
        ];
        for (pointer, text) in table {
            assert_eq!(at(pointer), Ok(Some(text)), "{pointer}");
        }
        assert_eq!(at("/c"), Ok(None));
        assert_eq!(at("/b/1/x"), Err(Unreadable::Ambiguous));
        assert_eq!(excerpt(b"a=1", &Pointer::parse("/a").unwrap()), Err(Unreadable::NotJson));
        assert_eq!(excerpt(br#"{"a":"\ud800"}"#, &Pointer::parse("/a").unwrap()), Err(Unreadable::Ambiguous));
    }

    #[test]
    fn equal_meanings_are_equal_whatever_the_spelling() {
        assert_eq!(meaning(br#"{"a":1e2,"b":[]}"#), meaning(br#" {"b":[], "a":100.0} "#));
        assert_ne!(meaning(b"100"), meaning(b"100.0000000000000001"));
        assert_eq!(meaning(br#"{"a":1,"a":1}"#), None);
        assert!(is_json(b" [1] ") && !is_json(b"[1") && !is_json(b"") && !is_json(b"1 2"));
    }

    fn at(body: &str, pointer: &str) -> Result<Option<Found>, Ambiguous> {
        find(body.as_bytes(), &Pointer::parse(pointer).unwrap())
    }

    fn string(text: &str) -> Result<Option<Found>, Ambiguous> {
        Ok(Some(Found::String(text.to_owned())))
    }

    fn integer(text: &str) -> Result<Option<Found>, Ambiguous> {
        Ok(Some(Found::Integer(text.to_owned())))
    }

    #[test]
    fn a_value_is_found_by_names_and_indices_with_nothing_lost() {
        let body = r#"{"order":{"no":"A\u002d1","lines":[{"id":9007199254740993},[-0]]},"a/b":{"m~n":" "},"0":true}"#;
        assert_eq!(at(body, "/order/no"), string("A-1"));
        assert_eq!(at(body, "/order/lines/0/id"), integer("9007199254740993"));
        assert_eq!(at(body, "/order/lines/1/0"), integer("0"));
        assert_eq!(at(body, "/a~1b/m~0n"), string(" "));
        assert_eq!(at(body, "/0"), Ok(Some(Found::Other)));
        assert_eq!(at(body, "/order"), Ok(Some(Found::Other)));
        assert_eq!(at(body, ""), Ok(Some(Found::Other)));
        let long = "9".repeat(1000);
        assert_eq!(at(&long, ""), integer(&long));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let body = r#"{"a":[1],"b":"text"}"#;
        for pointer in ["/c", "/a/1", "/a/-", "/a/00", "/a/b", "/b/0", "/A", "/a/0/0"] {
            assert_eq!(at(body, pointer), Ok(None), "{pointer}");
        }
    }

    #[test]
    fn numbers_not_written_as_integers_are_of_another_type() {
        for number in ["42.0", "4.2e1", "1E2", "0.5"] {
            assert_eq!(at(&format!("[{number}]"), "/0"), Ok(Some(Found::Other)), "{number}");
        }
        assert_eq!(at("[null]", "/0"), Ok(Some(Found::Other)));
    }

    #[test]
    fn a_duplicate_on_the_way_is_ambiguous_and_elsewhere_it_is_not() {
        let ambiguous = [
            r#"{"no":"1","no":"2"}"#,
            r#"{"no":"1","no":"1"}"#,
            r#"{"no":"1","n\u006f":"2"}"#,
            r#"{"no":null,"x":[],"no":{}}"#,
        ];
        for body in ambiguous {
            assert_eq!(at(body, "/no"), Err(Ambiguous), "{body}");
            assert_eq!(at(&format!(r#"{{"x":[{body}]}}"#), "/x/0/no"), Err(Ambiguous), "{body}");
            assert_eq!(at(&format!(r#"{{"x":{body},"no":"3"}}"#), "/no"), string("3"), "{body}");
        }
        assert_eq!(at(r#"{"x":{"no":1},"x":{}}"#, "/x/no"), Err(Ambiguous));
        assert_eq!(at(r#"[{"no":1},{"no":2}]"#, "/1/no"), integer("2"));
    }

    #[test]
    fn half_a_surrogate_pair_matters_in_the_value_only() {
        assert_eq!(at(r#"{"no":"\ud800"}"#, "/no"), Err(Ambiguous));
        assert_eq!(at(r#"{"\ud800":"\ud800","no":"1"}"#, "/no"), string("1"));
    }

    #[test]
    fn nothing_is_found_in_what_is_not_json_to_its_end() {
        for body in ["", "no=1", r#"{"no":"1""#, r#"{"no":"1"}}"#, r#"{"no":"1",}"#, "{\"no\":\"1\"}\0"] {
            assert_eq!(at(body, "/no"), Ok(None), "{body}");
        }
        assert_eq!(find(b"{\"no\":\"\xff\"}", &Pointer::parse("/no").unwrap()), Ok(None));
    }

    #[test]
    fn depth_beside_the_way_does_not_matter() {
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        assert_eq!(at(&format!(r#"{{"x":{deep},"no":"1"}}"#), "/no"), string("1"));
        assert_eq!(at(&deep, "/0/0"), Ok(Some(Found::Other)));
    }
}
