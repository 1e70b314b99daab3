//! Where the simulation reaches into a running turn: between any two effects the process may die,
//! stand still past its session, or others may run. Shared by the fake clients, logs and disks of
//! one run.

use std::cell::{Cell, RefCell};
use std::rc::Weak;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use streaming_hub_topology::kafka::error::Error;

use crate::clock::VirtualClock;
use crate::cluster::Cluster;
use crate::defect::Defect;
use crate::faults::{Fault, Faults};
use crate::random::Random;
use crate::trace::Trace;

/// How deep turns may lie in one another.
const DEPTH_MAX: u32 = 3;

/// One process from its start to its end. What outlives it (a disk, a thread's stack) holds it and
/// finds it dead.
#[derive(Debug)]
pub struct Life {
    /// Its number, never used twice.
    pub number: u64,
    /// Its instance.
    pub instance: String,
    dead: AtomicBool,
    asleep_until_ms: AtomicI64,
}

impl Life {
    /// A new life.
    #[must_use]
    pub fn new(number: u64, instance: &str) -> Arc<Self> {
        Arc::new(Self {
            number,
            instance: instance.to_owned(),
            dead: AtomicBool::new(false),
            asleep_until_ms: AtomicI64::new(0),
        })
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub fn end(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Until when it stands still, Unix milliseconds.
    #[must_use]
    pub fn asleep_until_ms(&self) -> i64 {
        self.asleep_until_ms.load(Ordering::Relaxed)
    }

    /// Stops it until then.
    pub fn sleep_until(&self, until_ms: i64) {
        self.asleep_until_ms.store(until_ms, Ordering::Relaxed);
    }
}

/// What the rest of the world does meanwhile.
pub trait Others {
    /// Takes some steps.
    fn run(&self, steps: u32);
    /// Takes one step of the cluster and the clock alone.
    fn wait(&self);
    /// A life has ended, or stands still, or goes on.
    fn heed(&self, life: &Life);
}

/// The seam of one run.
pub struct Seam<'a> {
    /// The cluster.
    pub cluster: RefCell<Cluster>,
    /// The one source of randomness.
    pub random: RefCell<Random>,
    /// The clock.
    pub clock: VirtualClock,
    /// The faults.
    pub faults: Faults,
    /// The deliberate defect, if any.
    pub defect: Option<Defect>,
    /// What is told of the run.
    pub trace: Trace,
    others: RefCell<Option<Weak<dyn Others + 'a>>>,
    depth: Cell<u32>,
}

/// The end of a process, to whoever still runs in it.
pub fn dead() -> Error {
    Error::Fatal("the process is dead".to_owned())
}

impl<'a> Seam<'a> {
    /// A seam without a world yet.
    #[must_use]
    pub fn new(
        cluster: Cluster,
        random: Random,
        (clock, faults): (VirtualClock, Faults),
        defect: Option<Defect>,
        trace: Trace,
    ) -> Self {
        Self {
            cluster: RefCell::new(cluster),
            random: RefCell::new(random),
            clock,
            faults,
            defect,
            trace,
            others: RefCell::new(None),
            depth: Cell::new(0),
        }
    }

    /// Names the world.
    pub fn belongs_to(&self, others: Weak<dyn Others + 'a>) {
        *self.others.borrow_mut() = Some(others);
    }

    /// Whether the run has this defect.
    #[must_use]
    pub fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Whether a fault strikes.
    pub fn strikes(&self, fault: Fault) -> bool {
        self.faults.strikes(fault, &mut self.random.borrow_mut())
    }

    /// A number below this bound.
    pub fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    fn others(&self) -> Option<std::rc::Rc<dyn Others + 'a>> {
        self.others.borrow().as_ref().and_then(Weak::upgrade)
    }

    /// Whether turns lie in one another as deep as they may.
    #[must_use]
    pub fn is_deep(&self) -> bool {
        self.depth.get() >= DEPTH_MAX
    }

    /// Whether this turn lies in another.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        self.depth.get() > 0
    }

    /// Lets others take steps while this turn waits.
    pub fn let_others_run(&self, steps: u32) {
        let Some(others) = self.others() else { return };
        if self.is_deep() {
            others.wait();
            return;
        }
        self.depth.set(self.depth.get() + 1);
        others.run(steps);
        self.depth.set(self.depth.get() - 1);
    }

    /// Between two effects.
    ///
    /// # Errors
    /// When the process is dead.
    pub fn between(&self, life: &Life, place: &'static str) -> Result<(), Error> {
        if self.strikes(Fault::Crash) {
            self.kill(life, place);
        } else if self.strikes(Fault::Stall) {
            let length_ms = 1 + self.below(30_000).cast_signed();
            self.trace
                .say(|| format!("  {} stands still {length_ms} ms at {place}", life.instance));
            life.sleep_until(self.clock.now_ms() + length_ms);
        } else if self.strikes(Fault::Interleave) {
            let steps = u32::try_from(1 + self.below(12)).unwrap_or(1);
            self.let_others_run(steps);
        }
        self.resume(life)
    }

    /// Goes on once the process runs again, if it does.
    ///
    /// # Errors
    /// When the process is dead.
    pub fn resume(&self, life: &Life) -> Result<(), Error> {
        let stood_still = life.asleep_until_ms() > self.clock.now_ms();
        if stood_still && let Some(others) = self.others() {
            others.heed(life);
            while !life.is_dead() && life.asleep_until_ms() > self.clock.now_ms() {
                self.let_others_run(5);
                others.wait();
            }
            others.heed(life);
        }
        if life.is_dead() { Err(dead()) } else { Ok(()) }
    }

    /// Ends a process.
    pub fn kill(&self, life: &Life, place: &str) {
        if life.is_dead() {
            return;
        }
        self.trace.say(|| format!("  {} dies at {place}", life.instance));
        life.end();
        if let Some(others) = self.others() {
            others.heed(life);
        }
    }
}
