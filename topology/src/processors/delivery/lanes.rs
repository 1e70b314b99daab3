//! Whose turn it is: subscriptions with something to claim take turns, those that wait for a
//! moment have a timer, those with nothing rest and cost nothing.

use std::collections::{BTreeSet, HashMap, VecDeque};

use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::time::UnixMillis;

/// One subscription with jobs here.
#[derive(Debug, Default)]
struct Lane {
    /// Attempts under way.
    in_flight: u16,
    /// First attempts below this log offset are claimed or done.
    passed: u64,
    /// Whether it is in the queue of turns.
    queued: bool,
    /// Its timer.
    wake_at: Option<UnixMillis>,
    /// Not to be woken before this moment (a fault of the hub's own).
    not_before: Option<UnixMillis>,
}

/// All subscriptions with jobs in one task.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: HashMap<SubscriptionId, Lane>,
    turns: VecDeque<SubscriptionId>,
    timers: BTreeSet<(UnixMillis, SubscriptionId)>,
}

impl Lanes {
    /// Something may be claimable for this subscription.
    pub fn queue(&mut self, id: SubscriptionId) {
        let lane = self.lanes.entry(id).or_default();
        if lane.queued {
            return;
        }
        if let Some(at) = lane.not_before {
            return self.queue_at(id, at);
        }
        lane.queued = true;
        if let Some(at) = lane.wake_at.take() {
            self.timers.remove(&(at, id));
        }
        self.turns.push_back(id);
    }

    /// As [`Self::queue`], by raw id.
    pub fn queue_bytes(&mut self, id: [u8; 16]) {
        if let Ok(id) = SubscriptionId::from_bytes(id) {
            self.queue(id);
        }
    }

    /// It is next again.
    pub fn queue_first(&mut self, id: SubscriptionId) {
        self.lanes.entry(id).or_default().queued = true;
        self.turns.push_front(id);
    }

    /// Nothing is claimable before `at`.
    pub fn queue_at(&mut self, id: SubscriptionId, at: UnixMillis) {
        let lane = self.lanes.entry(id).or_default();
        if let Some(old) = lane.wake_at.replace(at) {
            self.timers.remove(&(old, id));
        }
        self.timers.insert((at, id));
    }

    /// Nothing is claimable before `at`, whatever else happens; a turn that it has is lost.
    pub fn hold_until(&mut self, id: SubscriptionId, at: UnixMillis) {
        self.lanes.entry(id).or_default().not_before = Some(at);
        self.queue_at(id, at);
    }

    /// Nothing is claimable until something changes.
    pub fn rest(&mut self, id: SubscriptionId) {
        if self.lanes.get(&id).is_some_and(|lane| lane.in_flight == 0 && lane.wake_at.is_none()) {
            self.lanes.remove(&id);
        }
    }

    /// Queues those whose moment has come.
    pub fn wake(&mut self, now: UnixMillis) {
        while let Some((at, id)) = self.timers.first().copied() {
            if at > now {
                return;
            }
            self.timers.pop_first();
            let lane = self.lanes.entry(id).or_default();
            lane.wake_at = None;
            lane.not_before = None;
            self.queue(id);
        }
    }

    /// Whose turn it is.
    pub fn next_turn(&mut self) -> Option<SubscriptionId> {
        loop {
            let id = self.turns.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&id) else { return Some(id) };
            lane.queued = false;
            if lane.not_before.is_none() {
                return Some(id);
            }
        }
    }

    /// The next timer.
    #[must_use]
    pub fn next_wake(&self) -> Option<UnixMillis> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Attempts of this subscription under way.
    #[must_use]
    pub fn in_flight(&self, id: SubscriptionId) -> u16 {
        self.lanes.get(&id).map_or(0, |lane| lane.in_flight)
    }

    /// An attempt started.
    pub fn started(&mut self, id: SubscriptionId) {
        self.lanes.entry(id).or_default().in_flight += 1;
    }

    /// An attempt returned: another may start.
    pub fn returned(&mut self, id: SubscriptionId) {
        let lane = self.lanes.entry(id).or_default();
        lane.in_flight = lane.in_flight.saturating_sub(1);
        self.queue(id);
    }

    /// First attempts up to this log offset are claimed.
    pub fn pass(&mut self, id: SubscriptionId, order: u64) {
        let lane = self.lanes.entry(id).or_default();
        lane.passed = lane.passed.max(order + 1);
    }

    /// The first attempt at this log offset is to be claimed (again).
    pub fn unpass(&mut self, id: SubscriptionId, order: u64) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.passed = lane.passed.min(order);
        }
    }

    /// From where first attempts are looked for.
    #[must_use]
    pub fn passed(&self, id: SubscriptionId) -> u64 {
        self.lanes.get(&id).map_or(0, |lane| lane.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> SubscriptionId {
        SubscriptionId::from_parts(1, [n; 10])
    }

    #[test]
    fn subscriptions_take_turns_and_each_stands_in_the_queue_once() {
        let mut lanes = Lanes::default();
        for n in [1, 2, 1, 3, 2] {
            lanes.queue(id(n));
        }
        assert_eq!([lanes.next_turn(), lanes.next_turn()], [Some(id(1)), Some(id(2))]);
        lanes.queue(id(1));
        assert_eq!(
            [lanes.next_turn(), lanes.next_turn(), lanes.next_turn()],
            [Some(id(3)), Some(id(1)), None]
        );
    }

    #[test]
    fn a_timer_wakes_at_its_moment_and_only_the_last_one_set_counts() {
        let mut lanes = Lanes::default();
        lanes.queue_at(id(1), UnixMillis(50));
        lanes.queue_at(id(1), UnixMillis(80));
        assert_eq!(lanes.next_wake(), Some(UnixMillis(80)));
        lanes.wake(UnixMillis(79));
        assert_eq!(lanes.next_turn(), None);
        lanes.wake(UnixMillis(80));
        assert_eq!(lanes.next_turn(), Some(id(1)));
        assert_eq!(lanes.next_wake(), None);
    }

    #[test]
    fn a_held_subscription_is_not_woken_by_new_jobs() {
        let mut lanes = Lanes::default();
        lanes.hold_until(id(1), UnixMillis(100));
        lanes.queue(id(1));
        assert_eq!(lanes.next_turn(), None);
        lanes.wake(UnixMillis(100));
        assert_eq!(lanes.next_turn(), Some(id(1)));
    }

    #[test]
    fn a_subscription_that_is_held_loses_the_turn_that_it_has() {
        let mut lanes = Lanes::default();
        lanes.queue(id(1));
        lanes.queue(id(2));
        lanes.hold_until(id(1), UnixMillis(100));
        assert_eq!([lanes.next_turn(), lanes.next_turn()], [Some(id(2)), None]);
        lanes.wake(UnixMillis(100));
        assert_eq!([lanes.next_turn(), lanes.next_turn()], [Some(id(1)), None]);
    }

    #[test]
    fn a_resting_subscription_leaves_nothing_in_memory() {
        let mut lanes = Lanes::default();
        lanes.queue(id(1));
        lanes.next_turn();
        lanes.rest(id(1));
        assert!(lanes.lanes.is_empty() && lanes.turns.is_empty() && lanes.timers.is_empty());
    }
}
