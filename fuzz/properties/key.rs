//! Both spellings of a key are one key, and what is one can be written again.

use oncegate::entry::{Key, KeyError, MAX_KEY_BYTES, Namespace};

pub(super) fn holds(bytes: &[u8]) {
    if let Ok(key) = Key::from_header(bytes) {
        assert!((1..=MAX_KEY_BYTES).contains(&key.as_str().len()) && !key.as_str().trim().is_empty());
        assert_eq!(Key::from_header(&[b" \t", bytes, b" "].concat()), Ok(key.clone()), "space around it");
        for written in [key.to_structured(), key.to_bare()] {
            assert_eq!(Key::from_header(written.as_bytes()), Ok(key.clone()), "{written}");
        }
        assert_eq!(Key::from_business(key.as_str()), Ok(key), "from a body it is the same");
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        assert!(Key::from_header(bytes).is_err(), "only ASCII goes into a field");
        return;
    };
    both_spellings(text);
    of_parts(text);
    if let Ok(namespace) = Namespace::new(text) {
        assert_eq!(namespace.as_str(), text);
        assert_eq!(Namespace::from_stored(text), namespace);
        assert!(!namespace.is_observed() && namespace.observed().is_observed());
    }
}

fn both_spellings(text: &str) {
    let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let (quoted, from_body) = (Key::from_header(quoted.as_bytes()), Key::from_business(text));
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        assert_eq!(quoted, from_body, "{text}");
    } else {
        assert_eq!(quoted, Err(KeyError::Malformed), "{text}");
    }
    let is_bare = text.bytes().all(|byte| (0x21..0x7f).contains(&byte) && !b",;\"\\".contains(&byte));
    if is_bare {
        assert_eq!(Key::from_header(text.as_bytes()), quoted, "{text}");
    }
    if let Ok(key) = from_body {
        let (structured, bare) = (key.to_structured(), key.to_bare());
        assert!([structured, bare].iter().all(|written| written.bytes().all(|byte| (0x20..0x7f).contains(&byte))));
    }
}

/// No two lists of parts are one key.
fn of_parts(text: &str) {
    let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).take(8).collect();
    let mut keys: Vec<Key> = cuts.iter().map(|at| Key::composite(&[&text[..*at], &text[*at..]])).collect();
    keys.push(Key::composite(&[text]));
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "{text}");
    }
}
