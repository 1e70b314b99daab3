//! Reads whole topics, read-committed, up to the high watermark as it was when the reading began.
//! The watermark is asked by a read-uncommitted client: a read-committed one would answer the last
//! stable offset, and what a transaction is about to show would be missed.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use crate::facts::Header;
use crate::wait;

/// How long one answer of the broker may take.
const ANSWER: Duration = Duration::from_secs(20);
/// How long an open transaction may hold a reading back: an abandoned one ends after its time-out
/// and the broker's next look.
const STABLE: Duration = Duration::from_secs(60);
/// How long a topic may take to be read.
const WHOLE: Duration = Duration::from_secs(120);

/// Stands for a header's name that is no UTF-8, which the client cannot show; its value is lost
/// with it. [`crate::kcat`] shows both.
pub const UNREADABLE_NAME: &[u8] = b"\xff";

/// A record as it lies in its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, Unix milliseconds.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

impl Record {
    /// The last value of a header, as text; of one that the hub packs into another its field.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let (_, value) = match self.headers.iter().rev().find(|(own, _)| own == name.as_bytes()) {
            Some(found) => found,
            None => return self.packed(name),
        };
        std::str::from_utf8(value.as_deref()?).ok()
    }

    /// A field of `hub-event` or `hub-job`: the format, then the fields, spaces between them.
    fn packed(&self, name: &str) -> Option<&str> {
        const EVENT: [&str; 5] = ["hub-id", "hub-major", "hub-arrival", "hub-from", "hub-tenant"];
        const JOB: [&str; 5] =
            ["hub-subscription", "hub-matched", "hub-table", "hub-attempts", "hub-due"];
        let place = |fields: [&str; 5]| fields.iter().position(|field| *field == name);
        let (header, place) = match (place(EVENT), place(JOB)) {
            (Some(place), _) => ("hub-event", place),
            (None, place) => ("hub-job", place?),
        };
        let fields = self.text(header)?.strip_prefix("2 ")?;
        fields.splitn(5, ' ').nth(place)
    }

    /// The key as text.
    #[must_use]
    pub fn key_text(&self) -> &str {
        self.key.as_deref().and_then(|key| std::str::from_utf8(key).ok()).unwrap_or_default()
    }

    /// Where it lies, for failures.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

/// Reads topics of one cluster. One reading at a time: a second thread waits.
pub struct Reader {
    bootstrap: String,
    /// Asks for high watermarks.
    asker: BaseConsumer,
    /// Reads, and asks for last stable offsets.
    reader: Mutex<BaseConsumer>,
}

impl Reader {
    /// A reader of this cluster.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn new(bootstrap: &str) -> Result<Self> {
        Ok(Self {
            bootstrap: bootstrap.to_owned(),
            asker: consumer(bootstrap, "read_uncommitted", None)?,
            reader: Mutex::new(consumer(bootstrap, "read_committed", None)?),
        })
    }

    /// A topic's records, by partition and offset.
    ///
    /// # Errors
    /// When there is no such topic, or it cannot be read in time.
    pub fn read(&self, topic: &str) -> Result<Vec<Record>> {
        let from = self.partitions(topic)?.into_iter().map(|partition| (partition, 0));
        self.read_from(topic, &from.collect())
    }

    /// A topic's records from these offsets on, by partition.
    fn read_from(&self, topic: &str, from: &BTreeMap<i32, i64>) -> Result<Vec<Record>> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = BTreeSet::new();
        let mut assigned = TopicPartitionList::new();
        for (&partition, &offset) in from {
            let (low, high) = self.watermarks(topic, partition)?;
            let offset = offset.max(low);
            if offset >= high {
                continue;
            }
            assigned.add_partition_offset(topic, partition, Offset::Offset(offset))?;
            open.insert(partition);
            wait::until("an open transaction's end", STABLE, || {
                let (_, stable) = reader.fetch_watermarks(topic, partition, ANSWER)?;
                let state = || format!("{topic}/{partition} stable to {stable} of {high}");
                Ok(if stable >= high { Ok(()) } else { Err(state()) })
            })?;
        }
        if open.is_empty() {
            return Ok(Vec::new());
        }
        reader.assign(&assigned)?;
        let records = read_to_the_ends(&reader, open).with_context(|| topic.to_owned());
        reader.unassign()?;
        records
    }

    /// How many committed records lie behind a group's position on these topics: zero once the
    /// group has read everything. (A lag by offsets also counts the marks of transactions.)
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn unread(&self, group: &str, topics: &BTreeSet<String>) -> Result<usize> {
        let mut count = 0;
        for topic in topics {
            let positions = self.positions(group, topic)?.into_iter();
            let from = positions.map(|(partition, position)| (partition, position.unwrap_or(0)));
            count += self.read_from(topic, &from.collect())?.len();
        }
        Ok(count)
    }

    /// Where a group stands on each partition of a topic; none where it never committed.
    ///
    /// # Errors
    /// When the broker does not tell.
    pub fn positions(&self, group: &str, topic: &str) -> Result<BTreeMap<i32, Option<i64>>> {
        let member = consumer(&self.bootstrap, "read_uncommitted", Some(group))?;
        let mut wanted = TopicPartitionList::new();
        for partition in self.partitions(topic)? {
            wanted.add_partition(topic, partition);
        }
        let positions = member.committed_offsets(wanted, ANSWER)?;
        let positions = positions.elements();
        let positions = positions.iter().map(|element| match element.offset() {
            Offset::Offset(offset) => (element.partition(), Some(offset)),
            _ => (element.partition(), None),
        });
        Ok(positions.collect())
    }

    /// The first offset of a partition, and one behind the last.
    ///
    /// # Errors
    /// When the broker does not tell.
    pub fn watermarks(&self, topic: &str, partition: i32) -> Result<(i64, i64)> {
        Ok(self.asker.fetch_watermarks(topic, partition, ANSWER)?)
    }

    fn partitions(&self, topic: &str) -> Result<Vec<i32>> {
        let metadata = self.asker.fetch_metadata(Some(topic), ANSWER)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let found = found.filter(|found| found.error().is_none() && !found.partitions().is_empty());
        let found = found.with_context(|| format!("there is no topic {topic}"))?;
        Ok(found.partitions().iter().map(rdkafka::metadata::MetadataPartition::id).collect())
    }
}

/// Reads until each of these partitions has said that it is at its end.
fn read_to_the_ends(reader: &BaseConsumer, mut open: BTreeSet<i32>) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let began = wait::instant();
    while !open.is_empty() {
        match reader.poll(Duration::from_millis(500)) {
            Some(Ok(message)) => records.push(record(&message)),
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(open.remove(&partition)),
            Some(Err(error)) => return Err(error.into()),
            None => {}
        }
        if began.elapsed() > WHOLE {
            bail!("partitions {open:?} were not read in {} s", WHOLE.as_secs());
        }
    }
    records.sort_by_key(|record| (record.partition, record.offset));
    Ok(records)
}

fn consumer(bootstrap: &str, isolation: &str, group: Option<&str>) -> Result<BaseConsumer> {
    let config = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        // A name is needed; with explicit assignments no group is joined.
        .set("group.id", group.unwrap_or("integration-reader"))
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("isolation.level", isolation)
        .set("fetch.wait.max.ms", "20")
        .set("fetch.message.max.bytes", "16000000")
        .clone();
    Ok(config.create()?)
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    let headers = message.headers();
    let headers = headers.map(|all| (0..all.count()).map(|at| header(all, at)).collect());
    Record {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis().unwrap_or(-1),
        key: message.key().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
        value: message.payload().map(<[u8]>::to_vec),
    }
}

thread_local! {
    /// Set while a panic is expected.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// The client panics on a name that is no UTF-8.
fn header(all: &rdkafka::message::BorrowedHeaders, at: usize) -> Header {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !EXPECTED.get() {
                usual(info);
            }
        }));
    });
    EXPECTED.set(true);
    let read = panic::catch_unwind(AssertUnwindSafe(|| {
        let header = all.get(at);
        (header.key.as_bytes().to_vec(), header.value.map(<[u8]>::to_vec))
    }));
    EXPECTED.set(false);
    read.unwrap_or_else(|_| (UNREADABLE_NAME.to_vec(), None))
}
