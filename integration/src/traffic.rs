//! Facts that keep coming while something else happens: written at a pace, by a thread of their
//! own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::facts::Fact;
use crate::producer::{self, Source};
use crate::wait;

/// How many times a second some facts are written.
const TIMES_PER_SECOND: usize = 4;

#[derive(Default)]
struct Progress {
    written: AtomicUsize,
    stop: AtomicBool,
}

/// Facts under way.
pub struct Traffic {
    progress: Arc<Progress>,
    total: usize,
    thread: JoinHandle<Result<Vec<Source>>>,
}

impl Traffic {
    /// Starts to write these facts in their order, so many a second. Their topics exist.
    ///
    /// # Errors
    /// When the machine has no thread left.
    pub fn start(bootstrap: &str, facts: Vec<Fact>, per_second: usize) -> Result<Self> {
        let progress = Arc::new(Progress::default());
        let (bootstrap, own) = (bootstrap.to_owned(), Arc::clone(&progress));
        let total = facts.len();
        let thread = std::thread::Builder::new()
            .name("traffic".into())
            .spawn(move || write(&bootstrap, &facts, per_second, &own))?;
        Ok(Self { progress, total, thread })
    }

    /// How many are written by now.
    #[must_use]
    pub fn written(&self) -> usize {
        self.progress.written.load(Ordering::Relaxed)
    }

    /// Whether some are still to come.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.written() < self.total
    }

    /// Leaves out what is not written yet, and says where the others lie.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn stop(self) -> Result<Vec<Source>> {
        self.progress.stop.store(true, Ordering::Relaxed);
        self.finish()
    }

    /// Waits for the last one, and says where all of them lie.
    ///
    /// # Errors
    /// When one of them was not written.
    pub fn finish(self) -> Result<Vec<Source>> {
        self.thread.join().map_err(|_| anyhow!("the writing thread panicked"))?
    }
}

fn write(
    bootstrap: &str,
    facts: &[Fact],
    per_second: usize,
    progress: &Progress,
) -> Result<Vec<Source>> {
    let pause = Duration::from_secs(1) / u32::try_from(TIMES_PER_SECOND)?;
    let mut next = wait::instant();
    let mut sources = Vec::with_capacity(facts.len());
    for some in facts.chunks((per_second / TIMES_PER_SECOND).max(1)) {
        while let Some(left) = next.checked_duration_since(wait::instant()) {
            std::thread::park_timeout(left);
        }
        next += pause;
        if progress.stop.load(Ordering::Relaxed) {
            break;
        }
        sources.extend(producer::produce(bootstrap, some)?);
        progress.written.store(sources.len(), Ordering::Relaxed);
    }
    Ok(sources)
}
