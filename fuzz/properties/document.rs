//! JSON documents that mean something, written in one way or another.

use super::input::Input;

/// What a document means.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Document {
    Null,
    Bool(bool),
    /// So many times ten to the power of.
    Number(i64, i16),
    Text(String),
    List(Vec<Document>),
    /// No name comes twice.
    Object(Vec<(String, Document)>),
}

impl Document {
    pub(super) fn from(input: &mut Input<'_>, depth: usize) -> Self {
        let kinds = if depth == 0 { 4 } else { 6 };
        match input.below(kinds) {
            0 => Self::Null,
            1 => Self::Bool(input.flag()),
            2 => Self::Number(input.number() >> (input.byte() % 64), i16::from(input.byte()) - 128),
            3 => Self::Text(input.text()),
            4 => Self::List((0..input.below(5)).map(|_| Self::from(input, depth - 1)).collect()),
            _ => {
                let mut members: Vec<(String, Self)> = Vec::new();
                for _ in 0..input.below(5) {
                    let (name, value) = (input.text(), Self::from(input, depth - 1));
                    if members.iter().all(|(other, _)| *other != name) {
                        members.push((name, value));
                    }
                }
                Self::Object(members)
            }
        }
    }

    /// One of the ways to write it.
    pub(super) fn write(&self, input: &mut Input<'_>, out: &mut String) {
        space(input, out);
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(digits, exponent) => write_number(*digits, *exponent, input, out),
            Self::Text(text) => write_text(text, input, out),
            Self::List(values) => {
                out.push('[');
                for (index, value) in values.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    value.write(input, out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                let first = input.below(members.len().max(1));
                let in_order = members[first.min(members.len())..].iter().chain(&members[..first.min(members.len())]);
                let mut in_order: Vec<_> = in_order.collect();
                if input.flag() {
                    in_order.reverse();
                }
                for (index, (name, value)) in in_order.into_iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    space(input, out);
                    write_text(name, input, out);
                    space(input, out);
                    out.push(':');
                    value.write(input, out);
                }
                out.push('}');
            }
        }
        space(input, out);
    }

    /// Makes it mean something else.
    pub(super) fn change(&mut self, input: &mut Input<'_>) {
        match self {
            Self::Null => *self = Self::Number(0, 0),
            Self::Bool(value) if input.flag() => *value = !*value,
            Self::Bool(value) => *self = Self::Text(value.to_string()),
            Self::Number(digits, exponent) => match input.below(3) {
                0 => *self = Self::Text(format!("{digits}e{exponent}")),
                1 if *digits != 0 => *exponent += 1,
                _ => *digits = if *digits == i64::MAX { 0 } else { *digits + 1 },
            },
            Self::Text(text) => text.push(char::from(input.byte() & 0x7f)),
            Self::List(values) => {
                let index = input.below(values.len() + 1);
                match values.get_mut(index) {
                    Some(value) if input.flag() => value.change(input),
                    Some(_) => drop(values.remove(index)),
                    None => values.push(Self::Null),
                }
            }
            Self::Object(members) => {
                let index = input.below(members.len() + 1);
                match members.get_mut(index) {
                    Some((_, value)) if input.flag() => value.change(input),
                    Some(_) => drop(members.remove(index)),
                    None => {
                        let longest = members.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
                        members.push(("x".repeat(longest + 1), Self::Null));
                    }
                }
            }
        }
    }
}

fn space(input: &mut Input<'_>, out: &mut String) {
    out.push_str(["", "", "", " ", "\n", "\t", "\r\n "][input.below(7)]);
}

fn write_number(digits: i64, exponent: i16, input: &mut Input<'_>, out: &mut String) {
    let (sign, digits) = (if digits < 0 { "-" } else { "" }, digits.unsigned_abs());
    let mut exponent = i64::from(exponent);
    let mut digits = digits.to_string();
    let zeros = input.below(4);
    out.push_str(sign);
    if digits == "0" {
        // No zero may come before others.
        out.push_str(["0", "0.0", "0.000", "-0"][zeros]);
    } else {
        digits.push_str(&"0".repeat(zeros));
        exponent -= i64::try_from(zeros).expect("a small number");
        let point = input.below(digits.len());
        out.push_str(&digits[..point.max(1)]);
        if point > 0 {
            out.push('.');
            out.push_str(&digits[point..]);
            exponent += i64::try_from(digits.len() - point).expect("a small number");
        } else {
            out.push_str(&digits[1..]);
            out.push_str(if input.flag() { ".00" } else { "" });
        }
    }
    if exponent != 0 || input.flag() {
        let plus = if exponent >= 0 && input.flag() { "+" } else { "" };
        out.push_str(&format!("{}{plus}{exponent}", ["e", "E"][input.below(2)]));
    }
}

fn write_text(text: &str, input: &mut Input<'_>, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        let must = char < ' ' || char == '"' || char == '\\';
        if must || input.below(4) == 3 {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                out.push_str(&if input.flag() { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") });
            }
        } else if char == '/' && input.flag() {
            out.push_str("\\/");
        } else {
            out.push(char);
        }
    }
    out.push('"');
}
