//! The hub's internal topics, read from outside: which there are, and what their records say. The
//! names of topics and headers are written out here once more, on purpose: they are a format.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::reader::{Reader, Record};

/// How many retry tiers there are.
pub const RETRY_TIERS: u8 = 11;

/// A group's place in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset that the group will read; none if it never committed.
    pub committed: Option<i64>,
    /// One behind the last record.
    pub end: i64,
}

/// The internal topics of one application.
pub struct Internal {
    reader: Reader,
    application: String,
}

impl Internal {
    /// Those of this application on this cluster.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn new(bootstrap: &str, application: &str) -> Result<Self> {
        Ok(Self { reader: Reader::new(bootstrap)?, application: application.to_owned() })
    }

    /// A topic's or a group's full name.
    #[must_use]
    pub fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.application)
    }

    /// All records of an internal topic.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<Record>> {
        self.reader.read(&self.name(name))
    }

    /// All records of any topic of the cluster, a producer's for example.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn topic(&self, topic: &str) -> Result<Vec<Record>> {
        self.reader.read(topic)
    }

    /// Every accepted event: `hub-tenant`, `hub-id`, `hub-from`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn inbox(&self) -> Result<Vec<Record>> {
        self.read("inbox")
    }

    /// The ids in the inbox, by tenant.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn inbox_ids(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for record in self.inbox()? {
            let text = |name| record.text(name).unwrap_or_default().to_owned();
            ids.entry(text("hub-tenant")).or_default().push(text("hub-id"));
        }
        Ok(ids)
    }

    /// Jobs and their tombstones, in one topic.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn deliveries(&self) -> Result<Vec<Record>> {
        self.read("deliveries")
    }

    /// Jobs that wait, or waited, for their `tier`-th retry, and their tombstones.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn retries(&self, tier: u8) -> Result<Vec<Record>> {
        self.read(&format!("retry-{tier:02}"))
    }

    /// What could not be accepted: `hub-reason`, `hub-from`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn quarantine(&self) -> Result<Vec<Record>> {
        self.read("quarantine")
    }

    /// Jobs that ended without delivery: `hub-reason`, `hub-class`, `hub-status`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn dead_letters(&self) -> Result<Vec<Record>> {
        self.read("dead-letters")
    }

    /// The attempt log, as JSON.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn attempts(&self) -> Result<Vec<serde_json::Value>> {
        let records = self.read("attempts")?;
        let values = records.iter().filter_map(|record| record.value.as_deref());
        Ok(values.map(serde_json::from_slice).collect::<Result<_, _>>()?)
    }

    /// The jobs that have not ended, each with the topic that holds it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn open_jobs(&self) -> Result<BTreeMap<String, String>> {
        let mut open = BTreeMap::new();
        let tiers = (1..=RETRY_TIERS).map(|tier| format!("retry-{tier:02}"));
        for topic in std::iter::once("deliveries".to_owned()).chain(tiers) {
            for (job, _) in open_in(&self.read(&topic)?) {
                open.insert(job, topic.clone());
            }
        }
        Ok(open)
    }

    /// Where a group stands on each partition of a topic, and where that partition ends.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn positions(&self, group: &str, topic: &str) -> Result<Vec<Position>> {
        let positions = self.reader.positions(&self.name(group), topic)?.into_iter();
        let positions = positions.map(|(partition, committed)| {
            let (_, end) = self.reader.watermarks(topic, partition)?;
            Ok(Position { topic: topic.to_owned(), partition, committed, end })
        });
        positions.collect()
    }

    /// Whether this group has read these topics to their ends.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn has_read(&self, group: &str, topics: &BTreeSet<String>) -> Result<bool> {
        Ok(self.reader.unread(&self.name(group), topics)? == 0)
    }
}

/// The records of a topic of jobs that no tombstone ended, by job.
#[must_use]
pub fn open_in(records: &[Record]) -> BTreeMap<String, &Record> {
    let mut open = BTreeMap::new();
    for record in records {
        let job = record.key_text().to_owned();
        if record.value.is_some() {
            open.insert(job, record);
        } else {
            open.remove(&job);
        }
    }
    open
}
