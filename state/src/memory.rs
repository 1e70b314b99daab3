//! Committed state in memory, with a disk that can crash, fill up and rot.
//!
//! For simulations and tests of processors, never for production. A [`MemoryBase`] is a handle:
//! clones share one "disk". A simulation keeps a clone, drops the task, calls
//! [`MemoryBase::crash`] and opens the next task on the same disk.
//!
//! The invariant: after a crash the disk is exactly as it was at the last flush.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::base::{Base, Visit, Write};
use crate::error::Error;
use crate::{Checkpoint, Key, KeyRange};

/// A [`Base`] in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryBase {
    disk: Arc<Mutex<Disk>>,
}

/// What goes wrong on the disk from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Writes are refused with [`Error::Io`]; reads work.
    Full,
    /// Every access answers [`Error::Corrupt`].
    Damaged,
}

#[derive(Debug, Default)]
struct Disk {
    data: BTreeMap<Key, Bytes>,
    /// What keys held at the last flush, for those written since.
    before: BTreeMap<Key, Option<Bytes>>,
    fault: Option<Fault>,
}

impl MemoryBase {
    /// An empty base.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Loses what was not flushed, as the death of the process does.
    pub fn crash(&self) {
        let mut disk = self.lock();
        for (key, value) in std::mem::take(&mut disk.before) {
            match value {
                Some(value) => disk.data.insert(key, value),
                None => disk.data.remove(&key),
            };
        }
    }

    /// Makes the disk fail from now on, or heals it. A reset heals it too.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.lock().fault = fault;
    }

    /// Number of keys, the checkpoint's included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().data.len()
    }

    /// Whether nothing was ever committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    fn check_readable(&self) -> Result<(), Error> {
        match self.fault {
            Some(Fault::Damaged) => Err(Error::corrupt("simulated damage")),
            Some(Fault::Full) | None => Ok(()),
        }
    }

    fn check_writable(&self) -> Result<(), Error> {
        self.check_readable()?;
        match self.fault {
            Some(Fault::Full | Fault::Damaged) => Err(Error::Io {
                action: "write the simulated store".to_owned(),
                reason: "simulated full disk".to_owned(),
            }),
            None => Ok(()),
        }
    }

    fn set(&mut self, key: Key, value: Option<Bytes>) {
        let previous = match value {
            Some(value) => self.data.insert(key.clone(), value),
            None => self.data.remove(&key),
        };
        self.before.entry(key).or_insert(previous);
    }

    fn first_in(&self, range: &KeyRange) -> Option<(Key, Bytes)> {
        if range.is_empty() {
            return None;
        }
        let bounds = (Bound::Included(range.from()), Bound::Excluded(range.to()));
        let (key, value) = self.data.range::<[u8], _>(bounds).next()?;
        Some((key.clone(), value.clone()))
    }
}

impl Base for MemoryBase {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let disk = self.lock();
        disk.check_readable()?;
        Ok(disk.data.get(key).cloned())
    }

    fn scan(&self, range: &KeyRange, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Error> {
        let mut rest = range.clone();
        loop {
            // The lock is free while the visitor runs, since the visitor may read the base.
            let found = {
                let disk = self.lock();
                disk.check_readable()?;
                disk.first_in(&rest)
            };
            let Some((key, value)) = found else {
                return Ok(ControlFlow::Continue(()));
            };
            if visit(&key, &value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            rest = rest.starting_after(&key);
        }
    }

    fn apply<'w>(
        &mut self,
        writes: &mut dyn Iterator<Item = Write<'w>>,
        checkpoint: &Checkpoint,
    ) -> Result<(), Error> {
        let mut disk = self.lock();
        disk.check_writable()?;
        for (key, value) in writes {
            disk.set(Key::from_bytes(key), value.cloned());
        }
        disk.set(Checkpoint::key(), Some(checkpoint.encode().into()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let mut disk = self.lock();
        disk.check_writable()?;
        disk.before.clear();
        Ok(())
    }

    fn reset(self: Box<Self>) -> Result<Box<dyn Base>, Error> {
        *self.lock() = Disk::default();
        Ok(self)
    }

    fn close(mut self: Box<Self>) -> Result<(), Error> {
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(stamped_at_ms: i64) -> Checkpoint {
        Checkpoint { stamped_at_ms, ..Checkpoint::default() }
    }

    fn apply(base: &mut MemoryBase, key: &Key, value: Option<&'static str>, number: i64) {
        let value = value.map(|text| Bytes::from_static(text.as_bytes()));
        let mut writes = std::iter::once((key.as_slice(), value.as_ref()));
        base.apply(&mut writes, &checkpoint(number)).unwrap();
    }

    #[test]
    fn a_crash_goes_back_to_the_last_flush_and_not_further() {
        let disk = MemoryBase::new();
        let mut base = disk.clone();
        let (a, b) = (Key::from_bytes(b"a"), Key::from_bytes(b"b"));
        apply(&mut base, &a, Some("1"), 1);
        base.flush().unwrap();
        apply(&mut base, &a, Some("2"), 2);
        apply(&mut base, &a, None, 3);
        apply(&mut base, &b, Some("4"), 4);
        disk.crash();
        assert_eq!(base.get(&a).unwrap(), Some(Bytes::from_static(b"1")));
        assert_eq!(base.get(&b).unwrap(), None);
        assert_eq!(base.checkpoint().unwrap(), Some(checkpoint(1)));
    }

    #[test]
    fn a_full_disk_refuses_writes_and_still_reads() {
        let mut base = MemoryBase::new();
        let key = Key::from_bytes(b"a");
        apply(&mut base, &key, Some("1"), 1);
        base.set_fault(Some(Fault::Full));
        let error = base.apply(&mut std::iter::empty(), &checkpoint(2)).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Io);
        assert!(base.get(&key).unwrap().is_some());
    }
}
