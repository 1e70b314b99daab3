//! How far each pull subscription's log goes, whether its entries are still there or not.
//!
//! ```text
//! key    [family 0x15][subscription id 16]
//! value  [high u64][total u64][table u64][home u64]
//! ```
//!
//! *High* is the highest `seq` of the subscription, *total* the ordinal of that entry, *table* the
//! highest position of the subscriptions table at a match of its entries, in the partition *home*
//! of that table.
//!
//! The invariant: no entry of the subscription has a higher `seq` or ordinal.

use bytes::Bytes;

use super::first;
use crate::error::{Error, Problem};
use crate::wire::Reader;
use crate::{Family, Key, KeyRange, State};

const WHAT: &str = "pull head";

/// The key of `subscription`.
#[must_use]
pub fn key(subscription: &[u8; 16]) -> Key {
    Key::of(Family::PullHead).with(subscription)
}

/// How far a log goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head {
    /// The highest `seq`; 0 without an entry.
    pub high: u64,
    /// How many entries there were in this store.
    pub total: u64,
    /// The highest position of the subscriptions table at a match.
    pub table: u64,
    /// The table's partition that the position is of.
    pub home: u64,
}

impl Head {
    /// The value.
    #[must_use]
    pub fn value(&self) -> Bytes {
        let numbers = [self.high, self.total, self.table, self.home].map(u64::to_be_bytes);
        Bytes::copy_from_slice(numbers.as_flattened())
    }
}

/// What a value says.
///
/// # Errors
/// [`Error::Decode`] for any length but 32.
pub fn decode_value(value: &[u8]) -> Result<Head, Error> {
    let mut reader = Reader::new(WHAT, value);
    let [high, total] = [reader.u64()?, reader.u64()?];
    let head = Head { high, total, table: reader.u64()?, home: reader.u64()? };
    reader.finish()?;
    Ok(head)
}

/// The first subscription above `after` that has a head, or the first of all; `None` when there is
/// no further one.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`]; [`Error::Decode`] for a key of another layout.
pub fn next_subscription(
    state: &State,
    after: Option<&[u8; 16]>,
) -> Result<Option<[u8; 16]>, Error> {
    let range = match after {
        None => all(),
        Some(subscription) => all().starting_after(&key(subscription)),
    };
    first(state, &range, |key| {
        subscription_of(key).ok_or_else(|| Error::decode(WHAT, Problem::Field("subscription id")))
    })
}

/// All heads.
#[must_use]
pub fn all() -> KeyRange {
    KeyRange::family(Family::PullHead)
}

/// The subscription of a key.
#[must_use]
pub fn subscription_of(key: &[u8]) -> Option<[u8; 16]> {
    key.get(1..)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBase;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_round_trips(high: u64, total: u64, table: u64, home: u64) {
            let head = Head { high, total, table, home };
            prop_assert_eq!(decode_value(&head.value()).unwrap(), head);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = decode_value(&bytes);
        }
    }

    #[test]
    fn subscriptions_are_met_once_and_in_order() {
        let mut state = State::new(Box::new(MemoryBase::new()));
        let all = [[0; 16], [1; 16], [0xff; 16]];
        for id in &all {
            state.put(key(id), Head::default().value());
        }
        let mut met: Vec<[u8; 16]> = Vec::new();
        while let Some(next) = next_subscription(&state, met.last()).unwrap() {
            met.push(next);
        }
        assert_eq!(met, all);
        assert_eq!(key(&[2; 16]).as_slice()[..3], [0x15, 2, 2]);
    }
}
