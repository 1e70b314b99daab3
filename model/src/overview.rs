//! What runs where, for operators: the tasks of this instance and how far they are, who runs the
//! others, and what the whole is made of. Nothing decides by it.

use serde::{Deserialize, Serialize};

use crate::time::UnixMillis;

/// One task, as the instance that has it sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskHere {
    /// Its sub-topology.
    pub sub_topology: String,
    /// Topic of its source.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// `created`, `restoring`, `suspended` or `running`.
    pub state: String,
    /// The next offset of its source, of a few seconds ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i64>,
    /// Records of its source that it has not read, of the same moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<i64>,
    /// While it restores: records that are still to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_remaining: Option<i64>,
}

/// A warm copy of another instance's store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHere {
    /// Its sub-topology.
    pub sub_topology: String,
    /// Topic of its task's source.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Records that it is behind.
    pub lag: i64,
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    /// Its id.
    pub instance: String,
    /// Its tasks.
    pub tasks: Vec<TaskHere>,
    /// Its warm copies.
    pub standby: Vec<CopyHere>,
    /// What it still lacks to be ready.
    pub not_ready: Vec<String>,
}

/// Who ran a task last, as `<app>-instances` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOwner {
    /// The sub-topology.
    pub sub_topology: String,
    /// Topic of the task's source.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// The instance.
    pub instance: String,
    /// Where that says that its API is reached.
    pub url: String,
    /// When it took the task.
    pub since: UnixMillis,
}

/// One sub-topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubTopologyShape {
    /// Its name.
    pub name: String,
    /// Its consumer group.
    pub group: String,
    /// What it subscribes to: topics, or a pattern.
    pub source: Vec<String>,
    /// The topics that its store is a view of.
    pub store_of: Vec<String>,
    /// The topics that it writes.
    pub writes: Vec<String>,
}

/// Tells what runs.
pub trait Overview: Send + Sync {
    /// This instance.
    fn here(&self) -> Here;

    /// Who runs which task, as far as this instance knows.
    fn owners(&self) -> Vec<TaskOwner>;

    /// The application id.
    fn application(&self) -> &str;

    /// What the hub is made of.
    fn shape(&self) -> Vec<SubTopologyShape>;
}
