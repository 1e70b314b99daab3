//! How a session follows its group: tasks come with an assignment, are restored elsewhere, fetch
//! once they are, and end with a revocation, which commits first, or with a loss, which does not
//! (design 4, 6).

use rdkafka::consumer::Consumer;
use rdkafka::{Offset, TopicPartitionList};

use super::Session;
use crate::kafka::error::Error;
use crate::kafka::membership::GroupEvent;
use crate::runtime::mailbox::TaskId;
use crate::runtime::processor::Processor;
use crate::runtime::restore::{self, Request};
use crate::runtime::task::{Task, TaskState};

impl<P: Processor> Session<'_, P> {
    /// Handles what the group told since the last turn.
    pub(super) fn follow_group(&mut self) -> Result<(), Error> {
        while let Some(event) = self.consumer.context().next() {
            let name = self.parts.spec.name;
            self.parts.shared.status.joined(name);
            match event {
                GroupEvent::Assigned(partitions) => {
                    tracing::info!(sub_topology = name, ?partitions, "assigned");
                    self.assigned(partitions)?;
                }
                GroupEvent::Revoked(partitions) => {
                    tracing::info!(sub_topology = name, ?partitions, "revoked");
                    self.revoked(partitions)?;
                }
                GroupEvent::Lost(partitions) => {
                    tracing::warn!(sub_topology = name, ?partitions, "lost");
                    self.lost(partitions)?;
                }
            }
        }
        Ok(())
    }

    fn assigned(&mut self, partitions: Vec<(String, i32)>) -> Result<(), Error> {
        // Nothing is fetched until its task has restored; this only answers the group.
        let nothing = TopicPartitionList::new();
        self.consumer.incremental_assign(&nothing).map_err(|e| Error::Rebuild(e.to_string()))?;
        for (topic, partition) in partitions {
            let id = TaskId { topic: topic.into(), partition };
            let shared = &self.parts.shared;
            let mut task = Task::new(id.clone(), shared.next_incarnation());
            self.restores.incarnations.set(&id, Some(task.incarnation));
            task.enter(TaskState::Restoring);
            shared.status.set(self.parts.spec.name, &id, task.stage());
            let request = Request {
                task: id,
                incarnation: task.incarnation,
                processor: (self.parts.factory)(partition),
            };
            self.tasks.push(task);
            if self.restores.requests.send(request).is_err() {
                return Err(Error::Fatal("the restore thread is gone".into()));
            }
        }
        Ok(())
    }

    /// Commits what is done before the partitions are let go: another owner starts from there.
    fn revoked(&mut self, partitions: Vec<(String, i32)>) -> Result<(), Error> {
        let ids = task_ids(partitions);
        if self.tasks.iter().any(|task| task.dirty && ids.contains(&task.id)) {
            match self.commit() {
                Err(Error::Abort(reason)) => self.rewind(&reason)?,
                other => other?,
            }
        }
        self.refresh_own_positions()?;
        self.release(&ids)
    }

    /// Drops what is not committed: it is another owner's to do again.
    fn lost(&mut self, partitions: Vec<(String, i32)>) -> Result<(), Error> {
        let ids = task_ids(partitions);
        self.rewind("partitions were lost")?;
        self.release(&ids)
    }

    fn release(&mut self, ids: &[TaskId]) -> Result<(), Error> {
        self.close_tasks(ids);
        let assigned = self.consumer.assignment().map_err(|e| Error::Rebuild(e.to_string()))?;
        let mut fetched = TopicPartitionList::new();
        for element in assigned.elements() {
            let (topic, partition) = (element.topic(), element.partition());
            if ids.iter().any(|id| &*id.topic == topic && id.partition == partition) {
                fetched.add_partition(topic, partition);
            }
        }
        // Also when nothing was fetched: the group waits for this answer.
        self.consumer.incremental_unassign(&fetched).map_err(|e| Error::Rebuild(e.to_string()))
    }

    /// Closes these tasks and their stores.
    pub(super) fn close_tasks(&mut self, ids: &[TaskId]) {
        let (closing, staying) = std::mem::take(&mut self.tasks)
            .into_iter()
            .partition::<Vec<_>, _>(|task| ids.contains(&task.id));
        self.tasks = staying;
        self.last = 0;
        for mut task in closing {
            self.restores.incarnations.set(&task.id, None);
            task.enter(TaskState::Closed);
            self.parts.shared.status.set(self.parts.spec.name, &task.id, task.stage());
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
        while let Ok(restored) = self.restores.done.try_recv() {
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
                    self.parts.shared.status.set(self.parts.spec.name, &task.id, task.stage());
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
        let open = self.parts.gate.is_open();
        let (mut start, mut pause) = (TopicPartitionList::new(), TopicPartitionList::new());
        for task in &mut self.tasks {
            let (topic, partition) = (&task.id.topic, task.id.partition);
            if !open && task.is_running() {
                pause.add_partition(topic, partition);
                task.enter(TaskState::Suspended);
            } else if open && task.stage() == TaskState::Suspended && task.may_run() {
                let offset = Offset::Offset(task.position);
                start
                    .add_partition_offset(topic, partition, offset)
                    .map_err(|error| Error::Rebuild(error.to_string()))?;
                task.enter(TaskState::Running);
            } else {
                continue;
            }
            self.parts.shared.status.set(self.parts.spec.name, &task.id, task.stage());
        }
        let failed = |error: rdkafka::error::KafkaError| Error::Rebuild(error.to_string());
        if pause.count() > 0 {
            tracing::warn!(sub_topology = self.parts.spec.name, tasks = pause.count(),
                "the subscriptions table is not current; tasks wait");
            self.consumer.incremental_unassign(&pause).map_err(failed)?;
        }
        if start.count() > 0 {
            self.consumer.incremental_assign(&start).map_err(failed)?;
        }
        Ok(())
    }
}

fn task_ids(partitions: Vec<(String, i32)>) -> Vec<TaskId> {
    let id = |(topic, partition): (String, i32)| TaskId { topic: topic.into(), partition };
    partitions.into_iter().map(id).collect()
}
