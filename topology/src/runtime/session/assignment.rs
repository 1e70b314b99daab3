//! How a session follows its group: tasks come with an assignment, are restored elsewhere, fetch
//! once they are, and end with a revocation, which commits first, or with a loss, which does not
//! (design 4, 6).

use super::{Session, step};
use crate::kafka::error::Error;
use crate::runtime::clients::{Clients, GroupEvent};
use crate::runtime::mailbox::TaskId;
use crate::runtime::processor::Processor;
use crate::runtime::restore::{self, Request};
use crate::runtime::task::{Task, TaskState};

/// How long giving everything back may take, milliseconds.
const REJOIN_MS: u64 = 5_000;
/// One wait for it, milliseconds.
const REJOIN_SLICE_MS: u64 = 20;

impl<P: Processor, C: Clients> Session<'_, P, C> {
    /// Handles what the group told since the last turn.
    pub(super) fn follow_group(&mut self) -> Result<(), Error> {
        while let Some(event) = self.clients.next_event() {
            let name = self.parts.spec.name;
            self.parts.shared.status.joined(name);
            match event {
                GroupEvent::Assigned(tasks) => {
                    tracing::info!(sub_topology = name, tasks = %Named(&tasks), "assigned");
                    self.assigned(tasks)?;
                }
                GroupEvent::Revoked(tasks) => {
                    tracing::info!(sub_topology = name, tasks = %Named(&tasks), "revoked");
                    self.revoked(&tasks)?;
                }
                GroupEvent::Lost(tasks) => {
                    tracing::warn!(sub_topology = name, tasks = %Named(&tasks), "lost");
                    self.lost(&tasks)?;
                }
            }
        }
        Ok(())
    }

    fn assigned(&mut self, tasks: Vec<TaskId>) -> Result<(), Error> {
        // Nothing is fetched until its task has restored; this only answers the group.
        self.clients.accept_assignment()?;
        for id in tasks {
            let shared = &self.parts.shared;
            let mut task = Task::new(id.clone(), shared.next_incarnation());
            self.restores.incarnations().set(&id, Some(task.incarnation));
            task.enter(TaskState::Restoring);
            shared.status.set(self.parts.spec.name, task.address(), task.stage());
            let processor = (self.parts.factory)(id.partition);
            let request = Request { task: id, incarnation: task.incarnation, processor };
            self.tasks.push(task);
            self.restores.request(request)?;
        }
        Ok(())
    }

    /// Mends what static membership does not notice: a partition that nobody has (design 7). Leaves
    /// the group and joins it again; a second `subscribe` alone does nothing.
    pub(super) fn mend_membership(&mut self) -> Result<(), Error> {
        if !self.clients.misses_partitions() {
            return Ok(());
        }
        tracing::info!(
            sub_topology = self.parts.spec.name,
            "a partition belongs to nobody; joining the group anew"
        );
        self.commit()?;
        self.clients.unsubscribe();
        let started = self.now();
        while !self.tasks.is_empty() && self.now().since(started) < REJOIN_MS {
            self.clients.sleep(REJOIN_SLICE_MS);
            self.clients.poll(&mut |_, _| Ok(()))?;
            self.follow_group()?;
        }
        self.clients.subscribe()
    }

    /// Commits what is done before the partitions are let go: another owner starts from there.
    fn revoked(&mut self, ids: &[TaskId]) -> Result<(), Error> {
        self.hand_back(ids)?;
        let leaves = |task: &Task<P>| task.dirty || task.wrote_own;
        if self.tasks.iter().any(|task| leaves(task) && ids.contains(&task.id)) {
            match self.commit_with_ends() {
                Err(Error::Abort(reason)) => self.rewind_without(ids, &reason)?,
                other => other?,
            }
        }
        self.close_tasks(ids);
        self.clients.release(ids)
    }

    /// Has these tasks write what their next owners must know; it commits with what they have done.
    pub(super) fn hand_back(&mut self, ids: &[TaskId]) -> Result<(), Error> {
        let now = self.now();
        let Self { tasks, clients, dirty_since, .. } = self;
        for task in tasks.iter_mut().filter(|task| ids.contains(&task.id)) {
            if task.live.as_ref().is_some_and(|live| live.processor.has_to_hand_back()) {
                dirty_since.get_or_insert(now);
                step(task, clients.outputs(), now, P::hand_back)?;
            }
        }
        Ok(())
    }

    /// Drops what is not committed: it is another owner's to do again.
    fn lost(&mut self, ids: &[TaskId]) -> Result<(), Error> {
        self.rewind_without(ids, "partitions were lost")?;
        self.close_tasks(ids);
        self.clients.release(ids)
    }

    /// Rewinds before these tasks are closed. Their messages do not come again: a step would write
    /// for them into the next transaction, which commits without their positions.
    fn rewind_without(&mut self, ids: &[TaskId], reason: &str) -> Result<(), Error> {
        let leaving = self.tasks.iter_mut().filter(|task| ids.contains(&task.id));
        leaving.for_each(|task| task.taken.clear());
        self.rewind(reason)
    }

    /// Closes these tasks and their stores.
    pub(super) fn close_tasks(&mut self, ids: &[TaskId]) {
        let (closing, staying) = std::mem::take(&mut self.tasks)
            .into_iter()
            .partition::<Vec<_>, _>(|task| ids.contains(&task.id));
        self.tasks = staying;
        self.last = 0;
        for mut task in closing {
            self.restores.incarnations().set(&task.id, None);
            task.enter(TaskState::Closed);
            self.parts.shared.status.set(self.parts.spec.name, task.address(), task.stage());
            let checkpoint = self.checkpoint(&task);
            if let Some(mut live) = task.live.take() {
                live.state.rollback();
                let closed = live.state.commit(&checkpoint).and_then(|()| live.state.close());
                if let Err(error) = closed {
                    tracing::warn!(task = %task.id, %error, "closing the local store");
                }
            }
        }
        if !self.tasks.iter().any(|task| task.dirty) {
            self.dirty_since = None;
        }
    }

    /// Takes over what was restored meanwhile.
    pub(super) fn take_restored(&mut self) -> Result<(), Error> {
        while let Some(restored) = self.restores.next() {
            let current = |task: &&mut Task<P>| {
                task.id == restored.task && task.incarnation == restored.incarnation
            };
            let Some(task) = self.tasks.iter_mut().find(current) else { continue };
            match restored.result {
                Ok((live, position)) => {
                    task.own_positions.clone_from(&live.positions);
                    task.live = Some(live);
                    (task.position, task.committed) = (position, position);
                    task.enter(TaskState::Suspended);
                    self.parts.shared.status.set(
                        self.parts.spec.name,
                        task.address(),
                        task.stage(),
                    );
                }
                Err(restore::Error::Abandoned) => {}
                Err(restore::Error::Failed(text)) => {
                    return Err(Error::Rebuild(format!("restoring {}: {text}", restored.task)));
                }
                Err(restore::Error::Refused(text)) => return Err(Error::Fatal(text)),
            }
        }
        Ok(())
    }

    /// Lets tasks run while the gate is open, and none while it is shut.
    pub(super) fn follow_gate(&mut self) -> Result<(), Error> {
        if self.clients.has_event() {
            // To stop fetching now would answer a revocation that was not handled yet.
            return Ok(());
        }
        let open = self.parts.gate.is_open();
        let (mut start, mut pause) = (Vec::new(), Vec::new());
        for task in &mut self.tasks {
            if !open && task.is_running() {
                pause.push(task.id.clone());
                task.enter(TaskState::Suspended);
            } else if open && task.stage() == TaskState::Suspended && task.may_run() {
                start.push((task.id.clone(), task.position));
                task.enter(TaskState::Running);
            } else {
                continue;
            }
            self.parts.shared.status.set(self.parts.spec.name, task.address(), task.stage());
        }
        if !pause.is_empty() {
            tracing::warn!(
                sub_topology = self.parts.spec.name,
                tasks = pause.len(),
                "the subscriptions table is not current; tasks wait"
            );
            self.clients.stop_fetching(&pause)?;
        }
        if !start.is_empty() {
            self.clients.fetch(&start)?;
        }
        Ok(())
    }
}

/// Tasks in a log line.
struct Named<'a>(&'a [TaskId]);

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, task) in self.0.iter().enumerate() {
            write!(f, "{}{task}", if index > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}
