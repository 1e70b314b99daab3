//! Times in a row, and waiting for each of them to the fraction of a millisecond: a load that is
//! late is late by itself, not because of what it waits for.

use std::time::{Duration, Instant};

use crate::wait;

/// Evenly spaced times.
#[derive(Debug)]
pub struct Pace {
    next: Instant,
    step: Duration,
}

impl Pace {
    /// The first time is now.
    #[must_use]
    pub fn every(step: Duration) -> Self {
        Self { next: wait::instant(), step }
    }

    /// So many times in a second.
    #[must_use]
    pub fn per_second(times: u32) -> Self {
        Self::every(Duration::from_secs(1) / times.max(1))
    }

    /// Waits for the next time. Times that went by are not skipped: they come at once.
    pub fn wait(&mut self) {
        until(self.next);
        self.next += self.step;
    }
}

/// Waits for this time; not at all when it went by.
pub fn until(due: Instant) {
    while let Some(left) = due.checked_duration_since(wait::instant()) {
        std::thread::park_timeout(left);
    }
}
