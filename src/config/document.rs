//! The configuration as a tree, before it has types: where overrides are applied and errors find their
//! origin.

use std::fmt::Write;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::error::{ConfigError, in_plain_words};

/// One step into the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A table's key.
    Key(String),
    /// An array's element.
    Index(usize),
}

/// The tree, and where each part of it came from.
pub(super) struct Document {
    file: String,
    root: Value,
    /// What was set over the file (a table that had to be made for it counts whole), and by which variable
    /// or flag.
    overrides: Vec<(Vec<Step>, String)>,
}

impl Document {
    /// Parses a file's text.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let syntax = |error: toml::de::Error| ConfigError::Syntax { file: file.to_owned(), text: error.to_string() };
        let root: Table = text.parse().map_err(syntax)?;
        Ok(Self { file: file.to_owned(), root: Value::Table(root), overrides: Vec::new() })
    }

    /// Sets a value over the file's. Keys count in any case; an element of an array is addressed by its
    /// `name`. `text` is read as a TOML value, and as a string where it is none.
    pub(super) fn set(&mut self, origin: &str, path: &[&str], text: &str) -> Result<(), ConfigError> {
        let value = text.parse().unwrap_or_else(|_| Value::String(text.to_owned()));
        let mut placed = Placed::default();
        place(&mut self.root, path, value, &mut placed).map_err(|text| ConfigError::Key {
            origin: origin.to_owned(),
            key: path.join(".").to_lowercase(),
            text,
        })?;
        let new = placed.new_from.unwrap_or(placed.steps.len());
        placed.steps.truncate(new);
        self.overrides.push((placed.steps, origin.to_owned()));
        Ok(())
    }

    /// Calls `act` with each table that holds the last key of `pattern` (`*`: every element or key), the
    /// path of that key, and its name.
    pub(super) fn each_holding(
        &mut self,
        pattern: &str,
        act: &mut dyn FnMut(Slot<'_>) -> Result<(), String>,
    ) -> Result<(), ConfigError> {
        let pattern: Vec<&str> = pattern.split('.').collect();
        let mut steps = Vec::new();
        visit(&mut self.root, &pattern, &mut steps, act).map_err(|text| self.error(&steps, text))
    }

    /// The typed form.
    pub(super) fn deserialize<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        serde_path_to_error::deserialize(self.root.clone()).map_err(|error| {
            let steps: Vec<Step> = error.path().iter().filter_map(step).collect();
            self.error(&steps, in_plain_words(error.inner().message()))
        })
    }

    fn error(&self, steps: &[Step], text: String) -> ConfigError {
        let from_override = self.overrides.iter().rev().find(|(path, _)| steps.starts_with(path));
        let origin = from_override.map_or(&self.file, |(_, origin)| origin);
        ConfigError::Key { origin: origin.clone(), key: self.spell(steps), text }
    }

    /// The path with elements of arrays by name where they have one.
    fn spell(&self, steps: &[Step]) -> String {
        let mut spelled = String::new();
        let mut at = Some(&self.root);
        for step in steps {
            at = match step {
                Step::Key(key) => at.and_then(|value| value.get(key)),
                Step::Index(index) => at.and_then(|value| value.get(index)),
            };
            let name = at.and_then(|value| value.get("name")).and_then(Value::as_str);
            let dot = if spelled.is_empty() { "" } else { "." };
            let written = match (step, name) {
                (Step::Key(key), _) => write!(spelled, "{dot}{key}"),
                (Step::Index(_), Some(name)) => write!(spelled, "{dot}{name}"),
                (Step::Index(index), None) => write!(spelled, "[{index}]"),
            };
            debug_assert!(written.is_ok(), "a String takes every write");
        }
        if spelled.is_empty() { "the top level".to_owned() } else { spelled }
    }
}

/// A place in the tree that a pattern has found.
pub(super) enum Slot<'a> {
    /// The value of a key, with the table around it.
    Key(&'a mut Table, &'a str),
    /// An element of an array.
    Element(&'a mut Value),
}

impl Slot<'_> {
    /// The value.
    pub(super) fn value(&mut self) -> Option<&mut Value> {
        match self {
            Self::Key(table, key) => table.get_mut(*key),
            Self::Element(value) => Some(value),
        }
    }
}

fn step(segment: &serde_path_to_error::Segment) -> Option<Step> {
    use serde_path_to_error::Segment;
    match segment {
        Segment::Seq { index } => Some(Step::Index(*index)),
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// Leaves `steps` at the place of an error, else as they were.
fn visit(
    at: &mut Value,
    pattern: &[&str],
    steps: &mut Vec<Step>,
    act: &mut dyn FnMut(Slot<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let [first, rest @ ..] = pattern else {
        return act(Slot::Element(at));
    };
    match at {
        Value::Array(elements) if *first == "*" => {
            for (index, element) in elements.iter_mut().enumerate() {
                steps.push(Step::Index(index));
                visit(element, rest, steps, act)?;
                steps.pop();
            }
        }
        Value::Table(table) => {
            let named = |key: &&String| *first == "*" || *key == *first;
            let keys: Vec<String> = table.keys().filter(named).cloned().collect();
            for key in keys {
                steps.push(Step::Key(key.clone()));
                match table.get_mut(&key) {
                    Some(value) if !rest.is_empty() => visit(value, rest, steps, act)?,
                    Some(_) | None => act(Slot::Key(table, &key))?,
                }
                steps.pop();
            }
        }
        _ => {}
    }
    Ok(())
}

/// Where an override went.
#[derive(Default)]
struct Placed {
    steps: Vec<Step>,
    /// The length of the path up to the first key that was not there before.
    new_from: Option<usize>,
}

fn place(at: &mut Value, path: &[&str], value: Value, placed: &mut Placed) -> Result<(), String> {
    let [first, rest @ ..] = path else {
        *at = value;
        return Ok(());
    };
    match at {
        Value::Table(table) => {
            let same = |key: &&String| key.eq_ignore_ascii_case(first);
            let known = table.contains_key(*first).then(|| (*first).to_owned());
            let key = known.or_else(|| table.keys().find(same).cloned()).unwrap_or_else(|| first.to_lowercase());
            placed.steps.push(Step::Key(key.clone()));
            if !table.contains_key(&key) {
                placed.new_from.get_or_insert(placed.steps.len());
            }
            let next = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
            place(next, rest, value, placed)
        }
        Value::Array(elements) => {
            let index = named(elements, first)?;
            placed.steps.push(Step::Index(index));
            place(&mut elements[index], rest, value, placed)
        }
        other => Err(format!("there is no `{first}` in a value of type {}", other.type_str())),
    }
}

/// The element called `name`: as written, else in any case and with `_` for `-`, since shells allow no `-`
/// in a variable's name.
fn named(elements: &[Value], name: &str) -> Result<usize, String> {
    let names: Vec<&str> =
        elements.iter().map(|element| element.get("name").and_then(Value::as_str).unwrap_or_default()).collect();
    if let Some(index) = names.iter().position(|known| *known == name) {
        return Ok(index);
    }
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let mut alike = names.iter().enumerate().filter(|(_, known)| plain(known) == plain(name));
    match (alike.next(), alike.next()) {
        (Some((index, _)), None) => Ok(index),
        (Some(_), Some(_)) => Err(format!("`{name}` could mean several of {}", names.join(", "))),
        (None, _) => Err(format!("nothing is named `{name}` here; there are: {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let text = r#"
            [server]
            listen = "a"
            [[routes]]
            name = "create-payment"
            [[routes]]
            name = "refund"
        "#;
        Document::parse("test.toml", text).unwrap()
    }

    fn tree(document: &Document) -> String {
        document.root.to_string()
    }

    #[test]
    fn an_override_finds_keys_in_any_case_and_elements_by_name() {
        let mut document = document();
        document.set("X", &["SERVER", "LISTEN"], "b").unwrap();
        document.set("X", &["ROUTES", "create-payment", "A", "B"], "[1, 2]").unwrap();
        document.set("X", &["routes", "REFUND", "N"], "7").unwrap();
        document.set("X", &["routes", "Create_Payment", "M"], "7s").unwrap();
        document.set("X", &["STORE", "URL"], "sqlite://x").unwrap();
        let root = &document.root;
        assert_eq!(root["server"]["listen"].as_str(), Some("b"));
        assert_eq!(root["routes"][0]["a"]["b"].as_array().map(Vec::len), Some(2));
        assert_eq!(root["routes"][0]["m"].as_str(), Some("7s"));
        assert_eq!(root["routes"][1]["n"].as_integer(), Some(7));
        assert_eq!(root["store"]["url"].as_str(), Some("sqlite://x"));
    }

    #[test]
    fn an_override_of_something_absent_or_ambiguous_is_an_error_that_changes_nothing() {
        let mut document = document();
        let before = tree(&document);
        let error = document.set("ONCEGATE__ROUTES__x__A", &["ROUTES", "x", "A"], "1").unwrap_err().to_string();
        assert!(error.contains("ONCEGATE__ROUTES__x__A") && error.contains("create-payment, refund"), "{error}");
        let error = document.set("X", &["SERVER", "LISTEN", "A"], "1").unwrap_err().to_string();
        assert!(error.contains("string"), "{error}");
        assert_eq!(tree(&document), before);
        document.set("X", &["ROUTES", "refund", "NAME"], "create_payment").unwrap();
        assert!(document.set("X", &["ROUTES", "CREATE-PAYMENT", "A"], "1").is_err());
        assert!(document.set("X", &["ROUTES", "create_payment", "A"], "1").is_ok(), "the exact name decides");
    }
}
