//! The faults of a run: which kinds there are, and how often each strikes. A seed switches some
//! kinds off altogether, so that what only shows without them is found as well.

use std::cell::{Cell, RefCell};

use crate::random::Random;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The process dies between two effects.
    Crash,
    /// The process stands still between two effects, perhaps past its session.
    Stall,
    /// Others run between two effects.
    Interleave,
    /// The process dies between two produced records.
    CrashAtEmit,
    /// A record cannot be produced.
    EmitFails,
    /// Positions cannot be sent.
    PositionsFail,
    /// The commit fails, nothing becomes visible.
    CommitFails,
    /// The commit's outcome is unknown, nothing becomes visible.
    UnknownAborted,
    /// The commit's outcome is unknown, everything becomes visible.
    UnknownCommitted,
    /// An abort fails.
    AbortFails,
    /// A client breaks.
    ClientFails,
    /// A question about offsets has no answer.
    AnswerFails,
    /// A restore's reading breaks.
    LogFails,
    /// The process dies before or after a store takes a commit.
    CrashAtApply,
    /// The disk refuses.
    DiskFails,
    /// A disk is empty after a crash.
    DiskLost,
    /// A process dies at any moment.
    Kill,
    /// A process is stopped for a while, at any moment.
    Sleep,
    /// A process stops in order.
    Stop,
    /// A topic is compacted, or old records go.
    Clean,
    /// A source gets more partitions.
    Grow,
    /// The clock leaps.
    Leap,
    /// A member is put out of its group although its process runs.
    PutOut,
    /// A new producing application appears.
    NewSource,
}

impl Fault {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        USUAL.iter().map(|(fault, _)| *fault)
    }
}

const COUNT: usize = 24;

/// Times in a million that each strikes, at its own occasions.
const USUAL: [(Fault, u32); COUNT] = [
    (Fault::Crash, 4_000),
    (Fault::Stall, 4_000),
    (Fault::Interleave, 100_000),
    (Fault::CrashAtEmit, 600),
    (Fault::EmitFails, 1_500),
    (Fault::PositionsFail, 8_000),
    (Fault::CommitFails, 10_000),
    (Fault::UnknownAborted, 6_000),
    (Fault::UnknownCommitted, 6_000),
    (Fault::AbortFails, 50_000),
    (Fault::ClientFails, 150),
    (Fault::AnswerFails, 5_000),
    (Fault::LogFails, 300),
    (Fault::CrashAtApply, 3_000),
    (Fault::DiskFails, 1_500),
    (Fault::DiskLost, 100_000),
    (Fault::Kill, 30_000),
    (Fault::Sleep, 40_000),
    (Fault::Stop, 25_000),
    (Fault::Clean, 150_000),
    (Fault::Grow, 10_000),
    (Fault::Leap, 8_000),
    (Fault::PutOut, 2_000),
    (Fault::NewSource, 5_000),
];

/// How often each fault strikes in one run.
#[derive(Debug)]
pub struct Faults {
    per_million: [u32; COUNT],
    off: RefCell<Vec<Fault>>,
    hits: [Cell<u32>; COUNT],
    resting: Cell<bool>,
}

impl Faults {
    /// The faults of a run: a third of the kinds is left out, some strike more often.
    #[must_use]
    pub fn draw(random: &mut Random) -> Self {
        let mut drawn = [0; COUNT];
        let some = random.below(3);
        for (slot, (_, usual)) in drawn.iter_mut().zip(USUAL) {
            let times = match (some, random.below(6)) {
                (0, _) | (_, 0..=2) => 1,
                (_, 3) => 4,
                _ => 0,
            };
            *slot = usual * times;
        }
        Self {
            per_million: drawn,
            off: RefCell::default(),
            hits: std::array::from_fn(|_| Cell::new(0)),
            resting: Cell::new(false),
        }
    }

    /// Has these kinds strike ten times as often as usual.
    pub fn stress(&mut self, faults: &[Fault]) {
        for fault in faults {
            self.per_million[*fault as usize] = 10 * USUAL[*fault as usize].1;
        }
    }

    /// Leaves these kinds out; what is drawn stays the same.
    pub fn leave_out(&self, faults: &[Fault]) {
        *self.off.borrow_mut() = faults.to_vec();
    }

    /// No fault strikes any more.
    pub fn rest(&self) {
        self.resting.set(true);
    }

    /// Whether faults are over.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.resting.get()
    }

    /// How often a fault strikes, in a million occasions.
    #[must_use]
    pub fn per_million(&self, fault: Fault) -> u32 {
        if self.off.borrow().contains(&fault) { 0 } else { self.per_million[fault as usize] }
    }

    /// Whether a fault strikes now.
    pub fn strikes(&self, fault: Fault, random: &mut Random) -> bool {
        if self.resting.get() {
            return false;
        }
        let drawn = random.chance(self.per_million[fault as usize]);
        let strikes = drawn && !self.off.borrow().contains(&fault);
        if strikes {
            let hits = &self.hits[fault as usize];
            hits.set(hits.get() + 1);
        }
        strikes
    }

    /// The kinds that struck, and how often.
    #[must_use]
    pub fn struck(&self) -> Vec<(Fault, u32)> {
        let all = USUAL.iter().zip(&self.hits).map(|((fault, _), hits)| (*fault, hits.get()));
        all.filter(|(_, hits)| *hits > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_kinds() {
        for (index, (fault, _)) in USUAL.iter().enumerate() {
            assert_eq!(*fault as usize, index);
        }
    }
}
