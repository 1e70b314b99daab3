//! The board on which stream threads report: which tasks they have and where those stand. Read by
//! readiness and by people; nothing decides by it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::mailbox::{Address, TaskId};
use super::task::TaskState;

/// Tasks of one sub-topology.
#[derive(Debug, Default, Clone)]
struct Board {
    /// Whether its thread has had a first answer from the group.
    joined: bool,
    tasks: BTreeMap<TaskId, (u64, TaskState)>,
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
            TaskState::Closed => board.tasks.remove(&of.task),
            other => board.tasks.insert(of.task, (of.incarnation, other)),
        });
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
        assert_eq!(status.running("match", 1), Some(address));
        assert_eq!((status.running("match", 2), status.running("delivery", 1)), (None, None));
    }
}
