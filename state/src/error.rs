//! The crate's error: many causes, four things a caller can do.
//!
//! Not for logging or retrying: an error is logged once, where it is handled. Nothing here is worth
//! a blind retry, because the task's state after an error is the state before the call.

use std::path::{Path, PathBuf};

/// Why a store operation failed. [`Error::kind`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What is on disk cannot be trusted.
    #[error("the local store is damaged and has to be rebuilt from Kafka: {reason}")]
    Corrupt {
        /// What was found, in the words of whoever found it.
        reason: String,
    },
    /// The disk, or the operating system above it, refused: full, read-only, too many open files.
    #[error("the disk refused to {action}: {reason}")]
    Io {
        /// The refused action, as a verb with its object.
        action: String,
        /// The operating system's or RocksDB's own words.
        reason: String,
    },
    /// Another process, or another task of this one, holds the store.
    #[error(
        "the local store {} is in use by another process; two instances must not share a state \
         directory",
        dir.display()
    )]
    Locked {
        /// The store's directory.
        dir: PathBuf,
    },
    /// Bytes that do not follow their format, or values that do not fit into it.
    #[error("{what}: {problem}")]
    Decode {
        /// The format, for example `dedup changelog record`.
        what: &'static str,
        /// What is wrong with the bytes.
        problem: Problem,
    },
}

/// What the owner of the store has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Throw the store away and restore it from Kafka. Opening it again does both.
    Corrupt,
    /// Fail the task with the message and start it anew. Nothing is lost: the store is a correct,
    /// possibly older, view of what Kafka holds.
    Io,
    /// Fail the start with the message. Somebody else runs with this directory.
    Locked,
    /// Stop the task with the message: bytes came from a newer release or from nobody known.
    /// Rebuilding would meet the same bytes again.
    Decode,
}

/// What is wrong with bytes or with a value to be written as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The bytes end before the format does.
    #[error("truncated")]
    Truncated,
    /// Bytes are left over.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// Written by a release with another version of the format.
    #[error(
        "format version {found}, this release reads version {known}; run the release that wrote it"
    )]
    Version {
        /// The version in the bytes.
        found: u8,
        /// The version known here.
        known: u8,
    },
    /// A field holds a value that its format does not know.
    #[error("bad {0}")]
    Field(&'static str),
    /// A value is larger than its format can hold.
    #[error("{0} too large")]
    TooLarge(&'static str),
}

/// When RocksDB failed: the same words mean different things at start and later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Opening,
    Running,
}

impl Error {
    /// What the caller has to do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Corrupt { .. } => Kind::Corrupt,
            Self::Io { .. } => Kind::Io,
            Self::Locked { .. } => Kind::Locked,
            Self::Decode { .. } => Kind::Decode,
        }
    }

    pub(crate) fn corrupt(reason: impl Into<String>) -> Self {
        Self::Corrupt { reason: reason.into() }
    }

    pub(crate) fn decode(what: &'static str, problem: Problem) -> Self {
        Self::Decode { what, problem }
    }

    pub(crate) fn io(verb: &str, path: &Path, source: &std::io::Error) -> Self {
        Self::Io { action: format!("{verb} {}", path.display()), reason: source.to_string() }
    }

    pub(crate) fn rocks(action: &str, moment: Moment, source: rocksdb::Error) -> Self {
        match classify(&source.kind(), source.as_ref(), moment) {
            Kind::Corrupt => Self::Corrupt { reason: source.into_string() },
            Kind::Io | Kind::Locked | Kind::Decode => {
                Self::Io { action: action.to_owned(), reason: source.into_string() }
            }
        }
    }
}

/// Folds RocksDB's statuses. A missing file is an `IO error` to RocksDB, but to us it is damage: a
/// retry would not find it. All that is neither damage nor a misfit of the files is the disk's.
fn classify(kind: &rocksdb::ErrorKind, message: &str, moment: Moment) -> Kind {
    use rocksdb::ErrorKind as E;
    match kind {
        E::Corruption | E::NotFound | E::ColumnFamilyDropped => Kind::Corrupt,
        E::NotSupported | E::InvalidArgument if moment == Moment::Opening => Kind::Corrupt,
        E::IOError if MISSING.iter().any(|words| message.contains(words)) => Kind::Corrupt,
        E::NotSupported
        | E::InvalidArgument
        | E::IOError
        | E::MergeInProgress
        | E::Incomplete
        | E::ShutdownInProgress
        | E::TimedOut
        | E::Aborted
        | E::Busy
        | E::Expired
        | E::TryAgain
        | E::CompactionTooLarge
        | E::Unknown => Kind::Io,
    }
}

/// `strerror` texts of ENOENT, ENOTDIR and EISDIR.
const MISSING: [&str; 3] = ["No such file or directory", "Not a directory", "Is a directory"];

#[cfg(test)]
mod tests {
    use super::*;
    use rocksdb::ErrorKind as E;

    #[test]
    fn damage_is_rebuilt_and_a_refusing_disk_is_not() {
        let no_space = "IO error: No space left on device: While appending to file: 000007.sst";
        let read_only = "IO error: Read-only file system: While open a file for appending: LOG";
        let gone = "IO error: No such file or directory: While opening a file: MANIFEST-000005";
        let cases = [
            (E::Corruption, "Corruption: bad block", Moment::Running, Kind::Corrupt),
            (E::Corruption, "Corruption: no CURRENT", Moment::Opening, Kind::Corrupt),
            (E::IOError, gone, Moment::Opening, Kind::Corrupt),
            (E::IOError, gone, Moment::Running, Kind::Corrupt),
            (E::IOError, no_space, Moment::Running, Kind::Io),
            (E::IOError, read_only, Moment::Opening, Kind::Io),
            (E::IOError, "IO error: Input/output error: x", Moment::Running, Kind::Io),
            (E::InvalidArgument, "Invalid argument: comparator", Moment::Opening, Kind::Corrupt),
            (E::InvalidArgument, "Invalid argument: x", Moment::Running, Kind::Io),
            (E::NotSupported, "Not implemented: newer table", Moment::Opening, Kind::Corrupt),
            (E::ShutdownInProgress, "Shutdown in progress", Moment::Running, Kind::Io),
        ];
        for (kind, message, moment, expected) in cases {
            assert_eq!(classify(&kind, message, moment), expected, "{message} while {moment:?}");
        }
    }

    #[test]
    fn an_unknown_version_names_both_versions() {
        let problem = Problem::Version { found: 7, known: 1 };
        let text = Error::decode("dedup changelog record", problem).to_string();
        assert!(text.contains("version 7") && text.contains("version 1"), "{text}");
    }
}
