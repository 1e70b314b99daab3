//! Dead letters: the Kafka record of a job that ended without delivery, and two views of them.
//!
//! ```text
//! key    [family 0x07][job id 16]                                     the letter
//! value  [subscription id 16][at_ms u64][a Record, see there]
//!
//! key    [family 0x08][subscription id 16][at_ms u64][job id 16]      the listing
//! value  [reason length u8][reason][tenant to the end]
//!
//! key    [family 0x09][subscription id 16]                            the count
//! value  [letters u64]
//! ```
//!
//! The invariant: a letter has exactly one entry in the listing, and a subscription's count is the
//! number of its entries. A scan of a subscription meets its letters oldest first, and no other
//! subscription's.

use bytes::Bytes;

use super::first;
use crate::error::{Error, Problem};
use crate::wire::Reader;
use crate::{Family, Key, KeyRange, State};

const LETTER: &str = "dead letter";
const LISTED: &str = "dead letter's listing";
const COUNT: &str = "count of dead letters";

/// The key of a letter.
#[must_use]
pub fn key(job: &[u8; 16]) -> Key {
    Key::of(Family::DeadLetter).with(job)
}

/// Where a letter stands in the listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The job's subscription.
    pub subscription: [u8; 16],
    /// When it ended, Unix milliseconds.
    pub at_ms: u64,
}

/// A letter's value: this entry and an encoded record.
#[must_use]
pub fn value(entry: Entry, record: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(24 + record.len());
    out.extend_from_slice(&entry.subscription);
    out.extend_from_slice(&entry.at_ms.to_be_bytes());
    out.extend_from_slice(record);
    out.into()
}

/// Entry and encoded record of a letter's value, without copying the record.
///
/// # Errors
/// [`Error::Decode`] for a value that is too short.
pub fn decode_value(value: &Bytes) -> Result<(Entry, Bytes), Error> {
    let mut reader = Reader::new(LETTER, value);
    let entry = Entry { subscription: reader.array()?, at_ms: reader.u64()? };
    Ok((entry, value.slice_ref(reader.rest())))
}

/// The key of a letter in the listing.
#[must_use]
pub fn listed_key(entry: Entry, job: &[u8; 16]) -> Key {
    let key = Key::of(Family::DeadLetterListed).with(&entry.subscription);
    key.with(&entry.at_ms.to_be_bytes()).with(job)
}

/// Entry and job id of a key of the listing.
///
/// # Errors
/// [`Error::Decode`] for a key of another family or length.
pub fn decode_listed_key(key: &[u8]) -> Result<(Entry, [u8; 16]), Error> {
    let mut reader = Reader::new(LISTED, key);
    reader.family(Family::DeadLetterListed)?;
    let entry = Entry { subscription: reader.array()?, at_ms: reader.u64()? };
    let job = reader.array()?;
    reader.finish()?;
    Ok((entry, job))
}

/// The value in the listing: the letter's reason (a short stable name) and tenant.
///
/// # Errors
/// [`Error::Decode`] for a reason of more than 255 bytes.
pub fn listed_value(reason: &str, tenant: &str) -> Result<Bytes, Error> {
    let too_large = |_| Error::decode(LISTED, Problem::TooLarge("reason"));
    let len = u8::try_from(reason.len()).map_err(too_large)?;
    let mut out = Vec::with_capacity(1 + reason.len() + tenant.len());
    out.push(len);
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(tenant.as_bytes());
    Ok(out.into())
}

/// Reason and tenant of a value in the listing, as bytes.
///
/// # Errors
/// [`Error::Decode`] for a value that is too short.
pub fn decode_listed_value(value: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let mut reader = Reader::new(LISTED, value);
    let len = reader.u8()?;
    let reason = reader.take(usize::from(len))?;
    Ok((reason, reader.rest()))
}

/// The listing, by subscription and time.
#[must_use]
pub fn listing() -> KeyRange {
    KeyRange::family(Family::DeadLetterListed)
}

/// The letters of one subscription in the listing, oldest first.
#[must_use]
pub fn of_subscription(subscription: &[u8; 16]) -> KeyRange {
    KeyRange::prefix(Key::of(Family::DeadLetterListed).with(subscription))
}

/// The first subscription with a letter after `after`, in order of ids; the first of all for
/// `None`. Skips over the other letters of a subscription, however many there are.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`], [`Error::Decode`].
pub fn next_subscription(
    state: &State,
    after: Option<&[u8; 16]>,
) -> Result<Option<[u8; 16]>, Error> {
    let range = match after {
        None => listing(),
        Some(subscription) => {
            let last = Entry { subscription: *subscription, at_ms: u64::MAX };
            listing().starting_after(&listed_key(last, &[0xff; 16]))
        }
    };
    first(state, &range, |key| decode_listed_key(key).map(|(entry, _)| entry.subscription))
}

/// How many letters a subscription has.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`], [`Error::Decode`].
pub fn count(state: &State, subscription: &[u8; 16]) -> Result<u64, Error> {
    let Some(value) = state.get(&count_key(subscription))? else { return Ok(0) };
    let mut reader = Reader::new(COUNT, &value);
    let count = reader.u64()?;
    reader.finish()?;
    Ok(count)
}

/// Sets how many letters a subscription has.
pub fn set_count(state: &mut State, subscription: &[u8; 16], letters: u64) {
    let key = count_key(subscription);
    match letters {
        0 => state.delete(key),
        _ => state.put(key, letters.to_be_bytes().to_vec()),
    }
}

fn count_key(subscription: &[u8; 16]) -> Key {
    Key::of(Family::DeadLetterCount).with(subscription)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBase;
    use proptest::prelude::*;

    fn entry((subscription, at_ms): ([u8; 16], u64)) -> Entry {
        Entry { subscription, at_ms }
    }

    proptest! {
        #[test]
        fn a_letter_round_trips_and_is_listed_by_subscription_then_time(
            a: (([u8; 16], u64), [u8; 16]), b: (([u8; 16], u64), [u8; 16]), record: Vec<u8>,
        ) {
            let (a, b) = ((entry(a.0), a.1), (entry(b.0), b.1));
            let (read, rest) = decode_value(&value(a.0, &record)).unwrap();
            prop_assert_eq!((read, &rest[..]), (a.0, &record[..]));
            prop_assert_eq!(decode_listed_key(&listed_key(a.0, &a.1)).unwrap(), a);
            prop_assert_eq!(listed_key(a.0, &a.1).cmp(&listed_key(b.0, &b.1)), a.cmp(&b));
        }

        #[test]
        fn reason_and_tenant_round_trip(reason in "[a-z_]{0,30}", tenant in "\\PC{1,40}") {
            let value = listed_value(&reason, &tenant).unwrap();
            let read = decode_listed_value(&value).unwrap();
            prop_assert_eq!(read, (reason.as_bytes(), tenant.as_bytes()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = (decode_listed_key(&bytes), decode_value(&bytes.clone().into()));
            let _ = decode_listed_value(&bytes);
        }
    }

    #[test]
    fn the_layouts_are_pinned() {
        let at = Entry { subscription: [2; 16], at_ms: 3 };
        assert_eq!(key(&[1; 16])[..], [&[7][..], &[1; 16]].concat());
        let listed = [&[8][..], &[2; 16], &[0, 0, 0, 0, 0, 0, 0, 3], &[1; 16]].concat();
        assert_eq!(listed_key(at, &[1; 16])[..], listed);
        assert_eq!(count_key(&[2; 16])[..], [&[9][..], &[2; 16]].concat());
        assert_eq!(&listed_value("ab", "t").unwrap()[..], b"\x02abt");
    }

    #[test]
    fn counts_and_subscriptions_are_found() {
        let mut state = State::new(Box::new(MemoryBase::new()));
        for n in [0, 1, 0xff] {
            for at_ms in [0, 5, u64::MAX] {
                let at = Entry { subscription: [n; 16], at_ms };
                state.put(listed_key(at, &[0xff; 16]), listed_value("r", "t").unwrap());
            }
        }
        let mut met = Vec::new();
        while let Some(next) = next_subscription(&state, met.last()).unwrap() {
            met.push(next);
        }
        assert_eq!(met, [[0; 16], [1; 16], [0xff; 16]]);
        assert_eq!(state.collect(&of_subscription(&[1; 16]), 9).unwrap().len(), 3);
        assert_eq!(count(&state, &[1; 16]).unwrap(), 0);
        set_count(&mut state, &[1; 16], 7);
        assert_eq!(count(&state, &[1; 16]).unwrap(), 7);
        set_count(&mut state, &[1; 16], 0);
        assert_eq!(count(&state, &[1; 16]).unwrap(), 0);
    }
}
