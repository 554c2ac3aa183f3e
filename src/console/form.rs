//! What a person has typed in.

use std::fmt;

use form_urlencoded::Serializer;

/// The fields of a form, or of a query, in order.
#[derive(Clone, Default)]
pub(super) struct Form(Vec<(String, String)>);

/// Tells no values.
impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Form {
    /// Reads `application/x-www-form-urlencoded`, which browsers send, and which can't be wrong.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().collect())
    }

    /// The first field of this name; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value).unwrap_or_default()
    }

    /// The same without the white space around it; `None` if nothing is left.
    pub(super) fn some(&self, name: &str) -> Option<&str> {
        Some(self.get(name).trim()).filter(|text| !text.is_empty())
    }

    /// All fields of this name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// The fields whose names begin so, without that.
    pub(super) fn under(&self, prefix: &str) -> Self {
        let of = |(name, value): (&str, &str)| Some((name.strip_prefix(prefix)?.to_owned(), value.to_owned()));
        Self(self.fields().filter_map(of).collect())
    }

    /// All fields.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// A target on this site with a query of those `fields` that say something.
pub(super) fn target(path: &str, fields: &[(&str, &str)]) -> String {
    let said = fields.iter().filter(|(_, value)| !value.is_empty());
    let query = Serializer::new(String::new()).extend_pairs(said).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_browsers_write_them() {
        let form = Form::read("pick=a&reason=+x+%26+%C3%BC%0D%0Ay&pick=b&empty=&%FF=1".as_bytes());
        assert_eq!(form.all("pick").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((form.get("reason"), form.some("reason")), (" x & \u{fc}\r\ny", Some("x & \u{fc}\r\ny")));
        assert_eq!((form.get("empty"), form.some("empty"), form.some("none")), ("", None, None));
        assert!(!format!("{form:?}").contains('\u{fc}'));
    }

    #[test]
    fn a_target_carries_what_is_said_whatever_it_is() {
        assert_eq!(target("/a", &[("x", ""), ("y", "")]), "/a");
        assert_eq!(target("/a", &[("x", "1&2=\"3\" \u{fc}"), ("y", "")]), "/a?x=1%262%3D%223%22+%C3%BC");
    }
}
