//! The grammar of a route's pattern.

use std::fmt;
use std::str::FromStr;

use http::Method;

/// What a route matches: methods and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    methods: Methods,
    segments: Vec<Segment>,
}

/// The methods of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Methods {
    /// `*`.
    Any,
    /// One or more, each once, in the order written.
    Named(Vec<Method>),
}

/// One segment of a pattern's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// This text, percent-decoded; empty only at the end, which is a trailing slash.
    Literal(Box<str>),
    /// `{name}`: any one segment but an empty one.
    Parameter(Box<str>),
    /// `*`: the rest of the path, even an empty one. Always the last.
    Wildcard,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// No space between two parts.
    #[error("a route is written METHOD /path, such as \"POST /v1/payments\"")]
    Shape,
    /// Not upper-case letters.
    #[error("`{0}` is no method: write upper-case names joined by |, or * for any")]
    Method(String),
    /// The same method twice.
    #[error("the method {0} is listed twice")]
    RepeatedMethod(Method),
    /// The path does not begin with `/`.
    #[error("the path does not begin with /")]
    NotAbsolute,
    /// `//` in the path.
    #[error("the path holds an empty segment; only its end may be empty (a trailing slash)")]
    EmptySegment,
    /// A segment that no request can have, or that is not the grammar's.
    #[error("`{0}` is no segment: write a plain text (decoded, without % ? # \\), {{name}}, or a last *")]
    Segment(String),
    /// The same parameter twice.
    #[error("the parameter {{{0}}} occurs twice")]
    RepeatedParameter(Box<str>),
}

impl Pattern {
    /// The pattern's methods.
    #[must_use]
    pub fn methods(&self) -> &Methods {
        &self.methods
    }

    /// The pattern's path.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The parameters' names, in order.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Parameter(name) => Some(&**name),
            Segment::Literal(_) | Segment::Wildcard => None,
        })
    }

    /// Whether some request fits both and neither is to be preferred.
    #[must_use]
    pub fn ties_with(&self, other: &Self) -> bool {
        let methods = match (&self.methods, &other.methods) {
            (Methods::Any, Methods::Any) => true,
            (Methods::Named(mine), Methods::Named(theirs)) => mine.iter().any(|method| theirs.contains(method)),
            (Methods::Any, Methods::Named(_)) | (Methods::Named(_), Methods::Any) => false,
        };
        let same_kind = |(mine, theirs): (&Segment, &Segment)| match (mine, theirs) {
            (Segment::Literal(mine), Segment::Literal(theirs)) => mine == theirs,
            (Segment::Parameter(_), Segment::Parameter(_)) | (Segment::Wildcard, Segment::Wildcard) => true,
            (Segment::Literal(_) | Segment::Parameter(_) | Segment::Wildcard, _) => false,
        };
        methods
            && self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(same_kind)
    }

    /// Whether some path fits both, whatever the methods.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        overlap(&self.segments, &other.segments)
    }
}

fn overlap(mine: &[Segment], theirs: &[Segment]) -> bool {
    match (mine, theirs) {
        ([Segment::Wildcard, ..], [_, ..]) | ([_, ..], [Segment::Wildcard, ..]) | ([], []) => true,
        ([], [_, ..]) | ([_, ..], []) => false,
        ([first, mine @ ..], [second, theirs @ ..]) => {
            let both = match (first, second) {
                (Segment::Literal(first), Segment::Literal(second)) => first == second,
                (Segment::Literal(text), Segment::Parameter(_)) | (Segment::Parameter(_), Segment::Literal(text)) => {
                    !text.is_empty()
                }
                (Segment::Parameter(_), Segment::Parameter(_)) | (Segment::Wildcard, _) | (_, Segment::Wildcard) => {
                    true
                }
            };
            both && overlap(mine, theirs)
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let mut parts = text.split_ascii_whitespace();
        let (Some(methods), Some(path), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(PatternError::Shape);
        };
        Ok(Self { methods: parse_methods(methods)?, segments: parse_path(path)? })
    }
}

fn parse_methods(text: &str) -> Result<Methods, PatternError> {
    if text == "*" {
        return Ok(Methods::Any);
    }
    let mut named = Vec::new();
    for name in text.split('|') {
        let upper = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        let method = Method::from_bytes(name.as_bytes()).ok().filter(|_| upper);
        let method = method.ok_or_else(|| PatternError::Method(name.to_owned()))?;
        if named.contains(&method) {
            return Err(PatternError::RepeatedMethod(method));
        }
        named.push(method);
    }
    Ok(Methods::Named(named))
}

fn parse_path(text: &str) -> Result<Vec<Segment>, PatternError> {
    let mut segments = Vec::new();
    let mut rest = text.strip_prefix('/').ok_or(PatternError::NotAbsolute)?.split('/').peekable();
    while let Some(text) = rest.next() {
        let segment = parse_segment(text, rest.peek().is_none())?;
        if let Segment::Parameter(name) = &segment
            && segments.contains(&segment)
        {
            return Err(PatternError::RepeatedParameter(name.clone()));
        }
        segments.push(segment);
    }
    Ok(segments)
}

fn parse_segment(text: &str, last: bool) -> Result<Segment, PatternError> {
    let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let plain = |c: char| !c.is_control() && !"?#%\\{}*".contains(c);
    match (text, name) {
        ("", _) if !last => Err(PatternError::EmptySegment),
        ("*", _) if last => Ok(Segment::Wildcard),
        (_, Some(name)) if !name.is_empty() && name.bytes().all(named) => Ok(Segment::Parameter(name.into())),
        (_, None) if text.chars().all(plain) && super::check(&format!("/{text}")).is_ok() => {
            Ok(Segment::Literal(text.into()))
        }
        (_, _) => Err(PatternError::Segment(text.to_owned())),
    }
}

/// The text that parses to the same pattern.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.methods {
            Methods::Any => f.write_str("*")?,
            Methods::Named(named) => {
                let names: Vec<_> = named.iter().map(Method::as_str).collect();
                f.write_str(&names.join("|"))?;
            }
        }
        f.write_str(" ")?;
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::Parameter(name) => write!(f, "/{{{name}}}")?,
                Segment::Wildcard => f.write_str("/*")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_are_shown_as_they_were_written() {
        for text in ["POST /v1/payments", "PUT|PATCH /v1/{id}/refunds", "* /*", "GET /", "M-SEARCH /a/", "GET /café/*"]
        {
            assert_eq!(pattern(text).to_string(), text);
        }
        assert_eq!(pattern("GET /{a}/b/{c}/*").parameters().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn what_is_no_pattern_is_told_why() {
        let segment = |text: &str| PatternError::Segment(text.to_owned());
        let table = [
            ("/v1", PatternError::Shape),
            ("", PatternError::Shape),
            ("GET /a b", PatternError::Shape),
            ("get /a", PatternError::Method("get".to_owned())),
            ("GET| /a", PatternError::Method(String::new())),
            ("GET|* /a", PatternError::Method("*".to_owned())),
            ("GET|PUT|GET /a", PatternError::RepeatedMethod(Method::GET)),
            ("GET a", PatternError::NotAbsolute),
            ("GET /a//b", PatternError::EmptySegment),
            ("GET /*/a", segment("*")),
            ("GET /a*", segment("a*")),
            ("GET /{}", segment("{}")),
            ("GET /{a}b", segment("{a}b")),
            ("GET /{a b}", PatternError::Shape),
            ("GET /a%20b", segment("a%20b")),
            ("GET /a?b", segment("a?b")),
            ("GET /../a", segment("..")),
            ("GET /{a}/{a}", PatternError::RepeatedParameter("a".into())),
        ];
        for (text, error) in table {
            assert_eq!(text.parse::<Pattern>(), Err(error), "{text}");
        }
    }

    #[test]
    fn patterns_overlap_where_some_path_fits_both() {
        for (one, other) in [("GET /a/{x}", "PUT /{y}/b"), ("GET /a/*", "GET /a/b/c"), ("GET /*", "GET /")] {
            assert!(pattern(one).overlaps(&pattern(other)), "{one} {other}");
            assert!(pattern(other).overlaps(&pattern(one)), "{other} {one}");
        }
        for (one, other) in
            [("GET /a", "GET /b"), ("GET /a/*", "GET /a"), ("GET /a/{x}", "GET /a/"), ("GET /a", "GET /a/")]
        {
            assert!(!pattern(one).overlaps(&pattern(other)), "{one} {other}");
            assert!(!pattern(other).overlaps(&pattern(one)), "{other} {one}");
        }
    }
}
