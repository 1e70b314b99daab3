//! The virtual clock and fixed-seed randomness behind the hub's ports. Time moves only when the
//! scheduler moves it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use streaming_hub_model::ports::{Clock, Entropy};
use streaming_hub_model::time::UnixMillis;

use crate::random::Random;

/// When every run begins, Unix milliseconds (2026-01-01).
pub const START_MS: i64 = 1_767_225_600_000;

/// The clock of one run, the same for everyone in it.
#[derive(Debug, Clone)]
pub struct VirtualClock(Arc<AtomicI64>);

impl VirtualClock {
    /// A clock that stands at [`START_MS`].
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(AtomicI64::new(START_MS)))
    }

    /// Now, Unix milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves it.
    pub fn advance(&self, by_ms: i64) {
        self.0.fetch_add(by_ms.max(0), Ordering::Relaxed);
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.now_ms())
    }
}

/// The clock of one process, which goes before or after the others'.
#[derive(Debug, Clone)]
pub struct ProcessClock {
    /// The clock of the run.
    pub base: VirtualClock,
    /// By how much it is ahead, milliseconds.
    pub ahead_ms: i64,
}

impl Clock for ProcessClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.base.now_ms() + self.ahead_ms)
    }
}

/// Randomness of one process.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<Random>);

impl SeededEntropy {
    /// Randomness of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Random::new(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
    }
}
