//! What a session does every few seconds whatever else happens: flushes stores before they get
//! old, stamps quiet ones anew, looks for partitions that nobody has, and notices a task whose
//! position stands while its lag grows.

use super::Session;
use crate::kafka::error::Error;
use crate::runtime::clients::Clients;
use crate::runtime::processor::Processor;
use crate::runtime::task::Task;

/// How often, milliseconds.
const UPKEEP_MS: u64 = 5_000;
/// The oldest that an unflushed write gets, milliseconds.
const FLUSH_AGE_MS: i64 = 30_000;
/// How often the checkpoint of a quiet store is stamped anew, milliseconds (design 3).
const RESTAMP_MS: i64 = 3_600_000;
/// How long a position may stand while its log grows, milliseconds.
const STALL_MS: u64 = 30_000;

impl<P: Processor, C: Clients> Session<'_, P, C> {
    /// Does what is due.
    pub(super) fn upkeep(&mut self) -> Result<(), Error> {
        let now = self.now();
        if now.since(self.last_upkeep) < UPKEEP_MS {
            return Ok(());
        }
        self.last_upkeep = now;
        self.commit_with_ends()?;
        if self.parts.spec.has_store() {
            self.look_after_stores()?;
        }
        self.look_for_stalls();
        self.mend_membership()
    }

    fn look_after_stores(&mut self) -> Result<(), Error> {
        let now = self.now();
        for index in 0..self.tasks.len() {
            let checkpoint = self.checkpoint(&self.tasks[index]);
            let task = &mut self.tasks[index];
            let Some(live) = task.live.as_mut() else { continue };
            let failed = |error| Error::Rebuild(format!("task {}: {error}", task.id));
            if live.state.is_unflushed() || now.0 - task.stamped_at_ms > RESTAMP_MS {
                task.stamped_at_ms = now.0;
                live.state.commit(&checkpoint).map_err(failed)?;
            }
            live.state.flush_if_older_than(now.0, FLUSH_AGE_MS).map_err(failed)?;
        }
        Ok(())
    }

    /// Notices running tasks whose log grows while their position stands.
    fn look_for_stalls(&mut self) {
        let now = self.now();
        let running: Vec<_> =
            self.tasks.iter().filter(|t| t.is_running()).map(|t| t.id.clone()).collect();
        let asked: Vec<(&str, i32)> = running.iter().map(|id| (&*id.topic, id.partition)).collect();
        if asked.is_empty() {
            return;
        }
        let Ok(ends) = self.clients.high_watermarks(&asked) else { return };
        let (mut lag, mut stalled) = (0, 0);
        let tasks = self.tasks.iter_mut().filter(|task| task.is_running());
        for (task, end) in tasks.zip(ends) {
            lag += (end - task.position).max(0);
            let of = (task.position, end);
            self.parts.shared.status.progress(self.parts.spec.name, &task.id, of);
            if let Some(since) = task.progress.stands(task.position, end, now)
                && now.since(since) > STALL_MS
            {
                stalled += 1;
                report_stall(task, end);
            }
        }
        self.parts.shared.metrics.lag(self.parts.spec.name, lag, stalled);
    }
}

fn report_stall<P: Processor>(task: &Task<P>, end: i64) {
    tracing::error!(task = %task.id, position = task.position, log_end = end,
        "the log grows but the task does not move");
}
