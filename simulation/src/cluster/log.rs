//! One partition's log: records with offsets, transaction markers, the last stable offset and the
//! high watermark; compaction, retention and deletion from its start.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use streaming_hub_model::headers::HeaderRef;

/// A header's name and value.
pub type OwnedHeader = (Box<[u8]>, Option<Box<[u8]>>);

/// Key, headers and value of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    /// Its key.
    pub key: Option<Box<[u8]>>,
    /// Its headers in order.
    pub headers: Vec<OwnedHeader>,
    /// Its value.
    pub value: Option<Box<[u8]>>,
}

impl Data {
    /// A copy of these parts.
    #[must_use]
    pub fn copy(key: Option<&[u8]>, headers: &[HeaderRef<'_>], value: Option<&[u8]>) -> Self {
        let header = |(name, value): &HeaderRef<'_>| (Box::from(*name), value.map(Box::from));
        Self {
            key: key.map(Box::from),
            headers: headers.iter().map(header).collect(),
            value: value.map(Box::from),
        }
    }

    /// Its headers, borrowed.
    #[must_use]
    pub fn header_refs(&self) -> Vec<HeaderRef<'_>> {
        self.headers.iter().map(|(name, value)| (&**name, value.as_deref())).collect()
    }
}

/// What stands at one offset.
#[derive(Debug, Clone)]
struct Entry {
    at_ms: i64,
    txn: Option<u64>,
    /// `None` for a transaction marker.
    data: Option<Rc<Data>>,
}

/// What a reader finds.
#[derive(Debug)]
pub enum Read {
    /// A record.
    Record {
        /// Its offset.
        offset: i64,
        /// Its timestamp, Unix milliseconds.
        at_ms: i64,
        /// What it holds.
        data: Rc<Data>,
    },
    /// Nothing yet; the reader's position moves here.
    End(i64),
    /// The log begins above the reader.
    Below(i64),
}

/// A partition's log.
#[derive(Debug, Default)]
pub struct Log {
    low: i64,
    next: i64,
    entries: BTreeMap<i64, Entry>,
    /// First offset of each transaction whose marker is not written yet.
    open: BTreeMap<u64, i64>,
    aborted: BTreeSet<u64>,
}

impl Log {
    /// The log start offset.
    #[must_use]
    pub fn low(&self) -> i64 {
        self.low
    }

    /// The high watermark, open transactions included.
    #[must_use]
    pub fn high(&self) -> i64 {
        self.next
    }

    /// The last stable offset.
    #[must_use]
    pub fn stable(&self) -> i64 {
        self.open.values().min().copied().unwrap_or(self.next)
    }

    /// The offset behind the last record that is no marker and was not aborted.
    #[must_use]
    pub fn last_record_end(&self) -> i64 {
        let mut entries = self.entries.iter().rev();
        let last = entries.find(|(_, entry)| self.is_visible(entry));
        last.map_or(self.low, |(offset, _)| offset + 1)
    }

    /// Appends a record; answers its offset.
    pub fn append(&mut self, at_ms: i64, txn: Option<u64>, data: Rc<Data>) -> i64 {
        let offset = self.next;
        if let Some(txn) = txn {
            self.open.entry(txn).or_insert(offset);
        }
        self.entries.insert(offset, Entry { at_ms, txn, data: Some(data) });
        self.next += 1;
        offset
    }

    /// Writes a transaction's marker.
    pub fn mark(&mut self, at_ms: i64, txn: u64, commit: bool) {
        self.open.remove(&txn);
        if !commit {
            self.aborted.insert(txn);
        }
        self.entries.insert(self.next, Entry { at_ms, txn: Some(txn), data: None });
        self.next += 1;
    }

    fn is_visible(&self, entry: &Entry) -> bool {
        entry.data.is_some() && entry.txn.is_none_or(|txn| !self.aborted.contains(&txn))
    }

    /// The first record at or after `from`, read-committed or not.
    #[must_use]
    pub fn read(&self, from: i64, committed: bool) -> Read {
        if from < self.low {
            return Read::Below(self.low);
        }
        let end = if committed { self.stable() } else { self.next };
        if from >= end {
            return Read::End(from);
        }
        let visible = |entry: &Entry| {
            if committed { self.is_visible(entry) } else { entry.data.is_some() }
        };
        let found = self.entries.range(from..end).find(|(_, entry)| visible(entry));
        match found {
            Some((offset, Entry { at_ms, data: Some(data), .. })) => {
                Read::Record { offset: *offset, at_ms: *at_ms, data: Rc::clone(data) }
            }
            _ => Read::End(end),
        }
    }

    /// The first offset at or after this time.
    #[must_use]
    pub fn offset_at(&self, at_ms: i64) -> Option<i64> {
        self.entries.iter().find(|(_, entry)| entry.at_ms >= at_ms).map(|(offset, _)| *offset)
    }

    /// Deletes what lies below `before`, as DeleteRecords and retention do.
    pub fn delete_below(&mut self, before: i64) {
        self.low = self.low.max(before.min(self.next));
        self.entries = self.entries.split_off(&self.low);
    }

    /// Deletes from the start what is older than `oldest_ms`, never beyond the last stable offset.
    pub fn expire(&mut self, oldest_ms: i64) {
        let stable = self.stable();
        let kept = self.entries.range(..stable).find(|(_, entry)| entry.at_ms >= oldest_ms);
        let before = kept.map_or(stable, |(offset, _)| *offset);
        self.delete_below(before);
    }

    /// Compacts what lies below `upto` and the last stable offset and is not younger than
    /// `youngest_ms`: of each key the last committed record there stays; tombstones go once they
    /// are older than `tombstones_ms`.
    pub fn compact(&mut self, upto: i64, youngest_ms: i64, tombstones_ms: i64) {
        let upto = upto.min(self.stable());
        let young = self.entries.range(..upto).find(|(_, entry)| entry.at_ms > youngest_ms);
        let upto = young.map_or(upto, |(offset, _)| *offset);
        let mut last: HashMap<Box<[u8]>, i64> = HashMap::new();
        for (offset, entry) in self.entries.range(..upto) {
            if self.is_visible(entry)
                && let Some(key) = entry.data.as_ref().and_then(|data| data.key.clone())
            {
                last.insert(key, *offset);
            }
        }
        let goes = |offset: i64, entry: &Entry| {
            let Some(data) = entry.data.as_ref().filter(|_| self.is_visible(entry)) else {
                return entry.at_ms < tombstones_ms || entry.data.is_some();
            };
            let superseded =
                data.key.as_ref().is_some_and(|key| last.get(key).is_some_and(|l| *l > offset));
            superseded || (data.value.is_none() && entry.at_ms < tombstones_ms)
        };
        let gone: Vec<i64> = self
            .entries
            .range(..upto)
            .filter(|(offset, entry)| goes(**offset, entry))
            .map(|(offset, _)| *offset)
            .collect();
        for offset in gone {
            self.entries.remove(&offset);
        }
    }

    /// Every committed record, in order.
    pub fn committed(&self) -> impl Iterator<Item = (i64, &Rc<Data>)> {
        let visible = self.entries.range(..self.stable()).filter(|(_, e)| self.is_visible(e));
        visible.filter_map(|(offset, entry)| entry.data.as_ref().map(|data| (*offset, data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(key: &str, value: Option<&str>) -> Rc<Data> {
        Rc::new(Data::copy(Some(key.as_bytes()), &[], value.map(str::as_bytes)))
    }

    fn offsets(log: &Log, committed: bool) -> Vec<i64> {
        let mut found = Vec::new();
        let mut next = log.low();
        while let Read::Record { offset, .. } = log.read(next, committed) {
            found.push(offset);
            next = offset + 1;
        }
        found
    }

    #[test]
    fn committed_readers_stop_at_the_first_open_transaction_and_skip_aborted_ones() {
        let mut log = Log::default();
        log.append(1, None, data("a", Some("1")));
        log.append(1, Some(1), data("a", Some("2")));
        log.append(1, Some(2), data("b", Some("3")));
        assert_eq!((log.stable(), log.high()), (1, 3));
        assert_eq!((offsets(&log, true), offsets(&log, false)), (vec![0], vec![0, 1, 2]));
        log.mark(1, 2, true);
        assert_eq!(offsets(&log, true), [0]);
        log.mark(1, 1, false);
        assert_eq!(offsets(&log, true), [0, 2]);
        assert!(matches!(log.read(3, true), Read::End(5)), "positions pass markers");
        assert_eq!(log.last_record_end(), 3);
    }

    #[test]
    fn compaction_keeps_the_last_record_of_a_key_and_young_tombstones() {
        let mut log = Log::default();
        for (key, value) in [("a", Some("1")), ("b", Some("1")), ("a", None), ("b", Some("2"))] {
            log.append(10, None, data(key, value));
        }
        log.compact(4, 9, 10);
        assert_eq!(offsets(&log, true), [0, 1, 2, 3], "too young");
        log.compact(4, 10, 10);
        assert_eq!(offsets(&log, true), [2, 3]);
        log.compact(4, 10, 11);
        assert_eq!(offsets(&log, true), [3]);
        assert_eq!(log.low(), 0, "compaction moves no start");
    }

    #[test]
    fn a_reader_below_the_start_is_told() {
        let mut log = Log::default();
        log.append(1, None, data("a", None));
        log.append(9, None, data("a", None));
        log.expire(5);
        assert!(matches!(log.read(0, true), Read::Below(1)));
        log.delete_below(7);
        assert_eq!((log.low(), log.high()), (2, 2));
    }
}
