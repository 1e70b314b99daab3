//! Logs that behave like Kafka's: offsets grow and have gaps (markers, aborted records), a
//! compacted one loses what was overwritten. And the dice that choose what is left to chance.

use std::collections::{BTreeMap, HashMap};

use streaming_hub_model::headers::{HeaderRef, Headers};
use streaming_hub_model::internal;

use crate::runtime::processor::{Output, Outputs, Record};
use crate::topics::Topic;

/// The application id of all tests.
pub(crate) const APPLICATION: &str = "hub";

/// A header that is owned.
pub(crate) type Header = (Vec<u8>, Option<Vec<u8>>);

/// A record as a log holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp_ms: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: Vec<Header>,
    pub(crate) value: Option<Vec<u8>>,
}

impl Entry {
    pub(crate) fn refs(&self) -> Vec<HeaderRef<'_>> {
        self.headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect()
    }

    /// The record as a processor sees it; `headers` are this entry's [`Entry::refs`].
    pub(crate) fn record<'a>(&'a self, topic: &'a str, headers: &'a [HeaderRef<'a>]) -> Record<'a> {
        Record {
            topic,
            partition: self.partition,
            offset: self.offset,
            timestamp_ms: self.timestamp_ms,
            key: self.key.as_deref(),
            headers,
            value: self.value.as_deref(),
        }
    }

    pub(crate) fn key_text(&self) -> &str {
        std::str::from_utf8(self.key.as_deref().unwrap()).unwrap()
    }

    /// The last header of this name, as text; empty when there is none.
    pub(crate) fn text(&self, name: &str) -> String {
        let headers = self.refs();
        Headers::new(&headers).last_text(name).unwrap_or_default().to_owned()
    }

    pub(crate) fn number(&self, name: &'static str) -> i64 {
        internal::number(Headers::new(&self.refs()), name).unwrap()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(own, _)| own == name.as_bytes())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.value.as_deref().unwrap()).unwrap()
    }
}

/// The records of the open transaction, in order.
#[derive(Debug, Default)]
pub(crate) struct Emitted(pub(crate) Vec<(Topic, Entry)>);

impl Outputs for Emitted {
    fn emit(&mut self, output: Output<'_>) {
        let owned = |(name, value): &HeaderRef<'_>| (name.to_vec(), value.map(<[u8]>::to_vec));
        let entry = Entry {
            partition: output.partition,
            key: output.key.map(<[u8]>::to_vec),
            headers: output.headers.iter().map(owned).collect(),
            value: output.value.map(<[u8]>::to_vec),
            ..Entry::default()
        };
        self.0.push((output.topic, entry));
    }
}

#[derive(Debug, Default)]
struct Log {
    next: i64,
    entries: Vec<Entry>,
}

/// What a broker holds, by topic and partition.
#[derive(Debug, Default)]
pub(crate) struct Logs(BTreeMap<(String, i32), Log>);

/// What compaction did to a log before it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compaction {
    Never,
    /// A part at the log's beginning was compacted, tombstones are kept.
    Recent,
    /// The same, and tombstones of that part are gone.
    LongAgo,
}

impl Logs {
    /// Appends one transaction's records; its marker takes an offset of each log.
    pub(crate) fn commit(&mut self, records: Vec<(String, Entry)>, timestamp_ms: i64) {
        self.append(records, timestamp_ms, true);
    }

    /// An aborted transaction's records take offsets and are never read.
    pub(crate) fn abort(&mut self, records: Vec<(String, Entry)>) {
        self.append(records, 0, false);
    }

    fn append(&mut self, records: Vec<(String, Entry)>, timestamp_ms: i64, visible: bool) {
        let mut touched = std::collections::BTreeSet::new();
        for (topic, mut entry) in records {
            let place = (topic, entry.partition);
            let log = self.0.entry(place.clone()).or_default();
            touched.insert(place);
            (entry.offset, entry.timestamp_ms) = (log.next, timestamp_ms);
            log.next += 1;
            if visible {
                log.entries.push(entry);
            }
        }
        for place in touched {
            self.0.entry(place).or_default().next += 1;
        }
    }

    /// All records of a topic, by partition and offset.
    pub(crate) fn all(&self, topic: Topic) -> Vec<&Entry> {
        let name = topic.name(APPLICATION);
        let logs = self.0.iter().filter(|((topic, _), _)| *topic == name);
        logs.flat_map(|(_, log)| &log.entries).collect()
    }

    /// What a topic says now: the last record of each key, ended ones left out.
    pub(crate) fn live(&self, topic: Topic) -> BTreeMap<String, &Entry> {
        let mut live = BTreeMap::new();
        for entry in self.all(topic) {
            match entry.value {
                Some(_) => live.insert(entry.key_text().to_owned(), entry),
                None => live.remove(entry.key_text()),
            };
        }
        live
    }

    pub(crate) fn end(&self, topic: &str, partition: i32) -> i64 {
        self.0.get(&(topic.to_owned(), partition)).map_or(0, |log| log.next)
    }

    /// The first record at or above an offset.
    pub(crate) fn next(&self, topic: &str, partition: i32, from: i64) -> Option<Entry> {
        let log = self.0.get(&(topic.to_owned(), partition))?;
        log.entries.iter().find(|entry| entry.offset >= from).cloned()
    }

    /// What a restore reads from an offset on.
    pub(crate) fn tail(
        &self,
        (topic, partition): (&str, i32),
        from: i64,
        compaction: Compaction,
        dice: &mut Dice,
    ) -> Vec<Entry> {
        let Some(log) = self.0.get(&(topic.to_owned(), partition)) else { return Vec::new() };
        let mut cut = dice.roll(log.entries.len() + 1);
        if compaction == Compaction::Never {
            cut = 0;
        }
        let (old, new) = log.entries.split_at(cut);
        let last: HashMap<_, _> = old.iter().map(|entry| (&entry.key, entry.offset)).collect();
        let stays = |entry: &&Entry| {
            let is_last = entry.key.is_none() || last[&entry.key] == entry.offset;
            is_last && (entry.value.is_some() || compaction != Compaction::LongAgo)
        };
        let left = old.iter().filter(stays).chain(new);
        left.filter(|entry| entry.offset >= from).cloned().collect()
    }
}

/// Repeatable chance (an xorshift of Marsaglia's).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 8).unwrap() % sides
    }
}
