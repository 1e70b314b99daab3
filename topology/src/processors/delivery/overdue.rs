//! No due job is ever forgotten (I5): now and then a task walks over the subscriptions that have
//! jobs in its store, a few at a time, and measures how long the oldest waits that neither a closed
//! gate nor its subscription's limit explains. One that nothing would have woken is woken, and
//! counted: that is a defect elsewhere. Behind a closed gate, where only the job that is due first
//! is looked at for its age, it passes the other retries as well and ends those that are too old.
//! Beside it, what waits is told to the metrics. It asks for no turn of its own: a stream thread
//! comes by ten times a second.

use std::collections::HashMap;
use std::sync::Arc;

use streaming_hub_model::dead_letter::EndReason;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::subscription::Ordering;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::family::{Place, backlog, due, ready};
use streaming_hub_state::{Key, State};

use super::{Delivery, DeliverySettings, allowed, places};
use crate::runtime::processor::Error;
use crate::topics::RETRY_TIERS;

/// How often a walk begins, milliseconds.
const WALK_MS: u64 = 60_000;
/// Subscriptions that it passes in one turn.
const PER_TURN: usize = 32;
/// Retries of one subscription behind a closed gate that a walk passes.
const AGED_PER_WALK: usize = 64;
/// How often the counts are told, milliseconds.
const TELL_MS: u64 = 1_000;

/// Where a task's walk is, and what it has told.
pub(super) struct Watch {
    settings: Arc<DeliverySettings>,
    partition: i32,
    /// When it begins or goes on; nothing while there are no jobs.
    next: Option<UnixMillis>,
    /// The last subscription that it passed.
    passed: Option<[u8; 16]>,
    oldest_ms: u64,
    /// Of subscriptions behind a closed gate with many retries, the last one that it passed.
    aged: HashMap<SubscriptionId, Key>,
    /// Whether counts may have changed since they were told, and when that was.
    changed: bool,
    told_at: UnixMillis,
    told: Vec<(i64, i64)>,
}

/// All places, in order.
fn all_places() -> impl Iterator<Item = Place> {
    std::iter::once(Place::DELIVERIES).chain((1..=RETRY_TIERS).filter_map(Place::tier))
}

impl Drop for Watch {
    fn drop(&mut self) {
        let waiting = &self.settings.metrics.waiting;
        waiting.overdue(self.partition, None);
        for (place, (jobs, bytes)) in all_places().zip(&self.told) {
            waiting.jobs(place, -jobs, -bytes);
        }
    }
}

impl Watch {
    pub(super) fn new(settings: Arc<DeliverySettings>, partition: i32) -> Self {
        Self {
            settings,
            partition,
            next: None,
            passed: None,
            oldest_ms: 0,
            aged: HashMap::new(),
            changed: true,
            told_at: UnixMillis(0),
            told: vec![(0, 0); usize::from(RETRY_TIERS) + 1],
        }
    }

    /// A transaction has committed: what waits may have changed.
    pub(super) fn committed(&mut self) {
        self.changed = true;
    }

    /// Tells the metrics what waits.
    fn tell(&mut self, now: UnixMillis, state: &State) -> Result<(), Error> {
        if !self.changed || (now.since(self.told_at) < TELL_MS && now >= self.told_at) {
            return Ok(());
        }
        (self.changed, self.told_at) = (false, now);
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for (place, told) in all_places().zip(&mut self.told) {
            let (jobs, bytes) = backlog::in_place(state, place)?;
            let (jobs, bytes) = (number(jobs), number(bytes));
            if *told != (jobs, bytes) {
                self.settings.metrics.waiting.jobs(place, jobs - told.0, bytes - told.1);
                *told = (jobs, bytes);
            }
        }
        let any = self.told.iter().any(|(jobs, _)| *jobs > 0);
        if any && self.next.is_none() {
            self.next = Some(now.plus(WALK_MS));
        }
        Ok(())
    }
}

impl Delivery {
    /// Tells what waits, and walks on if it is time.
    pub(super) fn watch(&mut self, now: UnixMillis, state: &State) -> Result<(), Error> {
        self.watch.tell(now, state)?;
        let Some(next) = self.watch.next else { return Ok(()) };
        // After the clock was turned back it would be a long time.
        if now < next && next.since(now) <= WALK_MS {
            return Ok(());
        }
        for _ in 0..PER_TURN {
            let after = self.watch.passed.as_ref();
            let ready = ready::next_subscription(state, after)?;
            let due = due::next_subscription(state, after)?;
            let Some(found) = ready.into_iter().chain(due).min() else {
                let oldest_ms = std::mem::take(&mut self.watch.oldest_ms);
                self.settings.metrics.waiting.overdue(self.watch.partition, Some(oldest_ms));
                let began = self.watch.passed.take().is_some();
                self.watch.next = began.then(|| now.plus(WALK_MS));
                return Ok(());
            };
            self.watch.passed = Some(found);
            if let Ok(id) = SubscriptionId::from_bytes(found) {
                self.look_for_overdue(id, now, state)?;
            }
        }
        self.watch.next = Some(now);
        Ok(())
    }

    fn look_for_overdue(
        &mut self,
        id: SubscriptionId,
        now: UnixMillis,
        state: &State,
    ) -> Result<(), Error> {
        if self.lanes.is_parked(id) {
            return self.look_for_aged(id, now, state);
        }
        self.watch.aged.remove(&id);
        let subscription = self.settings.table.get(id);
        if self.lanes.in_flight(id) >= allowed(subscription.as_deref()) {
            return Ok(());
        }
        let strict = subscription.as_ref().is_some_and(|s| s.ordering == Ordering::Strict);
        let Some(job) = self.next_job(id, strict, state)? else { return Ok(()) };
        if job.facts.due > now {
            return Ok(());
        }
        self.watch.oldest_ms = self.watch.oldest_ms.max(now.since(job.facts.due));
        if !self.lanes.is_awake(id, now) {
            self.settings.metrics.waiting.found();
            self.lanes.belongs_to(id, &job.tenant);
            self.lanes.queue(id);
        }
        Ok(())
    }

    /// A retry may be older than the one that is due before it.
    fn look_for_aged(
        &mut self,
        id: SubscriptionId,
        now: UnixMillis,
        state: &State,
    ) -> Result<(), Error> {
        let after = self.watch.aged.remove(&id);
        let (jobs, last) = places::some_due(state, id, (after.as_ref(), AGED_PER_WALK))?;
        if let Some(last) = last {
            self.watch.aged.insert(id, last);
        }
        for job in jobs {
            if self.settings.bounds.is_expired(&job, now) && self.is_unclaimed(job.id) {
                // One for which there is no room now is met again.
                self.end(job, EndReason::Expired, now);
            }
        }
        Ok(())
    }
}
