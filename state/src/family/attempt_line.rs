//! The last attempts of each subscription: lines of the attempt log, in a ring of [`SLOTS`].
//!
//! ```text
//! key    [family 0x0a][subscription id 16][slot u8]
//! value  [started_ms i64][number u64][the line, JSON]
//! ```
//!
//! A line's number grows by one with each attempt of its subscription, and its slot is the number
//! modulo [`SLOTS`]: a new line overwrites the oldest, so that nothing has to be deleted on the
//! path of an attempt, and a line that is restored twice lies in the same slot. The value begins
//! with a time, so that an [`ExpiryRule`](crate::ExpiryRule) removes what is too old.

use bytes::Bytes;

use crate::error::Error;
use crate::wire::Reader;
use crate::{Family, Key, KeyRange};

const WHAT: &str = "attempt line";

/// How many lines a subscription has at the most (contract section 8).
pub const SLOTS: u64 = 200;

/// The key of a subscription's line of this number.
#[must_use]
pub fn key(subscription: &[u8; 16], number: u64) -> Key {
    // Below 200, which fits a byte.
    let slot = (number % SLOTS) as u8;
    Key::of(Family::AttemptLine).with(subscription).with(&[slot])
}

/// The value: when the attempt started, the line's number, and the line.
#[must_use]
pub fn value(started_ms: i64, number: u64, line: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(16 + line.len());
    out.extend_from_slice(&started_ms.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(line);
    out.into()
}

/// Start (Unix milliseconds), number and line of a value.
///
/// # Errors
/// [`Error::Decode`] for a value that is too short.
pub fn decode_value(value: &[u8]) -> Result<(i64, u64, &[u8]), Error> {
    let mut reader = Reader::new(WHAT, value);
    Ok((reader.i64()?, reader.u64()?, reader.rest()))
}

/// The lines of one subscription, by slot.
#[must_use]
pub fn of_subscription(subscription: &[u8; 16]) -> KeyRange {
    KeyRange::prefix(Key::of(Family::AttemptLine).with(subscription))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_line_round_trips_and_lies_in_one_of_the_slots(
            subscription: [u8; 16], started: i64, number: u64, line: Vec<u8>,
        ) {
            let value = value(started, number, &line);
            prop_assert_eq!(decode_value(&value).unwrap(), (started, number, &line[..]));
            prop_assert_eq!(value.first_chunk().map(|b| i64::from_be_bytes(*b)), Some(started));
            let key = key(&subscription, number);
            prop_assert!(u64::from(key[17]) < SLOTS);
            prop_assert_eq!(&key[..17], &[&[0x0a][..], &subscription].concat()[..]);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = decode_value(&bytes);
        }
    }
}
