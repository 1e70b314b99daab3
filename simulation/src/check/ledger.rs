//! Takes committed transactions and calls of destinations in their order, and answers at once what
//! one broke: places of jobs (I3), recorded attempts (I4), tenants (I8), order of first attempts
//! (I9), positions that go back (I7), the table that a match saw (I2), attempts under way.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use streaming_hub_model::id::{JobId, SubscriptionId};
use streaming_hub_model::retry::RetrySchedule;
use streaming_hub_model::routing;
use uuid::Uuid;

use super::claims::Claims;
use super::gates::{Gates, Request};
use super::{Invariant, Violation, broken};
use crate::history::{Attempted, Call, EventKey, JobRecord, Line, Place, Put, Row, Taken};

/// How old the table may be that a match uses, milliseconds (design 18, and a turn's length).
const TABLE_AGE_MS: i64 = 10_000;

/// The longest outage that dedup survives, milliseconds (design 12).
const OUTAGE_MS: i64 = 72 * 3_600_000;

/// What is known of a job.
#[derive(Debug)]
struct Job {
    subscription: SubscriptionId,
    event: EventKey,
    /// Where its first record lies in the deliveries.
    order: i64,
    places: BTreeSet<Place>,
    delivered: bool,
    attempts: u32,
    called: bool,
}

/// The rules that a ledger needs to know.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Dedup horizon, milliseconds.
    pub horizon_ms: i64,
    /// By how much arrivals may be out of order, milliseconds.
    pub skew_ms: i64,
    /// By how much processes' clocks may differ, milliseconds.
    pub clocks_ms: i64,
    /// The curve of subscriptions without one of their own.
    pub schedule: RetrySchedule,
    /// Partitions of the internal topics.
    pub partitions: u32,
    /// Tenants that are spread over all partitions.
    pub salted: BTreeSet<String>,
}

/// Committed history so far.
#[derive(Debug)]
pub struct Ledger {
    rules: Rules,
    jobs: HashMap<JobId, Job>,
    claims: Claims,
    gates: Gates,
    /// Arrival and match of each event, Unix milliseconds.
    arrivals: HashMap<EventKey, (i64, i64)>,
    /// Of each subscription, the order of its last first attempt.
    called: HashMap<SubscriptionId, i64>,
    under_way: HashMap<((u64, u64), SubscriptionId), HashSet<Uuid>>,
    callers: HashMap<Uuid, ((u64, u64), SubscriptionId)>,
    positions: BTreeMap<(String, String, i32), i64>,
    /// Of each home partition, the table's position at the last match.
    tables: HashMap<i32, i64>,
    rows: Vec<Row>,
    schedules: HashMap<SubscriptionId, usize>,
    inbox_order: HashMap<SubscriptionId, (i32, i64)>,
    inbox: HashMap<EventKey, (i32, i64)>,
    /// Events that came again beyond the horizon, as they may: their jobs are made again too.
    repeated: HashSet<EventKey>,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            jobs: HashMap::new(),
            claims: Claims::default(),
            gates: Gates::default(),
            arrivals: HashMap::new(),
            called: HashMap::new(),
            under_way: HashMap::new(),
            callers: HashMap::new(),
            positions: BTreeMap::new(),
            tables: HashMap::new(),
            rows: Vec::new(),
            schedules: HashMap::new(),
            inbox_order: HashMap::new(),
            inbox: HashMap::new(),
            repeated: HashSet::new(),
        }
    }

    /// Tells the ledger that a tenant is salted from now on.
    pub fn salt(&mut self, tenant: &str) {
        self.rules.salted.insert(tenant.to_owned());
    }

    /// A process starts.
    pub fn born(&mut self, process: u64) {
        self.gates.born(process);
    }

    /// A destination answers an attempt with a wish; nobody heard it yet.
    pub fn asked(&mut self, delivery_id: Uuid, request: Request) {
        self.gates.asked(delivery_id, request);
    }

    /// A job's attempt succeeds, and whoever made it hears of it.
    pub fn succeeded(&mut self, job: JobId, caller: (u64, u64)) {
        self.gates.succeeded(job, caller);
    }

    /// A job's attempt ends its process.
    ///
    /// # Errors
    /// When it did so too often.
    pub fn killed(&mut self, job: JobId) -> Result<(), Violation> {
        self.claims.killed(job)
    }

    /// Takes the lines of one committed transaction.
    ///
    /// # Errors
    /// What it broke.
    pub fn take(&mut self, lines: &[Line]) -> Result<(), Violation> {
        let mut touched = BTreeSet::new();
        for line in lines {
            match line {
                Line::Taken(taken) => self.take_inbox(taken)?,
                Line::Row(row) => self.take_row(row),
                Line::Attempted(attempted) => {
                    touched.insert(attempted.job);
                    self.take_attempt(attempted)?;
                }
                Line::Job(record) => {
                    touched.insert(record.job);
                    self.take_job(record)?;
                }
                Line::Claimed(job, claim) => {
                    self.claims.take(*job, *claim)?;
                    if claim.is_some_and(|claim| claim.open) {
                        // Its process may die before the attempt; then it counts as made.
                        self.first_called(*job)?;
                    }
                }
                Line::Verdict(_) | Line::Reply(_) | Line::Entry(_) | Line::Cursor(_) => {}
                Line::Wished(_) => {}
            }
        }
        touched.into_iter().try_for_each(|job| {
            if let Some(known) = self.jobs.get(&job) {
                let waits = |place: &Place| matches!(place, Place::Tier(_));
                let is_repeated = self.repeated.contains(&known.event);
                let in_tier = known.places.iter().any(waits) && !is_repeated;
                self.gates.stands(job, known.subscription, in_tier);
            }
            self.check_places(job)
        })
    }

    /// Takes a committed position.
    ///
    /// # Errors
    /// When it lies before the last.
    pub fn take_position(
        &mut self,
        group: &str,
        (topic, partition): (&str, i32),
        offset: i64,
    ) -> Result<(), Violation> {
        let key = (group.to_owned(), topic.to_owned(), partition);
        let before = self.positions.insert(key, offset).unwrap_or(0);
        if offset < before {
            let what = format!("{group}: position of {topic}/{partition} {before} -> {offset}");
            return broken(Invariant::I7, what);
        }
        Ok(())
    }

    fn take_inbox(&mut self, taken: &Taken) -> Result<(), Violation> {
        let key = taken.event.clone();
        let (tenant, id) = &key;
        self.inbox.insert(key.clone(), (taken.partition, taken.offset));
        let at_ms = taken.at_ms.unwrap_or(taken.arrival_ms);
        let before = self.arrivals.insert(key.clone(), (taken.arrival_ms, at_ms));
        if before.is_some() {
            self.repeated.insert(key.clone());
        }
        if let Some((before, matched_ms)) = before
            && taken.arrival_ms - before < self.rules.horizon_ms - self.rules.skew_ms
            && at_ms - matched_ms < self.rules.horizon_ms + OUTAGE_MS
        {
            let what = format!(
                "event {id} of {tenant} is in the inbox again at {}/{}, arrivals {before} and {}",
                taken.partition, taken.offset, taken.arrival_ms
            );
            return broken(Invariant::I1, what);
        }
        self.check_table(taken)
    }

    /// The table that a match used is never older than a former match's, nor than it may be.
    fn check_table(&mut self, taken: &Taken) -> Result<(), Violation> {
        let (Some(table), Some(at_ms)) = (taken.table, taken.at_ms) else { return Ok(()) };
        let (tenant, id) = &taken.event;
        let home = routing::partition_for_tenant(tenant, self.rules.partitions);
        let oldest_ms = TABLE_AGE_MS + 2 * self.rules.clocks_ms;
        let mut told = self.rows.iter().filter(|row| {
            row.partition == home && row.at_ms < at_ms - oldest_ms && row.offset >= table
        });
        if let Some(row) = told.next_back() {
            let what = format!(
                "event {id} of {tenant} was matched at {at_ms} with the table at {table}, \
                 {}/{} was there since {}",
                row.partition, row.offset, row.at_ms
            );
            return broken(Invariant::I2, what);
        }
        if home == taken.partition {
            let before = self.tables.insert(home, table).unwrap_or(0);
            if table < before {
                let what = format!(
                    "event {id} of {tenant} was matched with the table at {table}, an earlier \
                     one with {before}"
                );
                return broken(Invariant::I2, what);
            }
        }
        Ok(())
    }

    fn take_row(&mut self, row: &Row) {
        if let Some(own) = &row.row {
            let steps = own.retry_schedule_or(&self.rules.schedule).attempts_max();
            let longest = self.schedules.entry(row.id).or_default();
            *longest = steps.max(*longest);
        }
        self.gates.row(row);
        self.rows.push(row.clone());
    }

    fn take_attempt(&mut self, attempted: &Attempted) -> Result<(), Violation> {
        let Attempted { job: id, number, delivered, .. } = attempted;
        let Some(job) = self.jobs.get_mut(id) else {
            return broken(Invariant::I4, format!("an attempt of job {id}, which does not exist"));
        };
        self.gates.attempted(attempted);
        if self.repeated.contains(&job.event) {
            job.delivered |= *delivered;
            return Ok(());
        }
        if job.delivered {
            return broken(Invariant::I4, format!("attempt {number} of job {id} after its end"));
        }
        if *number != job.attempts + 1 {
            let what = format!("attempt {number} of job {id} follows {}", job.attempts);
            return broken(Invariant::I4, what);
        }
        job.attempts = *number;
        job.delivered = *delivered;
        let most = self.schedules.get(&job.subscription).copied();
        let most = most.unwrap_or(0).max(self.rules.schedule.attempts_max());
        if usize::try_from(*number).unwrap_or(usize::MAX) > most {
            return broken(Invariant::I4, format!("attempt {number} of job {id}, of {most}"));
        }
        Ok(())
    }

    fn take_job(&mut self, record: &JobRecord) -> Result<(), Violation> {
        let JobRecord { place, job: id, put, offset, .. } = record;
        let is_repeated = put.as_ref().is_some_and(|put| self.repeated.contains(&put.event));
        let Some(put) = put else {
            if let Some(job) = self.jobs.get_mut(id) {
                job.places.remove(place);
            }
            return Ok(());
        };
        self.check_put(*id, put)?;
        match place {
            Place::Ready => {}
            Place::Tier(_) => self.gates.put(*id, put.facts.due)?,
            Place::DeadLetter => self.claims.dead(*id, put.reason.as_deref())?,
        }
        let is_new = !self.jobs.contains_key(id);
        if is_new && *place != Place::Ready {
            return broken(Invariant::I3, format!("job {id} begins its life in {place:?}"));
        }
        if *place == Place::Ready && !is_repeated {
            self.check_inbox_order(put)?;
        }
        let job = self.jobs.entry(*id).or_insert_with(|| Job {
            subscription: put.facts.subscription,
            event: put.event.clone(),
            order: *offset,
            places: BTreeSet::new(),
            delivered: false,
            attempts: 0,
            called: false,
        });
        if *place == Place::Ready && !is_new && !is_repeated {
            return broken(Invariant::I2, format!("job {id} was made again"));
        }
        let counts = *place != Place::DeadLetter && !is_repeated;
        if counts && put.facts.attempts != job.attempts {
            let (said, known) = (put.facts.attempts, job.attempts);
            let what = format!("job {id} has {known} recorded attempts, its record says {said}");
            return broken(Invariant::I4, what);
        }
        job.places.insert(*place);
        Ok(())
    }

    /// A job is its subscription's tenant's, and ends for a reason that holds.
    fn check_put(&self, id: JobId, put: &Put) -> Result<(), Violation> {
        let subscription = put.facts.subscription;
        let rows = self.rows.iter().filter(|row| row.id == subscription);
        let mut owners = rows.clone().filter_map(|row| row.row.as_ref());
        if owners.any(|row| row.tenant.as_str() != put.event.0) {
            let what = format!("job {id}: event of {}, another's subscription", put.event.0);
            return broken(Invariant::I8, what);
        }
        let mut later = rows.filter(|row| row.offset >= put.facts.table);
        let holds = match put.reason.as_deref() {
            Some("subscription_deleted") => later.any(|row| row.row.is_none()),
            Some("subscription_disabled") => {
                later.any(|row| row.row.as_ref().is_some_and(|own| !own.enabled))
            }
            _ => true,
        };
        if !holds {
            let reason = put.reason.as_deref().unwrap_or_default();
            let what = format!("job {id} of {subscription} ended as {reason}, which never was");
            return broken(Invariant::I3, what);
        }
        Ok(())
    }

    /// Jobs of one subscription lie in the deliveries in inbox order.
    fn check_inbox_order(&mut self, put: &Put) -> Result<(), Violation> {
        let (tenant, id) = &put.event;
        let Some(place) = self.inbox.get(&put.event).copied() else {
            let what = format!("a job of {id} of {tenant}, which is not in the inbox");
            return broken(Invariant::I2, what);
        };
        if self.rules.salted.contains(tenant) {
            return Ok(());
        }
        let subscription = put.facts.subscription;
        let before = self.inbox_order.insert(subscription, place);
        if before.is_some_and(|before| before > place) {
            let what = format!("jobs of {subscription} lie out of inbox order at {id}");
            return broken(Invariant::I9, what);
        }
        Ok(())
    }

    /// After a transaction a job is in one place, or delivered.
    fn check_places(&self, id: JobId) -> Result<(), Violation> {
        let known = self.jobs.get(&id).filter(|job| !self.repeated.contains(&job.event));
        let Some(job) = known else { return Ok(()) };
        match (job.places.len(), job.delivered) {
            (1, false) | (0, true) => Ok(()),
            (_, delivered) => {
                let what = format!(
                    "job {id} of {:?} lies in {:?}, delivered: {delivered}",
                    job.event, job.places
                );
                broken(Invariant::I3, what)
            }
        }
    }

    /// A job's first attempt is made, or claimed: none of an earlier job comes after it.
    fn first_called(&mut self, id: JobId) -> Result<(), Violation> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return broken(Invariant::I7, format!("job {id} is attempted but was never committed"));
        };
        let is_repeated = self.repeated.contains(&job.event);
        if std::mem::replace(&mut job.called, true) || is_repeated {
            return Ok(());
        }
        let subscription = job.subscription;
        let last = self.called.entry(subscription).or_insert(-1);
        if job.order < *last {
            let what = format!(
                "job {id} of {subscription}, at {}, is first attempted after that at {last}",
                job.order
            );
            return broken(Invariant::I9, what);
        }
        *last = job.order;
        Ok(())
    }

    /// Takes the start of a call.
    ///
    /// # Errors
    /// What it broke.
    pub fn call(&mut self, call: &Call) -> Result<(), Violation> {
        let Call { job: id, subscription, .. } = call;
        if call.owner != call.tenant {
            let what = format!("job {id}: event of {} to {}'s", call.tenant, call.owner);
            return broken(Invariant::I8, what);
        }
        let is_first = |job: &Job| {
            job.attempts == 0
                && job.places.contains(&Place::Ready)
                && !self.repeated.contains(&job.event)
        };
        let is_first = self.jobs.get(id).is_some_and(is_first);
        self.gates.call(call, is_first)?;
        self.first_called(*id)?;
        if call.in_lane {
            self.claims.in_lane(*id)?;
        }
        let key = (call.caller, *subscription);
        let under_way = self.under_way.entry(key).or_default();
        under_way.insert(call.delivery_id);
        self.callers.insert(call.delivery_id, key);
        if under_way.len() > call.at_most {
            let what = format!("{} attempts of {subscription} at once", under_way.len());
            return broken(Invariant::Limit, what);
        }
        Ok(())
    }

    /// Takes the end of a call, whatever came of it.
    pub fn returned(&mut self, delivery_id: Uuid) {
        if let Some(key) = self.callers.remove(&delivery_id)
            && let Some(under_way) = self.under_way.get_mut(&key)
        {
            under_way.remove(&delivery_id);
        }
    }
}
