//! Durable claims of jobs that were restored (design 21), by job.
//!
//! ```text
//! key    [family 0x0b][job id 16]
//! value  the record of `<app>-claims`, JSON
//! ```

use crate::error::Error;
use crate::wire::Reader;
use crate::{Family, Key, KeyRange};

/// The key of a job's claim.
#[must_use]
pub fn key(job: &[u8; 16]) -> Key {
    Key::of(Family::Claim).with(job)
}

/// The job of a key.
///
/// # Errors
/// [`Error::Decode`] for a key of another family or length.
pub fn decode_key(key: &[u8]) -> Result<[u8; 16], Error> {
    let mut reader = Reader::new("claim", key);
    reader.family(Family::Claim)?;
    let job = reader.array()?;
    reader.finish()?;
    Ok(job)
}

/// All claims.
#[must_use]
pub fn all() -> KeyRange {
    KeyRange::family(Family::Claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_round_trips_and_other_bytes_are_none() {
        assert_eq!(decode_key(&key(&[7; 16])).unwrap(), [7; 16]);
        assert_eq!(key(&[7; 16])[..], [&[11][..], &[7; 16]].concat());
        assert!(decode_key(&[11]).is_err() && decode_key(b"").is_err());
    }
}
