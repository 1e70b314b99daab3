//! Durable claims (design 21): what is written down before a job that was restored is attempted,
//! since it may have killed whoever attempted it before, and what follows from finding one.
//!
//! A claim that is found open was never answered: its process died, or its attempt's code did. Who
//! is to blame is not known while many attempts were under way, so such a job is attempted again
//! alone, in a lane, and only a claim that was made there counts against it. So a job that kills
//! its process is found out, and the jobs beside it are not blamed.

use serde::{Deserialize, Serialize};

/// How often a job is reclaimed; the next time it is dead-lettered as `poison`.
pub const RECLAIMS_MAX: u32 = 5;

/// A claim as it stands in `<app>-claims` (JSON).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableClaim {
    /// Whether an attempt was made, or is to be, of which no outcome is recorded.
    pub open: bool,
    /// Whether it was made in the lane.
    pub lane: bool,
    /// How many claims were made in the lane, or panicked, without an outcome.
    pub reclaims: u32,
}

impl DurableClaim {
    /// Before an attempt among others.
    #[must_use]
    pub fn outside(before: Option<Self>) -> Self {
        Self { open: true, lane: false, reclaims: reclaims(before) }
    }

    /// Before an attempt in the lane.
    #[must_use]
    pub fn in_lane(before: Option<Self>) -> Self {
        Self { open: true, lane: true, reclaims: reclaims(before).saturating_add(1) }
    }

    /// After an attempt whose own code failed: that one is to blame, wherever it was made.
    #[must_use]
    pub fn panicked(before: Option<Self>) -> Self {
        let counted = before.is_some_and(|claim| claim.open && claim.lane);
        let raised = reclaims(before).saturating_add(u32::from(!counted));
        Self { open: true, lane: false, reclaims: raised }
    }

    /// Handed back without an outcome by an owner that lives: what the lane counted is taken back.
    /// `None` when nothing is left to remember.
    #[must_use]
    pub fn handed_back(self) -> Option<Self> {
        let reclaims = self.reclaims.saturating_sub(u32::from(self.open && self.lane));
        (reclaims > 0).then_some(Self { open: false, lane: false, reclaims })
    }

    /// Whether a job found with it goes into the lane.
    #[must_use]
    pub fn is_suspect(self) -> bool {
        self.open
    }

    /// Whether a job found with it is not attempted any more.
    #[must_use]
    pub fn is_poison(self) -> bool {
        self.open && self.reclaims >= RECLAIMS_MAX
    }
}

fn reclaims(claim: Option<DurableClaim>) -> u32 {
    claim.map_or(0, |claim| claim.reclaims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_claim_made_in_the_lane_counts_and_the_sixth_is_never_made() {
        let outside = DurableClaim::outside(None);
        assert!(outside.is_suspect() && !outside.is_poison() && outside.reclaims == 0);
        assert_eq!(DurableClaim::outside(Some(outside)).reclaims, 0, "however often");
        let mut claim = outside;
        for number in 1..=RECLAIMS_MAX {
            assert!(!claim.is_poison());
            claim = DurableClaim::in_lane(Some(claim));
            assert_eq!(claim.reclaims, number);
        }
        assert!(claim.is_poison());
    }

    #[test]
    fn a_panic_counts_once_wherever_it_happened() {
        let live = DurableClaim::panicked(None);
        assert_eq!((live.reclaims, live.is_suspect()), (1, true));
        let in_lane = DurableClaim::in_lane(Some(live));
        assert_eq!((in_lane.reclaims, DurableClaim::panicked(Some(in_lane)).reclaims), (2, 2));
        let outside = DurableClaim::outside(Some(live));
        assert_eq!(DurableClaim::panicked(Some(outside)).reclaims, 2);
    }

    #[test]
    fn what_is_handed_back_is_no_suspect_and_keeps_what_was_counted_before() {
        assert_eq!(DurableClaim::outside(None).handed_back(), None);
        assert_eq!(DurableClaim::in_lane(None).handed_back(), None);
        let twice = DurableClaim::in_lane(Some(DurableClaim::in_lane(None)));
        let back = twice.handed_back().unwrap();
        assert_eq!((back.reclaims, back.is_suspect(), back.is_poison()), (1, false, false));
        assert_eq!(back.handed_back(), Some(back), "only once");
    }
}
