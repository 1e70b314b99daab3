//! Where a task's store is opened: on the local disk, or in a simulation's memory.

use std::path::PathBuf;
use std::sync::Arc;

use streaming_hub_state::{
    Error, ExpiryRule, Identity, MemoryBase, RocksBase, RocksOptions, SharedResources, State,
};

use crate::runtime::mailbox::TaskId;
use crate::runtime::spec::SubTopology;

/// Opens stores.
pub trait Stores: Send + Sync {
    /// Opens the store of a task.
    ///
    /// # Errors
    /// When the disk refuses, or another process has it open.
    fn open(
        &self,
        spec: &SubTopology,
        task: &TaskId,
        expiry: Vec<ExpiryRule>,
    ) -> Result<State, Error>;
}

/// Stores on the local disk.
pub struct DiskStores {
    /// Application id.
    pub application: String,
    /// Partitions of the internal topics.
    pub partitions: i32,
    /// Where they lie.
    pub state_dir: PathBuf,
    /// Block cache and memtable budget of all of them.
    pub resources: Arc<SharedResources>,
}

impl Stores for DiskStores {
    /// A sub-topology that restores nothing has a store in memory that stays empty.
    fn open(
        &self,
        spec: &SubTopology,
        task: &TaskId,
        expiry: Vec<ExpiryRule>,
    ) -> Result<State, Error> {
        if !spec.has_store() {
            return Ok(State::new(Box::new(MemoryBase::new())));
        }
        let partition = task.partition.to_string();
        let dir = self.state_dir.join(&self.application).join(spec.name).join(partition);
        let identity = Identity {
            application_id: self.application.clone(),
            sub_topology: spec.name.to_owned(),
            partition: task.partition,
            partition_count: self.partitions,
        };
        let mut options = RocksOptions::new(Arc::clone(&self.resources));
        options.expiry = expiry;
        Ok(State::new(Box::new(RocksBase::open(&dir, &identity, options)?)))
    }
}
