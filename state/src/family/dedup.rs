//! Events seen, and the packed changelog record that restores them.
//!
//! Not the decision whether an event is a duplicate: that compares [`decode_value`] with the
//! horizon. What lies beyond the horizon is ignored by look-ups and removed by compaction
//! ([`ExpiryRule`](crate::ExpiryRule)); entries are never deleted one by one.
//!
//! ```text
//! key    [family 0x01][event id 16][tenant to the end]
//! value  [arrival_ms i64]
//! ```
//!
//! One transaction's entries travel in one changelog record, or in several below a size:
//!
//! ```text
//! [version u8 = 1][entry count u32]
//! entry   [tenant reference varint] [event id 16] [arrival_ms less the one before, zigzag varint]
//! tenant reference   0: a new tenant follows, [length varint][tenant], and gets the next number;
//!                    n: the n-th new tenant of this record, from 1
//! ```
//!
//! Numbers are big-endian. The invariant: unpacking the records in their order gives the packed
//! entries in theirs.

use std::collections::HashMap;

use bytes::Bytes;

use crate::error::{Error, Problem};
use crate::wire::{Reader, put_varbytes, put_varint, unzigzag, zigzag};
use crate::{Family, Key, State};

const WHAT: &str = "dedup entry";
const WHAT_PACKED: &str = "dedup changelog record";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 5;

/// One event seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The event's id.
    pub id: [u8; 16],
    /// The tenant's id.
    pub tenant: &'a [u8],
    /// When the event arrived at the hub, in milliseconds since the Unix epoch.
    pub arrival_ms: i64,
}

impl Entry<'_> {
    /// The entry's key.
    #[must_use]
    pub fn key(&self) -> Key {
        key(&self.id, self.tenant)
    }
}

/// The key of the event `id` of `tenant`.
#[must_use]
pub fn key(id: &[u8; 16], tenant: &[u8]) -> Key {
    Key::of(Family::Dedup).with(id).with(tenant)
}

/// Event id and tenant of a key.
///
/// # Errors
/// [`Error::Decode`] for a key of another family or length.
pub fn decode_key(key: &[u8]) -> Result<([u8; 16], &[u8]), Error> {
    let mut reader = Reader::new(WHAT, key);
    reader.family(Family::Dedup)?;
    Ok((reader.array()?, reader.rest()))
}

/// The value: when the event arrived.
#[must_use]
pub fn value(arrival_ms: i64) -> Bytes {
    Bytes::copy_from_slice(&arrival_ms.to_be_bytes())
}

/// The arrival time in a value, in milliseconds.
///
/// # Errors
/// [`Error::Decode`] for any length but 8.
pub fn decode_value(value: &[u8]) -> Result<i64, Error> {
    let mut reader = Reader::new(WHAT, value);
    let arrival_ms = reader.i64()?;
    reader.finish()?;
    Ok(arrival_ms)
}

/// Packs the uncommitted entries of `state` into changelog records of at most `bytes_max` each.
///
/// # Errors
/// As [`pack`].
pub fn pack_uncommitted(state: &State, bytes_max: usize) -> Result<Vec<Vec<u8>>, Error> {
    let mut packer = Packer::new(bytes_max);
    for (key, value) in state.uncommitted(Family::Dedup) {
        let Some(value) = value else { continue };
        let (id, tenant) = decode_key(key)?;
        packer.push(&Entry { id, tenant, arrival_ms: decode_value(value)? })?;
    }
    Ok(packer.finish())
}

/// Packs `entries` into changelog records of at most `bytes_max` each; none for no entries.
///
/// # Errors
/// [`Error::Decode`] when a single entry does not fit into `bytes_max`.
pub fn pack<'a>(
    entries: impl IntoIterator<Item = Entry<'a>>,
    bytes_max: usize,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut packer = Packer::new(bytes_max);
    for entry in entries {
        packer.push(&entry)?;
    }
    Ok(packer.finish())
}

struct Packer<'a> {
    bytes_max: usize,
    done: Vec<Vec<u8>>,
    record: Vec<u8>,
    count: u32,
    tenants: HashMap<&'a [u8], u64>,
    previous_ms: i64,
}

impl<'a> Packer<'a> {
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            done: Vec::new(),
            record: Vec::new(),
            count: 0,
            tenants: HashMap::new(),
            previous_ms: 0,
        }
    }

    fn push(&mut self, entry: &Entry<'a>) -> Result<(), Error> {
        let before = self.record.len();
        self.append(entry);
        if self.record.len() > self.bytes_max && self.count > 0 {
            // What was appended refers to this record's tenants, so it is written anew.
            self.record.truncate(before);
            self.end_record();
            self.append(entry);
        }
        if self.record.len() > self.bytes_max {
            return Err(Error::decode(WHAT_PACKED, Problem::TooLarge("entry")));
        }
        let next_number = self.tenants.len() as u64 + 1;
        self.tenants.entry(entry.tenant).or_insert(next_number);
        self.count += 1;
        self.previous_ms = entry.arrival_ms;
        Ok(())
    }

    fn append(&mut self, entry: &Entry<'a>) {
        if self.record.is_empty() {
            self.record.push(VERSION);
            self.record.extend_from_slice(&[0; HEAD_BYTES - 1]);
        }
        match self.tenants.get(entry.tenant) {
            Some(&number) => put_varint(&mut self.record, number),
            None => {
                put_varint(&mut self.record, 0);
                put_varbytes(&mut self.record, entry.tenant);
            }
        }
        self.record.extend_from_slice(&entry.id);
        put_varint(&mut self.record, zigzag(entry.arrival_ms.wrapping_sub(self.previous_ms)));
    }

    fn end_record(&mut self) {
        let mut record = std::mem::take(&mut self.record);
        record[1..HEAD_BYTES].copy_from_slice(&self.count.to_be_bytes());
        self.done.push(record);
        self.tenants.clear();
        self.count = 0;
        self.previous_ms = 0;
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        if self.count > 0 {
            self.end_record();
        }
        self.done
    }
}

/// Reads a changelog record. The iterator ends after the first error.
///
/// # Errors
/// [`Error::Decode`] for another version or bytes that are no such record, here or from the
/// iterator.
pub fn unpack(record: &[u8]) -> Result<Unpacked<'_>, Error> {
    let mut reader = Reader::new(WHAT_PACKED, record);
    reader.version(VERSION)?;
    let left = reader.u32()?;
    Ok(Unpacked { reader, left, tenants: Vec::new(), previous_ms: 0, ended: false })
}

/// The entries of a changelog record, in order.
#[derive(Debug)]
pub struct Unpacked<'a> {
    reader: Reader<'a>,
    left: u32,
    tenants: Vec<&'a [u8]>,
    previous_ms: i64,
    ended: bool,
}

impl<'a> Unpacked<'a> {
    fn read(&mut self) -> Result<Option<Entry<'a>>, Error> {
        if self.left == 0 {
            self.reader.finish()?;
            return Ok(None);
        }
        let tenant = self.tenant()?;
        let id = self.reader.array()?;
        let arrival_ms = self.previous_ms.wrapping_add(unzigzag(self.reader.varint()?));
        self.previous_ms = arrival_ms;
        self.left -= 1;
        Ok(Some(Entry { id, tenant, arrival_ms }))
    }

    fn tenant(&mut self) -> Result<&'a [u8], Error> {
        let number = self.reader.varint()?;
        let Some(index) = number.checked_sub(1) else {
            let tenant = self.reader.varbytes()?;
            self.tenants.push(tenant);
            return Ok(tenant);
        };
        let known = usize::try_from(index).ok().and_then(|index| self.tenants.get(index));
        known.copied().ok_or_else(|| self.reader.error(Problem::Field("tenant reference")))
    }
}

impl<'a> Iterator for Unpacked<'a> {
    type Item = Result<Entry<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }
}

#[cfg(test)]
mod tests;
