//! `<app>-instances` (design 24): which instance runs which task, at which URL, under which
//! transactional id; and the layout of the partitioned topics, recorded when they are made
//! (design 16). Compacted; written within the transaction of the task that it speaks of.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::follower::View;
use crate::runtime::mailbox::TaskId;
use crate::runtime::processor::{Output, Outputs};
use crate::runtime::spec::SubTopology;
use crate::shared::Shared;
use crate::topics::Topic;

/// The key of the record that holds the layout.
pub const LAYOUT_KEY: &str = "layout";

/// How the partitioned internal topics were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Partitions of each.
    pub partitions: i32,
}

/// The key of the record that holds the base of pull entries' `seq`.
pub const PULL_BASE_KEY: &str = "pull-base";

/// What is added to a log offset of the pull topic to give a `seq` (design 16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullBase {
    /// The base.
    pub base: u64,
}

/// Who runs a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The sub-topology.
    pub sub_topology: String,
    /// The task's source topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// The instance.
    pub instance: String,
    /// Where its API is reached.
    pub url: String,
    /// The id of its producer: who takes over may end its pending transaction (design 2).
    pub transactional_id: String,
    /// When it took the task, Unix milliseconds.
    pub since: i64,
}

/// The key of a task's record.
#[must_use]
pub fn key(sub_topology: &str, task: &TaskId) -> String {
    format!("task/{sub_topology}/{}/{}", task.topic, task.partition)
}

/// This instance's copy of who runs which task.
#[derive(Debug, Default)]
pub struct Owners {
    by_key: RwLock<HashMap<String, Owner>>,
}

impl Owners {
    /// Who ran a task last.
    #[must_use]
    pub fn of(&self, sub_topology: &str, task: &TaskId) -> Option<Owner> {
        let map = self.by_key.read().unwrap_or_else(PoisonError::into_inner);
        map.get(&key(sub_topology, task)).cloned()
    }
}

impl Owners {
    /// Who ran each task last, by sub-topology, topic and partition.
    #[must_use]
    pub fn all(&self) -> Vec<Owner> {
        let map = self.by_key.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = map.values().cloned().collect();
        all.sort_by(|a, b| {
            (&a.sub_topology, &a.topic, a.partition).cmp(&(&b.sub_topology, &b.topic, b.partition))
        });
        all
    }
}

impl View for Owners {
    fn topic(&self) -> Topic {
        Topic::Instances
    }

    fn take(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        let Some(Ok(key)) = key.map(std::str::from_utf8) else { return false };
        let mut map = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        match value.map(serde_json::from_slice::<Owner>) {
            None => {
                map.remove(key);
            }
            Some(Ok(owner)) => {
                map.insert(key.to_owned(), owner);
            }
            // These are no owners.
            Some(Err(_)) => return [LAYOUT_KEY, PULL_BASE_KEY].contains(&key),
        }
        true
    }
}

/// Says that `task` is this instance's.
pub(crate) fn announce(
    shared: &Shared,
    spec: &SubTopology,
    task: &TaskId,
    outputs: &mut dyn Outputs,
) {
    let owner = Owner {
        sub_topology: spec.name.to_owned(),
        topic: task.topic.to_string(),
        partition: task.partition,
        instance: shared.instance.clone(),
        url: shared.advertised_url.clone(),
        transactional_id: spec.member(&shared.application, &shared.instance, 0),
        since: shared.clock.now().0,
    };
    let Ok(value) = serde_json::to_vec(&owner) else { return };
    let key = key(spec.name, task);
    outputs.emit(Output {
        topic: Topic::Instances,
        partition: 0,
        key: Some(key.as_bytes()),
        headers: &[],
        value: Some(&value),
    });
}
