//! `ce-time`: the timestamps of RFC 3339, section 5.6, and nothing more. General parsers accept
//! further forms (a space for the `T`, no offset, years of six digits), which would let a record
//! pass here that the next reader refuses.

/// Why a text is no timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not have the shape of one.
    #[error("not of the form `YYYY-MM-DDThh:mm:ss[.fraction](Z|+hh:mm|-hh:mm)`")]
    Shape,
    /// The shape fits, but there is no such day, time or offset.
    #[error("no such date, time or offset")]
    Range,
}

/// The instant that this text names, whole milliseconds since the Unix epoch (rounded towards the
/// past). `T` and `Z` may be lower case, the fraction may have any number of digits, and a leap
/// second is taken where one can be, at 23:59:60 UTC; as in Unix time it is the second after.
///
/// # Errors
/// See [`Error`].
pub fn parse_millis(text: &str) -> Result<i64, Error> {
    let (fixed, rest) = text.as_bytes().split_first_chunk::<19>().ok_or(Error::Shape)?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T' | b't', clock @ ..] = fixed else {
        return Err(Error::Shape);
    };
    let [h1, h2, b':', n1, n2, b':', s1, s2] = clock else { return Err(Error::Shape) };
    let year = number(&[*y1, *y2, *y3, *y4])?;
    let (month, day) = (number(&[*m1, *m2])?, number(&[*d1, *d2])?);
    let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*n1, *n2])?, number(&[*s1, *s2])?);
    let (fraction_ms, rest) = fraction(rest)?;
    let offset_min = offset(rest)?;
    let in_range = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour <= 23
        && minute <= 59
        && second <= 60;
    let minutes = (days_from_epoch(year, month, day) * 24 + hour) * 60 + minute - offset_min;
    let leaps_wrongly = second == 60 && minutes.rem_euclid(24 * 60) != 24 * 60 - 1;
    if !in_range || leaps_wrongly {
        return Err(Error::Range);
    }
    Ok((minutes * 60 + second) * 1000 + fraction_ms)
}

fn number(digits: &[u8]) -> Result<i64, Error> {
    digits.iter().try_fold(0, |value, digit| match digit {
        b'0'..=b'9' => Ok(value * 10 + i64::from(digit - b'0')),
        _ => Err(Error::Shape),
    })
}

/// Reads `[.digits]`: its whole milliseconds, and what follows.
fn fraction(text: &[u8]) -> Result<(i64, &[u8]), Error> {
    let Some((b'.', rest)) = text.split_first() else { return Ok((0, text)) };
    let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if len == 0 {
        return Err(Error::Shape);
    }
    let (digits, rest) = rest.split_at(len);
    let millis = (0..3).map(|i| digits.get(i).map_or(0, |digit| i64::from(digit - b'0')));
    Ok((millis.fold(0, |value, digit| value * 10 + digit), rest))
}

/// Reads `Z`, `+hh:mm` or `-hh:mm`, minutes east of UTC.
fn offset(text: &[u8]) -> Result<i64, Error> {
    let (sign, h1, h2, m1, m2) = match text {
        [b'Z' | b'z'] => return Ok(0),
        [b'+', h1, h2, b':', m1, m2] => (1, h1, h2, m1, m2),
        [b'-', h1, h2, b':', m1, m2] => (-1, h1, h2, m1, m2),
        _ => return Err(Error::Shape),
    };
    let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
    if hours > 23 || minutes > 59 {
        return Err(Error::Range);
    }
    Ok(sign * (hours * 60 + minutes))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar. Years are counted from March, so that
/// the leap day is the last of its year.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_forms_of_rfc_3339_name_their_instant() {
        let table = [
            ("1970-01-01T00:00:00Z", 0),
            ("1985-04-12T23:20:50.52Z", 482_196_050_520),
            ("1996-12-19T16:39:57-08:00", 851_042_397_000),
            ("1937-01-01T12:00:27.87+00:20", -1_041_337_172_130),
            ("1990-12-31T23:59:60Z", 662_688_000_000),
            ("1990-12-31T15:59:60-08:00", 662_688_000_000),
            ("2026-09-21T14:13:02.000015838Z", 1_789_999_982_000),
            ("2026-09-21T11:13:02-03:00", 1_789_999_982_000),
            ("2026-09-21t14:13:02z", 1_789_999_982_000),
            ("2026-09-21T14:13:02.1Z", 1_789_999_982_100),
            ("2026-09-21T14:13:02.9999999999999999999Z", 1_789_999_982_999),
            ("2026-09-21T14:13:02-00:00", 1_789_999_982_000),
            ("1969-12-31T23:59:59.999Z", -1),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000),
            ("9999-12-31T23:59:59.999-23:59", 253_402_387_139_999),
        ];
        for (text, millis) in table {
            assert_eq!(parse_millis(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn what_has_another_shape_is_refused() {
        for text in [
            "",
            "21/09/2026 14:13",
            "2026-09-21 14:13:02Z",
            "2026-09-21T14:13:02",
            "2026-09-21T14:13Z",
            "2026-09-21T14:13:02.Z",
            "2026-09-21T14:13:02,5Z",
            "2026-09-21T14:13:02+0300",
            "2026-09-21T14:13:02+03",
            "2026-09-21T14:13:02Z ",
            " 2026-09-21T14:13:02Z",
            "2026-09-21T14:13:02ZZ",
            "2026-09-21T14:13:02Z[UTC]",
            "2026-9-21T14:13:02Z",
            "20260921T141302Z",
            "10000-01-01T00:00:00Z",
            "+02026-09-21T14:13:02Z",
            "-026-09-21T14:13:02Z",
            "2026-09-21T14:13:0\u{665}Z",
            "2026-09-21T14:13:02\u{2212}03:00",
        ] {
            assert_eq!(parse_millis(text), Err(Error::Shape), "{text:?}");
        }
    }

    #[test]
    fn a_day_or_time_that_does_not_exist_is_refused() {
        for text in [
            "2026-00-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-32T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T12:30:60Z",
            "2026-01-01T23:59:60-01:00",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+00:60",
        ] {
            assert_eq!(parse_millis(text), Err(Error::Range), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_instant_survives_its_text(
            millis in -62_135_596_800_000i64..253_402_207_200_000, offset_min in -1439i32..=1439,
        ) {
            let at = jiff::Timestamp::from_millisecond(millis).unwrap();
            prop_assert_eq!(parse_millis(&at.to_string()), Ok(millis));
            let offset = jiff::tz::Offset::from_seconds(offset_min * 60).unwrap();
            let local = offset.to_datetime(at);
            prop_assume!((0..=9999).contains(&local.year()));
            let (sign, min) = (if offset_min < 0 { '-' } else { '+' }, offset_min.abs());
            let text = format!("{local}{sign}{:02}:{:02}", min / 60, min % 60);
            prop_assert_eq!(parse_millis(&text), Ok(millis), "{}", text);
        }

        #[test]
        fn days_are_those_of_the_calendar(year in 0i16..=9999, month in 1i8..=12, day in 1i8..=31) {
            let text = format!("{year:04}-{month:02}-{day:02}T00:00:00Z");
            let exists = jiff::civil::Date::new(year, month, day).is_ok();
            prop_assert_eq!(parse_millis(&text).is_ok(), exists, "{}", text);
        }

        #[test]
        fn reading_any_text_never_panics(text in "\\PC{0,40}", digits in "[0-9TZ:.+-]{0,30}") {
            let _ = (parse_millis(&text), parse_millis(&digits));
        }
    }
}
