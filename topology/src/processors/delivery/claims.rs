//! Crash in an attempt (design 21): which jobs need a durable claim before they are attempted,
//! which wait for the lane, and what is written of it to `<app>-claims`.
//!
//! A job that arrives live, or whose last outcome this incarnation recorded, is attempted without a
//! record. Any other was restored and may have killed its predecessor: its claim commits first. One
//! that is found with an open claim is a suspect: it is attempted in the lane, which holds one
//! attempt at a time on an instance, and only there is it counted.
//!
//! The invariant: between two recorded outcomes of a job at most [`RECLAIMS_MAX`] attempts are made
//! in the lane; then it ends as `poison`. A recorded outcome ends its claim in the same
//! transaction. What the claims themselves mean is in `model::reclaim`.
//!
//! [`RECLAIMS_MAX`]: streaming_hub_model::reclaim::RECLAIMS_MAX

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use streaming_hub_model::id::{JobId, SubscriptionId};
use streaming_hub_model::reclaim::DurableClaim;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::State;
use streaming_hub_state::family::{Place, claim};

use super::places::{self, StoredJob};
use super::{Delivery, Order};
use crate::metrics::Metrics;
use crate::runtime::processor::{Error, Output, Record, Step};
use crate::topics::{RETRY_TIERS, Topic};

/// How many jobs whose outcome this incarnation recorded are remembered. The others are claimed as
/// if they were restored, which costs a record and nothing else.
const PROVEN_MAX: usize = 100_000;
/// How long a job waits after its attempt's own code failed, milliseconds.
const PANIC_MS: u64 = 5_000;

/// The lane of an instance: one attempt at a time.
#[derive(Debug, Default)]
pub struct Lane(AtomicBool);

/// Being in the lane; dropping it leaves the lane.
#[derive(Debug)]
pub struct InLane(Arc<Lane>);

impl Lane {
    /// Enters the lane, if it is empty.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> Option<InLane> {
        let was_taken = self.0.swap(true, Ordering::AcqRel);
        (!was_taken).then(|| InLane(Arc::clone(self)))
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }
}

impl Drop for InLane {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// A job that may have killed its process.
#[derive(Debug)]
struct Suspect {
    stored: StoredJob,
    not_before: UnixMillis,
}

/// A claim to be written, and what waits for its commit.
struct Change {
    job: JobId,
    claim: Option<DurableClaim>,
    /// The attempt that may start once the claim has committed.
    order: Option<Box<Order>>,
    /// Whether it is in the open transaction.
    written: bool,
}

/// The claims of one task.
pub(super) struct Claims {
    lane: Arc<Lane>,
    /// When the task was last asked what it wants done.
    now: UnixMillis,
    /// As committed.
    known: HashMap<JobId, DurableClaim>,
    suspects: HashMap<JobId, Suspect>,
    /// Jobs whose last outcome this incarnation recorded.
    proven: HashSet<JobId>,
    /// The first log offset of the deliveries that this incarnation read itself.
    live_from: Option<u64>,
    changes: Vec<Change>,
    /// Attempts whose claims have committed.
    granted: Vec<Order>,
    /// Claims that this incarnation made and that are still open.
    own: HashSet<JobId>,
    /// Jobs whose claims end in the open transaction.
    ended: Vec<JobId>,
}

impl Claims {
    pub(super) fn new(lane: Arc<Lane>) -> Self {
        Self {
            lane,
            now: UnixMillis(0),
            known: HashMap::new(),
            suspects: HashMap::new(),
            proven: HashSet::new(),
            live_from: None,
            changes: Vec::new(),
            granted: Vec::new(),
            own: HashSet::new(),
            ended: Vec::new(),
        }
    }

    /// The store is restored: who is found with an open claim is a suspect.
    pub(super) fn restored(&mut self, state: &State) -> Result<(), Error> {
        let mut found = Vec::new();
        let _ = state.scan(&claim::all(), &mut |key, value| {
            let job = claim::decode_key(key).ok().and_then(|job| JobId::from_bytes(job).ok());
            found.extend(job.zip(serde_json::from_slice::<DurableClaim>(value).ok()));
            ControlFlow::Continue(())
        })?;
        for (job, claim) in found {
            // A claim without a job is a stranger's.
            let Some(stored) = find(state, job)? else { continue };
            self.known.insert(job, claim);
            if claim.is_suspect() {
                self.suspects.insert(job, Suspect { stored, not_before: UnixMillis(0) });
            }
        }
        Ok(())
    }

    /// A record of the deliveries at this offset arrives live.
    pub(super) fn reads(&mut self, offset: u64) {
        self.live_from.get_or_insert(offset);
    }

    fn is_restored(&self, job: &StoredJob) -> bool {
        match job.is_first() {
            true => self.live_from.is_none_or(|from| job.order < from),
            false => !self.proven.contains(&job.id),
        }
    }

    /// Whether attempts of its subscription wait for their claims: it must not overtake them (I9).
    fn holds_before(&self, job: &StoredJob) -> bool {
        let mut held = self.changes.iter().filter_map(|change| change.order.as_ref());
        held.any(|order| order.attempt.subscription.id == job.facts.subscription)
    }

    /// Whether a job may be claimed now: a suspect only when the lane is empty, or to be ended.
    pub(super) fn admits(&self, job: JobId) -> bool {
        match self.suspects.get(&job) {
            None => true,
            Some(suspect) => {
                suspect.not_before <= self.now && (self.lane.is_empty() || self.is_poison(job))
            }
        }
    }

    /// Whether a job may have killed its process: it is attempted in the lane alone.
    pub(super) fn is_suspected(&self, job: JobId) -> bool {
        self.suspects.contains_key(&job)
    }

    /// Whether a suspect of this subscription waits: in strict order nothing passes it.
    pub(super) fn holds_up(&self, id: SubscriptionId) -> bool {
        let mut own = self.suspects.values().filter(|one| one.stored.facts.subscription == id);
        own.any(|suspect| !self.admits(suspect.stored.id))
    }

    /// Whether a job has been reclaimed as often as it may.
    pub(super) fn is_poison(&self, job: JobId) -> bool {
        self.suspects.contains_key(&job) && self.known.get(&job).is_some_and(|c| c.is_poison())
    }

    /// The jobs that might go into the lane now.
    fn waiting(&self) -> impl Iterator<Item = &StoredJob> {
        let all = self.suspects.values().map(|suspect| &suspect.stored);
        all.filter(|job| self.admits(job.id))
    }

    /// Takes an attempt that needs a durable claim first, or gives it back to be made at once.
    fn hold(&mut self, order: Box<Order>, job: &StoredJob) -> Option<Box<Order>> {
        let before = self.known.get(&job.id).copied();
        let claim = if order.slot.is_in_lane() {
            DurableClaim::in_lane(before)
        } else if self.is_restored(job) || self.holds_before(job) {
            DurableClaim::outside(before)
        } else {
            return Some(order);
        };
        let (job, claim) = (job.id, Some(claim));
        self.changes.push(Change { job, claim, order: Some(order), written: false });
        None
    }

    /// Attempts that may start: their claims have committed.
    pub(super) fn granted(&mut self, now: UnixMillis) -> impl Iterator<Item = Order> + '_ {
        self.granted.drain(..).map(move |mut order| {
            order.attempt.at = now;
            order
        })
    }

    /// How many attempts wait for their claim.
    pub(super) fn held(&self) -> usize {
        self.changes.iter().filter(|change| change.order.is_some()).count() + self.granted.len()
    }

    /// Whether there is something to be written.
    pub(super) fn has_changes(&self) -> bool {
        self.changes.iter().any(|change| !change.written)
    }

    /// Writes what is to be written, once in a transaction.
    pub(super) fn write_all(&mut self, step: &mut Step<'_>) {
        for change in self.changes.iter_mut().filter(|change| !change.written) {
            change.written = true;
            write(change.job, change.claim, step);
        }
    }

    /// An outcome of a job is recorded, or it ends: nothing is held against it any more.
    pub(super) fn end(&mut self, job: JobId, step: &mut Step<'_>) {
        self.suspects.remove(&job);
        self.proven.remove(&job);
        let waits = self.changes.iter().any(|change| change.job == job);
        self.changes.retain(|change| change.job != job);
        if waits || self.known.contains_key(&job) {
            self.ended.push(job);
            write(job, None, step);
        }
    }

    /// An outcome of a job was recorded after which it goes on.
    pub(super) fn proves(&mut self, job: JobId) {
        if self.proven.len() < PROVEN_MAX {
            self.proven.insert(job);
        }
    }

    /// The hub itself could not make an attempt: its claim says nothing. A suspect stays one.
    pub(super) fn not_attempted(&mut self, job: JobId) {
        let Some(known) = self.known.get(&job).filter(|claim| claim.open) else { return };
        let back = known.handed_back();
        let claim = match self.suspects.contains_key(&job) {
            true => Some(DurableClaim::outside(back)),
            false => back,
        };
        self.changes.push(Change { job, claim, order: None, written: false });
    }

    /// The attempt's own code failed: it counts, and is tried again in the lane after a while.
    fn panicked(&mut self, job: &StoredJob, now: UnixMillis) {
        let claim = Some(DurableClaim::panicked(self.known.get(&job.id).copied()));
        self.changes.push(Change { job: job.id, claim, order: None, written: false });
        let suspect = Suspect { stored: job.clone(), not_before: now.plus(PANIC_MS) };
        self.suspects.insert(job.id, suspect);
    }

    /// Whether an owner after this one must be told something.
    pub(super) fn has_own(&self) -> bool {
        !self.own.is_empty() || self.held() > 0
    }

    /// The task goes to another owner while this one lives: its open claims are taken back.
    pub(super) fn hand_back(&mut self, step: &mut Step<'_>) {
        // What is in the open transaction is not known yet, but commits with this.
        for change in self.changes.drain(..).filter(|change| change.order.is_some()) {
            if change.written {
                let back = change.claim.and_then(DurableClaim::handed_back);
                write(change.job, back, step);
            }
        }
        self.granted.clear();
        for job in self.own.drain() {
            let ended = self.ended.contains(&job);
            if let Some(claim) = self.known.get(&job).filter(|claim| claim.open && !ended) {
                write(job, claim.handed_back(), step);
            }
        }
    }

    pub(super) fn committed(&mut self, metrics: &Metrics) {
        for job in self.ended.drain(..) {
            self.known.remove(&job);
            self.own.remove(&job);
        }
        let (written, waiting) = std::mem::take(&mut self.changes)
            .into_iter()
            .partition::<Vec<_>, _>(|change| change.written);
        self.changes = waiting;
        for Change { job, claim, order, .. } in written {
            match claim {
                Some(claim) => {
                    metrics.claimed(if claim.lane { "lane" } else { "restored" });
                    self.known.insert(job, claim);
                }
                None => _ = self.known.remove(&job),
            }
            match order {
                Some(order) => {
                    self.own.insert(job);
                    self.granted.push(*order);
                }
                None => _ = self.own.remove(&job),
            }
        }
    }

    pub(super) fn aborted(&mut self) {
        self.ended.clear();
        self.changes.iter_mut().for_each(|change| change.written = false);
    }
}

/// A job, wherever it waits.
fn find(state: &State, job: JobId) -> Result<Option<StoredJob>, Error> {
    for place in (0..=RETRY_TIERS).filter_map(Place::from_number) {
        if let Some(stored) = places::get(state, place, job)? {
            return Ok(Some(stored));
        }
    }
    Ok(None)
}

/// Writes a claim, or its end, to its topic and to the store.
fn write(job: JobId, claim: Option<DurableClaim>, step: &mut Step<'_>) {
    // Numbers alone: it can always be written.
    let value = claim.map(|claim| serde_json::to_vec(&claim).unwrap_or_default());
    step.outputs.emit(Output {
        topic: Topic::Claims,
        partition: step.partition,
        key: Some(job.to_string().as_bytes()),
        headers: &[],
        value: value.as_deref(),
    });
    match value {
        Some(value) => step.state.put(claim::key(job.as_bytes()), value),
        None => step.state.delete(claim::key(job.as_bytes())),
    }
}

/// Takes a record of the topic into the store: a claim, or its end. A stranger's is passed over.
pub(super) fn restore(job: JobId, record: &Record<'_>, state: &mut State) {
    match record.value {
        Some(value) if serde_json::from_slice::<DurableClaim>(value).is_ok() => {
            state.put(claim::key(job.as_bytes()), value.to_vec());
        }
        Some(_) => {}
        None => state.delete(claim::key(job.as_bytes())),
    }
}

impl Delivery {
    /// Those that wait for the lane are looked at again once it is empty.
    pub(super) fn look_at_suspects(&mut self, now: UnixMillis) {
        self.claims.now = now;
        let unclaimed = |job: &&StoredJob| !self.claimed.contains_key(&job.id);
        let waiting = self.claims.waiting().filter(unclaimed);
        let waiting: Vec<_> = waiting
            .map(|job| (job.facts.subscription, job.is_first().then_some(job.order)))
            .collect();
        for (subscription, order) in waiting {
            if let Some(order) = order {
                self.lanes.unpass(subscription, order);
            }
            self.lanes.queue(subscription);
        }
    }

    /// Gives an attempt on to be made now, or keeps it until its claim has committed.
    pub(super) fn hold(&mut self, order: Box<Order>) -> Option<Order> {
        match self.claimed.get(&order.job) {
            Some(claimed) => self.claims.hold(order, &claimed.stored).map(|order| *order),
            None => Some(*order),
        }
    }

    /// The sink's own code failed in the middle of an attempt: no outcome, and no step used.
    pub(super) fn panicked(&mut self, job: &StoredJob, now: UnixMillis) {
        self.claimed.remove(&job.id);
        self.claims.panicked(job, now);
        // It is looked at when its moment has come; nothing behind it waits for that.
        self.lanes.queue(job.facts.subscription);
    }
}
