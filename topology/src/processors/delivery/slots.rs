//! Attempt slots of an instance (contract section 4): so many attempts and so many payload bytes
//! under way at once. A slot is free when its attempt returns, however that ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::claims::InLane;

/// The slots.
#[derive(Debug)]
pub struct Slots {
    attempts_max: usize,
    bytes_max: usize,
    attempts: AtomicUsize,
    bytes: AtomicUsize,
}

impl Slots {
    /// So many attempts, and so many payload bytes, at once.
    #[must_use]
    pub fn new(attempts_max: usize, bytes_max: usize) -> Arc<Self> {
        let (attempts, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { attempts_max, bytes_max, attempts, bytes })
    }

    /// Takes a slot for a payload of this size, if there is one. A payload above the whole budget
    /// goes when nothing else is under way.
    #[must_use]
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Slot> {
        let slot = Slot { slots: Arc::clone(self), bytes, lane: None };
        let attempts = self.attempts.fetch_add(1, Ordering::AcqRel);
        let taken = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let fits = attempts == 0 || taken + bytes <= self.bytes_max;
        // Dropping the slot gives back what was just taken.
        (attempts < self.attempts_max && fits).then_some(slot)
    }

    /// Attempts under way.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.attempts.load(Ordering::Acquire)
    }
}

/// A taken slot; dropping it frees it.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    bytes: usize,
    lane: Option<InLane>,
}

impl Slot {
    /// The attempt is made in the lane, and leaves it when the slot is freed.
    pub(super) fn in_lane(&mut self, lane: Option<InLane>) {
        self.lane = lane;
    }

    /// Whether the attempt is made in the lane.
    #[must_use]
    pub fn is_in_lane(&self) -> bool {
        self.lane.is_some()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.attempts.fetch_sub(1, Ordering::AcqRel);
        self.slots.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_slots_as_configured_and_a_freed_one_is_taken_again() {
        let slots = Slots::new(2, 100);
        let first = slots.try_take(10).unwrap();
        let _second = slots.try_take(10).unwrap();
        assert!(slots.try_take(10).is_none());
        assert_eq!(slots.in_use(), 2);
        drop(first);
        assert!(slots.try_take(10).is_some());
    }

    #[test]
    fn bytes_are_bounded_but_a_large_payload_goes_alone() {
        let slots = Slots::new(9, 100);
        let large = slots.try_take(500).unwrap();
        assert!(slots.try_take(1).is_none());
        drop(large);
        let _small = slots.try_take(60).unwrap();
        assert!(slots.try_take(60).is_none());
        assert!(slots.try_take(40).is_some());
    }
}
