//! Reads the inbox and the quarantine on request (for the API): by explicit assignment,
//! read-committed, without a group, from an offset or a time on. Each read has its own consumer on
//! a thread that may block, and few run at once, so that no caller can fill the process with them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_model::routing;
use streaming_hub_model::sink::SinkFuture;
use streaming_hub_model::stored::{
    Found, Log, Look, Query, Start, StoredLogs, StoredRecord, Unreadable,
};
use tokio::sync::Semaphore;

use crate::clock::Watch;
use crate::kafka::error::Error;
use crate::kafka::{ffi, offsets};
use crate::salting::Salting;
use crate::shared::Shared;
use crate::topics::Topic;

/// Reads at the same time.
const READS_MAX: usize = 4;
/// How long a question about offsets may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long is waited for a record before positions are looked at.
const WAIT: Duration = Duration::from_millis(20);
/// The most bytes that wait in a reader's client, KiB.
const QUEUE_KBYTES: &str = "8192";

/// Reads stored records.
pub struct StoredReader {
    shared: Arc<Shared>,
    salting: Arc<Salting>,
    reads: Arc<Semaphore>,
}

impl StoredReader {
    /// A reader; it has no client until it reads.
    #[must_use]
    pub fn new(shared: Arc<Shared>, salting: Arc<Salting>) -> Self {
        Self { shared, salting, reads: Arc::new(Semaphore::new(READS_MAX)) }
    }
}

impl StoredLogs for StoredReader {
    fn partitions(&self) -> i32 {
        self.shared.topics.partitions
    }

    fn of_tenant(&self, tenant: &str) -> Vec<i32> {
        let partitions = self.shared.topics.partitions;
        match self.salting.since(tenant) {
            Some(_) => (0..partitions).collect(),
            None => vec![routing::partition_for_tenant(tenant, partitions.unsigned_abs())],
        }
    }

    fn read(&self, query: Query) -> SinkFuture<'_, Result<Found, Unreadable>> {
        Box::pin(async move {
            let within = Duration::from_millis(query.within_ms);
            let permit = tokio::time::timeout(within, Arc::clone(&self.reads).acquire_owned());
            let busy = || Unreadable("too many reads at once".to_owned());
            let permit = permit.await.map_err(|_| busy())?.map_err(|_| busy())?;
            let shared = Arc::clone(&self.shared);
            let read = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                Reading::start(&shared, &query)?.run(&query)
            });
            let failed = |error: &dyn std::fmt::Display| Unreadable(error.to_string());
            read.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
        })
    }
}

/// One partition of a read.
struct Part {
    /// The next offset to look at.
    next: i64,
    /// Where the log ended for a read-committed reader when the read began.
    end: i64,
    /// Nothing more is wanted of it.
    done: bool,
}

impl Part {
    fn is_open(&self) -> bool {
        !self.done && self.next < self.end
    }
}

struct Reading {
    consumer: BaseConsumer,
    parts: BTreeMap<i32, Part>,
    watch: Watch,
    found: Found,
    bytes: usize,
}

impl Reading {
    fn start(shared: &Shared, query: &Query) -> KafkaResult<Self> {
        let watch = Watch::start();
        let topic = match query.log {
            Log::Inbox => Topic::Inbox,
            Log::Quarantine => Topic::Quarantine,
        };
        let topic = topic.name(&shared.application);
        let group = format!("{}-reader", shared.application);
        let client_id = format!("{group}-{}", shared.instance);
        let mut config = shared.kafka.assigned_reader(&client_id, &group);
        config.set("queued.max.messages.kbytes", QUEUE_KBYTES);
        let consumer: BaseConsumer = config.create()?;
        let times = first_of_time(&consumer, &topic, &query.from)?;
        let (mut parts, mut list) = (BTreeMap::new(), TopicPartitionList::new());
        for &(partition, start) in &query.from {
            // A read-committed client answers the last stable offset: what lies behind it is not
            // decided yet.
            let (low, end) = consumer.fetch_watermarks(&topic, partition, ANSWER)?;
            let wanted = match start {
                Start::Offset(offset) => offset,
                Start::Time(_) => times.get(&partition).copied().unwrap_or(end),
            };
            let part = Part { next: wanted.max(low), end, done: false };
            if part.is_open() {
                list.add_partition_offset(&topic, partition, Offset::Offset(part.next))?;
            }
            parts.insert(partition, part);
        }
        if list.count() > 0 {
            consumer.assign(&list)?;
        }
        Ok(Self { consumer, parts, watch, found: Found::default(), bytes: 0 })
    }

    fn run(mut self, query: &Query) -> KafkaResult<Found> {
        let within = Duration::from_millis(query.within_ms);
        while self.parts.values().any(Part::is_open) && self.watch.elapsed() < within {
            let record = match self.consumer.poll(WAIT) {
                Some(Ok(message)) => Some(stored(&message)),
                Some(Err(error)) => match Error::of(&error) {
                    Error::Retry(_) => None,
                    _ => return Err(error),
                },
                None => None,
            };
            let goes_on = match record {
                Some(record) => self.take(record, query),
                None => self.pass_markers()?,
            };
            if !goes_on {
                break;
            }
        }
        let open = self.parts.iter().filter(|(_, part)| part.is_open());
        self.found.rest = open.map(|(partition, part)| (*partition, part.next)).collect();
        Ok(self.found)
    }

    /// Takes one record; whether more is wanted.
    fn take(&mut self, record: StoredRecord, query: &Query) -> bool {
        let Some(part) = self.parts.get_mut(&record.partition) else { return true };
        if !part.is_open() || record.offset < part.next {
            return true;
        }
        let look = (query.judge)(&record);
        let size = size(&record);
        let keeps = matches!(look, Look::Keep | Look::Last);
        let full = self.bytes + size > query.bytes_max && !self.found.records.is_empty();
        if keeps && full {
            // It comes first the next time.
            return false;
        }
        part.next = record.offset + 1;
        part.done = look == Look::Beyond;
        if keeps {
            self.bytes += size;
            self.found.records.push(record);
        }
        look != Look::Last && self.found.records.len() < query.records_max
    }

    /// Positions pass transaction markers and aborted records, which bring nothing.
    fn pass_markers(&mut self) -> KafkaResult<bool> {
        for element in self.consumer.position()?.elements() {
            if let (Offset::Offset(position), Some(part)) =
                (element.offset(), self.parts.get_mut(&element.partition()))
            {
                part.next = part.next.max(position);
            }
        }
        Ok(true)
    }
}

/// For each partition that is read from a time on: the first offset of that time or later.
fn first_of_time(
    consumer: &BaseConsumer,
    topic: &str,
    from: &[(i32, Start)],
) -> KafkaResult<BTreeMap<i32, i64>> {
    let mut list = TopicPartitionList::new();
    for (partition, start) in from {
        if let Start::Time(ms) = start {
            list.add_partition_offset(topic, *partition, Offset::Offset((*ms).max(0)))?;
        }
    }
    offsets::at_times(consumer, list)
}

fn stored(message: &BorrowedMessage<'_>) -> StoredRecord {
    let mut headers = Vec::new();
    if let Some(list) = message.headers() {
        ffi::read_headers(list, &mut headers);
    }
    let owned = headers.iter().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec)));
    StoredRecord {
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis().unwrap_or(-1),
        key: message.key().map(<[u8]>::to_vec),
        headers: owned.collect(),
        value: message.payload().map(Bytes::copy_from_slice),
    }
}

fn size(record: &StoredRecord) -> usize {
    let headers = record.headers.iter();
    let headers: usize =
        headers.map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len)).sum();
    headers + record.key.as_ref().map_or(0, Vec::len) + record.value.as_ref().map_or(0, Bytes::len)
}
