//! Entries of pull subscriptions that were not removed yet, as their consumers see them.
//!
//! ```text
//! key    [family 0x14][subscription id 16][seq u64]
//! value  [entry id 16][ordinal u64][matched u64][the entry's JSON]
//! ```
//!
//! The entry id is the key of its record in the log, so that a tombstone can be written. The
//! *ordinal* counts the subscription's entries from 1 as they came into this store, without a gap:
//! the number of entries between two places is a difference. *Matched* is Unix milliseconds.
//!
//! The invariant: scanning one subscription meets its entries in ascending `seq`, and every entry
//! between two that are met.

use bytes::Bytes;

use crate::error::{Error, Problem};
use crate::wire::Reader;
use crate::{Family, Key, KeyRange};

const WHAT: &str = "pull entry";
const HEADER_BYTES: usize = 32;

/// The key of the entry `seq` of `subscription`.
#[must_use]
pub fn key(subscription: &[u8; 16], seq: u64) -> Key {
    Key::of(Family::PullEntry).with(subscription).with(&seq.to_be_bytes())
}

/// Subscription id and `seq` of a key.
///
/// # Errors
/// [`Error::Decode`] for a key of another family or length.
pub fn decode_key(key: &[u8]) -> Result<([u8; 16], u64), Error> {
    let mut reader = Reader::new(WHAT, key);
    reader.family(Family::PullEntry)?;
    let decoded = (reader.array()?, reader.u64()?);
    reader.finish()?;
    Ok(decoded)
}

/// What a value says beside the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The key of its record.
    pub id: [u8; 16],
    /// Its number among the subscription's entries, from 1.
    pub ordinal: u64,
    /// When it was matched, Unix milliseconds.
    pub matched_ms: u64,
}

impl Entry {
    /// The value: this and the entry's JSON.
    #[must_use]
    pub fn value(&self, json: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(HEADER_BYTES + json.len());
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.ordinal.to_be_bytes());
        out.extend_from_slice(&self.matched_ms.to_be_bytes());
        out.extend_from_slice(json);
        out.into()
    }
}

/// What a value says, and the entry's JSON.
///
/// # Errors
/// [`Error::Decode`] for a value that is too short.
pub fn decode_value(value: &[u8]) -> Result<(Entry, &[u8]), Error> {
    let Some((header, json)) = value.split_at_checked(HEADER_BYTES) else {
        return Err(Error::decode(WHAT, Problem::Field("header")));
    };
    let mut reader = Reader::new(WHAT, header);
    let entry = Entry { id: reader.array()?, ordinal: reader.u64()?, matched_ms: reader.u64()? };
    Ok((entry, json))
}

/// The entries of `subscription` behind `seq`, in order.
#[must_use]
pub fn behind(subscription: &[u8; 16], seq: u64) -> KeyRange {
    of_subscription(subscription).starting_after(&key(subscription, seq))
}

/// All entries of `subscription`, in order.
#[must_use]
pub fn of_subscription(subscription: &[u8; 16]) -> KeyRange {
    KeyRange::prefix(Key::of(Family::PullEntry).with(subscription))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entry_key_round_trips_and_orders_by_subscription_then_seq(
            a: ([u8; 16], u64), b: ([u8; 16], u64),
        ) {
            prop_assert_eq!(decode_key(&key(&a.0, a.1)).unwrap(), a);
            prop_assert_eq!(key(&a.0, a.1).cmp(&key(&b.0, b.1)), a.cmp(&b));
            let range = behind(&a.0, a.1);
            let key = key(&a.0, b.1);
            let inside = range.from() <= key.as_slice() && key.as_slice() < range.to();
            prop_assert_eq!(inside, b.1 > a.1);
        }

        #[test]
        fn a_value_round_trips(id: [u8; 16], ordinal: u64, matched_ms: u64, json: Vec<u8>) {
            let entry = Entry { id, ordinal, matched_ms };
            let value = entry.value(&json);
            prop_assert_eq!(decode_value(&value).unwrap(), (entry, &json[..]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = (decode_key(&bytes), decode_value(&bytes));
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let mut expected = vec![0x14];
        expected.extend([7; 16]);
        expected.extend([0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(key(&[7; 16], 0x102).as_slice(), expected);
    }
}
