//! Jobs of the deliveries log that are ready, by subscription and in order of arrival.
//!
//! Not the jobs themselves (those are in [`job`](super::job)), and not the retries (those are in
//! [`due`](super::due)).
//!
//! ```text
//! key    [family 0x03][subscription id 16][log offset u64]
//! value  [job id 16]
//! ```
//!
//! The invariant: scanning one subscription meets its jobs in the order in which they arrived in
//! the log, and scanning the family meets each subscription's jobs together.

use bytes::Bytes;

use super::first;
use crate::error::{Error, Problem};
use crate::wire::Reader;
use crate::{Family, Key, KeyRange, State};

const WHAT: &str = "ready entry";

/// The key of the job that arrived at `log_offset` for `subscription`.
#[must_use]
pub fn key(subscription: &[u8; 16], log_offset: u64) -> Key {
    Key::of(Family::Ready).with(subscription).with(&log_offset.to_be_bytes())
}

/// Subscription id and log offset of a key.
///
/// # Errors
/// [`Error::Decode`] for a key of another family or length.
pub fn decode_key(key: &[u8]) -> Result<([u8; 16], u64), Error> {
    let mut reader = Reader::new(WHAT, key);
    reader.family(Family::Ready)?;
    let decoded = (reader.array()?, reader.u64()?);
    reader.finish()?;
    Ok(decoded)
}

/// The value: the job's id.
#[must_use]
pub fn value(job: &[u8; 16]) -> Bytes {
    Bytes::copy_from_slice(job)
}

/// The job id in a value.
///
/// # Errors
/// [`Error::Decode`] for any length but 16.
pub fn decode_value(value: &[u8]) -> Result<[u8; 16], Error> {
    value.try_into().map_err(|_| Error::decode(WHAT, Problem::Field("job id")))
}

/// Every ready job of `subscription`, the first to arrive first.
#[must_use]
pub fn of_subscription(subscription: &[u8; 16]) -> KeyRange {
    KeyRange::prefix(Key::of(Family::Ready).with(subscription))
}

/// The first subscription above `after` that has a ready job, or the first of all; `None` when
/// there is no further one. Each call costs one seek, however many jobs it leaps over.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`]; [`Error::Decode`] for a key of another layout.
pub fn next_subscription(
    state: &State,
    after: Option<&[u8; 16]>,
) -> Result<Option<[u8; 16]>, Error> {
    let range = match after {
        None => KeyRange::family(Family::Ready),
        Some(subscription) => {
            KeyRange::family(Family::Ready).starting_after(&key(subscription, u64::MAX))
        }
    };
    first(state, &range, |key| decode_key(key).map(|(subscription, _)| subscription))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBase;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_ready_key_round_trips_and_orders_by_subscription_then_arrival(
            a: ([u8; 16], u64), b: ([u8; 16], u64),
        ) {
            prop_assert_eq!(decode_key(&key(&a.0, a.1)).unwrap(), a);
            prop_assert_eq!(key(&a.0, a.1).cmp(&key(&b.0, b.1)), a.cmp(&b));
            prop_assert_eq!(key(&a.0, a.1).cmp(&key(&a.0, b.1)), a.1.cmp(&b.1));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = (decode_key(&bytes), decode_value(&bytes));
        }
    }

    #[test]
    fn skipping_meets_each_subscription_once_and_in_order() {
        let mut state = State::new(Box::new(MemoryBase::new()));
        let subscriptions = [[0; 16], [1; 16], [0xff; 16]];
        for subscription in &subscriptions {
            for offset in [0, 7, u64::MAX] {
                state.put(key(subscription, offset), value(&[9; 16]));
            }
        }
        let mut met = Vec::new();
        while let Some(next) = next_subscription(&state, met.last()).unwrap() {
            met.push(next);
        }
        assert_eq!(met, subscriptions);
        assert_eq!(state.collect(&of_subscription(&[0xff; 16]), 9).unwrap().len(), 3);
    }
}
