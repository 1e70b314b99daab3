//! A handle by which others than the owning task read what a store has committed, for as long as
//! the task has the store: closing, resetting or dropping it revokes all handles, waiting for those
//! that read just then. So no reader keeps a store open, and none reads one that was given up.
//!
//! Not for the owning task: it must see its uncommitted writes, see [`State`](crate::State).

use std::ops::{ControlFlow, Deref};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use bytes::Bytes;
use rocksdb::{DB, ReadOptions};

use crate::base::Visit;
use crate::error::{Error, Moment};
use crate::{Key, KeyRange};

/// A revocable handle to read committed state. Clones are revoked together.
#[derive(Clone)]
pub struct Reader(Arc<RwLock<Option<Weak<DB>>>>);

impl Reader {
    /// Runs `read` while the store cannot be given up; `None` when it was.
    fn with<T>(&self, read: impl FnOnce(&DB) -> Result<T, Error>) -> Result<Option<T>, Error> {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(db) = held.as_ref().and_then(Weak::upgrade) else { return Ok(None) };
        let result = read(&db);
        // Before the lock is: whoever revokes must find itself the only owner.
        drop(db);
        drop(held);
        result.map(Some)
    }

    /// Whether the store was given up.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The committed value of `key`; the outer `None` when the store was given up.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    #[allow(clippy::option_option, reason = "given up, and not there, are two answers")]
    pub fn get(&self, key: &Key) -> Result<Option<Option<Bytes>>, Error> {
        self.with(|db| {
            let found = db.get_pinned(key.as_slice());
            let found = found.map_err(|e| Error::rocks("read the local store", Moment::Running, e));
            Ok(found?.map(|value| Bytes::copy_from_slice(&value)))
        })
    }

    /// Visits the committed keys of `range` in key order, as of one moment; `None` when the store
    /// was given up.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn scan(
        &self,
        range: &KeyRange,
        visit: &mut Visit<'_>,
    ) -> Result<Option<ControlFlow<()>>, Error> {
        self.with(|db| {
            scan(db, range, visit)
                .map_err(|e| Error::rocks("scan the local store", Moment::Running, e))
        })
    }
}

/// Visits the keys of `range` in key order; answers whether the visitor ended it.
pub(crate) fn scan(
    db: &DB,
    range: &KeyRange,
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<()>, rocksdb::Error> {
    if range.is_empty() {
        return Ok(ControlFlow::Continue(()));
    }
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(range.to());
    let mut cursor = db.raw_iterator_opt(options);
    cursor.seek(range.from());
    while let Some((key, value)) = cursor.item() {
        if visit(key, value).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        cursor.next();
    }
    cursor.status().map(|()| ControlFlow::Continue(()))
}

/// An open database and its readers. Dropped, it revokes them first.
pub(crate) struct Handle {
    readers: Reader,
    db: Arc<DB>,
}

impl Handle {
    pub(crate) fn new(db: DB) -> Self {
        let db = Arc::new(db);
        Self { readers: Reader(Arc::new(RwLock::new(Some(Arc::downgrade(&db))))), db }
    }

    pub(crate) fn reader(&self) -> Reader {
        self.readers.clone()
    }
}

impl Deref for Handle {
    type Target = DB;

    fn deref(&self) -> &DB {
        &self.db
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        *self.readers.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
