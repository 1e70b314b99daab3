//! What a restore reads: positions, ends and records of the fake cluster. Where a real client would
//! wait, others run.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use streaming_hub_model::time::UnixMillis;
use streaming_hub_topology::instances::Owners;
use streaming_hub_topology::kafka::error::Error;
use streaming_hub_topology::runtime::clients::{Ends, Logs, TakeLog};
use streaming_hub_topology::runtime::mailbox::TaskId;
use streaming_hub_topology::runtime::processor::{Processor, Record};
use streaming_hub_topology::runtime::restore::{
    Incarnations, Request, Restore, Restored, Restores,
};
use streaming_hub_topology::runtime::spec::SubTopology;
use streaming_hub_topology::shared::Shared;

use crate::cluster::log::{Log, Read};
use crate::defect::Defect;
use crate::faults::Fault;
use crate::seam::{Life, Seam, dead};

/// How often a restore may find nothing to do before it is taken for stuck.
const IDLE_MAX: u32 = 3_000;

/// The logs as restores of one sub-topology read them.
pub struct SimLogs<'a> {
    seam: Rc<Seam<'a>>,
    life: Arc<Life>,
    sub_topology: &'static str,
    group: String,
    owners: Arc<Owners>,
    reading: Vec<(String, i32, i64)>,
    idle: u32,
}

impl<'a> SimLogs<'a> {
    /// A reader.
    #[must_use]
    pub fn new(
        seam: &Rc<Seam<'a>>,
        life: &Arc<Life>,
        (sub_topology, group): (&'static str, String),
        owners: &Arc<Owners>,
    ) -> Self {
        Self {
            seam: Rc::clone(seam),
            life: Arc::clone(life),
            sub_topology,
            group,
            owners: Arc::clone(owners),
            reading: Vec::new(),
            idle: 0,
        }
    }

    /// Waits as a client does that has nothing.
    fn wait(&mut self) -> Result<(), Error> {
        self.idle += 1;
        if self.idle > IDLE_MAX {
            return Err(Error::Fatal("a restore does not end".into()));
        }
        self.seam.let_others_run(2);
        if self.idle > 20 {
            // A transaction that holds it up may be that of a turn around this one.
            self.seam.clock.advance(100);
            self.seam.cluster.borrow_mut().tick();
        }
        self.seam.resume(&self.life)
    }

    fn log<R>(&self, (topic, partition): (&str, i32), ask: impl FnOnce(&Log) -> R) -> Option<R> {
        self.seam.cluster.borrow().log(topic, partition).map(ask)
    }
}

impl Logs for SimLogs<'_> {
    fn committed(&mut self, task: &TaskId) -> Result<Option<(i64, String)>, Error> {
        self.seam.between(&self.life, "asking for a position")?;
        if self.seam.strikes(Fault::AnswerFails) {
            return Err(Error::Abort("simulated: no answer".into()));
        }
        let found = self.seam.cluster.borrow().stable_position(&self.group, task);
        match found {
            Ok(position) => Ok(position),
            Err(_) => {
                self.wait()?;
                Err(Error::Retry("simulated: a transaction is pending".into()))
            }
        }
    }

    fn end_predecessor(&mut self, task: &TaskId) {
        let Some(owner) = self.owners.of(self.sub_topology, task) else { return };
        if owner.instance == self.life.instance || self.life.is_dead() {
            return;
        }
        let mut cluster = self.seam.cluster.borrow_mut();
        if !cluster.is_member(&self.group, &owner.transactional_id) {
            cluster.init_transactions(&owner.transactional_id);
        }
    }

    fn ends(&mut self, asked: &[(&str, i32)]) -> Result<Vec<Ends>, Error> {
        self.seam.between(&self.life, "asking for ends")?;
        if self.seam.strikes(Fault::AnswerFails) {
            return Err(Error::Retry("simulated: no answer".into()));
        }
        let stable = self.seam.has(Defect::RestoreToLso);
        let ends = |log: &Log| Ends {
            low: log.low(),
            high: if stable { log.stable() } else { log.high() },
        };
        let none = Ends { low: 0, high: 0 };
        Ok(asked.iter().map(|place| self.log(*place, ends).unwrap_or(none)).collect())
    }

    fn offset_at(&mut self, task: &TaskId, time: UnixMillis) -> Result<Option<i64>, Error> {
        Ok(self.log((&task.topic, task.partition), |log| log.offset_at(time.0)).flatten())
    }

    fn start(&mut self, from: &[(&str, i32, i64)]) -> Result<(), Error> {
        self.seam.between(&self.life, "a restore's start")?;
        let owned =
            |(topic, partition, next): &(&str, i32, i64)| ((*topic).to_owned(), *partition, *next);
        self.reading = from.iter().map(owned).collect();
        self.idle = 0;
        Ok(())
    }

    fn next(&mut self, take: &mut TakeLog<'_>) -> Result<bool, Error> {
        if self.life.is_dead() {
            return Err(dead());
        }
        if self.seam.strikes(Fault::LogFails) {
            return Err(Error::Rebuild("simulated: the reader broke".into()));
        }
        let committed = !self.seam.has(Defect::ReadUncommitted);
        // Partitions come interleaved in any way.
        let count = self.reading.len();
        let first = self.seam.random.borrow_mut().index(count);
        for turn in 0..count {
            let (topic, partition, next) = &mut self.reading[(first + turn) % count];
            let read = match self.seam.cluster.borrow().log(topic, *partition) {
                Some(log) => log.read(*next, committed),
                None => continue,
            };
            match read {
                Read::End(end) => *next = end,
                Read::Below(low) => {
                    return Err(Error::Rebuild(format!("{topic}/{partition} begins at {low} now")));
                }
                Read::Record { offset, at_ms, data } => {
                    *next = offset + 1;
                    let headers = data.header_refs();
                    let record = Record {
                        topic,
                        partition: *partition,
                        offset,
                        timestamp_ms: at_ms,
                        key: data.key.as_deref(),
                        headers: &headers,
                        value: data.value.as_deref(),
                    };
                    return take(&record).map(|()| true);
                }
            }
        }
        self.wait().map(|()| false)
    }

    fn positions(&mut self) -> Result<Vec<(String, i32, i64)>, Error> {
        Ok(self.reading.clone())
    }

    fn stop(&mut self) {
        self.reading.clear();
    }
}

/// Where the tasks of one stream thread are restored: one after another, when the scheduler says
/// so.
pub struct SimRestores<P> {
    requests: RefCell<VecDeque<Request<P>>>,
    done: RefCell<VecDeque<Restored<P>>>,
    incarnations: Incarnations,
    busy: Cell<bool>,
}

impl<P> Default for SimRestores<P> {
    fn default() -> Self {
        Self {
            requests: RefCell::default(),
            done: RefCell::default(),
            incarnations: Incarnations::default(),
            busy: Cell::new(false),
        }
    }
}

impl<P: Processor> SimRestores<P> {
    /// Whether a restore waits to begin.
    pub fn has_work(&self) -> bool {
        !self.busy.get() && !self.requests.borrow().is_empty()
    }

    /// Does one restore.
    pub fn run_one(&self, spec: &SubTopology, shared: &Shared, mut logs: SimLogs<'_>) {
        let Some(request) = self.requests.borrow_mut().pop_front() else { return };
        let Request { task, incarnation, processor } = request;
        self.busy.set(true);
        let seam = Rc::clone(&logs.seam);
        let incarnations = &self.incarnations;
        let logs = &mut logs;
        let mut restore = Restore { spec, shared, incarnations, logs, task: &task, incarnation };
        let result = restore.run(processor);
        seam.trace.say(|| match &result {
            Ok((_, position)) => format!("  restored {task} to {position}"),
            Err(error) => format!("  restoring {task} failed: {error}"),
        });
        self.busy.set(false);
        self.done.borrow_mut().push_back(Restored { task, incarnation, result });
    }

    /// Drops everything: the process is dead.
    pub fn clear(&self) {
        self.requests.borrow_mut().clear();
        self.done.borrow_mut().clear();
    }
}

impl<P: Processor> Restores<P> for SimRestores<P> {
    fn request(&self, request: Request<P>) -> Result<(), Error> {
        self.requests.borrow_mut().push_back(request);
        Ok(())
    }

    fn next(&self) -> Option<Restored<P>> {
        self.done.borrow_mut().pop_front()
    }

    fn incarnations(&self) -> &Incarnations {
        &self.incarnations
    }
}
