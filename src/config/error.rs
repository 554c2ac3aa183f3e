//! Why a configuration can't be used.

use std::io;

/// Why a configuration can't be used: names the file (or the variable or flag that said otherwise), the
/// key, the value and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{file}: {source}")]
    Read {
        /// The file as it was named.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no TOML.
    #[error("{file}: {text}")]
    Syntax {
        /// The file as it was named.
        file: String,
        /// The parser's words, with line and column.
        text: String,
    },
    /// A key is unknown or missing, or its value is wrong.
    #[error("{origin}: {key}: {text}")]
    Key {
        /// What said so: the file, or the variable or flag that overrode it.
        origin: String,
        /// The key's path; elements of arrays by their name.
        key: String,
        /// What is wrong, and what would be right.
        text: String,
    },
}

/// A message of serde in the words of a user, with the nearest name where one is close.
pub(super) fn in_plain_words(message: &str) -> String {
    let message = message.trim_end();
    let mut names = message.split('`').skip(1).step_by(2);
    let kind = ["unknown field", "unknown variant"].into_iter().find(|kind| message.starts_with(kind));
    let (Some(kind), Some(unknown)) = (kind, names.next()) else {
        return message.replace("missing field", "missing key");
    };
    let kind = if kind == "unknown field" { "unknown key" } else { "unknown value" };
    let known: Vec<&str> = names.collect();
    match nearest(unknown, &known) {
        Some(near) => format!("{kind} `{unknown}`; did you mean `{near}`?"),
        None => format!("{kind} `{unknown}`; possible are {}", known.join(", ")),
    }
}

/// The known name that `unknown` most likely means: at most a third of it typed wrong.
fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|name| (distance(unknown, name), *name)).min()?;
    (near.0 <= unknown.len().div_ceil(3)).then_some(near.1)
}

/// Levenshtein's distance.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest_one() {
        let message = "unknown field `lisen`, expected one of `listen`, `prefix`";
        assert_eq!(in_plain_words(message), "unknown key `lisen`; did you mean `listen`?");
        let message = "unknown variant `wiat`, expected `processing` or `wait`";
        assert_eq!(in_plain_words(message), "unknown value `wiat`; did you mean `wait`?");
    }

    #[test]
    fn a_name_that_resembles_none_is_answered_with_all() {
        let message = "unknown field `frobnicate`, expected one of `listen`, `prefix`";
        assert_eq!(in_plain_words(message), "unknown key `frobnicate`; possible are listen, prefix");
    }

    #[test]
    fn distances_count_insertions_deletions_and_replacements() {
        for (from, to, expected) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }
}
