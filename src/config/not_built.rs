//! Settings of parts that this version does not have. They are errors, never ignored: who asks for a token
//! must not run without one.

use toml::Value;

use super::document::{Document, Slot};
use super::error::ConfigError;

/// A setting that needs a part not built in. Building the part deletes the line.
struct NotBuilt {
    key: &'static str,
    /// Values, as TOML, that need no such part.
    harmless: &'static [&'static str],
    /// What would be right.
    instead: &'static str,
}

const NOT_BUILT: &[NotBuilt] = &[
    NotBuilt { key: "secrets.token", harmless: &["[]"], instead: "leave it out" },
    NotBuilt { key: "routes.*.idempotency.token", harmless: &["\"off\""], instead: "\"off\" is" },
];

/// Refuses what needs a missing part, and takes the harmless spellings ("off", empty) out of the tree.
pub(super) fn refuse(document: &mut Document) -> Result<(), ConfigError> {
    for setting in NOT_BUILT {
        document.each_holding(setting.key, &mut |slot| setting.judge(slot))?;
    }
    Ok(())
}

impl NotBuilt {
    fn judge(&self, mut slot: Slot<'_>) -> Result<(), String> {
        let Some(value) = slot.value() else {
            return Ok(());
        };
        if !self.harmless.iter().any(|text| text.parse().is_ok_and(|known: Value| known == *value)) {
            return Err(format!("{} is not built into this version; {}", brief(value), self.instead));
        }
        slot.remove();
        Ok(())
    }
}

/// A value as an error shows it: tables and lists may hold much, and secrets.
fn brief(value: &Value) -> String {
    match value {
        Value::Table(_) => "this section".to_owned(),
        Value::Array(_) => "this list".to_owned(),
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
            value.to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str) -> Result<(), String> {
        let mut document = Document::parse("test.toml", text).unwrap();
        refuse(&mut document).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_of_a_missing_part_is_an_error_that_names_it() {
        let route = "[[routes]]\nname = \"pay\"\n";
        let table = [
            ("secrets.token", "secrets.token = [\"env:X\"]".to_owned()),
            ("routes.pay.idempotency.token", format!("{route}idempotency = {{ token = \"required\" }}")),
        ];
        assert_eq!(table.len(), NOT_BUILT.len(), "every line of the list is tried");
        for (key, text) in table {
            let error = judge(&text).unwrap_err();
            assert!(error.starts_with(&format!("test.toml: {key}: ")), "{error}");
            assert!(error.contains("not built into this version"), "{error}");
        }
    }

    #[test]
    fn their_harmless_spellings_pass_and_leave_the_tree() {
        let text = "auth.mode = \"header\"\nsecrets.token = []";
        let mut document = Document::parse("test.toml", text).unwrap();
        refuse(&mut document).unwrap();
        let left: toml::Table = document.deserialize().unwrap();
        assert_eq!(left.to_string(), "[auth]\nmode = \"header\"\n\n[secrets]\n");
    }
}
