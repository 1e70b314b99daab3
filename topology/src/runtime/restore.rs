//! Restores a task's store (design 2, 3, 4). In this order: the committed position, fetched
//! stably; the high watermark of every restored topic, open transactions included; a read-committed
//! restore to that mark. It runs beside the stream thread, so that a task that restores never holds
//! up one that runs.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::{Checkpoint, ExpiryRule, State};

use super::clients::{Ends, Logs};
use super::mailbox::TaskId;
use super::processor::{self, Processor};
use super::spec::{Resume, Source, SubTopology};
use super::task::Live;
use crate::kafka::error::Error as ClientError;
use crate::shared::Shared;
use crate::topics::{DELETE_RETENTION_MS, Topic};

/// Uncommitted bytes of a restore before they are applied.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Records between two looks at the clock and the task's fate.
const BATCH: usize = 1_000;
/// How long a standby copy may take to close.
const COPY_CLOSES: Duration = Duration::from_secs(10);
/// How often progress is logged, milliseconds.
const PROGRESS_MS: u64 = 5_000;

/// Why a restore ended without a task.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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

impl From<processor::Error> for Error {
    fn from(error: processor::Error) -> Self {
        match error {
            processor::Error::State(error) => error.into(),
            processor::Error::Format(error) => Self::Refused(error.to_string()),
            processor::Error::Refused(text) => Self::Refused(text),
        }
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Who has a task's store in this instance: an incarnation of the task (design 6), its standby
/// copy, or nobody. A copy gives way as soon as an incarnation wants the store.
#[derive(Clone, Default)]
pub struct Incarnations(Arc<(Mutex<Holders>, Condvar)>);

#[derive(Default)]
struct Holders {
    current: HashMap<TaskId, u64>,
    copies: HashSet<TaskId>,
}

impl Incarnations {
    fn with<R>(&self, change: impl FnOnce(&mut Holders) -> R) -> R {
        let result = change(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.1.notify_all();
        result
    }

    pub(crate) fn set(&self, task: &TaskId, incarnation: Option<u64>) {
        self.with(|holders| match incarnation {
            Some(number) => holders.current.insert(task.clone(), number),
            None => holders.current.remove(task),
        });
    }

    pub(crate) fn is_current(&self, task: &TaskId, incarnation: u64) -> bool {
        self.with(|holders| holders.current.get(task) == Some(&incarnation))
    }

    /// Whether the task runs here, or is to.
    pub(crate) fn is_active(&self, task: &TaskId) -> bool {
        self.with(|holders| holders.current.contains_key(task))
    }

    /// Takes the store for a standby copy, unless an incarnation has or wants it.
    pub(crate) fn take_for_copy(&self, task: &TaskId) -> bool {
        self.with(|holders| {
            !holders.current.contains_key(task) && holders.copies.insert(task.clone())
        })
    }

    /// The standby copy is closed.
    pub(crate) fn copy_closed(&self, task: &TaskId) {
        self.with(|holders| holders.copies.remove(task));
    }

    /// Waits until no standby copy has the store, at most so long.
    pub(crate) fn wait_for_copy(&self, task: &TaskId, at_most: Duration) {
        let holders = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = |holders: &mut Holders| holders.copies.contains(task);
        drop(self.0.1.wait_timeout_while(holders, at_most, held));
    }
}

/// A wish to restore one task.
pub struct Request<P> {
    /// The task.
    pub task: TaskId,
    /// For which of its incarnations.
    pub incarnation: u64,
    /// Its processor, new.
    pub processor: P,
}

/// What became of it.
pub struct Restored<P> {
    /// The task.
    pub task: TaskId,
    /// For which of its incarnations.
    pub incarnation: u64,
    /// The restored task and its position.
    pub result: Result<(Live<P>, i64), Error>,
}

/// Where a session has its tasks restored.
pub trait Restores<P: Processor> {
    /// Asks for a restore.
    ///
    /// # Errors
    /// When nobody restores any more.
    fn request(&self, request: Request<P>) -> Result<(), ClientError>;

    /// The next finished restore.
    fn next(&self) -> Option<Restored<P>>;

    /// Which incarnations are wanted.
    fn incarnations(&self) -> &Incarnations;
}

/// One topic partition that a store is a view of.
pub(crate) struct Part {
    pub(crate) topic: Topic,
    pub(crate) name: String,
    pub(crate) next: i64,
    pub(crate) high: i64,
}

/// From where each restored topic is read into `state`, and to where; `None` when the store does
/// not fit the topics any more and has to be rebuilt.
fn parts_of(
    spec: &SubTopology,
    shared: &Shared,
    task: &TaskId,
    state: &State,
    logs: &mut impl Logs,
) -> Result<Option<Vec<Part>>, Error> {
    let partition = task.partition;
    let names: Vec<String> = spec.restores.iter().map(|t| t.name(&shared.application)).collect();
    let asked: Vec<(&str, i32)> = names.iter().map(|n| (n.as_str(), partition)).collect();
    let ends = logs.ends(&asked)?;
    let checkpoint = state.checkpoint()?;
    let now = shared.clock.now().0;
    let stale = checkpoint.as_ref().is_some_and(|c| c.is_stale(now, DELETE_RETENTION_MS));
    let mut parts = Vec::with_capacity(names.len());
    for ((topic, name), Ends { low, high }) in spec.restores.iter().zip(names).zip(ends) {
        let stored =
            checkpoint.as_ref().and_then(|c| c.positions.get(&(name.clone(), partition)).copied());
        let next = stored.unwrap_or(low);
        if let Some(tail) = topic.restored_tail() {
            // What is missing before it is missed by nobody.
            let next = next.max(low).max(high - tail).min(high);
            parts.push(Part { topic: *topic, name, next, high });
            continue;
        }
        let unusable = next < low || next > high || (stale && next < high);
        if stored.is_some() && unusable {
            tracing::warn!(%task, topic = name, checkpoint = next, log_start = low, log_end = high,
                stale, "local store is rebuilt from Kafka");
            return Ok(None);
        }
        parts.push(Part { topic: *topic, name, next, high });
    }
    Ok(Some(parts))
}

/// Opens the store of a task, emptied if it does not fit the topics any more, with what is to be
/// read into it.
pub(crate) fn open_store(
    spec: &SubTopology,
    shared: &Shared,
    task: &TaskId,
    expiry: Vec<ExpiryRule>,
    logs: &mut impl Logs,
) -> Result<(State, Vec<Part>), Error> {
    let state = shared.stores.open(spec, task, expiry)?;
    if let Some(parts) = parts_of(spec, shared, task, &state, logs)? {
        return Ok((state, parts));
    }
    let state = state.reset()?;
    let parts = parts_of(spec, shared, task, &state, logs)?;
    let parts = parts.ok_or_else(|| Error::Failed("watermarks moved back".into()))?;
    Ok((state, parts))
}

/// The checkpoint of a store that was read up to these parts' next offsets.
pub(crate) fn checkpoint_of(parts: &[Part], partition: i32, now: UnixMillis) -> Checkpoint {
    let position = |part: &Part| ((part.name.clone(), partition), part.next);
    Checkpoint { positions: parts.iter().map(position).collect(), stamped_at_ms: now.0 }
}

/// One restore.
pub struct Restore<'a, L> {
    /// The sub-topology.
    pub spec: &'a SubTopology,
    /// Shared by the instance.
    pub shared: &'a Shared,
    /// Which incarnations are wanted.
    pub incarnations: &'a Incarnations,
    /// The logs.
    pub logs: &'a mut L,
    /// The task.
    pub task: &'a TaskId,
    /// For which of its incarnations.
    pub incarnation: u64,
}

impl<L: Logs> Restore<'_, L> {
    /// Restores the task for this processor: answers the live task and its position.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn run<P: Processor>(&mut self, mut processor: P) -> Result<(Live<P>, i64), Error> {
        let committed = self.committed()?;
        self.incarnations.wait_for_copy(self.task, COPY_CLOSES);
        let expiry = processor.expiry();
        let (mut state, mut parts) =
            open_store(self.spec, self.shared, self.task, expiry, self.logs)?;
        let records = self.read(&mut parts, &mut processor, &mut state)?;
        processor.restored(&state)?;
        let (position, metadata) = self.position(committed, &parts, records)?;
        let positions = self.checkpoint(&parts).positions;
        Ok((Live { processor, state, metadata, positions }, position))
    }

    fn now(&self) -> UnixMillis {
        self.shared.clock.now()
    }

    fn check(&self) -> Result<(), Error> {
        if self.incarnations.is_current(self.task, self.incarnation) {
            Ok(())
        } else {
            Err(Error::Abandoned)
        }
    }

    /// The stable position of the task's source; asked again while a transaction is pending.
    fn committed(&mut self) -> Result<Option<(i64, String)>, Error> {
        let since = self.now();
        let mut said = false;
        loop {
            self.check()?;
            match self.logs.committed(self.task) {
                Ok(position) => return Ok(position),
                Err(ClientError::Retry(error)) => {
                    self.logs.end_predecessor(self.task);
                    if self.now().since(since) > PROGRESS_MS && !said {
                        said = true;
                        tracing::warn!(task = %self.task, error, "waiting for a stable position");
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads every part to its high watermark; answers how many records the store is made of.
    fn read<P: Processor>(
        &mut self,
        parts: &mut [Part],
        processor: &mut P,
        state: &mut State,
    ) -> Result<u64, Error> {
        let mut records = 0;
        let partition = self.task.partition;
        let from: Vec<_> = parts
            .iter()
            .filter(|part| part.next < part.high)
            .map(|part| (part.name.as_str(), partition, part.next))
            .collect();
        if !from.is_empty() {
            self.logs.start(&from)?;
            let read = self.read_to_marks(parts, processor, state);
            self.logs.stop();
            records = read?;
        }
        if !parts.is_empty() {
            state.commit(&self.checkpoint(parts))?;
        }
        // A checkpoint alone says nothing: a task that never ran may have left one.
        Ok(if state.is_empty()? { records } else { records.max(1) })
    }

    fn read_to_marks<P: Processor>(
        &mut self,
        parts: &mut [Part],
        processor: &mut P,
        state: &mut State,
    ) -> Result<u64, Error> {
        let mut records: u64 = 0;
        let started = self.now();
        let mut said = started;
        loop {
            self.check()?;
            let drained = self.read_batch(parts, processor, state, &mut records)?;
            if state.is_full(BATCH_BYTES) {
                state.commit(&self.checkpoint(parts))?;
            }
            if drained {
                // Positions pass transaction markers and aborted records, our own count does not.
                for (name, _, next) in self.logs.positions()? {
                    if let Some(part) = parts.iter_mut().find(|part| part.name == name) {
                        part.next = part.next.max(next);
                    }
                }
            }
            let now = self.now();
            if parts.iter().all(|part| part.next >= part.high) {
                let (task, took_ms) = (self.task, now.since(started));
                tracing::info!(%task, records, took_ms, "store restored");
                self.shared.metrics.restored_records(self.spec.name, records);
                return Ok(records);
            }
            let remaining = parts.iter().map(|part| (part.high - part.next).max(0)).sum();
            self.shared.status.restoring(self.spec.name, self.task, remaining);
            if now.since(said) > PROGRESS_MS {
                said = now;
                let left: i64 = parts.iter().map(|part| (part.high - part.next).max(0)).sum();
                tracing::info!(task = %self.task, records, left, "restoring");
            }
        }
    }

    /// Takes some records; answers whether there were no more.
    fn read_batch<P: Processor>(
        &mut self,
        parts: &mut [Part],
        processor: &mut P,
        state: &mut State,
        records: &mut u64,
    ) -> Result<bool, Error> {
        for _ in 0..BATCH {
            let mut failed = None;
            let more = self.logs.next(&mut |record| {
                let part = parts.iter_mut().find(|part| part.name == record.topic);
                if let Some(part) = part {
                    failed = processor.restore(part.topic, record, state).err();
                    part.next = record.offset + 1;
                    *records += 1;
                }
                Ok(())
            })?;
            if let Some(error) = failed {
                return Err(error.into());
            }
            if !more {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn checkpoint(&self, parts: &[Part]) -> Checkpoint {
        checkpoint_of(parts, self.task.partition, self.now())
    }

    /// Where the task resumes (design 4).
    fn position(
        &mut self,
        committed: Option<(i64, String)>,
        parts: &[Part],
        records: u64,
    ) -> Result<(i64, String), Error> {
        let topic = self.task.topic.to_string();
        if self.spec.resume == Resume::Restored {
            let source = parts.iter().find(|part| part.name == topic);
            let next = source.map(|part| part.next);
            let metadata = committed.map(|(_, metadata)| metadata).unwrap_or_default();
            return next
                .map(|next| (next, metadata))
                .ok_or_else(|| Error::Refused(format!("{topic} is not among what it restores")));
        }
        let ends = self.logs.ends(&[(&topic, self.task.partition)])?;
        let low = ends.first().map_or(0, |ends| ends.low);
        match committed {
            Some((offset, metadata)) if offset >= low => Ok((offset, metadata)),
            Some((offset, metadata)) => {
                tracing::error!(task = %self.task, committed = offset, log_start = low,
                    lost = low - offset, "records were deleted before the hub read them");
                self.shared.metrics.lost_records(self.spec.name, low - offset);
                Ok((low, metadata))
            }
            None if records > 0 && self.spec.has_store() => Err(Error::Refused(format!(
                "the group {} has no position for {} but its store has records: positions expired \
                 or were deleted. Resuming would double events; reset the group's position by hand \
                 to where it stood",
                self.spec.group(&self.shared.application),
                self.task
            ))),
            None => {
                let high = ends.first().map_or(0, |ends| ends.high);
                Ok((self.first_position(low, high)?, String::new()))
            }
        }
    }

    /// Where a source is read from when nobody has read it.
    fn first_position(&mut self, low: i64, high: i64) -> Result<i64, Error> {
        match (&self.spec.source, self.shared.start_at) {
            (Source::Facts(_), Some(start)) => {
                Ok(self.logs.offset_at(self.task, start)?.map_or(high, |offset| offset.max(low)))
            }
            _ => Ok(low),
        }
    }
}
