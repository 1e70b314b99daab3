//! What the published logs hold: records of the inbox and of the quarantine as they lie there, read
//! on request. A read is bounded in records, bytes and time, and says where the next one goes on.

use std::sync::Arc;

use bytes::Bytes;

use crate::sink::SinkFuture;

/// A log that can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// Every accepted event.
    Inbox,
    /// What could not be accepted.
    Quarantine,
}

/// A record, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, Unix milliseconds; −1 when it has none.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its headers in order, the hub's own ones included.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Its value.
    pub value: Option<Bytes>,
}

impl StoredRecord {
    /// The last header of this name, as everywhere: what the hub writes stands behind a stranger's.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().rev().find(|(own, _)| own == name.as_bytes());
        found.and_then(|(_, value)| value.as_deref())
    }

    /// The same as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.header(name)?).ok()
    }
}

/// Where the reading of a partition starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At this offset, or where the log starts by now.
    Offset(i64),
    /// At the first record of this time or later, Unix milliseconds.
    Time(i64),
}

/// What is to become of a record that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It is part of the answer.
    Keep,
    /// It is not.
    Skip,
    /// It is part of the answer, and nothing more is wanted of any partition.
    Last,
    /// It is not, and nothing more is wanted of its partition.
    Beyond,
}

/// Judges a record by what it holds.
pub type Judge = Arc<dyn Fn(&StoredRecord) -> Look + Send + Sync>;

/// One read.
pub struct Query {
    /// Of which log.
    pub log: Log,
    /// Which partitions, and from where.
    pub from: Vec<(i32, Start)>,
    /// Which records are wanted.
    pub judge: Judge,
    /// The most records of the answer.
    pub records_max: usize,
    /// The most bytes of their values and headers.
    pub bytes_max: usize,
    /// How long it may take, milliseconds.
    pub within_ms: u64,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// In order within each partition.
    pub records: Vec<StoredRecord>,
    /// Partitions that were not read to their end, and where each goes on. Empty: everything that
    /// was there when the read began has been seen.
    pub rest: Vec<(i32, i64)>,
}

/// Why nothing could be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log could not be read: {0}")]
pub struct Unreadable(pub String);

/// Reads the logs.
pub trait StoredLogs: Send + Sync {
    /// How many partitions each has.
    fn partitions(&self) -> i32;

    /// The partitions that a tenant's events lie in.
    fn of_tenant(&self, tenant: &str) -> Vec<i32>;

    /// Carries out one read.
    fn read(&self, query: Query) -> SinkFuture<'_, Result<Found, Unreadable>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_header_of_a_name_counts() {
        let header = |name: &str, value: &str| (name.into(), Some(value.into()));
        let record = StoredRecord {
            partition: 0,
            offset: 0,
            timestamp_ms: 0,
            key: None,
            headers: vec![header("hub-reason", "forged"), header("hub-reason", "bad_id")],
            value: None,
        };
        assert_eq!(record.text("hub-reason"), Some("bad_id"));
        assert_eq!(record.text("hub-at"), None);
    }
}
