//! Whose turn it is in one task: tenants with something to claim, as the instance's [slots](Slots)
//! say, then their subscriptions in turn. Those that wait for a moment have a timer, those behind a
//! closed gate are parked, those with nothing rest and cost nothing. Nothing here is a walk over
//! all of them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::time::UnixMillis;

use super::slots::{Next, Slots};

/// One subscription with jobs here.
#[derive(Debug)]
struct Lane {
    /// Its tenant; empty while it is not known, as of a subscription that is gone.
    tenant: Arc<str>,
    /// Attempts under way.
    in_flight: u16,
    /// First attempts below this log offset are claimed or done.
    passed: u64,
    /// Whether it is in the queue of turns.
    queued: bool,
    /// Its timer.
    wake_at: Option<UnixMillis>,
    /// Behind a closed gate: not to be woken by jobs or returning attempts.
    parked: bool,
}

/// The subscriptions of one tenant whose turn comes.
#[derive(Debug, Default)]
struct Turns {
    queue: VecDeque<SubscriptionId>,
    /// Whether the tenant is in the order of tenants, or among those that have their share.
    listed: bool,
}

/// What a look for the next turn finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// This subscription's.
    Of(SubscriptionId),
    /// Another task's, whose tenant has fewer attempts under way.
    Elsewhere,
    /// Nobody's until an attempt returns or something arrives.
    Nobody,
}

/// All subscriptions with jobs in one task.
#[derive(Debug)]
pub struct Lanes {
    slots: Arc<Slots>,
    lanes: HashMap<SubscriptionId, Lane>,
    tenants: HashMap<Arc<str>, Turns>,
    order: VecDeque<Arc<str>>,
    /// How many subscriptions stand in all the queues.
    queued: usize,
    /// Tenants that have their whole share of the slots.
    sated: Vec<Arc<str>>,
    /// How many slots had been freed when they were last asked.
    freed: u64,
    /// Whether the slots know who waits here: from the first turn on, since a task that does not
    /// run must hold up nobody.
    running: bool,
    timers: BTreeSet<(UnixMillis, SubscriptionId)>,
}

impl Drop for Lanes {
    fn drop(&mut self) {
        let waiting = self.tenants.iter().filter(|(_, turns)| !turns.queue.is_empty());
        for (tenant, _) in waiting.filter(|(tenant, _)| self.running && !tenant.is_empty()) {
            self.slots.unwait(tenant);
        }
    }
}

impl Lanes {
    /// Lanes that share these slots.
    #[must_use]
    pub fn new(slots: Arc<Slots>) -> Self {
        Self {
            slots,
            lanes: HashMap::new(),
            tenants: HashMap::new(),
            order: VecDeque::new(),
            queued: 0,
            sated: Vec::new(),
            freed: 0,
            running: false,
            timers: BTreeSet::new(),
        }
    }

    fn lane(&mut self, id: SubscriptionId) -> &mut Lane {
        self.lanes.entry(id).or_insert_with(|| Lane {
            tenant: "".into(),
            in_flight: 0,
            passed: 0,
            queued: false,
            wake_at: None,
            parked: false,
        })
    }

    /// Says whose subscription it is, before it is queued.
    pub fn belongs_to(&mut self, id: SubscriptionId, tenant: &str) {
        if self.lanes.get(&id).is_some_and(|lane| lane.queued || &*lane.tenant == tenant) {
            return;
        }
        let known = self.tenants.get_key_value(tenant).map(|(known, _)| Arc::clone(known));
        self.lane(id).tenant = known.unwrap_or_else(|| tenant.into());
    }

    /// Something may be claimable for this subscription.
    pub fn queue(&mut self, id: SubscriptionId) {
        self.enqueue(id, false);
    }

    /// It is next again.
    pub fn queue_first(&mut self, id: SubscriptionId) {
        self.enqueue(id, true);
    }

    fn enqueue(&mut self, id: SubscriptionId, first: bool) {
        let lane = self.lane(id);
        if lane.queued || lane.parked {
            return;
        }
        lane.queued = true;
        self.queued += 1;
        let lane = self.lane(id);
        let tenant = Arc::clone(&lane.tenant);
        if let Some(at) = lane.wake_at.take() {
            self.timers.remove(&(at, id));
        }
        let turns = self.tenants.entry(Arc::clone(&tenant)).or_default();
        let begins = turns.queue.is_empty();
        let listed = std::mem::replace(&mut turns.listed, true);
        match first {
            true => turns.queue.push_front(id),
            false => turns.queue.push_back(id),
        }
        if begins && self.running && !tenant.is_empty() {
            self.slots.wait(&tenant);
        }
        match (listed, first) {
            (true, _) => {}
            (false, true) => self.order.push_front(tenant),
            (false, false) => self.order.push_back(tenant),
        }
    }

    /// Takes the next subscription of a tenant out of its queue.
    fn pop(&mut self, tenant: &str) -> Option<SubscriptionId> {
        let turns = self.tenants.get_mut(tenant)?;
        let id = turns.queue.pop_front();
        let ends = id.is_some() && turns.queue.is_empty();
        if turns.queue.is_empty() && !turns.listed {
            self.tenants.remove(tenant);
        }
        if ends && self.running && !tenant.is_empty() {
            self.slots.unwait(tenant);
        }
        if let Some(id) = id {
            self.queued -= 1;
            self.lane(id).queued = false;
        }
        id
    }

    /// Whose turn it is. A turn that a parked subscription has is lost.
    pub fn next_turn(&mut self) -> Turn {
        self.run();
        loop {
            let found = match self.pop("") {
                // Unknown tenants' jobs end; that takes no slot.
                Some(id) => Some(id),
                None => match self.slots.next() {
                    Next::Any => match self.next_of_any() {
                        Some(found) => found,
                        None => return Turn::Nobody,
                    },
                    Next::Only(tenant) => match self.pop(&tenant) {
                        Some(id) => Some(id),
                        None if self.queued == 0 => return Turn::Nobody,
                        None => return Turn::Elsewhere,
                    },
                    Next::Nobody => return Turn::Nobody,
                },
            };
            match found {
                Some(id) if self.lanes.get(&id).is_some_and(|lane| lane.parked) => {}
                Some(id) => return Turn::Of(id),
                None => {}
            }
        }
    }

    /// While slots are plenty tenants take turns. `None` when no tenant is left to ask,
    /// `Some(None)` when this one has nothing or its whole share.
    fn next_of_any(&mut self) -> Option<Option<SubscriptionId>> {
        let tenant = self.order.pop_front()?;
        if !self.slots.is_open_to(&tenant) {
            self.sated.push(tenant);
            return Some(None);
        }
        if let Some(turns) = self.tenants.get_mut(&tenant) {
            turns.listed = turns.queue.len() > 1;
            if turns.listed {
                self.order.push_back(Arc::clone(&tenant));
            }
        }
        Some(self.pop(&tenant))
    }

    /// Tells the slots who waits here, once, and lists those again that may have a slot by now.
    fn run(&mut self) {
        if !std::mem::replace(&mut self.running, true) {
            for (tenant, turns) in &self.tenants {
                if !tenant.is_empty() && !turns.queue.is_empty() {
                    self.slots.wait(tenant);
                }
            }
        }
        let freed = self.slots.freed();
        if std::mem::replace(&mut self.freed, freed) != freed {
            self.order.extend(self.sated.drain(..));
        }
    }

    /// Nothing is claimable before `at`.
    pub fn queue_at(&mut self, id: SubscriptionId, at: UnixMillis) {
        if let Some(old) = self.lane(id).wake_at.replace(at) {
            self.timers.remove(&(old, id));
        }
        self.timers.insert((at, id));
    }

    /// Nothing is claimable before `at`, whatever else happens; a turn that it has is lost.
    pub fn hold_until(&mut self, id: SubscriptionId, at: UnixMillis) {
        self.lane(id).parked = true;
        self.queue_at(id, at);
    }

    /// Nothing is claimable until it is unparked; a turn that it has is lost.
    pub fn park(&mut self, id: SubscriptionId) {
        let lane = self.lane(id);
        lane.parked = true;
        if let Some(at) = lane.wake_at.take() {
            self.timers.remove(&(at, id));
        }
    }

    /// Everything that waits for a moment is looked at again.
    pub fn queue_timed(&mut self) {
        let timed: Vec<_> = self.timers.iter().map(|(_, id)| *id).collect();
        timed.into_iter().for_each(|id| self.queue(id));
    }

    /// Its gate may have opened: it is looked at again.
    pub fn unpark(&mut self, id: SubscriptionId) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && std::mem::replace(&mut lane.parked, false)
        {
            self.queue(id);
        }
    }

    /// All gates may have opened, or the clock was turned back: everything is looked at again.
    pub fn unpark_all(&mut self) {
        let mut waiting: Vec<_> = self.lanes.keys().copied().collect();
        waiting.sort_unstable();
        for id in waiting {
            self.lane(id).parked = false;
            self.queue(id);
        }
    }

    /// Nothing is claimable until something changes.
    pub fn rest(&mut self, id: SubscriptionId) {
        let rests = |lane: &Lane| lane.in_flight == 0 && lane.wake_at.is_none() && !lane.parked;
        if self.lanes.get(&id).is_some_and(|lane| rests(lane) && !lane.queued) {
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
            let lane = self.lane(id);
            lane.wake_at = None;
            lane.parked = false;
            self.queue(id);
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

    /// Whether it waits behind a closed gate.
    #[must_use]
    pub fn is_parked(&self, id: SubscriptionId) -> bool {
        self.lanes.get(&id).is_some_and(|lane| lane.parked)
    }

    /// Whether it has a turn, or a timer that gives it one by now.
    #[must_use]
    pub fn is_awake(&self, id: SubscriptionId, now: UnixMillis) -> bool {
        let awake = |lane: &Lane| lane.queued || lane.wake_at.is_some_and(|at| at <= now);
        self.lanes.get(&id).is_some_and(awake)
    }

    /// An attempt started.
    pub fn started(&mut self, id: SubscriptionId) {
        self.lane(id).in_flight += 1;
    }

    /// An attempt returned: another may start.
    pub fn returned(&mut self, id: SubscriptionId) {
        let lane = self.lane(id);
        lane.in_flight = lane.in_flight.saturating_sub(1);
        self.queue(id);
    }

    /// First attempts up to this log offset are claimed.
    pub fn pass(&mut self, id: SubscriptionId, order: u64) {
        let lane = self.lane(id);
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
mod tests;
