//! Points in time as people write them.

use super::Timestamp;

/// The first millisecond of the year 10000, which RFC 3339 can't write.
const YEAR_10000: i64 = 253_402_300_800_000;

const DAY_MILLIS: i64 = 86_400_000;

/// `2026-03-01T12:34:56.789Z`. What is outside the years that this can spell becomes the nearest inside.
pub(super) fn rfc3339(time: Timestamp) -> String {
    let millis = time.0.clamp(0, YEAR_10000 - 1);
    let (year, month, day) = civil(millis / DAY_MILLIS);
    let of_day = millis % DAY_MILLIS;
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month and day, of days since 1970. Years are counted from March, so that a leap day is the last of its
/// year, and in cycles of 400 years, which all have the same days.
fn civil(days: i64) -> (i64, i64, i64) {
    const CYCLE: i64 = 146_097;
    // From 0000-03-01 to 1970-01-01.
    let days = days + 719_468;
    let (cycle, day) = (days / CYCLE, days % CYCLE);
    let year = (day - day / 1460 + day / 36_524 - day / (CYCLE - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let day = day - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (cycle * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spelled_as_rfc_3339_wants() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599_001, "2024-12-31T23:59:59.001Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (YEAR_10000 - 1, "9999-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(Timestamp(millis)), expected);
        }
    }

    #[test]
    fn each_day_of_some_centuries_follows_the_one_before() {
        let mut before = civil(0);
        for day in 1..200_000 {
            let (year, month, of_month) = civil(day);
            let (last_year, last_month, last_of_month) = before;
            let follows = (year, month, of_month) == (last_year, last_month, last_of_month + 1)
                || (year, month, of_month) == (last_year, last_month + 1, 1)
                || (year, month, of_month) == (last_year + 1, 1, 1) && (last_month, last_of_month) == (12, 31);
            assert!(follows && of_month <= 31 && month <= 12, "{day}: {before:?} then {year}-{month}-{of_month}");
            before = (year, month, of_month);
        }
    }
}
