//! The disks of an instance: stores in memory that survive a crash as of their last flush, are open
//! once at a time, refuse now and then, and end their process between two effects.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use streaming_hub_state::{
    Base, Checkpoint, Error, ExpiryRule, KeyRange, MemoryBase, State, Visit, Write,
};
use streaming_hub_topology::runtime::mailbox::TaskId;
use streaming_hub_topology::runtime::spec::SubTopology;
use streaming_hub_topology::stores::Stores;

use crate::random::Random;
use crate::seam::Life;

/// Sub-topology and partition.
pub type StoreId = (&'static str, i32);

#[derive(Debug, Default)]
struct Disk {
    base: MemoryBase,
    /// The life that has it open.
    open: Option<Arc<Life>>,
}

/// How often the disks of a run misbehave, in a million accesses.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskFaults {
    /// A refused write.
    pub fails: u32,
    /// The process dies before or after a write.
    pub crashes: u32,
    /// A store keeps its checkpoint without the writes before it (a defect).
    pub torn: bool,
    /// Checkpoints never look old (a defect).
    pub ageless: bool,
}

#[derive(Debug)]
struct Inner {
    disks: BTreeMap<StoreId, Disk>,
    random: Random,
    faults: DiskFaults,
}

/// The disks of one instance.
#[derive(Debug, Clone)]
pub struct Disks(Arc<Mutex<Inner>>);

impl Disks {
    /// Empty disks.
    #[must_use]
    pub fn new(seed: u64, faults: DiskFaults) -> Self {
        let random = Random::new(seed);
        Self(Arc::new(Mutex::new(Inner { disks: BTreeMap::new(), random, faults })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loses what was not flushed.
    pub fn crash(&self) {
        self.lock().disks.values_mut().for_each(|disk| {
            disk.open = None;
            disk.base.crash();
        });
    }

    /// Loses everything.
    pub fn lose(&self) {
        self.lock().disks.clear();
    }

    /// No disk misbehaves any more.
    pub fn rest(&self) {
        let mut inner = self.lock();
        inner.faults.fails = 0;
        inner.faults.crashes = 0;
    }

    /// The stores, for a look at what they hold.
    #[must_use]
    pub fn stores(&self) -> Vec<(StoreId, MemoryBase)> {
        self.lock().disks.iter().map(|(id, disk)| (*id, disk.base.clone())).collect()
    }

    fn strikes(&self, choose: impl FnOnce(&DiskFaults) -> u32) -> bool {
        let mut inner = self.lock();
        let per_million = choose(&inner.faults);
        inner.random.chance(per_million)
    }
}

/// The disks as one process sees them.
pub struct SimStores {
    /// The disks.
    pub disks: Disks,
    /// The process.
    pub life: Arc<Life>,
}

impl Stores for SimStores {
    fn open(
        &self,
        spec: &SubTopology,
        task: &TaskId,
        expiry: Vec<ExpiryRule>,
    ) -> Result<State, Error> {
        if !spec.has_store() {
            return Ok(State::new(Box::new(MemoryBase::new())));
        }
        if self.disks.strikes(|faults| faults.fails) {
            return Err(refused("open a store"));
        }
        let id = (spec.name, task.partition);
        let mut inner = self.disks.lock();
        let disk = inner.disks.entry(id).or_default();
        if disk.open.as_ref().is_some_and(|life| !life.is_dead()) {
            return Err(Error::Locked { dir: PathBuf::from(format!("{}-{}", id.0, id.1)) });
        }
        disk.open = Some(Arc::clone(&self.life));
        let base = SimBase {
            id,
            inner: disk.base.clone(),
            life: Arc::clone(&self.life),
            disks: self.disks.clone(),
            expiry,
        };
        Ok(State::new(Box::new(base)))
    }
}

fn refused(action: &str) -> Error {
    Error::Io { action: action.to_owned(), reason: "simulated".to_owned() }
}

/// An open store.
struct SimBase {
    id: StoreId,
    inner: MemoryBase,
    life: Arc<Life>,
    disks: Disks,
    expiry: Vec<ExpiryRule>,
}

impl Drop for SimBase {
    fn drop(&mut self) {
        let mut inner = self.disks.lock();
        if let Some(disk) = inner.disks.get_mut(&self.id)
            && disk.open.as_ref().is_some_and(|life| life.number == self.life.number)
        {
            disk.open = None;
        }
    }
}

impl SimBase {
    fn alive(&self) -> Result<(), Error> {
        if self.life.is_dead() { Err(refused("touch the store of a dead process")) } else { Ok(()) }
    }

    /// The process dies here, perhaps.
    fn between(&self) -> Result<(), Error> {
        if self.disks.strikes(|faults| faults.crashes) {
            self.life.end();
        }
        self.alive()
    }

    /// What compaction does meanwhile: entries older than a rule's bound go for good.
    fn forget(&mut self) -> Result<(), Error> {
        for rule in &self.expiry {
            let bound = rule.bound.load(Ordering::Relaxed);
            let mut old = Vec::new();
            let _ = self.inner.scan(&KeyRange::family(rule.family), &mut |key, value| {
                let arrival = value.first_chunk().map(|bytes| i64::from_be_bytes(*bytes));
                if arrival.is_some_and(|arrival| arrival < bound) {
                    old.push(key.to_vec());
                }
                ControlFlow::Continue(())
            })?;
            if let Some(checkpoint) = self.inner.checkpoint()?.filter(|_| !old.is_empty()) {
                let mut writes = old.iter().map(|key| (key.as_slice(), None));
                self.inner.apply(&mut writes, &checkpoint)?;
            }
        }
        Ok(())
    }
}

impl Base for SimBase {
    fn get(&self, key: &[u8]) -> Result<Option<bytes::Bytes>, Error> {
        self.inner.get(key)
    }

    fn scan(&self, range: &KeyRange, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Error> {
        self.inner.scan(range, visit)
    }

    fn apply<'w>(
        &mut self,
        writes: &mut dyn Iterator<Item = Write<'w>>,
        checkpoint: &Checkpoint,
    ) -> Result<(), Error> {
        self.between()?;
        if self.disks.strikes(|faults| faults.fails) {
            return Err(refused("write"));
        }
        let torn = self.disks.lock().faults.torn;
        if torn {
            self.inner.apply(&mut std::iter::empty(), checkpoint)?;
            self.inner.flush()?;
        }
        self.inner.apply(writes, checkpoint)?;
        self.between()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.between()?;
        if self.disks.strikes(|faults| faults.fails) {
            return Err(refused("flush"));
        }
        self.forget()?;
        self.inner.flush()?;
        self.between()
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        let mut checkpoint = self.inner.checkpoint()?;
        if let Some(checkpoint) = checkpoint.as_mut().filter(|_| self.disks.lock().faults.ageless) {
            checkpoint.stamped_at_ms = i64::MAX / 2;
        }
        Ok(checkpoint)
    }

    fn reset(self: Box<Self>) -> Result<Box<dyn Base>, Error> {
        self.alive()?;
        let empty = Box::new(self.inner.clone()).reset()?;
        drop(empty);
        Ok(self)
    }

    fn close(mut self: Box<Self>) -> Result<(), Error> {
        self.flush()
    }
}
