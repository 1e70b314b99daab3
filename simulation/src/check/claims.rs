//! Durable claims (design 21): a claim made in the lane counts, by one and not beyond the limit
//! (I4), no other counts, and nobody is in the lane without one.

use std::collections::{HashMap, HashSet};

use streaming_hub_model::id::JobId;
use streaming_hub_model::reclaim::{DurableClaim, RECLAIMS_MAX};

use super::{Invariant, Violation, broken};

/// The claims as committed.
#[derive(Debug, Default)]
pub struct Claims {
    known: HashMap<JobId, DurableClaim>,
    /// Jobs that had a claim in the lane at any time.
    laned: HashSet<JobId>,
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
        if claim.lane && claim.reclaims != raised || claim.reclaims > raised {
            let what = format!("job {job}: {claim:?} follows {before} reclaims");
            return broken(Invariant::I4, what);
        }
        if claim.reclaims > RECLAIMS_MAX {
            return broken(Invariant::I4, format!("job {job} is reclaimed again: {claim:?}"));
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
    fn a_claim_counts_in_the_lane_by_one_and_nowhere_else() {
        let subscription = SubscriptionId::from_parts(1, [1; 10]);
        let job = JobId::derive("a", EventId::from_parts(1, [1; 10]), subscription, b"");
        let mut claims = Claims::default();
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
        assert!(claims.take(job, None).is_ok());
        assert!(claims.take(job, Some(DurableClaim { reclaims: 1, ..outside })).is_err());
    }
}
