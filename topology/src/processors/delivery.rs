//! Delivery (contract section 4): takes jobs into its store as fast as they arrive, and claims them
//! from there: subscriptions in turn, in arrival order within one (I9), never more attempts of one
//! subscription than it allows. Attempts run outside of any transaction; their outcomes are
//! recorded in one (I3, I4).
//!
//! Not here: how an attempt is made (`dispatcher`), where a job's entries lie (`places`), what
//! follows from an outcome (`outcome`), which jobs end without one (`ends`), and what is answered
//! to questions from outside (`questions`).

pub mod attempt_log;
pub mod backlog;
pub mod claims;
pub mod dead_letters;
pub mod ends;
pub mod failures;
pub mod gates;
pub mod lanes;
pub mod outcome;
mod overdue;
pub mod places;
pub mod questions;
pub mod redelivery;
mod replay;
pub mod settings;
pub mod slots;

use std::collections::HashMap;
use std::sync::Arc;

use streaming_hub_model::attempt::{Attempt, Outcome};
use streaming_hub_model::dead_letter::EndReason;
use streaming_hub_model::delivery_calls::Answer;
use streaming_hub_model::event::Event;
use streaming_hub_model::id::{JobId, SubscriptionId, uuid_v7};
use streaming_hub_model::internal;
use streaming_hub_model::subscription::{MAX_IN_FLIGHT_MAX, Ordering, Subscription};
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::family::{due, ready};
use streaming_hub_state::{ExpiryRule, State};
use uuid::Uuid;

use self::attempt_log::AttemptLog;
use self::claims::Claims;
use self::gates::{Gates, Look};
use self::lanes::{Lanes, Turn};
use self::outcome::Counted;
use self::overdue::Watch;
use self::places::StoredJob;
use self::questions::Call;
pub use self::settings::{DeliverySettings, Retention};
use self::slots::Slot;
use crate::calls::Reply;
use crate::recent::Changes;
use crate::runtime::processor::{Acted, Error, Processor, Record, Step};
use crate::topics::Topic;

/// How long a job waits after the hub itself could not try it, milliseconds (contract section 4).
const HUB_FAULT_MS: u64 = 30_000;
/// After how long a task asks again whose tenants come after another task's, milliseconds.
const ELSEWHERE_MS: u64 = 1;

/// How often it is looked for what is too old, and at failure spans (contract section 4),
/// milliseconds.
const LOOK_MS: u64 = 600_000;

/// An attempt to be made.
pub struct Order {
    /// The job.
    pub job: JobId,
    /// What the sink is given.
    pub attempt: Attempt,
    /// Freed when the attempt returns.
    pub slot: Slot,
    /// For a first attempt: how long the job waited for it, milliseconds.
    pub waited_ms: Option<u64>,
}

/// An attempt that returned.
#[derive(Debug, Clone)]
pub struct Returned {
    /// The job.
    pub job: JobId,
    /// The attempt's id.
    pub delivery_id: Uuid,
    /// When it started.
    pub started: UnixMillis,
    /// The sink generation that it was made for.
    pub sink_generation: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// What reaches a delivery task from outside Kafka.
#[derive(Debug, Clone)]
pub enum Message {
    /// An attempt returned.
    Returned(Returned),
    /// A question.
    Call(Call),
}

/// A job with an attempt under way, or with an outcome that is not committed yet.
struct Claimed {
    stored: StoredJob,
    /// The attempt's id; `None` for a job that ends without one.
    attempt: Option<Uuid>,
    /// Whether its attempt has returned.
    returned: bool,
    /// Whether its end or its move is in the open transaction.
    recorded: bool,
}

/// The processor of one partition of subscriptions.
pub struct Delivery {
    settings: Arc<DeliverySettings>,
    lanes: Lanes,
    gates: Gates,
    watch: Watch,
    /// When it was last asked what it wants done: a clock that was turned back shows.
    acted: UnixMillis,
    turn: Acted,
    claimed: HashMap<JobId, Claimed>,
    /// Jobs that have left the deliveries although their record, at this log offset, is still to
    /// be read again: it must not bring them back.
    settled: HashMap<JobId, u64>,
    /// Jobs whose end or move is in the open transaction.
    recorded: Vec<JobId>,
    /// Jobs that are to end without an attempt.
    ending: Vec<(StoredJob, EndReason)>,
    /// The source's position that the open transaction commits.
    position: u64,
    claims: Claims,
    attempt_log: AttemptLog,
    /// Answers of the open transaction.
    answers: Vec<(Reply<Answer>, Answer)>,
    /// When it is looked next for what is too old or fails for too long, and whether that is now.
    look_at: UnixMillis,
    looks: bool,
    /// Whether the open transaction has looked.
    looked: bool,
    tally: Vec<Counted>,
}

/// What became of a try to claim.
enum Claim {
    Made(Box<Order>),
    /// The job ends without an attempt; the next one may be looked at.
    Ending,
    /// Nothing to claim before this moment.
    Later(UnixMillis),
    /// Nothing to claim until something changes.
    Nothing,
    /// A gate is closed: nothing to claim until it opens, or until this moment.
    Shed(UnixMillis),
    /// A job is there but no slot is free.
    NoSlot,
}

impl Delivery {
    /// The processor of a partition with these settings.
    #[must_use]
    pub fn new(settings: Arc<DeliverySettings>, partition: i32) -> Self {
        Self {
            claims: Claims::new(Arc::clone(&settings.lane)),
            lanes: Lanes::new(Arc::clone(&settings.slots)),
            gates: Gates::new(Arc::clone(&settings), partition),
            watch: Watch::new(Arc::clone(&settings), partition),
            acted: UnixMillis(0),
            turn: Acted::default(),
            settings,
            claimed: HashMap::new(),
            settled: HashMap::new(),
            recorded: Vec::new(),
            ending: Vec::new(),
            position: 0,
            attempt_log: AttemptLog::new(),
            answers: Vec::new(),
            look_at: UnixMillis(0),
            looks: false,
            looked: false,
            tally: Vec::new(),
        }
    }

    /// Claims the next job of one subscription: the one that is due longest, of its oldest first
    /// attempt and its oldest retry.
    fn claim(
        &mut self,
        id: SubscriptionId,
        now: UnixMillis,
        state: &State,
    ) -> Result<Claim, Error> {
        let subscription = self.settings.table.get(id);
        if self.lanes.in_flight(id) >= allowed(subscription.as_deref()) {
            return Ok(Claim::Nothing);
        }
        let strict = subscription.as_ref().is_some_and(|s| s.ordering == Ordering::Strict);
        let Some(job) = self.next_job(id, strict, state)? else { return Ok(Claim::Nothing) };
        let subscription = subscription.filter(|subscription| subscription.enabled);
        // Whoever takes no attempts has nothing to wait for: its jobs end before they are due.
        if subscription.is_some() && job.facts.due > now {
            return Ok(Claim::Later(job.facts.due));
        }
        if self.settings.bounds.is_expired(&job, now) {
            return Ok(self.end(job, EndReason::Expired, now));
        }
        match subscription {
            None => Ok(self.end_or_wait(job, now)),
            Some(subscription) if self.is_used_up(&job, &subscription) => {
                Ok(self.end(job, EndReason::Exhausted, now))
            }
            Some(_) if self.claims.is_poison(job.id) => Ok(self.end(job, EndReason::Poison, now)),
            Some(subscription) => match self.gates.look(&subscription, now) {
                Look::Shut => Ok(Claim::Shed(self.settings.bounds.expires(&job))),
                Look::Open => self.order(job, subscription, now),
            },
        }
    }

    fn order(
        &mut self,
        job: StoredJob,
        subscription: Arc<Subscription>,
        now: UnixMillis,
    ) -> Result<Claim, Error> {
        let Some(mut slot) = self.settings.slots.try_take(&job.tenant, job.payload.len()) else {
            return Ok(Claim::NoSlot);
        };
        if self.claims.is_suspected(job.id) {
            // Another task's job may have entered since this one was chosen.
            let Some(lane) = self.settings.lane.enter() else { return Ok(Claim::Nothing) };
            slot.in_lane(lane);
        }
        let event = Event::read(&job.headers(), job.payload.clone())?;
        let delivery_id = uuid_v7(now.0, self.settings.entropy.ten());
        let first = job.facts.attempts == 0;
        let order = Order {
            job: job.id,
            waited_ms: first.then(|| now.since(job.facts.due)),
            attempt: Attempt {
                job: job.id,
                delivery_id,
                subscription,
                event: Arc::new(event),
                at: now,
            },
            slot,
        };
        self.gates.started(job.id, &order.attempt.subscription, now);
        self.claim_job(&job, Some(delivery_id));
        Ok(Claim::Made(Box::new(order)))
    }

    /// Takes a job out of what can be claimed: for an attempt, or to end without one.
    fn claim_job(&mut self, job: &StoredJob, attempt: Option<Uuid>) {
        if attempt.is_some() {
            self.lanes.started(job.facts.subscription);
        }
        if job.is_first() {
            self.lanes.pass(job.facts.subscription, job.order);
        }
        let (stored, returned) = (job.clone(), attempt.is_none());
        self.claimed.insert(job.id, Claimed { stored, attempt, returned, recorded: false });
    }

    /// The unclaimed job of a subscription that is due first. In strict order a job that failed
    /// comes before all others, and while its outcome is not committed nothing does.
    fn next_job(
        &self,
        id: SubscriptionId,
        strict: bool,
        state: &State,
    ) -> Result<Option<StoredJob>, Error> {
        let unclaimed = |job: &JobId| self.is_unclaimed(*job);
        if strict && self.claims.holds_up(id) {
            return Ok(None);
        }
        if strict && let Some(failed) = places::first_due(state, id, |_| true)? {
            return Ok(Some(failed).filter(|failed| unclaimed(&failed.id)));
        }
        let fresh = places::first_ready(state, id, self.lanes.passed(id), unclaimed)?;
        let retry = places::first_due(state, id, unclaimed)?;
        Ok(match (fresh, retry) {
            (Some(fresh), Some(retry)) if retry.facts.due < fresh.facts.due => Some(retry),
            (Some(fresh), _) => Some(fresh),
            (None, retry) => retry,
        })
    }

    /// Whether a job can be claimed, or can end.
    fn is_unclaimed(&self, job: JobId) -> bool {
        !self.claimed.contains_key(&job) && self.claims.admits(job)
    }

    /// Whether a job has left the deliveries, in the open transaction or before, although its
    /// record at this offset is read only now.
    fn is_settled(&self, job: JobId, offset: u64) -> bool {
        let here = |claimed: &Claimed| claimed.stored.is_first() && claimed.stored.order == offset;
        self.settled.get(&job) == Some(&offset)
            || self.claimed.get(&job).is_some_and(|claimed| claimed.recorded && here(claimed))
    }

    /// Takes a job in; answers whose it is.
    fn put(
        &mut self,
        job: JobId,
        record: &Record<'_>,
        state: &mut State,
    ) -> Result<Option<SubscriptionId>, Error> {
        let order = offset(record);
        let Some(stored) = StoredJob::of_record(job, order, record)? else { return Ok(None) };
        places::remove(state, places::DELIVERIES, job)?;
        places::put(state, &stored)?;
        // Read again after an abort, it lies below what was passed.
        self.lanes.unpass(stored.facts.subscription, order);
        self.lanes.belongs_to(stored.facts.subscription, &stored.tenant);
        self.lanes.queue(stored.facts.subscription);
        Ok(Some(stored.facts.subscription))
    }

    /// What changed outside, and whose moment has come: gates that open, subscriptions and holds
    /// that changed, a clock that was turned back.
    fn look_around(&mut self, now: UnixMillis, state: &State) -> Result<(), Error> {
        // Moments that are due in an order of before are reckoned anew.
        let turned_back = std::mem::replace(&mut self.acted, now) > now;
        if turned_back {
            self.gates.turned_back(now);
        }
        if self.gates.holds_changed() || turned_back {
            self.lanes.unpark_all();
        }
        match self.gates.changed_subscriptions() {
            Changes::None => {}
            Changes::Some(ids) => ids.into_iter().for_each(|id| self.changed(id)),
            Changes::Any => {
                self.lanes.unpark_all();
                self.lanes.queue_timed();
            }
        }
        self.gates.hear(now);
        self.lanes.wake(now);
        self.open_gates(now, state)
    }
}

/// How many attempts of a subscription may be under way.
fn allowed(subscription: Option<&Subscription>) -> u16 {
    subscription.map_or(1, |s| match s.ordering {
        Ordering::Strict => 1,
        Ordering::Arrival => s.max_in_flight.clamp(1, MAX_IN_FLIGHT_MAX),
    })
}

impl Processor for Delivery {
    type Message = Message;
    type Action = Order;

    fn expiry(&self) -> Vec<ExpiryRule> {
        vec![self.attempt_log.expiry()]
    }

    fn restore(
        &mut self,
        topic: Topic,
        record: &Record<'_>,
        state: &mut State,
    ) -> Result<(), Error> {
        if topic == Topic::Attempts {
            return attempt_log::restore(record, state);
        }
        if topic == Topic::Failures {
            failures::restore(record, state);
            return Ok(());
        }
        let Some(job) = job_id(record) else { return Ok(()) };
        if topic == Topic::Claims {
            claims::restore(job, record, state);
            return Ok(());
        }
        if topic == Topic::DeadLetters {
            return dead_letters::restore(job, record, state);
        }
        let Some(place) = places::of_topic(topic) else { return Ok(()) };
        places::remove(state, place, job)?;
        if record.value.is_some()
            && let Some(stored) = StoredJob::of_record(job, offset(record), record)?
        {
            places::put(state, &stored.at(place))?;
        }
        Ok(())
    }

    fn restored(&mut self, state: &State) -> Result<(), Error> {
        self.claims.restored(state)?;
        for next in [ready::next_subscription, due::next_subscription] {
            let mut after = None;
            while let Some(found) = next(state, after.as_ref())? {
                after = Some(found);
                let Ok(id) = SubscriptionId::from_bytes(found) else { continue };
                if let Some(subscription) = self.settings.table.get(id) {
                    self.lanes.belongs_to(id, subscription.tenant.as_str());
                }
                self.lanes.queue(id);
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>, step: &mut Step<'_>) -> Result<(), Error> {
        self.claims.reads(offset(record));
        let Some(job) = job_id(record) else {
            self.tally.push(Counted::Unreadable);
            return Ok(());
        };
        if record.value.is_none() {
            // Nearly always our own tombstone, of a job that is gone already.
            places::remove(step.state, places::DELIVERIES, job)?;
            return Ok(());
        }
        if self.is_settled(job, offset(record)) {
            return Ok(());
        }
        match self.put(job, record, step.state)? {
            Some(subscription) => self.keep_within_bounds(subscription, step),
            None => {
                self.tally.push(Counted::Unreadable);
                Ok(())
            }
        }
    }

    fn message(&mut self, message: &Message, step: &mut Step<'_>) -> Result<(), Error> {
        match message {
            Message::Returned(returned) => self.take_outcome(returned, step),
            Message::Call(call) => self.answer(call, step),
        }
    }

    fn wants_step(&self) -> bool {
        self.has_to_end() || self.looks || self.claims.has_changes()
    }

    /// Writes claims; ends the jobs that are not attempted any more, and what is too old.
    fn step(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        if self.looks {
            self.looks = !self.age_letters(step)?;
            self.look_at_spans(step)?;
            self.looked = true;
        }
        self.claims.write_all(step);
        self.end_all(step)
    }

    fn before_commit(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        self.position = u64::try_from(step.position).unwrap_or(0);
        self.gates.publish(step);
        Ok(())
    }

    fn act(
        &mut self,
        now: UnixMillis,
        state: &State,
        actions: &mut Vec<Order>,
    ) -> Result<Option<UnixMillis>, Error> {
        self.look_around(now, state)?;
        if self.look_at <= now {
            self.look_at = now.plus(LOOK_MS);
            self.looks = true;
            self.attempt_log.keep_from(now, self.settings.retention.attempts_ms);
        }
        actions.extend(self.claims.granted(now));
        self.look_at_suspects(now);
        let mut again = None;
        self.turn = Acted::default();
        loop {
            let id = match self.lanes.next_turn() {
                Turn::Of(id) => id,
                Turn::Nobody => break,
                Turn::Elsewhere => {
                    self.turn.yielded = true;
                    again = Some(now.plus(ELSEWHERE_MS));
                    break;
                }
            };
            match self.claim(id, now, state)? {
                Claim::Made(order) => {
                    self.turn.took = true;
                    actions.extend(self.hold(order));
                    self.lanes.queue(id);
                }
                Claim::Ending => self.lanes.queue(id),
                Claim::Later(at) => self.lanes.queue_at(id, at),
                Claim::Nothing => self.lanes.rest(id),
                Claim::Shed(until) => self.lanes.hold_until(id, until),
                Claim::NoSlot => {
                    // Its turn stays; a returning attempt asks again.
                    self.lanes.queue_first(id);
                    break;
                }
            }
        }
        // What ends makes room for more to end.
        let waits = !self.ending.is_empty() || self.claims.has_changes();
        let again = if waits { Some(now) } else { again };
        self.watch(now, state)?;
        let next = [again, self.lanes.next_wake(), self.gates.next_opening()];
        Ok(next.into_iter().flatten().min())
    }

    fn acted(&self) -> Acted {
        self.turn
    }

    fn committed(&mut self) {
        for job in self.recorded.drain(..) {
            let Some(Claimed { stored, .. }) = self.claimed.remove(&job) else { continue };
            if stored.is_first() && stored.order >= self.position {
                self.settled.insert(job, stored.order);
            }
            if !stored.is_first() {
                // Made again beyond the horizon meanwhile, it may lie below what was passed.
                self.lanes.unpass(stored.facts.subscription, 0);
            }
            // A job that moved to a tier can be claimed from now on.
            self.lanes.belongs_to(stored.facts.subscription, &stored.tenant);
            self.lanes.queue(stored.facts.subscription);
        }
        self.settled.retain(|_, offset| *offset >= self.position);
        self.ending.retain(|(job, _)| self.claimed.contains_key(&job.id));
        self.claims.committed(&self.settings.metrics);
        self.looked = false;
        for (reply, answer) in self.answers.drain(..) {
            reply.send(answer);
        }
        self.gates.published();
        self.watch.committed();
        for counted in self.tally.drain(..) {
            counted.tell(&self.settings.metrics);
        }
    }

    fn aborted(&mut self) {
        // Claims stay: their attempts are under way or their outcomes come again.
        for job in self.recorded.drain(..) {
            let Some(claimed) = self.claimed.get_mut(&job) else { continue };
            claimed.recorded = false;
            // Ended for want of room, which shows anew when the records come again.
            if claimed.attempt.is_none() && !self.ending.iter().any(|(one, _)| one.id == job) {
                let (id, order) = (claimed.stored.facts.subscription, claimed.stored.order);
                self.claimed.remove(&job);
                self.lanes.unpass(id, order);
                self.lanes.queue(id);
            }
        }
        self.gates.unpublished();
        // Questions come again.
        self.answers.clear();
        self.claims.aborted();
        self.attempt_log.aborted();
        self.looks |= std::mem::take(&mut self.looked);
        self.tally.clear();
    }

    fn has_to_hand_back(&self) -> bool {
        self.claims.has_own()
    }

    fn hand_back(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        self.claims.hand_back(step);
        Ok(())
    }

    fn under_way(&self) -> usize {
        let claimed = self.claimed.values().filter(|claimed| !claimed.returned).count();
        // What waits for its claim has not begun.
        claimed.saturating_sub(self.claims.held())
    }
}

/// The job that a record is about.
fn job_id(record: &Record<'_>) -> Option<JobId> {
    JobId::parse(std::str::from_utf8(record.key?).ok()?).ok()
}

/// Where a record lies in its log.
fn offset(record: &Record<'_>) -> u64 {
    u64::try_from(record.offset).unwrap_or(0)
}

/// Whether an error of reading an internal record must stop the task; any other record is a
/// stranger's and is skipped.
fn must_stop(error: &internal::Error) -> bool {
    matches!(error, internal::Error::Newer { .. })
}

#[cfg(test)]
mod tests;
