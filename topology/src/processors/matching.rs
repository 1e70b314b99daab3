//! Match (contract sections 2 and 3): takes each accepted event in once, stores it in the inbox,
//! and makes one job for each subscription that wants it. Dedup state, inbox record and jobs are in
//! the transaction that moves the position (I1, I2).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use streaming_hub_model::headers::{self, HeaderRef};
use streaming_hub_model::id::JobId;
use streaming_hub_model::internal::{self, Accepted};
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::pull::{Embedding, EntryFacts};
use streaming_hub_model::retry::RetrySchedule;
use streaming_hub_model::routing;
use streaming_hub_model::subscription::{Subscription, Wanted};
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::family::dedup;
use streaming_hub_state::{ExpiryRule, Family, State};

use crate::metrics::Metrics;
use crate::runtime::processor::{Error, Output, Processor, Record, Step};
use crate::table::Table;
use crate::topics::Topic;

/// What all match tasks share.
pub struct MatchSettings {
    /// The subscriptions.
    pub table: Arc<Table>,
    /// The curve of subscriptions without one of their own.
    pub retry_schedule: RetrySchedule,
    /// How long an id is remembered after its arrival, milliseconds.
    pub horizon_ms: i64,
    /// Partitions of the internal topics.
    pub partitions: i32,
    /// The largest packed record of the dedup changelog, bytes.
    pub packed_bytes_max: usize,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// The processor of one partition.
pub struct Match {
    settings: Arc<MatchSettings>,
    partition: i32,
    /// The highest arrival seen, never above the clock (design 12).
    stream_time_ms: i64,
    /// The same as of the last commit: what an aborted transaction saw is seen again, in order.
    committed_time_ms: i64,
    /// Arrivals below this are forgotten for good; the store's compaction reads it.
    bound_ms: Arc<AtomicI64>,
    tally: Vec<Counted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Duplicate,
    Unreadable,
    Stored { jobs: u64 },
}

impl Match {
    /// The processor of this partition.
    #[must_use]
    pub fn new(settings: Arc<MatchSettings>, partition: i32) -> Self {
        Self {
            settings,
            partition,
            stream_time_ms: i64::MIN,
            committed_time_ms: i64::MIN,
            bound_ms: Arc::new(AtomicI64::new(i64::MIN)),
            tally: Vec::new(),
        }
    }

    /// An arrival counts up to the moment at which it was processed.
    fn see_arrival(&mut self, arrival_ms: i64, processed_ms: i64) {
        self.stream_time_ms = self.stream_time_ms.max(arrival_ms.min(processed_ms));
    }

    /// The earliest arrival that is remembered.
    fn remembered_from_ms(&self) -> i64 {
        self.stream_time_ms.saturating_sub(self.settings.horizon_ms)
    }

    /// Whether the event came before, within the horizon; remembers it if not.
    fn is_duplicate(&mut self, event: &Accepted<'_>, state: &mut State) -> Result<bool, Error> {
        let key = dedup::key(event.id.as_bytes(), event.tenant.as_bytes());
        if let Some(value) = state.get(&key)?
            && dedup::decode_value(&value)? >= self.remembered_from_ms()
        {
            return Ok(true);
        }
        state.put(key, dedup::value(event.arrival.0));
        Ok(false)
    }

    fn store(&self, event: &Accepted<'_>, record: &Record<'_>, step: &mut Step<'_>) -> u64 {
        let partitions = self.settings.partitions.unsigned_abs();
        // The position before the look-up: the rows may be newer, never older than it says.
        let home = routing::partition_for_tenant(event.tenant, partitions);
        let table_position = self.settings.table.position(home);
        let wanted = Wanted {
            origin: event.origin,
            resource: event.resource,
            event: event.event,
            major: event.major,
        };
        let matches = self.settings.table.matching(event.tenant, &wanted);
        let mut headers: Vec<HeaderRef<'_>> = Vec::with_capacity(record.headers.len() + 6);
        headers.extend(record.headers.iter().filter(|header| internal::is_carried(header)));
        headers.extend(internal::version_beside(record.headers));
        let id = event.id.to_string();
        step.outputs.emit(Output {
            topic: Topic::Inbox,
            partition: step.partition,
            key: Some(id.as_bytes()),
            headers: &headers,
            value: record.value,
        });
        let value = record.value.unwrap_or_default();
        let mut embedding = None;
        for subscription in &matches {
            let (topic, key, texts) = if subscription.sink.is_pull() {
                let embedding = *embedding.get_or_insert_with(|| embedding_of(record));
                let facts = EntryFacts {
                    subscription: subscription.id,
                    matched: step.now,
                    table: table_position,
                    embedding,
                };
                (Topic::Pull, entry_id(event, subscription), facts.headers().to_vec())
            } else {
                let job = JobId::derive(event.tenant, event.id, subscription.id, b"");
                let facts = self.facts(subscription, table_position, step.now);
                (Topic::Deliveries, job, facts.headers().to_vec())
            };
            let mut headers = headers.clone();
            headers.extend(internal::refs(&texts));
            step.outputs.emit(Output {
                topic,
                partition: routing::partition_for_subscription(subscription.id, partitions),
                key: Some(key.to_string().as_bytes()),
                headers: &headers,
                // Never null: that would end it. An event without data has an empty body.
                value: Some(value),
            });
        }
        matches.len() as u64
    }

    fn facts(&self, subscription: &Subscription, table: i64, now: UnixMillis) -> JobFacts {
        let schedule = subscription.retry_schedule_or(&self.settings.retry_schedule);
        JobFacts {
            subscription: subscription.id,
            matched: now,
            table,
            attempts: 0,
            due: now.plus(schedule.first_delay_ms()),
        }
    }
}

/// How a pull entry shows an event's data, decided once for all subscriptions.
fn embedding_of(record: &Record<'_>) -> Embedding {
    let content_type = record.view().last(headers::CE_DATACONTENTTYPE);
    // A type that is no text is not JSON's.
    let content_type = content_type.map(|bytes| str::from_utf8(bytes).unwrap_or_default());
    Embedding::of(content_type, record.value.unwrap_or_default())
}

/// The key of an entry's record. Unlike a job's it differs when the same id comes again beyond the
/// horizon: the tombstone of the first entry must not end the second.
fn entry_id(event: &Accepted<'_>, subscription: &Subscription) -> JobId {
    let arrival = event.arrival.0.to_be_bytes();
    JobId::derive(event.tenant, event.id, subscription.id, &arrival)
}

impl Processor for Match {
    type Message = Infallible;
    type Action = Infallible;

    fn expiry(&self) -> Vec<ExpiryRule> {
        vec![ExpiryRule { family: Family::Dedup, bound: Arc::clone(&self.bound_ms) }]
    }

    fn restore(&mut self, _: Topic, record: &Record<'_>, state: &mut State) -> Result<(), Error> {
        let Some(packed) = record.value else { return Ok(()) };
        for entry in dedup::unpack(packed)? {
            let entry = entry?;
            // The record's own time is when it was processed.
            self.see_arrival(entry.arrival_ms, record.timestamp_ms);
            state.put(entry.key(), dedup::value(entry.arrival_ms));
        }
        Ok(())
    }

    fn restored(&mut self, _: &State) -> Result<(), Error> {
        self.committed_time_ms = self.stream_time_ms;
        Ok(())
    }

    /// A predecessor matched against the table at a position; an older copy would lose matches.
    fn may_run(&self, committed_metadata: &str) -> bool {
        let needed = committed_metadata.strip_prefix(TABLE_METADATA).and_then(|n| n.parse().ok());
        needed.is_none_or(|needed: i64| self.settings.table.position(self.partition) >= needed)
    }

    fn record(&mut self, record: &Record<'_>, step: &mut Step<'_>) -> Result<(), Error> {
        let event = match Accepted::read(record.view()) {
            Ok(event) => event,
            Err(error @ internal::Error::Newer { .. }) => return Err(error.into()),
            Err(internal::Error::Header(_)) => {
                // Only a stranger can have written it; it is skipped, counted and logged.
                self.tally.push(Counted::Unreadable);
                return Ok(());
            }
        };
        self.see_arrival(event.arrival.0, step.now.0);
        if self.is_duplicate(&event, step.state)? {
            self.tally.push(Counted::Duplicate);
            return Ok(());
        }
        let jobs = self.store(&event, record, step);
        self.tally.push(Counted::Stored { jobs });
        Ok(())
    }

    fn message(&mut self, message: &Infallible, _: &mut Step<'_>) -> Result<(), Error> {
        match *message {}
    }

    /// The changelog of the transaction's keys, packed (design 12).
    fn before_commit(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        for packed in dedup::pack_uncommitted(step.state, self.settings.packed_bytes_max)? {
            step.outputs.emit(Output {
                topic: Topic::Dedup,
                partition: step.partition,
                key: None,
                headers: &[],
                value: Some(&packed),
            });
        }
        Ok(())
    }

    /// No less than what was matched with, since a position never goes back; and what this owner
    /// had to wait for is handed on although it matched nothing.
    fn metadata(&self) -> String {
        format!("{TABLE_METADATA}{}", self.settings.table.position(self.partition))
    }

    fn committed(&mut self) {
        self.committed_time_ms = self.stream_time_ms;
        self.bound_ms.fetch_max(self.remembered_from_ms(), Ordering::Relaxed);
        for counted in self.tally.drain(..) {
            match counted {
                Counted::Duplicate => self.settings.metrics.duplicate(),
                Counted::Unreadable => self.settings.metrics.unreadable("match"),
                Counted::Stored { jobs } => self.settings.metrics.inbox_event(jobs),
            }
        }
    }

    fn aborted(&mut self) {
        self.stream_time_ms = self.committed_time_ms;
        self.tally.clear();
    }
}

/// How the table's position stands in the metadata of a committed position.
const TABLE_METADATA: &str = "table=";

#[cfg(test)]
#[path = "matching/tests.rs"]
mod tests;
