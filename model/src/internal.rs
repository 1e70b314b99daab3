//! The hub's own headers on internal topics (design 14): an internal record is the CloudEvent in
//! binary mode plus these. A producer's own `hub-*` headers never travel, so they cannot be forged.

use crate::headers::{HeaderRef, Headers};
use crate::id::EventId;
use crate::packed::EVENT;
use crate::time::UnixMillis;

/// Format version of an internal record.
pub const VERSION: &str = "hub-v";
/// The version that this release writes; it reads this one and the one before.
pub const FORMAT: u32 = 2;
/// [`FORMAT`] as the text of its header.
pub const FORMAT_TEXT: &str = "2";
/// The normalised event id.
pub const ID: &str = "hub-id";
/// The tenant that the hub attributed the event to.
pub const TENANT: &str = "hub-tenant";
/// The schema major.
pub const MAJOR: &str = "hub-major";
/// When ingest first saw the event, Unix milliseconds.
pub const ARRIVAL: &str = "hub-arrival";
/// Where it was read: `<topic>/<partition>/<offset>`.
pub const FROM: &str = "hub-from";
/// The subscription of a job.
pub const SUBSCRIPTION: &str = "hub-subscription";
/// When a job was matched, Unix milliseconds.
pub const MATCHED: &str = "hub-matched";
/// The subscriptions table's position at the match (design 18).
pub const TABLE: &str = "hub-table";
/// How many attempts of a job have a recorded outcome.
pub const ATTEMPTS: &str = "hub-attempts";
/// When the next attempt of a job is due, Unix milliseconds.
pub const DUE: &str = "hub-due";
/// How a pull entry's data is shown: `none`, `json` or `base64`.
pub const EMBED: &str = "hub-embed";
/// The `seq` of the pull entry that a tombstone ends.
pub const SEQ: &str = "hub-seq";
/// Why a record is where it is: a quarantine's or a dead letter's reason.
pub const REASON: &str = "hub-reason";
/// The reason in words.
pub const DETAIL: &str = "hub-detail";
/// Error class of a dead letter's last attempt.
pub const CLASS: &str = "hub-class";
/// A dead letter's last response status.
pub const STATUS: &str = "hub-status";
/// The start of a dead letter's last response, at most 1 KiB, as it came.
pub const EXCERPT: &str = "hub-excerpt";
/// When a dead letter or a quarantined record was put there, Unix milliseconds.
pub const AT: &str = "hub-at";
/// A quarantined record's timestamp at its source, Unix milliseconds.
pub const TIMESTAMP: &str = "hub-timestamp";
/// A quarantined record's key at its source.
pub const KEY: &str = "hub-key";
/// Size of a value that was too large to keep, bytes.
pub const VALUE_BYTES: &str = "hub-value-bytes";
/// SHA-256 of a value that was too large to keep, lower-case hex.
pub const VALUE_SHA256: &str = "hub-value-sha256";

/// Why an internal record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A header that every record of this kind has is missing or malformed.
    #[error("internal record without a readable {0} header")]
    Header(&'static str),
    /// Written by a release that this one cannot read.
    #[error("internal record of format {found}; this release reads up to {FORMAT}: upgrade first")]
    Newer {
        /// The record's format.
        found: u32,
    },
}

/// Checks an internal record's format version.
///
/// # Errors
/// [`Error::Newer`] for a higher one, [`Error::Header`] when there is none.
pub fn check_version(headers: Headers<'_>) -> Result<(), Error> {
    match number::<u32>(headers, VERSION)? {
        found if found > FORMAT => Err(Error::Newer { found }),
        _ => Ok(()),
    }
}

/// A header's text.
///
/// # Errors
/// [`Error::Header`] when it is missing or no UTF-8.
pub fn text<'a>(headers: Headers<'a>, name: &'static str) -> Result<&'a str, Error> {
    let value = headers.last(name).ok_or(Error::Header(name))?;
    std::str::from_utf8(value).map_err(|_| Error::Header(name))
}

/// A header's decimal number.
///
/// # Errors
/// [`Error::Header`] when it is missing or no such number.
pub fn number<T: std::str::FromStr>(headers: Headers<'_>, name: &'static str) -> Result<T, Error> {
    text(headers, name)?.parse().map_err(|_| Error::Header(name))
}

/// Made-up headers as a record takes them.
pub fn refs<'a>(headers: &'a [(&'static str, String)]) -> impl Iterator<Item = HeaderRef<'a>> + 'a {
    headers.iter().map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())))
}

/// The header that says the format.
#[must_use]
pub fn version() -> HeaderRef<'static> {
    (VERSION.as_bytes(), Some(FORMAT_TEXT.as_bytes()))
}

/// What matching reads of an accepted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted<'a> {
    /// The event's id.
    pub id: EventId,
    /// Its tenant.
    pub tenant: &'a str,
    /// Schema major.
    pub major: u16,
    /// When ingest first saw it.
    pub arrival: UnixMillis,
    /// `ce-source`.
    pub origin: &'a str,
    /// `ce-resourcetype`.
    pub resource: &'a str,
    /// `ce-eventtype`.
    pub event: &'a str,
}

impl<'a> Accepted<'a> {
    /// Reads it from an internal record's headers.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(headers: Headers<'a>) -> Result<Self, Error> {
        check_version(headers)?;
        Ok(Self {
            id: EventId::parse(text(headers, ID)?).map_err(|_| Error::Header(ID))?,
            tenant: text(headers, TENANT)?,
            major: number(headers, MAJOR)?,
            arrival: UnixMillis(number(headers, ARRIVAL)?),
            origin: text(headers, "ce-source")?,
            resource: text(headers, "ce-resourcetype")?,
            event: text(headers, "ce-eventtype")?,
        })
    }
}

/// Whether a header of an accepted event goes along to the next internal topic: the event's own
/// and what ingest derived.
#[must_use]
pub fn is_carried(header: &HeaderRef<'_>) -> bool {
    let is_derived = |name: &[u8]| {
        [EVENT, ID, TENANT, MAJOR, ARRIVAL, FROM].iter().any(|own| own.as_bytes() == name)
    };
    crate::headers::bytes_travel(header.0) || header.0.starts_with(b"hub-") && is_derived(header.0)
}

/// The header that says the format, where no packed one says it.
pub fn version_beside(headers: &[HeaderRef<'_>]) -> Option<HeaderRef<'static>> {
    let is_packed = headers.iter().any(|(name, _)| *name == EVENT.as_bytes());
    (!is_packed).then(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_text_is_the_format() {
        assert_eq!(FORMAT_TEXT, FORMAT.to_string());
        assert_eq!(check_version(Headers::new(&[version()])), Ok(()));
    }
}
