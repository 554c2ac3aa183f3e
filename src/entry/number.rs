//! JSON numbers by their exact decimal value, never through binary floating point.

use std::borrow::Cow;

/// An exponent that does not fit the spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExponentTooLarge;

/// Appends the spelling of the value of `text`, which is a JSON number: two numbers have one spelling
/// exactly if their values are equal.
///
/// `0`, or the sign, the exponent (8 bytes), the digits without outer zeros, and `;`. The digits are never
/// shifted by the exponent, so that `1e999999999` costs no more than its text.
///
/// # Errors
/// If the exponent is beyond 64 bits. Nothing is appended then.
pub(super) fn spell(text: &str, out: &mut Vec<u8>) -> Result<(), ExponentTooLarge> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or((b'+', mantissa), |positive| (b'-', positive));
    let (whole, fraction, shift) = significant(mantissa);
    if whole.is_empty() && fraction.is_empty() {
        out.push(b'0');
        return Ok(());
    }
    let exponent: i64 = exponent.parse().map_err(|_| ExponentTooLarge)?;
    let exponent = exponent.checked_add(shift).ok_or(ExponentTooLarge)?;
    out.push(sign);
    out.extend_from_slice(&exponent.to_be_bytes());
    out.extend_from_slice(whole.as_bytes());
    out.extend_from_slice(fraction.as_bytes());
    out.push(b';');
    Ok(())
}

/// The digits before and after the point without outer zeros, and the power of ten of the last one.
fn significant(mantissa: &str) -> (&str, &str, i64) {
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        let digits = whole.trim_end_matches('0');
        return (digits, "", length(whole) - length(digits));
    }
    let shift = -length(fraction);
    (whole, if whole.is_empty() { fraction.trim_start_matches('0') } else { fraction }, shift)
}

fn length(digits: &str) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}

/// The canonical text of a number written as a plain integer, optionally negative. `None` for what has a
/// fraction or an exponent, even if its value is whole: such a number is a measure, not somebody's number.
pub(super) fn plain_integer(text: &str) -> Option<Cow<'_, str>> {
    match text {
        "-0" => Some(Cow::Borrowed("0")),
        _ if text.contains(['.', 'e', 'E']) => None,
        _ => Some(Cow::Borrowed(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spelled(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        spell(text, &mut out).unwrap();
        out
    }

    #[test]
    fn equal_values_have_one_spelling() {
        let classes: [&[&str]; 7] = [
            &["0", "-0", "0.0", "-0.000", "0e5", "0E-99999999999999999999999999"],
            &["100", "1e2", "1E+2", "100.0", "0.01e4", "1000e-1", "1.00e002"],
            &["-1.5", "-15e-1", "-0.15e1", "-1.50"],
            &["9007199254740993", "9007199254740993.0", "9.007199254740993e15"],
            &["1e999999999", "10e999999998", "0.1e1000000000"],
            &["0.001", "1e-3", "0.1e-2", "0.0010"],
            &["1050", "105e1", "1.05e3", "0.00105e6"],
        ];
        for (i, class) in classes.iter().enumerate() {
            for text in *class {
                assert_eq!(spelled(text), spelled(class[0]), "{text} = {}", class[0]);
                for other in classes.iter().skip(i + 1).copied().flatten() {
                    assert_ne!(spelled(text), spelled(other), "{text} and {other}");
                }
            }
        }
    }

    #[test]
    fn values_that_floating_point_confuses_differ() {
        let table = [
            ("100", "100.0000000000000001"),
            ("9007199254740993", "9007199254740992"),
            ("1e400", "1e401"),
            ("1e-400", "0"),
            ("1", "-1"),
            ("0.1", "0.10000000000000000555"),
        ];
        for (one, other) in table {
            assert_ne!(spelled(one), spelled(other), "{one} and {other}");
        }
    }

    #[test]
    fn an_exponent_beyond_64_bits_is_refused_and_one_at_the_limit_is_not() {
        assert!(spell("1e9223372036854775807", &mut Vec::new()).is_ok());
        let mut out = Vec::new();
        for text in ["1e9223372036854775808", "10e9223372036854775807", "0.1e-9223372036854775808"] {
            assert_eq!(spell(text, &mut out), Err(ExponentTooLarge), "{text}");
        }
        assert!(out.is_empty());
    }

    #[test]
    fn only_plain_integers_are_integers() {
        assert_eq!(plain_integer("42").as_deref(), Some("42"));
        assert_eq!(plain_integer("-42").as_deref(), Some("-42"));
        assert_eq!(plain_integer("-0").as_deref(), Some("0"));
        for text in ["42.0", "4.2e1", "42E0"] {
            assert_eq!(plain_integer(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_same_value_written_with_another_point_or_exponent_spells_the_same(
            digits in "[1-9][0-9]{0,30}", point in 0_usize..31, exponent in -1000_i64..1000, zeros in 0_usize..5,
        ) {
            let point = point.min(digits.len());
            let (whole, fraction) = digits.split_at(point);
            let whole = if whole.is_empty() { "0" } else { whole };
            let moved = exponent + i64::try_from(digits.len() - point).unwrap();
            let other = format!("{whole}.{fraction}0{}e{moved}", "0".repeat(zeros));
            prop_assert_eq!(spelled(&format!("{digits}e{exponent}")), spelled(&other));
        }

        #[test]
        fn integers_spell_the_same_exactly_if_they_are_equal(one in any::<i32>(), other in any::<i32>()) {
            prop_assert_eq!(spelled(&one.to_string()) == spelled(&other.to_string()), one == other);
        }
    }
}
