//! Jobs that end without an attempt: their subscription is gone or disabled, or its schedule was
//! shortened below what they had. They are chosen while jobs are claimed, a bounded number at a
//! time, and end in a step of their own.

use std::ops::ControlFlow;

use streaming_hub_model::dead_letter::EndReason;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::routing;
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::State;
use streaming_hub_state::family::backlog;

use super::outcome::{Counted, End, end_job};
use super::places::StoredJob;
use super::{Claim, Delivery};
use crate::runtime::processor::{Error, Step};

/// How long a job waits for a table that is older than its match, milliseconds.
const TABLE_WAIT_MS: u64 = 100;
/// The most jobs that end in one transaction.
const ENDING_MAX: usize = 256;
/// No more are chosen once those that end have this much payload, bytes.
const ENDING_BYTES_MAX: usize = 1024 * 1024;

impl Delivery {
    /// A job whose subscription is absent or disabled ends, once the table is as new as its match
    /// (design 18).
    pub(super) fn end_or_wait(&mut self, job: StoredJob, now: UnixMillis) -> Claim {
        let partitions = self.settings.partitions.unsigned_abs();
        let home = routing::partition_for_tenant(&job.tenant, partitions);
        // The position before the row: the row may be newer, never older than it says.
        let position = self.settings.table.position(home);
        let reason = match self.settings.table.get(job.facts.subscription) {
            Some(subscription) if subscription.enabled => return Claim::Later(now),
            Some(_) => EndReason::SubscriptionDisabled,
            None => EndReason::SubscriptionDeleted,
        };
        if position < job.facts.table {
            return Claim::Later(now.plus(TABLE_WAIT_MS));
        }
        self.end(job, reason, now)
    }

    /// A subscription changed: one that takes no attempts any more has its jobs ended now, those
    /// that wait for a retry included.
    pub(super) fn changed(&mut self, id: SubscriptionId) {
        self.lanes.unpark(id);
        if self.settings.table.get(id).is_none_or(|row| !row.enabled) {
            self.lanes.queue(id);
        }
    }

    /// How many deleted subscriptions have jobs that did not end yet.
    pub(super) fn still_ending(&self, state: &State) -> Result<u64, Error> {
        let mut count = 0;
        let _ = state.scan(&backlog::all(), &mut |key, _| {
            // Counts of places stand among them, under ids of no subscription.
            let id = backlog::decode_key(key).ok().map(SubscriptionId::from_bytes);
            if id.is_some_and(|id| id.is_ok_and(|id| self.settings.table.get(id).is_none())) {
                count += 1;
            }
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Chooses a job to end, if there is room for one more.
    pub(super) fn end(&mut self, job: StoredJob, reason: EndReason, now: UnixMillis) -> Claim {
        let bytes: usize = self.ending.iter().map(|(job, _)| job.payload.len()).sum();
        if self.ending.len() >= ENDING_MAX || bytes >= ENDING_BYTES_MAX {
            return Claim::Later(now);
        }
        self.claim_job(&job, None);
        self.ending.push((job, reason));
        Claim::Ending
    }

    /// Whether a job has had as many attempts as its schedule has by now (I4).
    pub(super) fn is_used_up(&self, job: &StoredJob, subscription: &Subscription) -> bool {
        let schedule = subscription.retry_schedule_or(&self.settings.retry_schedule);
        usize::try_from(job.facts.attempts).is_ok_and(|had| had >= schedule.attempts_max())
    }

    /// Whether a chosen job has not ended in the open transaction.
    pub(super) fn has_to_end(&self) -> bool {
        self.ending.iter().any(|(job, _)| self.claimed.get(&job.id).is_some_and(|c| !c.recorded))
    }

    /// Ends every chosen job, once in a transaction.
    pub(super) fn end_all(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        let mut ended = Vec::new();
        for (job, reason) in &self.ending {
            let Some(claimed) = self.claimed.get_mut(&job.id) else { continue };
            if std::mem::replace(&mut claimed.recorded, true) {
                continue;
            }
            let end = End { reason: *reason, failure: None };
            end_job(job, job.facts, &end, step)?;
            self.tally.push(Counted::Dead(*reason));
            self.recorded.push(job.id);
            self.claims.end(job.id, step);
            ended.push(job.facts.subscription);
        }
        ended.into_iter().try_for_each(|subscription| self.bound_letters(subscription, step))
    }
}
