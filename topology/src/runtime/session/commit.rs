//! When and what a session commits, and how it rewinds (design 1, 3, 5, 9): one transaction with
//! the positions of every task that it read or wrote for; the local stores after it, never before.

use std::collections::HashMap;

use streaming_hub_state::Checkpoint;

use super::{Session, step};
use crate::instances;
use crate::kafka::error::Error;
use crate::runtime::clients::{Clients, Position};
use crate::runtime::mailbox::TaskId;
use crate::runtime::processor::Processor;
use crate::runtime::spec::Source;
use crate::runtime::task::Task;

/// Where some partitions of own topics end.
type Ends = Vec<((String, i32), i64)>;

impl<P: Processor, C: Clients> Session<'_, P, C> {
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
        let awaited =
            |task: &Task<P>| task.live.as_ref().is_some_and(|l| l.processor.wants_commit());
        if drained
            || self.tasks.iter().any(awaited)
            || self.now().since(since) >= settings.interval_ms
            || self.clients.produced_bytes() >= settings.bytes
            || self.tasks.iter().any(full)
        {
            self.commit()?;
        }
        Ok(())
    }

    /// Commits everything done since the last commit.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        let started = self.now();
        for task in self.tasks.iter_mut().filter(|task| task.dirty) {
            step(task, self.clients.outputs(), started, P::before_commit)?;
        }
        self.announce();
        let positions = self.positions();
        if positions.is_empty() {
            return Ok(());
        }
        self.clients.commit(&positions)?;
        let (took_ms, bytes) = (self.now().since(started), self.clients.produced_bytes());
        self.parts.shared.metrics.committed(self.parts.spec.name, took_ms, bytes);
        self.apply()
    }

    /// Carries the committed transaction over into the local stores.
    fn apply(&mut self) -> Result<(), Error> {
        self.dirty_since = None;
        for index in 0..self.tasks.len() {
            if !self.tasks[index].dirty {
                continue;
            }
            let task = &mut self.tasks[index];
            task.dirty = false;
            task.unannounced = false;
            task.committed = task.position;
            task.taken.clear();
            if matches!(self.parts.spec.source, Source::Internal(topic) if topic.is_queue()) {
                let (topic, partition) = (&task.id.topic, task.id.partition);
                self.parts.shared.consumed.note(topic, partition, task.committed);
            }
            let checkpoint = self.checkpoint(&self.tasks[index]);
            let task = &mut self.tasks[index];
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
    fn positions(&self) -> Vec<Position> {
        let position = |task: &Task<P>| {
            let metadata = task.live.as_ref()?.processor.metadata();
            Some(Position { task: task.id.clone(), offset: task.position, metadata })
        };
        self.tasks.iter().filter(|task| task.dirty).filter_map(position).collect()
    }

    /// Says in the instances topic which running tasks are ours since the last commit (design 24).
    fn announce(&mut self) {
        let Self { parts, tasks, clients, .. } = self;
        for task in tasks.iter_mut().filter(|task| task.unannounced && task.is_running()) {
            task.dirty = true;
            instances::announce(&parts.shared, &parts.spec, &task.id, clients.outputs());
        }
    }

    /// After an abort: every task of the transaction drops its writes and reads again from its
    /// committed position; its messages come again.
    pub(super) fn rewind(&mut self, reason: &str) -> Result<(), Error> {
        if self.clients.is_open() || self.dirty_since.is_some() {
            tracing::warn!(sub_topology = self.parts.spec.name, reason, "transaction aborted");
            self.parts.shared.metrics.aborted(self.parts.spec.name);
        }
        self.clients.abort()?;
        self.dirty_since = None;
        let (mut again, mut fetch) = (Vec::new(), Vec::new());
        for task in self.tasks.iter_mut().filter(|task| task.dirty) {
            task.dirty = false;
            task.position = task.committed;
            if let Some(live) = task.live.as_mut() {
                live.state.rollback();
                live.processor.aborted();
            }
            let address = task.address();
            again.extend(task.taken.drain(..).map(|message| (address.clone(), message)));
            if task.is_running() {
                fetch.push((task.id.clone(), task.position));
            }
        }
        if !fetch.is_empty() {
            let ids: Vec<_> = fetch.iter().map(|(id, _)| id.clone()).collect();
            self.clients.stop_fetching(&ids)?;
            self.clients.fetch(&fetch)?;
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

    /// As [`Self::commit`], and moves checkpoints up to where the tasks' own topics end. The ends
    /// are asked for before the commit and taken after it: the commit is fenced, so that until then
    /// nobody else has written there. (A thread that stood still past its session would take the
    /// next owner's writes for its own.)
    pub(super) fn commit_with_ends(&mut self) -> Result<(), Error> {
        let ends = self.own_ends();
        for task in self.tasks.iter_mut().filter(|task| ends.contains_key(&task.id)) {
            task.dirty = true;
            task.wrote_own = false;
        }
        let committed = self.commit();
        for task in &mut self.tasks {
            let Some(ends) = ends.get(&task.id) else { continue };
            match &committed {
                Ok(()) => task.own_positions.extend(ends.iter().cloned()),
                Err(_) => task.wrote_own = true,
            }
        }
        committed
    }

    /// Where the own topics of tasks that wrote to them end. Without an answer checkpoints stay as
    /// they are: an older one is a longer restore, nothing else.
    fn own_ends(&mut self) -> HashMap<TaskId, Ends> {
        let (spec, application) = (&self.parts.spec, &self.parts.shared.application);
        let own = spec.restores.iter().filter(|topic| !spec.source.is(**topic));
        let own: Vec<String> = own.map(|topic| topic.name(application)).collect();
        let wrote = self.tasks.iter().filter(|task| task.wrote_own && task.live.is_some());
        let tasks: Vec<_> = wrote.map(|task| task.id.clone()).collect();
        let asked: Vec<(&str, i32)> = tasks
            .iter()
            .flat_map(|task| own.iter().map(|name| (name.as_str(), task.partition)))
            .collect();
        if asked.is_empty() {
            return HashMap::new();
        }
        let ends = match self.clients.high_watermarks(&asked) {
            Ok(ends) => ends,
            Err(error) => {
                tracing::debug!(%error, "checkpoints stay as they are");
                return HashMap::new();
            }
        };
        let of_task = |(task, ends): (TaskId, &[i64])| {
            let place = |name: &String| (name.clone(), task.partition);
            (task.clone(), own.iter().map(place).zip(ends.iter().copied()).collect())
        };
        tasks.into_iter().zip(ends.chunks(own.len())).map(of_task).collect()
    }
}
