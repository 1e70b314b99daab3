//! One run: a seed, a number of steps, and what came of them.

use std::rc::Rc;
use std::sync::Arc;

use streaming_hub_topology::metrics::Metrics;

use crate::check::Violation;
use crate::clients::topic_names;
use crate::clock::VirtualClock;
use crate::cluster::Cluster;
use crate::defect::Defect;
use crate::disks::DiskFaults;
use crate::faults::{Fault, Faults};
use crate::process::{Arenas, Settings};
use crate::random::Random;
use crate::seam::Seam;
use crate::shape::{APPLICATION, Shape};
use crate::trace::Trace;
use crate::world::World;

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Everything follows from it.
    pub seed: u64,
    /// Steps before faults stop.
    pub steps: u64,
    /// A deliberate defect.
    pub defect: Option<Defect>,
    /// Kinds of faults that strike ten times as often as usual.
    pub stressed: Vec<Fault>,
    /// Kinds of faults that are left out.
    pub left_out: Vec<Fault>,
    /// Whether the last lines of the trace are kept.
    pub tells: bool,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Steps taken, those after the faults not counted.
    pub steps: u64,
    /// Everything that happened, as one number.
    pub print: u64,
    /// What was violated, if anything.
    pub violation: Option<Violation>,
    /// How much happened.
    pub amount: Amount,
    /// The kinds of faults that struck, and how often.
    pub struck: Vec<(Fault, u32)>,
    /// The last lines of the trace.
    pub trace: Vec<String>,
}

/// How much happened in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Records of producers.
    pub facts: usize,
    /// Events in the inbox.
    pub inbox: usize,
    /// Jobs made.
    pub jobs: usize,
    /// Attempts recorded.
    pub attempts: usize,
    /// Processes that lived.
    pub processes: u64,
}

impl Amount {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            facts: self.facts + other.facts,
            inbox: self.inbox + other.inbox,
            jobs: self.jobs + other.jobs,
            attempts: self.attempts + other.attempts,
            processes: self.processes + other.processes,
        }
    }
}

impl Run {
    /// The run of a seed with this many steps.
    #[must_use]
    pub fn new(seed: u64, steps: u64) -> Self {
        let (stressed, left_out) = (Vec::new(), Vec::new());
        Self { seed, steps, defect: None, stressed, left_out, tells: false }
    }

    /// Runs.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let mut random = Random::new(self.seed);
        let shape = Shape::draw(&mut random);
        let mut faults = Faults::draw(&mut random);
        faults.stress(&self.stressed);
        faults.leave_out(&self.left_out);
        let disk_faults = DiskFaults {
            fails: faults.per_million(Fault::DiskFails),
            crashes: faults.per_million(Fault::CrashAtApply),
            torn: self.defect == Some(Defect::TornStore),
            ageless: self.defect == Some(Defect::AgelessCheckpoint),
        };
        let clock = VirtualClock::new();
        let cluster = Cluster::new(clock.clone(), Defect::laws(self.defect));
        let trace = Trace::new(self.tells);
        let arenas = Arenas::default();
        let seam = Seam::new(cluster, random, (clock, faults), self.defect, trace);
        let seam = Rc::new(seam);
        seam.trace.say(|| format!("{shape:?}"));
        let world = World::new(&arenas, &seam, settings(&shape), shape, (disk_faults, self.steps));
        while world.steps() < self.steps && world.violation().is_none() {
            world.step();
        }
        let steps = world.steps();
        if world.violation().is_none() {
            world.settle();
        }
        let violation = world.violation();
        let drawn = seam.random.borrow_mut().next();
        let print = seam.cluster.borrow().print() ^ drawn;
        let amount = world.amount();
        let (struck, trace) = (seam.faults.struck(), seam.trace.lines());
        Outcome { steps, print, violation, amount, struck, trace }
    }
}

fn settings(shape: &Shape) -> Settings {
    let registry = prometheus::Registry::new();
    #[expect(clippy::expect_used, reason = "an empty registry takes every name")]
    let metrics = Metrics::new(&registry).expect("an empty registry");
    Settings {
        topics: shape.topics(),
        horizon_ms: shape.horizon_ms,
        schedule: Shape::schedule(),
        limits: Shape::limits(),
        bounds: Shape::bounds(),
        slots: shape.slots,
        clocks_ms: shape.clocks_ms,
        commit: shape.commit(),
        metrics: Arc::new(metrics),
        topic_names: topic_names(APPLICATION),
    }
}
