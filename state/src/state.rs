//! What a processor sees: uncommitted writes, bounded in bytes, over committed state.
//!
//! Not aware of Kafka. Its owner commits the Kafka transaction first and then calls
//! [`State::commit`]; or aborts it and calls [`State::rollback`].
//!
//! Two invariants. No uncommitted write reaches the base. And commits reach it without a gap: after
//! one that failed, the state refuses all later ones until it is opened anew, because a checkpoint
//! beyond the missing writes would hide them for ever.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use bytes::Bytes;

use crate::base::{Base, Batch, Visit, Write};
use crate::error::Error;
use crate::reader::Reader;
use crate::{Checkpoint, Family, Key, KeyRange};

/// The state of one task.
pub struct State {
    base: Box<dyn Base>,
    buffer: BTreeMap<Key, Option<Bytes>>,
    buffered_bytes: usize,
    /// When the oldest write was applied that no flush was started for.
    unflushed_since_ms: Option<i64>,
    gap: bool,
}

/// Memory of a buffered entry beside its value, and beside a key too long to be inline.
const ENTRY_BYTES: usize = size_of::<(Key, Option<Bytes>)>();

fn entry_bytes(value: Option<&Bytes>) -> usize {
    ENTRY_BYTES + value.map_or(0, Bytes::len)
}

/// A value on its way through a scan: buffered ones are handed on without a copy.
enum Found<'a> {
    Buffered(&'a Bytes),
    Committed(&'a [u8]),
}

impl State {
    /// State over `base`, with nothing uncommitted.
    #[must_use]
    pub fn new(base: Box<dyn Base>) -> Self {
        Self {
            base,
            buffer: BTreeMap::new(),
            buffered_bytes: 0,
            unflushed_since_ms: None,
            gap: false,
        }
    }

    /// The value of `key`, uncommitted writes included.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn get(&self, key: &Key) -> Result<Option<Bytes>, Error> {
        match self.buffer.get(key) {
            Some(uncommitted) => Ok(uncommitted.clone()),
            None => self.base.get(key),
        }
    }

    /// Sets `key` to `value`, uncommitted.
    pub fn put(&mut self, key: Key, value: impl Into<Bytes>) {
        self.write(key, Some(value.into()));
    }

    /// Deletes `key`, uncommitted. A key that does not exist is no error.
    pub fn delete(&mut self, key: Key) {
        self.write(key, None);
    }

    fn write(&mut self, key: Key, value: Option<Bytes>) {
        self.buffered_bytes += entry_bytes(value.as_ref());
        if let Some(previous) = self.buffer.insert(key, value) {
            self.buffered_bytes -= entry_bytes(previous.as_ref());
        }
    }

    /// Visits the keys of `range` in key order, uncommitted writes included and deleted keys left
    /// out; answers whether the visitor ended it. The visitor may read the state.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn scan(&self, range: &KeyRange, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Error> {
        self.merge(range, &mut |key, found| match found {
            Found::Buffered(value) => visit(key, value),
            Found::Committed(value) => visit(key, value),
        })
    }

    /// The first `limit` keys of `range` with their values, as [`State::scan`] visits them.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn collect(&self, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Bytes)>, Error> {
        let mut found = Vec::new();
        if limit == 0 {
            return Ok(found);
        }
        // Whether the visitor ended the scan is of no interest: what it found counts.
        let _ = self.merge(range, &mut |key, value| {
            let value = match value {
                Found::Buffered(value) => value.clone(),
                Found::Committed(value) => Bytes::copy_from_slice(value),
            };
            found.push((Key::from_bytes(key), value));
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(found)
    }

    fn merge(
        &self,
        range: &KeyRange,
        emit: &mut dyn FnMut(&[u8], Found<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        if range.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let bounds = (Bound::Included(range.from()), Bound::Excluded(range.to()));
        let mut buffered = self.buffer.range::<[u8], _>(bounds).peekable();
        let flow = self.base.scan(range, &mut |committed_key, committed| {
            while let Some((key, value)) =
                buffered.next_if(|(key, _)| key.as_slice() < committed_key)
            {
                if let Some(value) = value {
                    emit(key, Found::Buffered(value))?;
                }
            }
            match buffered.next_if(|(key, _)| key.as_slice() == committed_key) {
                None => emit(committed_key, Found::Committed(committed)),
                Some((key, Some(value))) => emit(key, Found::Buffered(value)),
                Some((_, None)) => ControlFlow::Continue(()),
            }
        })?;
        if flow.is_break() {
            return Ok(flow);
        }
        for (key, value) in buffered {
            if let Some(value) = value
                && emit(key, Found::Buffered(value)).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The uncommitted writes of a family in key order; what a changelog record is made of.
    pub fn uncommitted(&self, family: Family) -> impl Iterator<Item = Write<'_>> {
        let range = KeyRange::family(family);
        let from = Bound::Included(range.from());
        let writes = self.buffer.range::<[u8], _>((from, Bound::Excluded(range.to())));
        writes.map(|(key, value)| (key.as_slice(), value.as_ref()))
    }

    /// Memory of the uncommitted writes in bytes, the buffer's own share included.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Whether the uncommitted writes have reached `limit_bytes`: time to commit.
    #[must_use]
    pub fn is_full(&self, limit_bytes: usize) -> bool {
        self.buffered_bytes >= limit_bytes
    }

    /// A handle by which others read what is committed; `None` when the base has none to give.
    #[must_use]
    pub fn reader(&self) -> Option<Reader> {
        self.base.reader()
    }

    /// Hands the uncommitted writes to the base together with `checkpoint`. Without any it only
    /// stamps the checkpoint anew. Call it when, and only when, the Kafka transaction has
    /// committed.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]. The state is of no further use then: drop it, and restore
    /// the tail into one opened anew.
    pub fn commit(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        self.check_no_gap()?;
        let mut writes = self.buffer.iter().map(|(key, value)| (key.as_slice(), value.as_ref()));
        let applied = self.base.apply(&mut writes, checkpoint);
        self.note_applied(applied, checkpoint)?;
        self.rollback();
        Ok(())
    }

    /// Whether there are committed writes that no flush was started for.
    #[must_use]
    pub fn is_unflushed(&self) -> bool {
        self.unflushed_since_ms.is_some()
    }

    /// Drops the uncommitted writes.
    pub fn rollback(&mut self) {
        self.buffer.clear();
        self.buffered_bytes = 0;
    }

    /// Applies what a restore or a standby read from Kafka, past the uncommitted writes.
    ///
    /// # Errors
    /// As [`State::commit`].
    pub fn apply_restored(&mut self, batch: &Batch, checkpoint: &Checkpoint) -> Result<(), Error> {
        self.check_no_gap()?;
        let applied = self.base.apply(&mut batch.iter(), checkpoint);
        self.note_applied(applied, checkpoint)
    }

    fn check_no_gap(&self) -> Result<(), Error> {
        if !self.gap {
            return Ok(());
        }
        Err(Error::Io {
            action: "commit to the local store".to_owned(),
            reason: "an earlier commit failed; the store has to be opened anew".to_owned(),
        })
    }

    fn note_applied(
        &mut self,
        applied: Result<(), Error>,
        checkpoint: &Checkpoint,
    ) -> Result<(), Error> {
        self.gap |= applied.is_err();
        self.unflushed_since_ms.get_or_insert(checkpoint.stamped_at_ms);
        applied
    }

    /// Starts to flush when there is a commit older than `age_ms`; answers whether it did. It does
    /// not wait for the disk: a failure shows at a later commit.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn flush_if_older_than(&mut self, now_ms: i64, age_ms: i64) -> Result<bool, Error> {
        let due = self
            .unflushed_since_ms
            .is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > age_ms);
        if due {
            self.base.start_flush()?;
            self.unflushed_since_ms = None;
        }
        Ok(due)
    }

    /// Makes every commit durable and waits for it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.base.flush()?;
        self.unflushed_since_ms = None;
        Ok(())
    }

    /// Whether there is no entry at all, uncommitted ones included; the checkpoint does not count.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        let found =
            self.scan(&KeyRange::above(Family::Checkpoint), &mut |_, _| ControlFlow::Break(()))?;
        Ok(found.is_continue())
    }

    /// The checkpoint of the last commit, `None` if there never was one.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        self.base.checkpoint()
    }

    /// Throws everything away, for good; answers empty state in its place. For a checkpoint that is
    /// stale or points below the start of a log.
    ///
    /// # Errors
    /// [`Error::Io`]. What is left is empty at the next start.
    pub fn reset(self) -> Result<Self, Error> {
        Ok(Self::new(self.base.reset()?))
    }

    /// Flushes and closes; uncommitted writes are dropped.
    ///
    /// # Errors
    /// [`Error::Io`]. The store is closed all the same.
    pub fn close(self) -> Result<(), Error> {
        self.base.close()
    }
}

#[cfg(test)]
mod tests;
