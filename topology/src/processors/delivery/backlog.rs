//! What waits is bounded (contract section 4): a job that is too old ends as `expired`, and beyond
//! so many jobs or bytes of one subscription the oldest ends as `backlog_full`, in the step that
//! took the newest in. How much waits is a count in the store, kept with every job that comes and
//! goes (`places`), so that it is right after an abort and known at once after a restart.

use streaming_hub_model::dead_letter::EndReason;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::family::backlog;

use super::Delivery;
use super::outcome::{Counted, End, end_job};
use super::places::StoredJob;
use crate::runtime::processor::{Error, Step};

/// How many jobs end when one comes in: more than one, so that a lowered bound is reached.
const ENDS_PER_JOB: usize = 2;

/// How much may wait for a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How old a job may be, milliseconds since its match.
    pub age_ms_max: u64,
    /// How many jobs.
    pub jobs_max: u64,
    /// How many bytes of them, as they lie in the store.
    pub bytes_max: u64,
}

impl Bounds {
    /// When a job is too old.
    pub(super) fn expires(&self, job: &StoredJob) -> UnixMillis {
        job.facts.matched.plus(self.age_ms_max)
    }

    /// Whether a job is too old.
    pub(super) fn is_expired(&self, job: &StoredJob, now: UnixMillis) -> bool {
        self.expires(job) <= now
    }
}

impl Delivery {
    /// Ends the oldest jobs of a subscription while more wait than may.
    pub(super) fn keep_within_bounds(
        &mut self,
        id: SubscriptionId,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let bounds = self.settings.bounds;
        for _ in 0..ENDS_PER_JOB {
            let waits = backlog::get(step.state, id.as_bytes())?;
            if waits.jobs() <= bounds.jobs_max && waits.bytes <= bounds.bytes_max {
                return Ok(());
            }
            let Some(oldest) = self.next_job(id, false, step.state)? else { return Ok(()) };
            self.claim_job(&oldest, None);
            if let Some(claimed) = self.claimed.get_mut(&oldest.id) {
                claimed.recorded = true;
            }
            self.recorded.push(oldest.id);
            let end = End { reason: EndReason::BacklogFull, failure: None };
            end_job(&oldest, oldest.facts, &end, step)?;
            self.claims.end(oldest.id, step);
            self.tally.push(Counted::Dead(EndReason::BacklogFull));
            self.bound_letters(id, step)?;
        }
        Ok(())
    }
}
