//! Reads the metrics' own text format: what is counted is counted once, and whoever shows it reads it there.

/// A line that carries a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line<'a> {
    /// The metric, with the suffix of its kind.
    pub(super) name: &'a str,
    labels: &'a str,
    /// The value.
    pub(super) value: f64,
}

/// The lines of `text` that carry a value.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        Some(Line { name, labels, value: value.parse().ok()? })
    })
}

impl<'a> Line<'a> {
    /// The value of this label, as it is escaped.
    pub(super) fn label(&self, wanted: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let (name, value) = rest.split_once("=\"")?;
            let end = end(value)?;
            if name.trim_start_matches(',') == wanted {
                return value.get(..end);
            }
            rest = value.get(end + 1..)?;
        }
    }
}

/// Where a value's closing quote is.
fn end(value: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (index, byte) in value.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return Some(index),
            _ => is_escaped = byte == b'\\' && !is_escaped,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_whatever_their_labels_say() {
        let text =
            "# HELP a b\n# TYPE a counter\na 3\n\nb{x=\"1\",y=\"a \\\"quoted\\\", z=\\\\\"} 0.5\nc{le=\"+Inf\"} 7\n";
        let read: Vec<_> = lines(text).collect();
        assert_eq!(
            read.iter().map(|line| (line.name, line.value)).collect::<Vec<_>>(),
            [("a", 3.0), ("b", 0.5), ("c", 7.0)]
        );
        assert_eq!(read[0].label("x"), None);
        assert_eq!((read[1].label("x"), read[1].label("z")), (Some("1"), None));
        assert_eq!(read[1].label("y"), Some("a \\\"quoted\\\", z=\\\\"));
        assert_eq!(read[2].label("le"), Some("+Inf"));
    }
}
