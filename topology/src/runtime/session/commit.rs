//! When and what a session commits, and how it rewinds (design 1, 3, 5, 9): one transaction with
//! the positions of every task that it read or wrote for; the local stores after it, never before.

use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_state::Checkpoint;

use super::{Session, step};
use crate::clock::Watch;
use crate::instances;
use crate::kafka::error::Error;
use crate::kafka::offsets;
use crate::runtime::processor::Processor;
use crate::runtime::spec::Source;
use crate::runtime::task::{Task, TaskState};

/// How often stores are looked at for a flush.
const UPKEEP: Duration = Duration::from_secs(10);
/// The oldest that an unflushed write gets, milliseconds.
const FLUSH_AGE_MS: i64 = 30_000;
/// How often the checkpoint of a quiet store is stamped anew, milliseconds (design 3).
const RESTAMP_MS: i64 = 3_600_000;

impl<P: Processor> Session<'_, P> {
    /// Commits when there is reason to: the input is drained, or time or bytes are up.
    pub(super) fn commit_if_due(&mut self, drained: bool) -> Result<(), Error> {
        let settings = self.parts.shared.commit;
        let unannounced = self.tasks.iter().any(|task| task.unannounced && task.is_running());
        let Some(since) = self.dirty_since else {
            return if unannounced { self.commit() } else { Ok(()) };
        };
        let full = |task: &Task<P>| {
            task.live.as_ref().is_some_and(|l| l.state.is_full(settings.uncommitted_bytes_max))
        };
        if drained
            || since.elapsed() >= Duration::from_millis(settings.interval_ms)
            || self.transactor.produced_bytes() >= settings.bytes
            || self.tasks.iter().any(full)
        {
            self.commit()?;
        }
        Ok(())
    }

    /// Commits everything done since the last commit.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        let now = self.now();
        let watch = Watch::start();
        for task in self.tasks.iter_mut().filter(|task| task.dirty) {
            step(task, &mut self.transactor, now, P::before_commit)?;
        }
        self.announce();
        let positions = self.positions()?;
        if positions.count() == 0 {
            return Ok(());
        }
        let Self { guard, transactor, consumer, .. } = self;
        guard.watched(|| transactor.commit(&positions, consumer))?;
        let produced = self.transactor.produced_bytes();
        self.parts.shared.metrics.committed(self.parts.spec.name, watch.elapsed(), produced);
        self.apply()
    }

    /// Carries the committed transaction over into the local stores.
    fn apply(&mut self) -> Result<(), Error> {
        self.dirty_since = None;
        for index in 0..self.tasks.len() {
            if !self.tasks[index].dirty {
                continue;
            }
            let checkpoint = self.checkpoint(&self.tasks[index]);
            let task = &mut self.tasks[index];
            task.dirty = false;
            task.unannounced = false;
            task.committed = task.position;
            task.taken.clear();
            if matches!(self.parts.spec.source, Source::Internal(topic) if topic.is_queue()) {
                let (topic, partition) = (&task.id.topic, task.id.partition);
                self.parts.shared.consumed.note(topic, partition, task.committed);
            }
            let Some(live) = task.live.as_mut() else { continue };
            if self.parts.spec.has_store() {
                task.wrote_own |= live.state.buffered_bytes() > 0;
                live.state
                    .commit(&checkpoint)
                    .map_err(|error| Error::Rebuild(format!("task {}: {error}", task.id)))?;
            }
            live.processor.committed();
        }
        Ok(())
    }

    /// Positions and metadata of every task of the transaction.
    fn positions(&self) -> Result<TopicPartitionList, Error> {
        let mut list = TopicPartitionList::new();
        let failed = |error: rdkafka::error::KafkaError| Error::Rebuild(error.to_string());
        for task in self.tasks.iter().filter(|task| task.dirty) {
            let Some(live) = task.live.as_ref() else { continue };
            let mut element = list.add_partition(&task.id.topic, task.id.partition);
            element.set_offset(Offset::Offset(task.position)).map_err(failed)?;
            element.set_metadata(live.processor.metadata());
        }
        Ok(list)
    }

    /// Says in the instances topic which running tasks are ours since the last commit (design 24).
    fn announce(&mut self) {
        let Self { parts, tasks, transactor, .. } = self;
        for task in tasks.iter_mut().filter(|task| task.unannounced && task.is_running()) {
            task.dirty = true;
            instances::announce(&parts.shared, &parts.spec, &task.id, transactor);
        }
    }

    /// After an abort: every task of the transaction drops its writes and reads again from its
    /// committed position; its messages come again.
    pub(super) fn rewind(&mut self, reason: &str) -> Result<(), Error> {
        if self.transactor.is_open() || self.dirty_since.is_some() {
            tracing::warn!(sub_topology = self.parts.spec.name, reason, "transaction aborted");
            self.parts.shared.metrics.aborted(self.parts.spec.name);
        }
        let Self { guard, transactor, .. } = self;
        guard.watched(|| transactor.abort())?;
        self.dirty_since = None;
        let mut again = Vec::new();
        let (mut from, mut to) = (TopicPartitionList::new(), TopicPartitionList::new());
        let failed = |error: rdkafka::error::KafkaError| Error::Rebuild(error.to_string());
        for task in self.tasks.iter_mut().filter(|task| task.dirty) {
            task.dirty = false;
            task.position = task.committed;
            if let Some(live) = task.live.as_mut() {
                live.state.rollback();
                live.processor.aborted();
            }
            let address = task.address();
            again.extend(task.taken.drain(..).map(|message| (address.clone(), message)));
            if task.stage() == TaskState::Running {
                let (topic, partition) = (&task.id.topic, task.id.partition);
                from.add_partition(topic, partition);
                let offset = Offset::Offset(task.position);
                to.add_partition_offset(topic, partition, offset).map_err(failed)?;
            }
        }
        if from.count() > 0 {
            self.consumer.incremental_unassign(&from).map_err(failed)?;
            self.consumer.incremental_assign(&to).map_err(failed)?;
        }
        for (address, message) in again {
            self.give(&address, message)?;
        }
        Ok(())
    }

    /// From where each restored topic would be read: exact for the source, for a task's own topics
    /// as of the last look at their ends (re-reading what is applied changes nothing).
    pub(super) fn checkpoint(&self, task: &Task<P>) -> Checkpoint {
        let mut positions = task.own_positions.clone();
        if let Source::Internal(topic) = &self.parts.spec.source
            && self.parts.spec.restores.contains(topic)
        {
            positions.insert((task.id.topic.to_string(), task.id.partition), task.committed);
        }
        Checkpoint { positions, stamped_at_ms: self.now().0 }
    }

    /// Asks where the tasks' own topics end. Between transactions only this thread's committed
    /// writes lie before that end, so it is an exact position.
    pub(super) fn refresh_own_positions(&mut self) -> Result<(), Error> {
        if self.transactor.is_open() || !self.parts.spec.has_store() {
            return Ok(());
        }
        let shared = &self.parts.shared;
        let own: Vec<String> = self
            .parts
            .spec
            .restores
            .iter()
            .filter(|topic| !self.parts.spec.source.is(**topic))
            .map(|topic| topic.name(&shared.application))
            .collect();
        let wrote = |task: &&mut Task<P>| task.wrote_own && task.live.is_some();
        let mut tasks: Vec<_> = self.tasks.iter_mut().filter(wrote).collect();
        let asked: Vec<(&str, i32)> = tasks
            .iter()
            .flat_map(|task| own.iter().map(|name| (name.as_str(), task.id.partition)))
            .collect();
        let ends = self
            .guard
            .watched(|| offsets::high_watermarks(&shared.watermarks, &asked))
            .map_err(|error| Error::of(&error));
        let ends = match ends {
            Ok(ends) => ends,
            // An older checkpoint is a longer restore, nothing else.
            Err(error) => {
                tracing::debug!(%error, "checkpoints stay as they are");
                return Ok(());
            }
        };
        for (task, ends) in tasks.iter_mut().zip(ends.chunks(own.len().max(1))) {
            task.wrote_own = false;
            for (name, end) in own.iter().zip(ends) {
                task.own_positions.insert((name.clone(), task.id.partition), *end);
            }
        }
        Ok(())
    }

    /// Flushes stores before they get old, and stamps quiet ones anew.
    pub(super) fn upkeep(&mut self) -> Result<(), Error> {
        if self.last_upkeep.elapsed() < UPKEEP || !self.parts.spec.has_store() {
            return Ok(());
        }
        self.last_upkeep = Watch::start();
        if self.dirty_since.is_some() {
            self.commit()?;
        }
        self.refresh_own_positions()?;
        let now = self.now().0;
        for index in 0..self.tasks.len() {
            let checkpoint = self.checkpoint(&self.tasks[index]);
            let task = &mut self.tasks[index];
            let Some(live) = task.live.as_mut() else { continue };
            let stamped = task.stamped_at_ms;
            let failed = |error| Error::Rebuild(format!("task {}: {error}", task.id));
            if live.state.is_unflushed() || now - stamped > RESTAMP_MS {
                task.stamped_at_ms = now;
                live.state.commit(&checkpoint).map_err(failed)?;
            }
            live.state.flush_if_older_than(now, FLUSH_AGE_MS).map_err(failed)?;
        }
        Ok(())
    }
}
