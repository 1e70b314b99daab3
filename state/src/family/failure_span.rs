//! Failure spans by subscription: since when its attempts have failed without a success.
//!
//! ```text
//! key    [family 0x0d][subscription id 16]
//! value  the record of `<app>-failures`, JSON
//! ```

use crate::error::Error;
use crate::wire::Reader;
use crate::{Family, Key, KeyRange};

/// The key of a subscription's span.
#[must_use]
pub fn key(subscription: &[u8; 16]) -> Key {
    Key::of(Family::FailureSpan).with(subscription)
}

/// The subscription of a key.
///
/// # Errors
/// [`Error::Decode`] for a key of another family or length.
pub fn decode_key(key: &[u8]) -> Result<[u8; 16], Error> {
    let mut reader = Reader::new("failure span", key);
    reader.family(Family::FailureSpan)?;
    let subscription = reader.array()?;
    reader.finish()?;
    Ok(subscription)
}

/// All spans.
#[must_use]
pub fn all() -> KeyRange {
    KeyRange::family(Family::FailureSpan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_round_trips_and_other_bytes_are_none() {
        assert_eq!(decode_key(&key(&[7; 16])).unwrap(), [7; 16]);
        assert_eq!(key(&[7; 16])[..], [&[13][..], &[7; 16]].concat());
        assert!(decode_key(&[13]).is_err() && decode_key(b"").is_err());
    }
}
