//! Restores beside the stream thread, so that a task that restores never holds up one that runs
//! (design 2, 3, 4). In this order: the committed position, fetched stably; the high watermark of
//! every restored topic, by a read-uncommitted client; a read-committed restore to that mark.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_state::{Checkpoint, State};

use super::mailbox::{TaskId, Waker};
use super::processor::{Processor, Record};
use super::spec::{Resume, Source, SubTopology};
use super::task::Live;
use crate::clock::Watch;
use crate::kafka::{error, ffi, offsets};
use crate::shared::Shared;
use crate::topics::Topic;

/// How long one question for a stable position waits before the task's end is looked for again.
const STABLE_WAIT: Duration = Duration::from_secs(1);
/// Uncommitted bytes of a restore before they are applied.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// How often progress is logged.
const PROGRESS: Duration = Duration::from_secs(5);
/// A checkpoint older than half of this is rebuilt (design 13): `delete.retention.ms`.
const DELETE_RETENTION_MS: i64 = 7 * 24 * 3_600_000;

/// Why a restore ended without a task.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The task is not wanted any more.
    #[error("the task was given up")]
    Abandoned,
    /// Kafka or the disk failed; a later attempt may succeed.
    #[error("{0}")]
    Failed(String),
    /// Continuing would lose or double events; an operator must decide.
    #[error("{0}")]
    Refused(String),
}

impl From<streaming_hub_state::Error> for Error {
    fn from(error: streaming_hub_state::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<super::processor::Error> for Error {
    fn from(error: super::processor::Error) -> Self {
        match error {
            super::processor::Error::State(error) => error.into(),
            super::processor::Error::Format(error) => Self::Refused(error.to_string()),
        }
    }
}

impl From<KafkaError> for Error {
    fn from(error: KafkaError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The incarnation that each task of a thread has now; absent when it has none.
#[derive(Clone, Default)]
pub(crate) struct Incarnations(Arc<Mutex<HashMap<TaskId, u64>>>);

impl Incarnations {
    pub(crate) fn set(&self, task: &TaskId, incarnation: Option<u64>) {
        if let Ok(mut map) = self.0.lock() {
            match incarnation {
                Some(number) => map.insert(task.clone(), number),
                None => map.remove(task),
            };
        }
    }

    fn is_current(&self, task: &TaskId, incarnation: u64) -> bool {
        self.0.lock().is_ok_and(|map| map.get(task) == Some(&incarnation))
    }
}

/// A wish to restore one task.
pub(crate) struct Request<P> {
    pub(crate) task: TaskId,
    pub(crate) incarnation: u64,
    pub(crate) processor: P,
}

/// What became of it.
pub(crate) struct Restored<P> {
    pub(crate) task: TaskId,
    pub(crate) incarnation: u64,
    pub(crate) result: Result<(Live<P>, i64), Error>,
}

/// The restoring side of one stream thread.
pub(crate) struct Restorer<P: Processor> {
    pub(crate) spec: Arc<SubTopology>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) incarnations: Incarnations,
    pub(crate) requests: Receiver<Request<P>>,
    pub(crate) done: Sender<Restored<P>>,
    pub(crate) waker: Waker,
}

/// One topic partition that a store is a view of.
struct Part {
    topic: Topic,
    name: String,
    next: i64,
    high: i64,
}

impl<P: Processor> Restorer<P> {
    /// Serves requests until the stream thread is gone.
    pub(crate) fn run(self) {
        let group = self.spec.group(&self.shared.application);
        let client_id = format!("{group}-restore");
        let config = self.shared.kafka.assigned_reader(&client_id, &group);
        let consumer: BaseConsumer = match config.create() {
            Ok(consumer) => consumer,
            Err(error) => {
                tracing::error!(%error, "no consumer for restores");
                return;
            }
        };
        while let Ok(request) = self.requests.recv() {
            let (task, incarnation) = (request.task.clone(), request.incarnation);
            let result = Restore { to: &self, consumer: &consumer, task: &task, incarnation }
                .run(request.processor);
            // A task that was given up has closed its store by now: the next incarnation waits
            // for exactly that.
            let restored = Restored { task, incarnation, result };
            if self.done.send(restored).is_err() {
                return;
            }
            self.waker.wake();
        }
    }
}

struct Restore<'a, P: Processor> {
    to: &'a Restorer<P>,
    consumer: &'a BaseConsumer,
    task: &'a TaskId,
    incarnation: u64,
}

impl<P: Processor> Restore<'_, P> {
    fn run(&self, mut processor: P) -> Result<(Live<P>, i64), Error> {
        let committed = self.committed()?;
        let mut state = self.to.shared.open_state(&self.to.spec, self.task, processor.expiry())?;
        let mut parts = self.parts(&state)?;
        if parts.is_none() {
            state = state.reset()?;
            parts = self.parts(&state)?;
        }
        let mut parts = parts.ok_or_else(|| Error::Failed("watermarks moved back".into()))?;
        let records = self.read(&mut parts, &mut processor, &mut state)?;
        processor.restored(&state)?;
        let (position, metadata) = self.position(committed, &parts, records)?;
        let positions = self.checkpoint(&parts).positions;
        let live = Live { processor, state, metadata, positions };
        Ok((live, position))
    }

    fn check(&self) -> Result<(), Error> {
        if self.to.incarnations.is_current(self.task, self.incarnation) {
            Ok(())
        } else {
            Err(Error::Abandoned)
        }
    }

    /// The stable position of the task's source; asked again while a transaction is pending.
    fn committed(&self) -> Result<Option<(i64, String)>, Error> {
        let waited = Watch::start();
        let mut said = false;
        loop {
            self.check()?;
            let task = self.task;
            match offsets::committed(self.consumer, &task.topic, task.partition, STABLE_WAIT) {
                Ok(position) => return Ok(position),
                Err(error) if matches!(error::Error::of(&error), error::Error::Retry(_)) => {
                    if waited.elapsed() > PROGRESS && !said {
                        said = true;
                        tracing::warn!(%task, %error, "waiting for a stable position");
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What is to be read of each restored topic, or `None` when the store does not fit the topics
    /// any more and has to be rebuilt.
    fn parts(&self, state: &State) -> Result<Option<Vec<Part>>, Error> {
        let shared = &self.to.shared;
        let partition = self.task.partition;
        let names: Vec<String> =
            self.to.spec.restores.iter().map(|t| t.name(&shared.application)).collect();
        let asked: Vec<(&str, i32)> = names.iter().map(|n| (n.as_str(), partition)).collect();
        let high = offsets::high_watermarks(&shared.watermarks, &asked)?;
        let low = offsets::low_watermarks(&shared.watermarks, &asked)?;
        let checkpoint = state.checkpoint()?;
        let stale = checkpoint
            .as_ref()
            .is_some_and(|c| c.is_stale(shared.clock.now().0, DELETE_RETENTION_MS));
        let mut parts = Vec::with_capacity(names.len());
        for (index, name) in names.into_iter().enumerate() {
            let stored = checkpoint.as_ref().and_then(|c| c.positions.get(&(name.clone(), partition)));
            let next = stored.copied().unwrap_or(low[index]);
            let unusable = next < low[index] || next > high[index] || (stale && next < high[index]);
            if stored.is_some() && unusable {
                tracing::warn!(task = %self.task, topic = name, checkpoint = next, log_start =
                    low[index], log_end = high[index], stale, "local store is rebuilt from Kafka");
                return Ok(None);
            }
            let topic = self.to.spec.restores[index];
            parts.push(Part { topic, name, next, high: high[index] });
        }
        Ok(Some(parts))
    }

    /// Reads every part to its high watermark; answers how many records the store is made of.
    fn read(
        &self,
        parts: &mut [Part],
        processor: &mut P,
        state: &mut State,
    ) -> Result<u64, Error> {
        let mut records = 0;
        let fresh = state.checkpoint()?.is_none();
        let mut list = TopicPartitionList::new();
        for part in parts.iter().filter(|part| part.next < part.high) {
            let offset = Offset::Offset(part.next);
            list.add_partition_offset(&part.name, self.task.partition, offset)?;
        }
        if list.count() > 0 {
            self.consumer.assign(&list)?;
            let read = self.poll_to_marks(parts, processor, state);
            self.consumer.unassign()?;
            records = read?;
        }
        if !parts.is_empty() {
            state.commit(&self.checkpoint(parts))?;
        }
        Ok(if fresh { records } else { records.max(1) })
    }

    fn poll_to_marks(
        &self,
        parts: &mut [Part],
        processor: &mut P,
        state: &mut State,
    ) -> Result<u64, Error> {
        let mut records: u64 = 0;
        let started = Watch::start();
        let mut progress = Watch::start();
        loop {
            self.check()?;
            let mut drained = false;
            for _ in 0..1_000 {
                let Some(message) = self.consumer.poll(Duration::from_millis(5)) else {
                    drained = true;
                    break;
                };
                let message = match message {
                    Ok(message) => message,
                    Err(error) => {
                        failed_read(&error)?;
                        continue;
                    }
                };
                let Some(part) = parts.iter_mut().find(|part| part.name == message.topic()) else {
                    continue;
                };
                let mut headers = Vec::new();
                if let Some(list) = message.headers() {
                    ffi::read_headers(list, &mut headers);
                }
                let record = record(&message, &headers);
                processor.restore(part.topic, &record, state)?;
                part.next = message.offset() + 1;
                records += 1;
            }
            if state.is_full(BATCH_BYTES) {
                state.commit(&self.checkpoint(parts))?;
            }
            if drained {
                // Positions pass transaction markers and aborted records, our own count does not.
                self.take_positions(parts)?;
            }
            if parts.iter().all(|part| part.next >= part.high) {
                let (task, seconds) = (self.task, started.elapsed().as_secs_f64());
                tracing::info!(%task, records, seconds, "store restored");
                self.to.shared.metrics.restored_records(self.to.spec.name, records);
                return Ok(records);
            }
            if progress.elapsed() > PROGRESS {
                progress = Watch::start();
                let left: i64 = parts.iter().map(|part| (part.high - part.next).max(0)).sum();
                tracing::info!(task = %self.task, records, left, "restoring");
            }
        }
    }

    fn take_positions(&self, parts: &mut [Part]) -> Result<(), Error> {
        let positions = self.consumer.position()?;
        for part in parts {
            let found = positions.find_partition(&part.name, self.task.partition);
            if let Some(Offset::Offset(position)) = found.map(|element| element.offset()) {
                part.next = part.next.max(position);
            }
        }
        Ok(())
    }

    fn checkpoint(&self, parts: &[Part]) -> Checkpoint {
        let position = |part: &Part| ((part.name.clone(), self.task.partition), part.next);
        Checkpoint {
            positions: parts.iter().map(position).collect(),
            stamped_at_ms: self.to.shared.clock.now().0,
        }
    }

    /// Where the task resumes (design 4).
    fn position(
        &self,
        committed: Option<(i64, String)>,
        parts: &[Part],
        records: u64,
    ) -> Result<(i64, String), Error> {
        let shared = &self.to.shared;
        let (topic, partition) = (&*self.task.topic, self.task.partition);
        if self.to.spec.resume == Resume::Restored {
            let source = parts.iter().find(|part| part.name == topic);
            let next = source.map(|part| part.next);
            let metadata = committed.map(|(_, metadata)| metadata).unwrap_or_default();
            return next
                .map(|next| (next, metadata))
                .ok_or_else(|| Error::Refused(format!("{topic} is not among what it restores")));
        }
        let low = offsets::low_watermarks(&shared.watermarks, &[(topic, partition)])?[0];
        match committed {
            Some((offset, metadata)) if offset >= low => Ok((offset, metadata)),
            Some((offset, metadata)) => {
                tracing::error!(task = %self.task, committed = offset, log_start = low,
                    lost = low - offset, "records were deleted before the hub read them");
                shared.metrics.lost_records(self.to.spec.name, low - offset);
                Ok((low, metadata))
            }
            None if records > 0 && self.to.spec.has_store() => Err(Error::Refused(format!(
                "the group {} has no position for {topic}/{partition} but its store has records: \
                 positions expired or were deleted. Resuming would double events; reset the \
                 group's position by hand to where it stood",
                self.to.spec.group(&shared.application)
            ))),
            None => Ok((self.first_position(low)?, String::new())),
        }
    }

    /// Where a source is read from when nobody has read it.
    fn first_position(&self, low: i64) -> Result<i64, Error> {
        let (Source::Facts(_), Some(start)) = (&self.to.spec.source, self.to.shared.start_at)
        else {
            return Ok(low);
        };
        let mut list = TopicPartitionList::new();
        let (topic, partition) = (&self.task.topic, self.task.partition);
        list.add_partition_offset(topic, partition, Offset::Offset(start.0))?;
        let found = self.consumer.offsets_for_times(list, Duration::from_secs(5))?;
        match found.find_partition(topic, partition).map(|element| element.offset()) {
            Some(Offset::Offset(offset)) => Ok(offset.max(low)),
            _ => {
                let end = offsets::high_watermarks(
                    &self.to.shared.watermarks,
                    &[(topic, partition)],
                )?;
                Ok(end[0])
            }
        }
    }
}

/// A record as processors see it.
pub(crate) fn record<'a, M: Message>(
    message: &'a M,
    headers: &'a [streaming_hub_model::headers::HeaderRef<'a>],
) -> Record<'a> {
    Record {
        topic: message.topic(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis().unwrap_or(-1),
        key: message.key(),
        headers,
        value: message.payload(),
    }
}

/// What a failed poll of a restore means.
fn failed_read(error: &KafkaError) -> Result<(), Error> {
    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) {
        return Err(Error::Failed(format!("the log moved while it was restored: {error}")));
    }
    match error::Error::of(error) {
        error::Error::Retry(text) => {
            tracing::debug!(error = text, "restore waits for the broker");
            Ok(())
        }
        other => Err(Error::Failed(other.to_string())),
    }
}
