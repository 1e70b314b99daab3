//! Durable claims (design 21): a claim made in the lane counts, by one and not beyond the limit
//! (I4), no other counts, and nobody is in the lane without one.

use std::collections::{HashMap, HashSet};

use streaming_hub_model::id::JobId;
use streaming_hub_model::reclaim::{DurableClaim, RECLAIMS_MAX};

use super::{Invariant, Violation, broken};

/// How often one job may end its process: attempted live, outside of the lane, in it; and once more
/// for each instance that has lost the task and does not know.
const KILLS_MAX: u32 = 2 + RECLAIMS_MAX + 3;

/// The claims as committed.
#[derive(Debug, Default)]
pub struct Claims {
    known: HashMap<JobId, DurableClaim>,
    /// Jobs that had a claim in the lane at any time.
    laned: HashSet<JobId>,
    /// How often a job was reclaimed, at the most.
    most: HashMap<JobId, u32>,
    /// How many processes a job has ended.
    kills: HashMap<JobId, u32>,
}

impl Claims {
    /// Takes a claim, or its end.
    ///
    /// # Errors
    /// What it broke.
    pub fn take(&mut self, job: JobId, claim: Option<DurableClaim>) -> Result<(), Violation> {
        let Some(claim) = claim else {
            self.known.remove(&job);
            return Ok(());
        };
        let before = self.known.insert(job, claim).map_or(0, |before| before.reclaims);
        let raised = if claim.open && claim.lane { before + 1 } else { before };
        if claim.lane {
            self.laned.insert(job);
        }
        let most = self.most.entry(job).or_default();
        *most = claim.reclaims.max(*most);
        if claim.lane && claim.reclaims != raised || claim.reclaims > raised {
            let what = format!("job {job}: {claim:?} follows {before} reclaims");
            return broken(Invariant::I4, what);
        }
        if claim.reclaims > RECLAIMS_MAX {
            return broken(Invariant::I4, format!("job {job} is reclaimed again: {claim:?}"));
        }
        Ok(())
    }

    /// A job's attempt ends its process.
    ///
    /// # Errors
    /// When it did so too often: it does not converge.
    pub fn killed(&mut self, job: JobId) -> Result<(), Violation> {
        let kills = self.kills.entry(job).or_default();
        *kills += 1;
        if *kills > KILLS_MAX {
            return broken(Invariant::I4, format!("job {job} ended {kills} processes"));
        }
        Ok(())
    }

    /// A job is dead-lettered for this reason.
    ///
    /// # Errors
    /// When it is taken for poison without having been reclaimed that often.
    pub fn dead(&mut self, job: JobId, reason: Option<&str>) -> Result<(), Violation> {
        self.kills.remove(&job);
        let most = self.most.get(&job).copied().unwrap_or(0);
        if reason == Some("poison") && most < RECLAIMS_MAX {
            return broken(Invariant::I4, format!("job {job} is poison after {most} reclaims"));
        }
        Ok(())
    }

    /// A job is attempted in the lane.
    ///
    /// # Errors
    /// When no such claim was ever committed.
    pub fn in_lane(&self, job: JobId) -> Result<(), Violation> {
        if self.laned.contains(&job) {
            return Ok(());
        }
        broken(Invariant::I4, format!("job {job} is in the lane without a claim"))
    }
}

#[cfg(test)]
mod tests {
    use streaming_hub_model::id::{EventId, SubscriptionId};

    use super::*;

    #[test]
    fn a_job_that_ends_processes_does_so_a_bounded_number_of_times() {
        let subscription = SubscriptionId::from_parts(1, [1; 10]);
        let job = JobId::derive("a", EventId::from_parts(1, [1; 10]), subscription, b"");
        let mut claims = Claims::default();
        assert!((0..KILLS_MAX).all(|_| claims.killed(job).is_ok()));
        assert!(claims.killed(job).is_err());
    }

    #[test]
    fn a_claim_counts_in_the_lane_by_one_and_nowhere_else() {
        let subscription = SubscriptionId::from_parts(1, [1; 10]);
        let job = JobId::derive("a", EventId::from_parts(1, [1; 10]), subscription, b"");
        let mut claims = Claims::default();
        assert!(claims.dead(job, Some("poison")).is_err() && claims.dead(job, None).is_ok());
        assert!(claims.in_lane(job).is_err());
        let outside = DurableClaim::outside(None);
        assert!(claims.take(job, Some(outside)).is_ok());
        assert!(claims.in_lane(job).is_err());
        let mut claim = outside;
        for _ in 0..RECLAIMS_MAX {
            claim = DurableClaim::in_lane(Some(claim));
            assert!(claims.take(job, Some(claim)).is_ok());
        }
        assert!(claims.in_lane(job).is_ok());
        assert!(claims.take(job, Some(claim)).is_err(), "not counted");
        assert!(claims.take(job, Some(DurableClaim::in_lane(Some(claim)))).is_err(), "too often");
        assert!(claims.dead(job, Some("poison")).is_ok());
        assert!(claims.take(job, None).is_ok());
        assert!(claims.take(job, Some(DurableClaim { reclaims: 1, ..outside })).is_err());
    }
}
