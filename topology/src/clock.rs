//! The shell's clock and randomness: the one place of this crate that reads them.
#![expect(clippy::disallowed_methods, reason = "here the clock and randomness enter")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use streaming_hub_model::ports::{Clock, Entropy};
use streaming_hub_model::time::UnixMillis;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The operating system's randomness, through a cryptographic generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        rand::Rng::fill_bytes(&mut rand::rng(), bytes);
    }
}

/// Measures a span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch(Instant);

impl Watch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
