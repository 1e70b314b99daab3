//! Committed state behind one trait, so that processors are tested without a disk.
//!
//! Not for processors: they use [`State`](crate::State), which adds uncommitted writes and guards
//! the order of commits. The invariant of every implementation: [`Base::apply`] takes effect as a
//! whole or not at all, and after a crash the base is as it was after some earlier `apply`.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::error::Error;
use crate::reader::Reader;
use crate::{Checkpoint, Key, KeyRange};

/// A write: a key with its new value, or with `None` to delete it.
pub type Write<'a> = (&'a [u8], Option<&'a Bytes>);

/// What a scan calls with each key and value; `Break` ends the scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Committed state of one task.
pub trait Base: Send {
    /// The committed value of `key`.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Visits the committed keys of `range` in key order; answers whether the visitor ended it. The
    /// visitor may read the base.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn scan(&self, range: &KeyRange, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Error>;

    /// A handle by which others read what is committed; `None` when this base has none to give.
    fn reader(&self) -> Option<Reader> {
        None
    }

    /// Applies `writes` in their order together with `checkpoint`, as a whole or not at all. They
    /// are durable once a later [`Base::flush`] has answered.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]. The caller must not apply later writes after an error,
    /// or the base would miss some from the middle.
    fn apply<'w>(
        &mut self,
        writes: &mut dyn Iterator<Item = Write<'w>>,
        checkpoint: &Checkpoint,
    ) -> Result<(), Error>;

    /// Makes durable what was applied, and waits for it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn flush(&mut self) -> Result<(), Error>;

    /// As [`Base::flush`], but does not wait for the disk. A failure shows at a later `apply`.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn start_flush(&mut self) -> Result<(), Error> {
        self.flush()
    }

    /// Throws everything away, for good; answers an empty base in its place.
    ///
    /// # Errors
    /// [`Error::Io`]. What is left is empty at the next start.
    fn reset(self: Box<Self>) -> Result<Box<dyn Base>, Error>;

    /// Flushes and closes, so that the next start has nothing to read again.
    ///
    /// # Errors
    /// [`Error::Io`]. The store is closed all the same.
    fn close(self: Box<Self>) -> Result<(), Error>;

    /// The checkpoint of the last `apply`, `None` for an empty base.
    ///
    /// # Errors
    /// [`Error::Corrupt`] also for a checkpoint of another version: the store of a release that
    /// went back is rebuilt.
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        let stored = self.get(&Checkpoint::key())?;
        stored
            .map(|bytes| Checkpoint::decode(&bytes))
            .transpose()
            .map_err(|error| Error::corrupt(error.to_string()))
    }
}

/// Writes that a restore read from Kafka, in the order in which they are to be applied.
#[derive(Debug, Default)]
pub struct Batch {
    writes: Vec<(Key, Option<Bytes>)>,
    bytes: usize,
}

impl Batch {
    /// Sets `key` to `value`.
    pub fn put(&mut self, key: Key, value: impl Into<Bytes>) {
        let value = value.into();
        self.bytes += key.len() + value.len();
        self.writes.push((key, Some(value)));
    }

    /// Deletes `key`.
    pub fn delete(&mut self, key: Key) {
        self.bytes += key.len();
        self.writes.push((key, None));
    }

    /// Bytes of all keys and values, to bound the batch by.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there is no write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Removes all writes and keeps the allocation.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.bytes = 0;
    }

    /// The writes in their order.
    pub fn iter(&self) -> impl Iterator<Item = Write<'_>> {
        self.writes.iter().map(|(key, value)| (key.as_slice(), value.as_ref()))
    }
}
