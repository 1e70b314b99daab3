//! The observer of the producers' dead-letter topics (contract section 6): reads them all, indexes
//! what lists show, and reads an entry back when somebody asks for it. A thread and a consumer of
//! its own, a plain read without a transaction: it depends on nothing else of the hub, so it works
//! when everything else is behind.
//!
//! Each instance with the role reads all topics, under a group of its own, and so answers alone.
//! The group's committed positions are for Kafka's own tools only: the index is rebuilt from the
//! topics at a start. Nothing here ever becomes a delivery.

mod index;
mod metrics;
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_model::dlq::{self, Entry, Filter, Page, Place};
use streaming_hub_model::follow::FollowSet;
use streaming_hub_model::headers::Headers;
use streaming_hub_model::ports::{ProducerDeadLetters, Unread};
use streaming_hub_model::sink::SinkFuture;
use streaming_hub_model::time::UnixMillis;

use self::index::Index;
pub use self::metrics::Metrics;
use crate::clock::Watch;
use crate::kafka::{ffi, offsets, peek};
use crate::runtime::thread::Stop;
use crate::shared::Shared;

/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(50);
/// Records between two looks at the clock.
const BATCH: usize = 2_000;
/// How often positions are committed, lag is measured and old entries go.
const UPKEEP: Duration = Duration::from_secs(2);
/// How long the broker may take to name its topics.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a broken reader waits before it starts again.
const PAUSE: Duration = Duration::from_secs(1);
/// The most topics that have a label of their own in metrics.
const LABELS_MAX: usize = 200;
/// The sub-topology that these topics would be of: part of the group's name.
const NAME: &str = "dlq";

/// Bounds of the index.
#[derive(Debug, Clone, Copy)]
pub struct DlqSettings {
    /// The most entries; the oldest go.
    pub entries_max: usize,
    /// How long an entry is kept, milliseconds.
    pub retention_ms: u64,
}

/// The thread that reads, and what it feeds.
pub struct Observer {
    shared: Arc<Shared>,
    metrics: Metrics,
    follow: FollowSet,
    settings: DlqSettings,
    index: Arc<RwLock<Index>>,
    stop: Stop,
}

/// What the API asks; a handle.
#[derive(Clone)]
pub struct DeadLetterIndex {
    shared: Arc<Shared>,
    follow: FollowSet,
    index: Arc<RwLock<Index>>,
}

/// The consumer and what it has been given to read.
struct Reading {
    consumer: BaseConsumer,
    /// What is read, and from where on.
    assigned: BTreeMap<(String, i32), i64>,
    labels: BTreeSet<String>,
}

impl Observer {
    /// An observer, and the index that it feeds.
    #[must_use]
    pub fn new(
        shared: Arc<Shared>,
        follow: FollowSet,
        (settings, metrics): (DlqSettings, Metrics),
        stop: Stop,
    ) -> (Self, DeadLetterIndex) {
        let index = Arc::new(RwLock::new(Index::new(settings.entries_max)));
        let asked = DeadLetterIndex {
            shared: Arc::clone(&shared),
            follow: follow.clone(),
            index: Arc::clone(&index),
        };
        (Self { shared, metrics, follow, settings, index, stop }, asked)
    }

    /// Reads until the stop.
    pub fn run(self) {
        while !self.stop.is_requested() {
            if let Err(error) = self.read() {
                tracing::warn!(%error, "reading the producers' dead letters; it starts again");
                self.metrics.failed();
                std::thread::park_timeout(PAUSE);
            }
        }
    }

    fn read(&self) -> KafkaResult<()> {
        let mut reading = self.open()?;
        let every = Duration::from_millis(self.shared.kafka.metadata_refresh_ms);
        let (mut found, mut kept) = (Watch::start(), Watch::start());
        self.find(&mut reading)?;
        self.upkeep(&reading)?;
        while !self.stop.is_requested() {
            if self.take_batch(&mut reading)? == 0 {
                std::thread::park_timeout(SLEEP);
            }
            if found.elapsed() > every {
                self.find(&mut reading)?;
                found = Watch::start();
            }
            if kept.elapsed() > UPKEEP {
                self.upkeep(&reading)?;
                kept = Watch::start();
            }
        }
        self.upkeep(&reading)
    }

    fn open(&self) -> KafkaResult<Reading> {
        let group = group(&self.shared.application, &self.shared.instance);
        let mut config = self.shared.kafka.assigned_reader(&group, &group);
        // Deleted before it was read: then from what is left on. There is no work to lose.
        config.set("auto.offset.reset", "earliest");
        let mut consumer: BaseConsumer = config.create()?;
        let thread = std::thread::current();
        consumer.set_nonempty_callback(move || thread.unpark());
        Ok(Reading { consumer, assigned: BTreeMap::new(), labels: BTreeSet::new() })
    }

    /// Begins to read what appeared and ends reading what went.
    fn find(&self, reading: &mut Reading) -> KafkaResult<()> {
        let metadata = reading.consumer.fetch_metadata(None, ANSWER)?;
        let topics = metadata
            .topics()
            .iter()
            .filter(|topic| topic.error().is_none() && self.follow.producer_dlq(topic.name()));
        let there: BTreeSet<_> = topics
            .flat_map(|topic| topic.partitions().iter().map(|p| (topic.name().to_owned(), p.id())))
            .collect();
        let is_gone = |own: &&(String, i32)| !there.contains(*own);
        let gone: Vec<_> = reading.assigned.keys().filter(is_gone).cloned().collect();
        let is_new = |own: &(String, i32)| !reading.assigned.contains_key(own);
        let new: Vec<_> = there.iter().filter(|own| is_new(own)).cloned().collect();
        if !gone.is_empty() {
            let mut list = TopicPartitionList::new();
            for (topic, partition) in &gone {
                list.add_partition(topic, *partition);
            }
            reading.consumer.incremental_unassign(&list)?;
            reading.assigned.retain(|own, _| there.contains(own));
        }
        if !new.is_empty() {
            let starts = self.starts(&reading.consumer, &new)?;
            let mut list = TopicPartitionList::new();
            for ((topic, partition), start) in new.iter().zip(&starts) {
                list.add_partition_offset(topic, *partition, Offset::Offset(*start))?;
            }
            reading.consumer.incremental_assign(&list)?;
            reading.assigned.extend(new.into_iter().zip(starts));
        }
        Ok(())
    }

    /// Where partitions are read from: the first record that is young enough to be kept, or the end
    /// where there is none.
    fn starts(
        &self,
        consumer: &BaseConsumer,
        partitions: &[(String, i32)],
    ) -> KafkaResult<Vec<i64>> {
        let oldest = self.oldest();
        let asked: Vec<_> = partitions.iter().map(|(t, p)| (t.as_str(), *p)).collect();
        let ends = offsets::high_watermarks(consumer, &asked)?;
        let mut list = TopicPartitionList::new();
        for (topic, partition) in &asked {
            list.add_partition_offset(topic, *partition, Offset::Offset(oldest.0.max(0)))?;
        }
        let answer = consumer.offsets_for_times(list, ANSWER)?;
        let start = |((topic, partition), end): (&(&str, i32), i64)| {
            let element = answer.find_partition(topic, *partition);
            match element.map(|element| element.offset()) {
                Some(Offset::Offset(offset)) => offset,
                _ => end,
            }
        };
        Ok(asked.iter().zip(ends).map(start).collect())
    }

    fn oldest(&self) -> UnixMillis {
        let age = i64::try_from(self.settings.retention_ms).unwrap_or(i64::MAX);
        UnixMillis(self.shared.clock.now().0.saturating_sub(age))
    }

    fn take_batch(&self, reading: &mut Reading) -> KafkaResult<usize> {
        let mut index = None;
        let mut count = 0;
        // Never with a time-out: the wrapper's poll spins for its last millisecond.
        while count < BATCH
            && let Some(message) = reading.consumer.poll(Duration::ZERO)
        {
            let message = message?;
            count += 1;
            let mut headers = Vec::new();
            if let Some(list) = message.headers() {
                ffi::read_headers(list, &mut headers);
            }
            let place = Place {
                topic: message.topic().to_owned(),
                partition: message.partition(),
                offset: message.offset(),
            };
            let at = UnixMillis(message.timestamp().to_millis().unwrap_or(0));
            let summary = dlq::summary(place, at, Headers::new(&headers));
            let index = index
                .get_or_insert_with(|| self.index.write().unwrap_or_else(PoisonError::into_inner));
            if index.insert(&summary) {
                let topic = labelled(&mut reading.labels, &summary.place.topic);
                self.metrics.entry(topic, dlq::label(&summary.cause));
            }
        }
        Ok(count)
    }

    fn upkeep(&self, reading: &Reading) -> KafkaResult<()> {
        let positions = reading.consumer.position()?;
        let asked: Vec<_> = reading.assigned.keys().map(|(t, p)| (t.as_str(), *p)).collect();
        let ends = offsets::high_watermarks(&reading.consumer, &asked)?;
        let mut list = TopicPartitionList::new();
        let mut lag = 0;
        for (((topic, partition), start), end) in reading.assigned.iter().zip(ends) {
            let element = positions.find_partition(topic, *partition);
            let next = match element.map(|element| element.offset()) {
                Some(Offset::Offset(next)) => next,
                _ => *start,
            };
            list.add_partition_offset(topic, *partition, Offset::Offset(next))?;
            lag += (end - next).max(0);
        }
        if list.count() > 0 {
            reading.consumer.commit(&list, CommitMode::Async)?;
        }
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.expire(self.oldest());
        index.complete = index.complete || lag == 0;
        self.metrics.stands(index.len(), lag);
        Ok(())
    }
}

/// The group under which an instance reads, for Kafka's own tools.
#[must_use]
pub fn group(application: &str, instance: &str) -> String {
    format!("{application}-{NAME}-{instance}")
}

/// The topic as a label of a metric: the first topics have their own.
fn labelled<'t>(labels: &mut BTreeSet<String>, topic: &'t str) -> &'t str {
    if labels.contains(topic) {
        return topic;
    }
    if labels.len() >= LABELS_MAX {
        return "other";
    }
    labels.insert(topic.to_owned());
    topic
}

impl DeadLetterIndex {
    fn read(&self, place: &Place) -> KafkaResult<Option<Entry>> {
        // Whoever may list dead letters may not read any other topic through this.
        if !self.follow.producer_dlq(&place.topic) {
            return Ok(None);
        }
        let at = (place.topic.as_str(), place.partition, place.offset);
        let found = peek::peek(&self.shared.kafka, &self.shared.application, at)?;
        let Some(record) = found else { return Ok(None) };
        let refs: Vec<_> =
            record.headers.iter().map(|(n, v)| (n.as_slice(), v.as_deref())).collect();
        let headers = Headers::new(&refs);
        let at = UnixMillis(record.timestamp_ms.max(0));
        let (summary, details) = (dlq::summary(place.clone(), at, headers), dlq::details(headers));
        let (key, value) = (record.key, record.value);
        Ok(Some(Entry { summary, details, key, headers: record.headers, value }))
    }
}

impl ProducerDeadLetters for DeadLetterIndex {
    fn page(
        &self,
        filter: Filter,
        cursor: Option<String>,
        limit: usize,
    ) -> SinkFuture<'_, Option<Page>> {
        let own = self.clone();
        let found = tokio::task::spawn_blocking(move || {
            let index = own.index.read().unwrap_or_else(PoisonError::into_inner);
            index.page(&filter, cursor.as_deref(), limit)
        });
        Box::pin(async move { found.await.ok().flatten() })
    }

    fn entry(&self, place: Place) -> SinkFuture<'_, Result<Option<Entry>, Unread>> {
        let own = self.clone();
        let read = tokio::task::spawn_blocking(move || own.read(&place));
        Box::pin(async move {
            match read.await {
                Ok(Ok(found)) => Ok(found),
                Ok(Err(error)) => Err(Unread(error.to_string())),
                Err(error) => Err(Unread(error.to_string())),
            }
        })
    }
}
