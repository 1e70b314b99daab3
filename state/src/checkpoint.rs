//! The checkpoint: from where each restored topic has to be read again.
//!
//! Not the position at which a task resumes its source; that one is the group's committed offset.
//! The invariant: a checkpoint is written in the same RocksDB batch as the writes that it stands
//! for, so the two can never disagree.
//!
//! ```text
//! key    [family 0x00]
//! value  [version u8 = 1][stamped_at_ms i64]
//!        ([topic length varint][topic][partition i32][next offset i64])*
//! ```
//!
//! Numbers are big-endian.

use std::collections::BTreeMap;

use crate::error::{Error, Problem};
use crate::wire::{Reader, put_varbytes};
use crate::{Family, Key};

const WHAT: &str = "store checkpoint";
const VERSION: u8 = 1;

/// Positions of the restored topics at one commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// (topic, partition) to the offset of the next record to read.
    pub positions: BTreeMap<(String, i32), i64>,
    /// When the positions were known to be current, in milliseconds since the Unix epoch. A quiet
    /// store is stamped anew although its positions stand still.
    pub stamped_at_ms: i64,
}

impl Checkpoint {
    pub(crate) fn key() -> Key {
        Key::of(Family::Checkpoint)
    }

    /// Whether the checkpoint is older than half of the restored topics' `delete.retention.ms`.
    /// Tombstones that it has not seen may be gone by now, so the store has to be rebuilt unless
    /// nothing was appended since.
    #[must_use]
    pub fn is_stale(&self, now_ms: i64, delete_retention_ms: i64) -> bool {
        now_ms.saturating_sub(self.stamped_at_ms) > delete_retention_ms / 2
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + 64 * self.positions.len());
        out.push(VERSION);
        out.extend_from_slice(&self.stamped_at_ms.to_be_bytes());
        for ((topic, partition), next_offset) in &self.positions {
            put_varbytes(&mut out, topic.as_bytes());
            out.extend_from_slice(&partition.to_be_bytes());
            out.extend_from_slice(&next_offset.to_be_bytes());
        }
        out
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`Error::Decode`] for another version and for bytes that are no checkpoint.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(WHAT, bytes);
        reader.version(VERSION)?;
        let mut checkpoint = Self { stamped_at_ms: reader.i64()?, ..Self::default() };
        while reader.finish().is_err() {
            let topic = str::from_utf8(reader.varbytes()?)
                .map_err(|_| Error::decode(WHAT, Problem::Field("topic name")))?
                .to_owned();
            let partition = reader.array().map(i32::from_be_bytes)?;
            let next_offset = reader.i64()?;
            checkpoint.positions.insert((topic, partition), next_offset);
        }
        Ok(checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_checkpoint_round_trips(
            topics in prop::collection::vec(("[a-z.-]{0,40}", any::<(i32, i64)>()), 0..9),
            stamped_at_ms: i64,
        ) {
            let position = |(topic, (partition, next_offset))| ((topic, partition), next_offset);
            let positions = topics.into_iter().map(position).collect();
            let checkpoint = Checkpoint { positions, stamped_at_ms };
            prop_assert_eq!(Checkpoint::decode(&checkpoint.encode()).unwrap(), checkpoint);
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_a_cut_is_noticed(bytes: Vec<u8>, cut in 1usize..20) {
            let _ = Checkpoint::decode(&bytes);
            let positions = BTreeMap::from([(("inbox".to_owned(), 3), 9)]);
            let whole = Checkpoint { positions, stamped_at_ms: 1 }.encode();
            let cut = cut.min(whole.len());
            let nine = Checkpoint { stamped_at_ms: 1, ..Checkpoint::default() }.encode();
            match Checkpoint::decode(&whole[..whole.len() - cut]) {
                Ok(_) => prop_assert_eq!(whole.len() - cut, nine.len()),
                Err(error) => prop_assert_eq!(error.kind(), crate::Kind::Decode),
            }
        }
    }

    #[test]
    fn a_checkpoint_is_stale_when_older_than_half_of_the_retention() {
        let week_ms = 7 * 24 * 3_600_000;
        let checkpoint = Checkpoint { stamped_at_ms: 1_000, ..Checkpoint::default() };
        assert!(!checkpoint.is_stale(1_000 + week_ms / 2, week_ms));
        assert!(checkpoint.is_stale(1_001 + week_ms / 2, week_ms));
        assert!(!checkpoint.is_stale(0, week_ms), "a clock that was turned back makes nothing old");
    }

    #[test]
    fn another_version_is_a_clear_error() {
        let error = Checkpoint::decode(&[2, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap_err();
        let expected = "store checkpoint: format version 2, this release reads version 1";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
