//! A strict reader of JSON (RFC 8259): one event after the other, numbers as written, nothing converted.
//!
//! Written here since serde_json gives numbers away as `f64` (or, raw, makes every level scan what is below
//! it again) and refuses deep documents; this reader uses no stack of the thread however deep they are.

use std::borrow::Cow;

/// The bytes are not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotJson;

/// What comes next in the document.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event<'a> {
    /// An array or object begins.
    Begin(Container),
    /// The innermost one ends.
    End,
    /// A member's name; its value follows.
    Name(Text<'a>),
    /// A string.
    String(Text<'a>),
    /// A number, as written.
    Number(&'a str),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
}

/// What has elements or members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    /// `[…]`
    Array,
    /// `{…}`
    Object,
}

impl Container {
    fn close(self) -> u8 {
        match self {
            Self::Array => b']',
            Self::Object => b'}',
        }
    }
}

/// A string as written, its escapes checked but not decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    /// With its quotes.
    quoted: &'a str,
    escaped: bool,
}

impl<'a> Text<'a> {
    /// The string as it is written, with its quotes.
    pub(super) fn as_written(self) -> &'a str {
        self.quoted
    }

    /// The text; `None` if it holds half a surrogate pair, which readers take for different things.
    pub(super) fn decode(self) -> Option<Cow<'a, str>> {
        if self.escaped {
            return serde_json::from_str(self.quoted).ok().map(Cow::Owned);
        }
        self.quoted.get(1..self.quoted.len() - 1).map(Cow::Borrowed)
    }
}

/// What may come, beside white space.
#[derive(Debug, Clone, Copy)]
enum Expect {
    Value,
    FirstOrEnd,
    CommaOrEnd,
}

/// Reads one document.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The arrays and objects that have begun, outermost first.
    open: Vec<Container>,
    expect: Expect,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `body`.
    pub(super) fn new(body: &'a [u8]) -> Result<Self, NotJson> {
        let text = str::from_utf8(body).map_err(|_| NotJson)?;
        Ok(Self { text, at: 0, open: Vec::new(), expect: Expect::Value })
    }

    /// The next event.
    pub(super) fn next(&mut self) -> Result<Event<'a>, NotJson> {
        self.skip_space();
        match (self.expect, self.open.last().copied()) {
            (Expect::Value, _) => self.value(),
            (Expect::FirstOrEnd | Expect::CommaOrEnd, None) => Err(NotJson),
            (Expect::FirstOrEnd | Expect::CommaOrEnd, Some(open)) if self.eat(open.close()) => Ok(self.end()),
            (Expect::FirstOrEnd, Some(open)) => self.item(open),
            (Expect::CommaOrEnd, Some(open)) => {
                self.require(b',')?;
                self.skip_space();
                self.item(open)
            }
        }
    }

    /// Reads on to the end of the value that began with `first`.
    pub(super) fn skip(&mut self, first: Event<'a>) -> Result<(), NotJson> {
        if let Event::Begin(_) = first {
            let inside = self.depth();
            while self.depth() >= inside {
                self.next()?;
            }
        }
        Ok(())
    }

    /// Where the last event ended, in bytes.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// What is written from `start` to the end of the last event.
    pub(super) fn written_since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    /// How many arrays and objects are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Checks that nothing but white space follows the document.
    pub(super) fn finish(mut self) -> Result<(), NotJson> {
        self.skip_space();
        let complete = self.open.is_empty() && matches!(self.expect, Expect::CommaOrEnd);
        if complete && self.at == self.text.len() { Ok(()) } else { Err(NotJson) }
    }

    fn item(&mut self, open: Container) -> Result<Event<'a>, NotJson> {
        match open {
            Container::Array => self.value(),
            Container::Object => self.name(),
        }
    }

    fn value(&mut self) -> Result<Event<'a>, NotJson> {
        self.expect = Expect::CommaOrEnd;
        match self.peek() {
            Some(b'{') => Ok(self.begin(Container::Object)),
            Some(b'[') => Ok(self.begin(Container::Array)),
            Some(b'"') => self.string().map(Event::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Event::Number),
            Some(b't') => self.word("true").map(|()| Event::Bool(true)),
            Some(b'f') => self.word("false").map(|()| Event::Bool(false)),
            Some(b'n') => self.word("null").map(|()| Event::Null),
            Some(_) | None => Err(NotJson),
        }
    }

    fn begin(&mut self, container: Container) -> Event<'a> {
        self.at += 1;
        self.open.push(container);
        self.expect = Expect::FirstOrEnd;
        Event::Begin(container)
    }

    fn end(&mut self) -> Event<'a> {
        self.open.pop();
        self.expect = Expect::CommaOrEnd;
        Event::End
    }

    fn name(&mut self) -> Result<Event<'a>, NotJson> {
        let name = self.string()?;
        self.skip_space();
        self.require(b':')?;
        self.expect = Expect::Value;
        Ok(Event::Name(name))
    }

    fn string(&mut self) -> Result<Text<'a>, NotJson> {
        let start = self.at;
        self.require(b'"')?;
        let mut escaped = false;
        loop {
            match self.take()? {
                b'"' => return Ok(Text { quoted: &self.text[start..self.at], escaped }),
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                0..0x20 => return Err(NotJson),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<(), NotJson> {
        match self.take()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => (0..4).try_for_each(|_| if self.take()?.is_ascii_hexdigit() { Ok(()) } else { Err(NotJson) }),
            _ => Err(NotJson),
        }
    }

    fn number(&mut self) -> Result<&'a str, NotJson> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), NotJson> {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(NotJson) } else { Ok(()) }
    }

    fn word(&mut self, word: &str) -> Result<(), NotJson> {
        if !self.text[self.at..].starts_with(word) {
            return Err(NotJson);
        }
        self.at += word.len();
        Ok(())
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self) -> Result<u8, NotJson> {
        let byte = self.peek().ok_or(NotJson)?;
        self.at += 1;
        Ok(byte)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        self.at += usize::from(here);
        here
    }

    fn require(&mut self, byte: u8) -> Result<(), NotJson> {
        if self.eat(byte) { Ok(()) } else { Err(NotJson) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    fn is_json(body: &[u8]) -> bool {
        let read = || {
            let mut reader = Reader::new(body)?;
            let first = reader.next()?;
            reader.skip(first)?;
            reader.finish()
        };
        read().is_ok()
    }

    #[test]
    fn only_rfc_8259_is_json() {
        let good = ["0", "-0", " [ ] ", "{}", r#"{"a":[1,{"b":null}],"":true}"#, r#""\ud800""#, "1e+9", "[[],{}]"];
        for text in good {
            assert!(is_json(text.as_bytes()), "{text}");
        }
        let bad = [
            "",
            " ",
            "01",
            "+1",
            "1.",
            ".5",
            "1e",
            "-",
            "--1",
            "NaN",
            "Infinity",
            "tru",
            "truex",
            "nul",
            "[1,]",
            "[,1]",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "{\"a\"}",
            "{\"a\":}",
            "[1 2]",
            "[1}",
            "{]",
            "[",
            "]",
            "1 1",
            "[]]",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\t\"",
            "/**/1",
            "\u{feff}1",
            "\u{a0}1",
            "{1:2}",
            "\"\\",
        ];
        for text in bad {
            assert!(!is_json(text.as_bytes()), "{text}");
        }
        assert!(!is_json(b"\"\xff\""));
    }

    #[test]
    fn nesting_costs_no_stack() {
        for depth in [10_000, 1_000_000] {
            let whole = "[".repeat(depth) + &"]".repeat(depth);
            assert!(is_json(whole.as_bytes()));
            assert!(!is_json(&whole.as_bytes()[1..]));
            assert!(!is_json("{\"a\":".repeat(depth).as_bytes()));
        }
    }

    #[test]
    fn a_string_decodes_to_its_text_unless_half_a_surrogate_pair_is_in_it() {
        let decode = |text: &str| match Reader::new(text.as_bytes()).unwrap().next() {
            Ok(Event::String(text)) => text.decode().map(Cow::into_owned),
            other => panic!("{other:?}"),
        };
        assert_eq!(decode(r#""\u0061\n\/""#).as_deref(), Some("a\n/"));
        assert_eq!(decode(r#""\ud83d\ude00""#).as_deref(), Some("\u{1f600}"));
        assert_eq!(decode("\"\"").as_deref(), Some(""));
        assert_eq!(decode(r#""\ud83d""#), None);
        assert_eq!(decode(r#""\ude00\ud83d""#), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Goal: no laxer and no stricter than an independent reader. Method: short texts of JSON's own
        /// characters, so that many are valid or nearly so.
        #[test]
        fn what_is_json_is_what_serde_json_takes_for_it(
            text in r#"([\[\]{},:]|"a?"|"\\[nu"]0{0,4}"|-?[01]{1,2}|\.1|[eE][+-]?1|true|null| |\n){0,9}"#,
        ) {
            prop_assert_eq!(is_json(text.as_bytes()), serde_json::from_str::<IgnoredAny>(&text).is_ok());
        }

        #[test]
        fn any_bytes_are_read_or_refused_without_panicking(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            is_json(&bytes);
        }
    }
}
