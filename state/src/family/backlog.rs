//! How much waits: jobs and bytes of each subscription, and in each place.
//!
//! Not the jobs themselves: those are in [`job`](super::job), and every write of one changes its
//! count here in the same batch, so that the two cannot drift apart.
//!
//! ```text
//! key    [family 0x0c][subscription id 16]
//! value  [ready u64][retries u64][bytes u64]
//! key    [family 0x0c][0 16][place u8]
//! value  [jobs u64][bytes u64]
//! ```
//!
//! The invariant: the entry of a subscription, and that of a place, counts exactly its jobs in the
//! store; without jobs there is no entry.

use bytes::Bytes;

use super::Place;
use crate::error::Error;
use crate::wire::Reader;
use crate::{Family, Key, KeyRange, State};

const WHAT: &str = "backlog entry";

/// What waits for one subscription.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Jobs that wait for their first attempt.
    pub ready: u64,
    /// Jobs that wait for a retry.
    pub retries: u64,
    /// Bytes of all of them, as they lie in the store.
    pub bytes: u64,
}

impl Backlog {
    /// All its jobs.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        self.ready + self.retries
    }
}

/// The key of a subscription's count.
#[must_use]
pub fn key(subscription: &[u8; 16]) -> Key {
    Key::of(Family::Backlog).with(subscription)
}

/// The subscription of a key.
///
/// # Errors
/// [`Error::Decode`] for a key of another family or length.
pub fn decode_key(key: &[u8]) -> Result<[u8; 16], Error> {
    let mut reader = Reader::new(WHAT, key);
    reader.family(Family::Backlog)?;
    let subscription = reader.array()?;
    reader.finish()?;
    Ok(subscription)
}

/// The value.
#[must_use]
pub fn value(backlog: Backlog) -> Bytes {
    let numbers = [backlog.ready, backlog.retries, backlog.bytes];
    Bytes::from(numbers.map(u64::to_be_bytes).concat())
}

/// The count in a value.
///
/// # Errors
/// [`Error::Decode`] for another length.
pub fn decode_value(value: &[u8]) -> Result<Backlog, Error> {
    let mut reader = Reader::new(WHAT, value);
    let (ready, retries, bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
    reader.finish()?;
    Ok(Backlog { ready, retries, bytes })
}

/// The key of a place's count. No subscription has an id of zeros, and none is as long.
#[must_use]
pub fn place_key(place: Place) -> Key {
    Key::of(Family::Backlog).with(&[0; 16]).with(&[place.number()])
}

/// Jobs in a place, and their bytes.
///
/// # Errors
/// As [`get`].
pub fn in_place(state: &State, place: Place) -> Result<(u64, u64), Error> {
    let Some(value) = state.get(&place_key(place))? else { return Ok((0, 0)) };
    let mut reader = Reader::new(WHAT, &value);
    let counts = (reader.u64()?, reader.u64()?);
    reader.finish()?;
    Ok(counts)
}

/// All counts.
#[must_use]
pub fn all() -> KeyRange {
    KeyRange::family(Family::Backlog)
}

/// What waits for a subscription.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`], [`Error::Decode`].
pub fn get(state: &State, subscription: &[u8; 16]) -> Result<Backlog, Error> {
    state.get(&key(subscription))?.map_or(Ok(Backlog::default()), |value| decode_value(&value))
}

/// Counts a job of so many bytes that came to a place, or left it.
///
/// # Errors
/// As [`get`].
pub fn count(
    state: &mut State,
    subscription: &[u8; 16],
    (place, bytes): (Place, usize),
    came: bool,
) -> Result<(), Error> {
    let mut backlog = get(state, subscription)?;
    let jobs = if place == Place::DELIVERIES { &mut backlog.ready } else { &mut backlog.retries };
    let bytes = bytes as u64;
    if came {
        *jobs += 1;
        backlog.bytes += bytes;
    } else {
        *jobs = jobs.saturating_sub(1);
        backlog.bytes = backlog.bytes.saturating_sub(bytes);
    }
    match backlog.jobs() {
        0 => state.delete(key(subscription)),
        _ => state.put(key(subscription), value(backlog)),
    }
    let (jobs, total) = in_place(state, place)?;
    let (jobs, total) = match came {
        true => (jobs + 1, total + bytes),
        false => (jobs.saturating_sub(1), total.saturating_sub(bytes)),
    };
    match jobs {
        0 => state.delete(place_key(place)),
        _ => state.put(place_key(place), [jobs, total].map(u64::to_be_bytes).concat()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBase;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_backlog_entry_round_trips(id: [u8; 16], ready: u64, retries: u64, bytes: u64) {
            let backlog = Backlog { ready, retries, bytes };
            prop_assert_eq!(decode_key(&key(&id)).unwrap(), id);
            prop_assert_eq!(decode_value(&value(backlog)).unwrap(), backlog);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = (decode_key(&bytes), decode_value(&bytes));
        }
    }

    #[test]
    fn what_came_and_left_again_leaves_no_entry() {
        let mut state = State::new(Box::new(MemoryBase::new()));
        let (ready, tier) = (Place::DELIVERIES, Place::from_number(3).unwrap());
        count(&mut state, &[1; 16], (ready, 10), true).unwrap();
        count(&mut state, &[1; 16], (tier, 20), true).unwrap();
        let both = Backlog { ready: 1, retries: 1, bytes: 30 };
        assert_eq!(get(&state, &[1; 16]).unwrap(), both);
        assert_eq!(both.jobs(), 2);
        assert_eq!(in_place(&state, tier).unwrap(), (1, 20));
        count(&mut state, &[1; 16], (ready, 10), false).unwrap();
        count(&mut state, &[1; 16], (tier, 20), false).unwrap();
        assert_eq!(get(&state, &[1; 16]).unwrap(), Backlog::default());
        assert_eq!(state.collect(&all(), 9).unwrap(), []);
    }
}
