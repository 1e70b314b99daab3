//! The board on which stream threads report: which tasks they have and where those stand. Read by
//! readiness and by people; nothing decides by it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use streaming_hub_model::overview::{CopyHere, TaskHere};

use super::mailbox::{Address, TaskId};
use super::task::TaskState;

/// Tasks of one sub-topology.
#[derive(Debug, Default, Clone)]
struct Board {
    /// Whether its thread has had a first answer from the group.
    joined: bool,
    tasks: BTreeMap<TaskId, (u64, TaskState)>,
    progress: BTreeMap<TaskId, Progress>,
    copies: Vec<(TaskId, i64)>,
}

/// How far a task was when it was last looked at.
#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    position: Option<i64>,
    lag: Option<i64>,
    restore_remaining: Option<i64>,
}

/// Where everything of this instance stands.
#[derive(Debug, Default)]
pub struct Status {
    boards: Mutex<BTreeMap<&'static str, Board>>,
}

impl Status {
    fn with<R>(&self, sub_topology: &'static str, change: impl FnOnce(&mut Board) -> R) -> R {
        let mut boards = self.boards.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(boards.entry(sub_topology).or_default())
    }

    /// A sub-topology is to run here.
    pub fn expect(&self, sub_topology: &'static str) {
        self.with(sub_topology, |board| *board = Board::default());
    }

    pub(crate) fn joined(&self, sub_topology: &'static str) {
        self.with(sub_topology, |board| board.joined = true);
    }

    pub(crate) fn set(&self, sub_topology: &'static str, of: Address, state: TaskState) {
        self.with(sub_topology, |board| match state {
            TaskState::Closed => {
                board.progress.remove(&of.task);
                board.tasks.remove(&of.task);
            }
            other => {
                if other != TaskState::Restoring
                    && let Some(progress) = board.progress.get_mut(&of.task)
                {
                    progress.restore_remaining = None;
                }
                board.tasks.insert(of.task, (of.incarnation, other));
            }
        });
    }

    /// How far a running task is.
    pub(crate) fn progress(&self, sub_topology: &'static str, task: &TaskId, of: (i64, i64)) {
        let (position, end) = of;
        self.with(sub_topology, |board| {
            let progress = board.progress.entry(task.clone()).or_default();
            progress.position = Some(position).filter(|position| *position >= 0);
            progress.lag = Some((end - position.max(0)).max(0));
        });
    }

    /// How many records a restoring task still has to read.
    pub(crate) fn restoring(&self, sub_topology: &'static str, task: &TaskId, remaining: i64) {
        self.with(sub_topology, |board| {
            let progress = board.progress.entry(task.clone()).or_default();
            progress.restore_remaining = Some(remaining);
        });
    }

    /// The warm copies of a sub-topology, and how many records each is behind.
    pub(crate) fn copied(&self, sub_topology: &'static str, copies: Vec<(TaskId, i64)>) {
        self.with(sub_topology, |board| board.copies = copies);
    }

    /// All tasks, for people.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskHere> {
        let boards = self.boards.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut tasks = Vec::new();
        for (name, board) in boards.iter() {
            for (task, (_, state)) in &board.tasks {
                let progress = board.progress.get(task).copied().unwrap_or_default();
                tasks.push(TaskHere {
                    sub_topology: (*name).to_owned(),
                    topic: task.topic.to_string(),
                    partition: task.partition,
                    state: state.to_string(),
                    position: progress.position,
                    lag: progress.lag,
                    restore_remaining: progress.restore_remaining,
                });
            }
        }
        tasks
    }

    /// All warm copies, for people.
    #[must_use]
    pub fn copies(&self) -> Vec<CopyHere> {
        let boards = self.boards.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut copies = Vec::new();
        for (name, board) in boards.iter() {
            copies.extend(board.copies.iter().map(|(task, lag)| CopyHere {
                sub_topology: (*name).to_owned(),
                topic: task.topic.to_string(),
                partition: task.partition,
                lag: *lag,
            }));
        }
        copies
    }

    /// The task of this partition, if it runs here now.
    #[must_use]
    pub fn running(&self, sub_topology: &'static str, partition: i32) -> Option<Address> {
        self.with(sub_topology, |board| {
            let runs = |(task, (_, state)): &(&TaskId, &(u64, TaskState))| {
                task.partition == partition && *state == TaskState::Running
            };
            let (task, (incarnation, _)) = board.tasks.iter().find(runs)?;
            Some(Address { task: task.clone(), incarnation: *incarnation })
        })
    }

    /// What is missing for readiness: a group not joined, a task that does not run.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let boards = self.boards.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut missing = Vec::new();
        for (name, board) in boards.iter() {
            if !board.joined {
                missing.push(format!("{name}: not in its consumer group yet"));
            }
            for (task, (_, state)) in &board.tasks {
                if *state != TaskState::Running {
                    missing.push(format!("{name}: task {task} is {state}"));
                }
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_joined_and_every_task_running() {
        let status = Status::default();
        status.expect("match");
        assert_eq!(status.missing(), ["match: not in its consumer group yet"]);
        status.joined("match");
        assert!(status.missing().is_empty());
        let task = TaskId { topic: "t".into(), partition: 1 };
        let address = Address { task, incarnation: 7 };
        status.set("match", address.clone(), TaskState::Restoring);
        assert_eq!(status.running("match", 1), None);
        assert_eq!(status.missing(), ["match: task t/1 is restoring"]);
        status.set("match", address.clone(), TaskState::Running);
        assert!(status.missing().is_empty());
        assert_eq!(status.running("match", 1), Some(address.clone()));
        status.progress("match", &address.task, (7, 9));
        let task = &status.tasks()[0];
        assert_eq!((&*task.state, task.position, task.lag), ("running", Some(7), Some(2)));
        assert_eq!((status.running("match", 2), status.running("delivery", 1)), (None, None));
    }
}
