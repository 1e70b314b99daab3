//! Delivery jobs: the Kafka record of a job, under the place where it lies.
//!
//! Not the order in which jobs are taken: that is in [`ready`](super::ready) and
//! [`due`](super::due).
//!
//! ```text
//! key    [family 0x02][place u8][job id 16]
//! value  [subscription id 16][order u64][a Record, see there]
//! ```
//!
//! `order` and the subscription lead from a job to its entry in `ready` (log offset) or `due` (due
//! time in milliseconds), so that a tombstone, which knows only the job, removes both.
//!
//! The invariant: an entry exists exactly while the place's topic holds a record of that key that
//! is no tombstone.

use std::fmt;

use bytes::Bytes;

use crate::error::{Error, Problem};
use crate::wire::Reader;
use crate::{Family, Key, KeyRange};

const WHAT: &str = "job entry";
const TIERS: u8 = 11;

/// Where a job lies: in the deliveries log, or in one of the eleven retry tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u8);

impl Place {
    /// The deliveries log.
    pub const DELIVERIES: Self = Self(0);

    /// The retry tier `number`, 1 to 11; `None` for any other number.
    #[must_use]
    pub fn tier(number: u8) -> Option<Self> {
        (1..=TIERS).contains(&number).then_some(Self(number))
    }

    /// The place with the stored number: 0 for the deliveries log, else a tier.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        (number <= TIERS).then_some(Self(number))
    }

    /// The stored number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let number = reader.u8()?;
        Self::from_number(number).ok_or_else(|| reader.error(Problem::Field("place")))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("deliveries"),
            tier => write!(f, "retry-{tier:02}"),
        }
    }
}

/// The key of `job` in `place`.
#[must_use]
pub fn key(place: Place, job: &[u8; 16]) -> Key {
    Key::of(Family::Job).with(&[place.0]).with(job)
}

/// Place and job id of a key.
///
/// # Errors
/// [`Error::Decode`] for a key of another family or length, or an unknown place.
pub fn decode_key(key: &[u8]) -> Result<(Place, [u8; 16]), Error> {
    let mut reader = Reader::new(WHAT, key);
    reader.family(Family::Job)?;
    let decoded = (Place::read(&mut reader)?, reader.array()?);
    reader.finish()?;
    Ok(decoded)
}

/// What a value says beside the record: where the job stands in its place's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The job's subscription.
    pub subscription: [u8; 16],
    /// Log offset in the deliveries, due time in milliseconds in a tier.
    pub order: u64,
}

impl Entry {
    /// The value: this entry and an encoded record.
    #[must_use]
    pub fn value(&self, record: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(24 + record.len());
        out.extend_from_slice(&self.subscription);
        out.extend_from_slice(&self.order.to_be_bytes());
        out.extend_from_slice(record);
        out.into()
    }
}

/// Entry and encoded record of a value, without copying the record.
///
/// # Errors
/// [`Error::Decode`] for a value that is too short.
pub fn decode_value(value: &Bytes) -> Result<(Entry, Bytes), Error> {
    let mut reader = Reader::new(WHAT, value);
    let entry = Entry { subscription: reader.array()?, order: reader.u64()? };
    Ok((entry, value.slice_ref(reader.rest())))
}

/// Every job in `place`, in order of job ids.
#[must_use]
pub fn in_place(place: Place) -> KeyRange {
    KeyRange::prefix(Key::of(Family::Job).with(&[place.0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_job_key_round_trips_and_orders_by_place_then_job(
            a: (u8, [u8; 16]), b: (u8, [u8; 16]),
        ) {
            let place = |number: u8| Place::from_number(number % 12).unwrap();
            let (a, b) = ((place(a.0), a.1), (place(b.0), b.1));
            prop_assert_eq!(decode_key(&key(a.0, &a.1)).unwrap(), a);
            prop_assert_eq!(key(a.0, &a.1).cmp(&key(b.0, &b.1)), a.cmp(&b));
            let range = in_place(a.0);
            let inside = range.from() <= &*key(b.0, &b.1) && &*key(b.0, &b.1) < range.to();
            prop_assert_eq!(inside, a.0 == b.0);
        }

        #[test]
        fn a_value_round_trips(subscription: [u8; 16], order: u64, record: Vec<u8>) {
            let entry = Entry { subscription, order };
            let (read, rest) = decode_value(&entry.value(&record)).unwrap();
            prop_assert_eq!((read, &rest[..]), (entry, &record[..]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = (decode_key(&bytes), decode_value(&bytes.into()));
        }
    }

    #[test]
    fn there_are_the_deliveries_and_eleven_tiers() {
        assert_eq!(Place::tier(0), None);
        assert_eq!(Place::tier(12), None);
        assert_eq!(Place::from_number(12), None);
        assert_eq!(Place::from_number(0), Some(Place::DELIVERIES));
        assert_eq!(Place::tier(11).map(|place| place.to_string()), Some("retry-11".to_owned()));
    }
}
