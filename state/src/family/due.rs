//! Jobs of the retry tiers, by subscription and the time at which they are due.
//!
//! Not the jobs themselves: those are in [`job`](super::job). The index is a view of the tiers'
//! records and is written with them.
//!
//! ```text
//! key    [family 0x04][subscription id 16][due_ms u64][job id 16]
//! value  [place u8]
//! ```
//!
//! The invariant: a scan of a subscription meets its jobs in the order in which they fall due, and
//! no other subscription's jobs.

use bytes::Bytes;

use super::{Place, first};
use crate::error::Error;
use crate::wire::Reader;
use crate::{Family, Key, KeyRange, State};

const WHAT: &str = "due entry";

/// The key of `job` of `subscription`, due at `due_ms` (milliseconds since the Unix epoch).
#[must_use]
pub fn key(subscription: &[u8; 16], due_ms: u64, job: &[u8; 16]) -> Key {
    Key::of(Family::Due).with(subscription).with(&due_ms.to_be_bytes()).with(job)
}

/// Subscription id, due time in milliseconds and job id of a key.
///
/// # Errors
/// [`Error::Decode`] for a key of another family or length.
pub fn decode_key(key: &[u8]) -> Result<([u8; 16], u64, [u8; 16]), Error> {
    let mut reader = Reader::new(WHAT, key);
    reader.family(Family::Due)?;
    let decoded = (reader.array()?, reader.u64()?, reader.array()?);
    reader.finish()?;
    Ok(decoded)
}

/// The value: where the job lies.
#[must_use]
pub fn value(place: Place) -> Bytes {
    Bytes::copy_from_slice(&[place.number()])
}

/// The place in a value.
///
/// # Errors
/// [`Error::Decode`] for another length or an unknown place.
pub fn decode_value(value: &[u8]) -> Result<Place, Error> {
    let mut reader = Reader::new(WHAT, value);
    let place = Place::read(&mut reader)?;
    reader.finish()?;
    Ok(place)
}

/// The jobs of one subscription, soonest first.
#[must_use]
pub fn of_subscription(subscription: &[u8; 16]) -> KeyRange {
    KeyRange::prefix(Key::of(Family::Due).with(subscription))
}

/// The first subscription with a job after `after`, in order of ids; the first of all for `None`.
/// Skips over the other jobs of a subscription, however many there are.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`], [`Error::Decode`].
pub fn next_subscription(
    state: &State,
    after: Option<&[u8; 16]>,
) -> Result<Option<[u8; 16]>, Error> {
    let all = KeyRange::family(Family::Due);
    let range = match after {
        None => all,
        Some(subscription) => all.starting_after(&key(subscription, u64::MAX, &[0xff; 16])),
    };
    first(state, &range, |key| decode_key(key).map(|(subscription, ..)| subscription))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBase;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_due_entry_round_trips_and_orders_by_subscription_then_time(
            a: ([u8; 16], u64, [u8; 16]), b: ([u8; 16], u64, [u8; 16]), place in 0u8..=11,
        ) {
            let place = Place::from_number(place).unwrap();
            prop_assert_eq!(decode_key(&key(&a.0, a.1, &a.2)).unwrap(), a);
            prop_assert_eq!(decode_value(&value(place)).unwrap(), place);
            prop_assert_eq!(key(&a.0, a.1, &a.2).cmp(&key(&b.0, b.1, &b.2)), a.cmp(&b));
            prop_assert_eq!(key(&a.0, a.1, &a.2).cmp(&key(&a.0, b.1, &a.2)), a.1.cmp(&b.1));
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
            for due_ms in [0, 7, u64::MAX] {
                state.put(key(subscription, due_ms, &[0xff; 16]), value(Place::DELIVERIES));
            }
        }
        let mut met = Vec::new();
        while let Some(next) = next_subscription(&state, met.last()).unwrap() {
            met.push(next);
        }
        assert_eq!(met, subscriptions);
        assert_eq!(state.collect(&of_subscription(&[1; 16]), 9).unwrap().len(), 3);
    }
}
