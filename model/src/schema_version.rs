//! `ce-schemaversion`: semantic versions as the platform's producers write them, of which matching
//! uses the major alone (contract section 1). The text itself is carried as it came.

/// The longest schema version, bytes. Semantic versions have no bound of their own; this one is
/// carried in a request header.
pub const SCHEMA_VERSION_BYTES_MAX: usize = 256;

/// The text is no schema version, or its major is above 65,535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a semantic version with a major of 0 to 65535")]
pub struct Error;

/// The major of a schema version.
///
/// The grammar is that of Go's `golang.org/x/mod/semver` with the leading `v` optional: one to
/// three numbers without leading zeros; a pre-release and build data only behind all three.
///
/// # Errors
/// [`Error`] for anything else, and for more than [`SCHEMA_VERSION_BYTES_MAX`] bytes.
pub fn major(text: &str) -> Result<u16, Error> {
    if text.len() > SCHEMA_VERSION_BYTES_MAX {
        return Err(Error);
    }
    let version = text.strip_prefix('v').unwrap_or(text);
    let (version, build) = split(version, '+');
    let (numbers, pre_release) = split(version, '-');
    let mut parts = numbers.split('.');
    let major = parts.next().filter(|part| is_number(part)).ok_or(Error)?;
    let minor = parts.next();
    let patch = parts.next();
    let complete = patch.is_some() || (pre_release.is_none() && build.is_none());
    let well_formed = parts.next().is_none()
        && complete
        && [minor, patch].into_iter().flatten().all(is_number)
        && pre_release.is_none_or(|ids| identifiers(ids).all(is_pre_release_id))
        && build.is_none_or(|ids| identifiers(ids).all(is_identifier));
    if !well_formed {
        return Err(Error);
    }
    major.parse().map_err(|_| Error)
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split('.')
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_number(text: &str) -> bool {
    is_digits(text) && (text == "0" || !text.starts_with('0'))
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn is_pre_release_id(text: &str) -> bool {
    is_identifier(text) && (!is_digits(text) || is_number(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_as_producers_write_them_have_a_major() {
        let table = [
            ("2.1.0", 2),
            ("v2.1.0", 2),
            ("2", 2),
            ("v2", 2),
            ("2.1", 2),
            ("2.1.0-rc.1", 2),
            ("2.1.0+build.5", 2),
            ("2.1.0-rc.1+build.05", 2),
            ("2.1.0-x-y", 2),
            ("2.1.0+a-b", 2),
            ("0.3.0", 0),
            ("0", 0),
            ("65535.0.0", 65535),
            ("1.99999999999999999999.0", 1),
        ];
        for (text, expected) in table {
            assert_eq!(major(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_semantic_version_is_refused() {
        for text in [
            "latest",
            "2.1.0.0",
            "02.1.0",
            "2.01.0",
            "2.1.00",
            "",
            "v",
            "V2",
            "vv2",
            "2.",
            ".2",
            "2..0",
            "2.1.",
            "-1.0.0",
            "+1",
            " 2",
            "2 ",
            "2.1.0-",
            "2.1.0+",
            "2.1.0-rc..1",
            "2.1.0-01",
            "2.1.0-rc_1",
            "2.1.0+b+c",
            "2-rc.1",
            "2.1-rc.1",
            "2+b",
            "2.1+b",
            "65536",
            "65536.0.0",
            "99999999999999999999",
            "٢.1.0",
            "2,1,0",
            "1.0.0\n",
        ] {
            assert_eq!(major(text), Err(Error), "{text:?}");
        }
        let long = format!("1.0.0-{}", "a".repeat(SCHEMA_VERSION_BYTES_MAX));
        assert_eq!(major(&long), Err(Error));
        assert_eq!(major(&long[..SCHEMA_VERSION_BYTES_MAX]), Ok(1));
    }

    proptest! {
        #[test]
        fn every_major_is_read_back(
            wanted: u16, minor: u32, patch: u32, v: bool,
            tail in "(-[a-z][a-z0-9-]{0,5}(\\.[1-9])?)?(\\+[a-z0-9]{1,5})?",
        ) {
            let v = if v { "v" } else { "" };
            prop_assert_eq!(major(&format!("{v}{wanted}")), Ok(wanted));
            prop_assert_eq!(major(&format!("{v}{wanted}.{minor}")), Ok(wanted));
            prop_assert_eq!(major(&format!("{v}{wanted}.{minor}.{patch}{tail}")), Ok(wanted));
            let four = format!("{v}{wanted}.{minor}.{patch}.0");
            prop_assert_eq!(major(&four), Err(Error));
        }

        #[test]
        fn reading_any_text_never_panics(text in "\\PC{0,30}") {
            let _ = major(&text);
        }
    }
}
