//! Committed state on disk: one RocksDB for each task.
//!
//! Not durable by itself, and not meant to be: RocksDB runs without its write-ahead log, because
//! the log is Kafka. After a crash the store is a correct prefix and the task restores the rest.
//!
//! Why that holds: an `apply` is one write batch on one column family, so it lies in one memtable
//! as a whole; memtables reach the disk whole and in their order; and the checkpoint is in the
//! batch. So whatever RocksDB flushes, and whenever, is the state after some commit N together
//! with the checkpoint of N.

mod directory;
mod expiry;
mod options;

use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use rocksdb::{DB, FlushOptions, ReadOptions, WriteBatch, WriteOptions};

use crate::base::{Base, Visit, Write};
use crate::error::{Error, Kind, Moment};
use crate::reader::{self, Handle, Reader};
use crate::{Checkpoint, KeyRange};
use directory::{Directory, Found};

pub use directory::Identity;
pub use expiry::ExpiryRule;
pub use options::{ResourceLimits, RocksOptions, SharedResources};

/// A [`Base`] on disk. Dropping it flushes as [`Base::close`] does, but tells nobody of a failure.
pub struct RocksBase {
    // Declared before the directory, so that it is closed before the lock is given back.
    db: Handle,
    read: ReadOptions,
    write: WriteOptions,
    origin: Origin,
    options: RocksOptions,
    directory: Directory,
}

/// What an opened store came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// There was none; it is empty.
    New,
    /// It was there and is in order.
    Existing,
    /// What was there could not be used and was thrown away; it is empty.
    Discarded {
        /// Why.
        reason: String,
    },
}

impl RocksBase {
    /// Opens the store in `dir`, or makes an empty one. One that belongs to another task, that has
    /// another release's layout or that is damaged is thrown away with a warning.
    ///
    /// # Errors
    /// [`Error::Locked`] while another process, or another task of this one, has it open;
    /// [`Error::Io`] when the disk refuses.
    pub fn open(dir: &Path, identity: &Identity, options: RocksOptions) -> Result<Self, Error> {
        let directory = Directory::lock(dir, identity)?;
        let (db, origin) = match directory.look()? {
            Found::Nothing => (create(&directory, &options)?, Origin::New),
            Found::Unusable { reason } => discard(&directory, &options, reason)?,
            Found::Store => match open_existing(&directory, &options) {
                Ok(db) => (db, Origin::Existing),
                Err(Error::Corrupt { reason }) => discard(&directory, &options, reason)?,
                Err(error) => return Err(error),
            },
        };
        tracing::info!(store = %directory.path().display(), ?origin, "local store opened");
        Ok(Self::assemble(db, origin, options, directory))
    }

    fn assemble(db: DB, origin: Origin, options: RocksOptions, directory: Directory) -> Self {
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let db = Handle::new(db);
        Self { db, read: ReadOptions::default(), write, origin, options, directory }
    }

    /// What the store came from when it was opened.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Rewrites all files and removes what has expired, and waits for it. RocksDB does that by
    /// itself in the background; this is for tests and tools.
    pub fn compact(&self) {
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
    }

    /// Marks a damaged store, so that it is rebuilt at the next start whoever handles the error.
    fn noted(&self, action: &str, source: rocksdb::Error) -> Error {
        let error = Error::rocks(action, Moment::Running, source);
        if error.kind() == Kind::Corrupt {
            // When the disk refuses even that, the damage is found again.
            let _ = self.directory.condemn();
        }
        error
    }

    fn flush_with(&self, wait: bool) -> Result<(), Error> {
        let mut options = FlushOptions::default();
        options.set_wait(wait);
        self.db.flush_opt(&options).map_err(|error| self.noted("flush the local store", error))
    }
}

fn open_existing(directory: &Directory, options: &RocksOptions) -> Result<DB, Error> {
    // Without `create_if_missing` a lost CURRENT file is an error instead of an empty store.
    let db = open_db(directory, options, false)?;
    let stored = db
        .get_pinned(Checkpoint::key())
        .map_err(|error| Error::rocks("read the checkpoint", Moment::Opening, error))?;
    let checkpoint = stored.map(|bytes| Checkpoint::decode(&bytes)).transpose();
    checkpoint.map_err(|error| Error::corrupt(error.to_string()))?;
    Ok(db)
}

fn create(directory: &Directory, options: &RocksOptions) -> Result<DB, Error> {
    directory.wipe()?;
    let db = open_db(directory, options, true)?;
    directory.claim()?;
    Ok(db)
}

fn discard(
    directory: &Directory,
    options: &RocksOptions,
    reason: String,
) -> Result<(DB, Origin), Error> {
    tracing::warn!(
        store = %directory.path().display(),
        reason,
        "local store discarded; its state is restored from Kafka"
    );
    Ok((create(directory, options)?, Origin::Discarded { reason }))
}

fn open_db(directory: &Directory, options: &RocksOptions, create: bool) -> Result<DB, Error> {
    let path = directory.db_path();
    DB::open(&options.for_open(create), &path)
        .map_err(|error| Error::rocks(&format!("open {}", path.display()), Moment::Opening, error))
}

impl Base for RocksBase {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let found = self.db.get_pinned_opt(key, &self.read);
        let found = found.map_err(|error| self.noted("read the local store", error))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, range: &KeyRange, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Error> {
        let scanned = reader::scan(&self.db, range, visit);
        scanned.map_err(|error| self.noted("scan the local store", error))
    }

    fn reader(&self) -> Option<Reader> {
        Some(self.db.reader())
    }

    fn apply<'w>(
        &mut self,
        writes: &mut dyn Iterator<Item = Write<'w>>,
        checkpoint: &Checkpoint,
    ) -> Result<(), Error> {
        let mut batch = WriteBatch::default();
        for (key, value) in writes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        batch.put(Checkpoint::key(), checkpoint.encode());
        self.db
            .write_opt(batch, &self.write)
            .map_err(|error| self.noted("write to the local store", error))
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.flush_with(true)
    }

    fn start_flush(&mut self) -> Result<(), Error> {
        self.flush_with(false)
    }

    fn reset(self: Box<Self>) -> Result<Box<dyn Base>, Error> {
        let Self { db, options, directory, .. } = *self;
        // First of all, so that a death in between leaves nothing that looks like a store.
        directory.condemn()?;
        drop(db);
        let db = create(&directory, &options)?;
        Ok(Box::new(Self::assemble(db, Origin::New, options, directory)))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.flush_with(true)
    }
}

#[cfg(test)]
mod tests;
