//! Attempt slots of an instance (contract section 4), shared by the delivery tasks of all its
//! partitions: so many attempts and so many payload bytes under way at once, divided fairly. No
//! tenant has more than a quarter of them, the last quarter goes only to tenants that have none,
//! and once half are taken the next one goes to the waiting tenant that has the fewest.
//!
//! The invariant: however many jobs of one tenant are due, and however long its destinations hang,
//! a tenant without an attempt under way gets a slot at once, as long as fewer than a quarter of
//! the slots' number of tenants came before it.
//!
//! A slot is free when its attempt returns, however that ends. Which tenants wait is told by the
//! tasks' [lanes](super::lanes); every answer here costs the logarithm of their number.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::claims::InLane;

/// The slots.
#[derive(Debug)]
pub struct Slots {
    attempts_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
    freed: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    attempts: usize,
    bytes: usize,
    tenants: HashMap<Arc<str>, Tenant>,
    /// Tenants with something to claim, those with the fewest attempts under way first.
    waiting: BTreeSet<(usize, Arc<str>)>,
}

#[derive(Debug, Default)]
struct Tenant {
    in_flight: usize,
    /// In how many tasks it waits.
    waits: usize,
}

/// Whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Any tenant's that has not its whole share: slots are plenty.
    Any,
    /// Of those that wait, only this one's.
    Only(Arc<str>),
    /// Nobody's: there is no slot that anyone who waits may have.
    Nobody,
}

impl Slots {
    /// So many attempts, and so many payload bytes, at once.
    #[must_use]
    pub fn new(attempts_max: usize, bytes_max: usize) -> Arc<Self> {
        let (state, freed) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { attempts_max, bytes_max, state, freed })
    }

    /// The most slots that one tenant has, and how many are kept for tenants that have none.
    fn quarter(&self) -> usize {
        self.attempts_max / 4
    }

    fn share(&self) -> usize {
        self.quarter().max(1)
    }

    /// Whether a tenant with so many attempts under way may have one more slot.
    fn may_have(&self, attempts: usize, in_flight: usize) -> bool {
        let shared = self.attempts_max - self.quarter();
        attempts < self.attempts_max
            && in_flight < self.share()
            && (in_flight == 0 || attempts < shared)
    }

    /// Whose turn it is.
    #[must_use]
    pub fn next(&self) -> Next {
        let state = self.state();
        if state.attempts * 2 < self.attempts_max {
            return Next::Any;
        }
        match state.waiting.first() {
            Some((in_flight, tenant)) if self.may_have(state.attempts, *in_flight) => {
                Next::Only(Arc::clone(tenant))
            }
            _ => Next::Nobody,
        }
    }

    /// Whether this tenant may have a slot.
    #[must_use]
    pub fn is_open_to(&self, tenant: &str) -> bool {
        let state = self.state();
        self.may_have(state.attempts, state.in_flight(tenant))
    }

    /// Takes a slot for a payload of this size, if this tenant may have one. A payload above the
    /// whole budget goes when nothing else is under way.
    #[must_use]
    pub fn try_take(self: &Arc<Self>, tenant: &str, bytes: usize) -> Option<Slot> {
        let mut state = self.state();
        let fits = state.attempts == 0 || state.bytes + bytes <= self.bytes_max;
        if !fits || !self.may_have(state.attempts, state.in_flight(tenant)) {
            return None;
        }
        state.attempts += 1;
        state.bytes += bytes;
        let tenant = state.change(tenant, |own| own.in_flight += 1);
        Some(Slot { slots: Arc::clone(self), tenant, bytes, lane: None })
    }

    /// Attempts under way.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.state().attempts
    }

    /// Grows with each slot that is freed.
    #[must_use]
    pub fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// In one more task, this tenant has something to claim.
    pub fn wait(&self, tenant: &str) {
        self.state().change(tenant, |own| own.waits += 1);
    }

    /// In one task less.
    pub fn unwait(&self, tenant: &str) {
        self.state().change(tenant, |own| own.waits = own.waits.saturating_sub(1));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn in_flight(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).map_or(0, |own| own.in_flight)
    }

    /// Changes what is known of a tenant and keeps its place among those that wait.
    fn change(&mut self, tenant: &str, change: impl FnOnce(&mut Tenant)) -> Arc<str> {
        let (name, mut own) =
            self.tenants.remove_entry(tenant).unwrap_or_else(|| (tenant.into(), Tenant::default()));
        if own.waits > 0 {
            self.waiting.remove(&(own.in_flight, Arc::clone(&name)));
        }
        change(&mut own);
        if own.waits > 0 {
            self.waiting.insert((own.in_flight, Arc::clone(&name)));
        }
        if own.waits > 0 || own.in_flight > 0 {
            self.tenants.insert(Arc::clone(&name), own);
        }
        name
    }
}

/// A taken slot; dropping it frees it.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    tenant: Arc<str>,
    bytes: usize,
    lane: Option<InLane>,
}

impl Slot {
    /// The attempt is made in the lane, and leaves it when the slot is freed.
    pub(super) fn in_lane(&mut self, lane: InLane) {
        self.lane = Some(lane);
    }

    /// Whether the attempt is made in the lane.
    #[must_use]
    pub fn is_in_lane(&self) -> bool {
        self.lane.is_some()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.attempts = state.attempts.saturating_sub(1);
        state.bytes = state.bytes.saturating_sub(self.bytes);
        state.change(&self.tenant, |own| own.in_flight = own.in_flight.saturating_sub(1));
        drop(state);
        self.slots.freed.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &Arc<Slots>, tenant: &str, count: usize) -> Vec<Slot> {
        (0..count).map_while(|_| slots.try_take(tenant, 1)).collect()
    }

    #[test]
    fn there_are_as_many_slots_as_configured_and_a_freed_one_is_taken_again() {
        let slots = Slots::new(2, 100);
        let first = slots.try_take("a", 10).unwrap();
        let _second = slots.try_take("b", 10).unwrap();
        assert!(slots.try_take("c", 10).is_none());
        assert_eq!((slots.in_use(), slots.freed()), (2, 0));
        drop(first);
        assert_eq!(slots.freed(), 1);
        assert!(slots.try_take("a", 10).is_some());
    }

    #[test]
    fn bytes_are_bounded_but_a_large_payload_goes_alone() {
        let slots = Slots::new(64, 100);
        let large = slots.try_take("a", 500).unwrap();
        assert!(slots.try_take("b", 1).is_none());
        drop(large);
        let _small = slots.try_take("a", 60).unwrap();
        assert!(slots.try_take("b", 60).is_none());
        assert!(slots.try_take("b", 40).is_some());
    }

    #[test]
    fn a_tenant_has_a_quarter_at_the_most() {
        let slots = Slots::new(256, usize::MAX);
        let held = take(&slots, "a", 256);
        assert_eq!(held.len(), 64);
        assert!(!slots.is_open_to("a") && slots.is_open_to("b"));
    }

    #[test]
    fn the_last_quarter_goes_only_to_tenants_that_have_none() {
        let slots = Slots::new(256, usize::MAX);
        let held: Vec<_> = ["a", "b", "c", "d"].map(|tenant| take(&slots, tenant, 256)).into();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 64, 1]);
        let others: Vec<_> = (0..99).filter_map(|n| slots.try_take(&format!("t{n}"), 1)).collect();
        assert_eq!((others.len(), slots.in_use()), (63, 256));
    }

    #[test]
    fn once_half_are_taken_the_tenant_with_the_fewest_is_next() {
        let slots = Slots::new(16, usize::MAX);
        for tenant in ["a", "b", "c"] {
            slots.wait(tenant);
        }
        let a = take(&slots, "a", 4);
        assert_eq!(slots.next(), Next::Any);
        let b = take(&slots, "b", 4);
        assert_eq!(slots.next(), Next::Only("c".into()));
        let c = take(&slots, "c", 4);
        assert_eq!(slots.next(), Next::Nobody, "all have their share");
        slots.wait("d");
        assert_eq!(slots.next(), Next::Only("d".into()));
        slots.unwait("d");
        drop((a, b));
        assert_eq!(slots.next(), Next::Any);
        drop(c);
        for tenant in ["a", "b", "c"] {
            slots.unwait(tenant);
        }
        let state = slots.state();
        assert!(state.tenants.is_empty() && state.waiting.is_empty());
    }
}
