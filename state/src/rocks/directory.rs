//! The directory of a store: its lock, its identity and its removal.
//!
//! Not RocksDB's own files: those are in `db/` and looked at by RocksDB only.
//!
//! ```text
//! <dir>/LOCK        held with an exclusive lock of the operating system while the store is open
//! <dir>/IDENTITY    whose store it is, in which layout; written last and removed first
//! <dir>/db/         RocksDB
//! ```
//!
//! The invariant: where there is an IDENTITY, `db/` was made whole for it. The LOCK file is never
//! removed, because a lock on a removed file keeps nobody out.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Layout of the directory and of all keys and values in it. Raise it when old stores can no longer
/// be read: they are rebuilt.
const FORMAT: u32 = 1;

/// Whose store a directory holds. A store of anybody else is thrown away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The application id.
    pub application_id: String,
    /// The sub-topology, for example `delivery`.
    pub sub_topology: String,
    /// The task's partition.
    pub partition: i32,
    /// Number of partitions of the sub-topology. With another number keys lie elsewhere.
    pub partition_count: i32,
}

impl Identity {
    fn text(&self) -> String {
        // Quoted and escaped, so that no name can look like another line.
        format!(
            "streaming-hub state store\nformat = {FORMAT}\napplication = {:?}\n\
             sub-topology = {:?}\npartition = {}\npartitions = {}\n",
            self.application_id, self.sub_topology, self.partition, self.partition_count
        )
    }
}

/// What is in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Store,
    Unusable { reason: String },
}

/// A locked directory. The lock ends with it, and with the process.
pub(super) struct Directory {
    path: PathBuf,
    identity: String,
    _lock: File,
}

impl Directory {
    /// Makes the directory if need be, and locks it.
    pub(super) fn lock(path: &Path, identity: &Identity) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(|error| Error::io("create", path, &error))?;
        let file = path.join("LOCK");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&file)
            .map_err(|error| Error::io("open", &file, &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Locked { dir: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &file, &error)),
        }
        Ok(Self { path: path.to_owned(), identity: identity.text(), _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn db_path(&self) -> PathBuf {
        self.path.join("db")
    }

    fn identity_path(&self) -> PathBuf {
        self.path.join("IDENTITY")
    }

    pub(super) fn look(&self) -> Result<Found, Error> {
        let path = self.identity_path();
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => return self.look_without(),
            Err(error) => return Err(Error::io("read", &path, &error)),
        };
        if text == self.identity {
            let whole = self.db_path().is_dir();
            let reason = "its db directory is missing".to_owned();
            return Ok(if whole { Found::Store } else { Found::Unusable { reason } });
        }
        let lines = text.lines().zip(self.identity.lines());
        let difference = lines.into_iter().find(|(found, wanted)| found != wanted);
        let reason = match difference {
            Some((found, wanted)) => format!("its IDENTITY says `{found}` instead of `{wanted}`"),
            None => "its IDENTITY has lines too many or too few".to_owned(),
        };
        Ok(Found::Unusable { reason })
    }

    fn look_without(&self) -> Result<Found, Error> {
        let path = self.db_path();
        if !path.try_exists().map_err(|error| Error::io("look for", &path, &error))? {
            return Ok(Found::Nothing);
        }
        let reason = "it has no IDENTITY: it was damaged, or its making or removal was interrupted";
        Ok(Found::Unusable { reason: reason.to_owned() })
    }

    /// Removes the identity, so that the store is not opened any more.
    pub(super) fn condemn(&self) -> Result<(), Error> {
        remove(&self.identity_path(), |path| fs::remove_file(path))?;
        self.sync()
    }

    /// Removes the store.
    pub(super) fn wipe(&self) -> Result<(), Error> {
        self.condemn()?;
        remove(&self.db_path(), |path| {
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
        })
    }

    /// Writes the identity of a store that was made whole.
    pub(super) fn claim(&self) -> Result<(), Error> {
        let path = self.identity_path();
        let unfinished = self.path.join("IDENTITY.new");
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(self.identity.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)
        });
        written.map_err(|error| Error::io("write", &path, &error))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), Error> {
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Error::io("sync", &self.path, &error))
    }
}

fn remove(path: &Path, how: impl Fn(&Path) -> std::io::Result<()>) -> Result<(), Error> {
    match how(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            application_id: "hub".to_owned(),
            sub_topology: "match".to_owned(),
            partition: 3,
            partition_count: 12,
        }
    }

    fn reason(dir: &Path, identity: &Identity) -> String {
        match Directory::lock(dir, identity).unwrap().look().unwrap() {
            Found::Unusable { reason } => reason,
            Found::Nothing | Found::Store => String::new(),
        }
    }

    #[test]
    fn a_store_is_one_only_from_claim_to_wipe() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::lock(dir.path(), &identity()).unwrap();
        assert_eq!(directory.look().unwrap(), Found::Nothing);
        fs::create_dir(directory.db_path()).unwrap();
        assert!(matches!(directory.look().unwrap(), Found::Unusable { .. }));
        directory.claim().unwrap();
        assert_eq!(directory.look().unwrap(), Found::Store);
        directory.condemn().unwrap();
        assert!(matches!(directory.look().unwrap(), Found::Unusable { .. }));
        directory.wipe().unwrap();
        assert_eq!(directory.look().unwrap(), Found::Nothing);
    }

    #[test]
    fn a_store_of_another_task_or_layout_is_told_apart_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        Directory::lock(dir.path(), &identity()).unwrap().claim().unwrap();
        let other = Identity { partition_count: 24, ..identity() };
        let expected = "its IDENTITY says `partitions = 12` instead of `partitions = 24`";
        assert_eq!(reason(dir.path(), &other), expected);
        let other = Identity { application_id: "hub\npartition = 3".to_owned(), ..identity() };
        assert!(reason(dir.path(), &other).contains("application"));
        let file = dir.path().join("IDENTITY");
        let newer = fs::read_to_string(&file).unwrap().replace("format = 1", "format = 2");
        fs::write(&file, newer).unwrap();
        assert!(reason(dir.path(), &identity()).contains("format = 2"));
        fs::write(&file, "").unwrap();
        assert!(reason(dir.path(), &identity()).contains("too few"));
    }

    #[test]
    fn a_directory_can_be_locked_once_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::lock(dir.path(), &identity()).unwrap();
        let second = Directory::lock(dir.path(), &identity()).err().unwrap();
        assert_eq!(second.kind(), crate::Kind::Locked);
        assert!(second.to_string().contains("in use by another process"), "{second}");
        drop(first);
        assert!(Directory::lock(dir.path(), &identity()).is_ok());
    }
}
