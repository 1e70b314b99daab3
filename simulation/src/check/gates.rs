//! What closes the way (contract section 4): a pause, an operator's hold, a destination that asked
//! to be left alone, and in strict order a job that failed. Whoever knows of it makes no attempt;
//! whoever does not know yet may.

use std::collections::{BTreeSet, HashMap, HashSet};

use streaming_hub_model::id::{JobId, SubscriptionId};
use streaming_hub_model::subscription::Ordering;
use streaming_hub_model::time::UnixMillis;
use uuid::Uuid;

use super::{Invariant, Violation, broken};
use crate::history::{Attempted, Call, Row};

/// A process and an incarnation of one of its tasks.
type Caller = (u64, u64);

/// A destination that asked to be left alone.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who heard it.
    pub caller: Caller,
    /// The tenant and target that asked.
    pub of: (String, String),
    /// Until when the way is closed, Unix milliseconds; none where only the retry is late.
    pub closed_until_ms: Option<i64>,
    /// Before when the job is not to be tried again, by the clock of who heard it.
    pub due: UnixMillis,
}

/// The gates as committed history has them.
#[derive(Debug, Default)]
pub struct Gates {
    requests: HashMap<Uuid, Request>,
    /// Since and until when a way is closed, as its caller has known since then.
    closed: HashMap<(Caller, (String, String)), (i64, i64)>,
    /// Before when jobs that failed in the open transaction are not to be tried again.
    due: HashMap<JobId, UnixMillis>,
    /// Of each subscription, whether every record of it says that its order is strict.
    strict: HashMap<SubscriptionId, bool>,
    made_by: HashMap<Uuid, Caller>,
    /// Who recorded a job's last failure, and the newest process then.
    failed: HashMap<JobId, (Caller, u64)>,
    /// Jobs that are over for whoever made their attempt, committed or not.
    over: HashSet<(JobId, Caller)>,
    in_tiers: HashMap<SubscriptionId, BTreeSet<JobId>>,
    newest_process: u64,
    delivery_ids: HashSet<Uuid>,
}

impl Gates {
    /// A process starts.
    pub fn born(&mut self, process: u64) {
        self.newest_process = process;
    }

    /// A subscription changes.
    pub fn row(&mut self, row: &Row) {
        if let Some(own) = &row.row {
            *self.strict.entry(row.id).or_insert(true) &= own.ordering == Ordering::Strict;
        }
    }

    /// A destination answers an attempt with a wish; nobody heard it yet.
    pub fn asked(&mut self, delivery_id: Uuid, request: Request) {
        self.requests.insert(delivery_id, request);
    }

    /// An attempt succeeds: its job is over for whoever hears of it.
    pub fn succeeded(&mut self, job: JobId, caller: Caller) {
        self.over.insert((job, caller));
    }

    /// An outcome is committed: who committed it knows what it said.
    pub fn attempted(&mut self, attempted: &Attempted) {
        let Attempted { job, delivery_id, delivered, at_ms, .. } = attempted;
        if let Some(caller) = self.made_by.get(delivery_id).filter(|_| !delivered) {
            self.failed.insert(*job, (*caller, self.newest_process));
        }
        let Some(request) = self.requests.remove(delivery_id) else { return };
        self.due.insert(*job, request.due);
        if let Some(until) = request.closed_until_ms {
            let known = self.closed.entry((request.caller, request.of)).or_insert((*at_ms, until));
            *known = (*at_ms, until.max(known.1));
        }
    }

    /// A job is put into a tier, due then.
    ///
    /// # Errors
    /// When its destination asked for more time.
    pub fn put(&mut self, job: JobId, due: UnixMillis) -> Result<(), Violation> {
        match self.due.remove(&job) {
            Some(asked) if due < asked => {
                let what = format!("job {job} is due at {}, asked for {}", due.0, asked.0);
                broken(Invariant::Gate, what)
            }
            _ => Ok(()),
        }
    }

    /// A transaction says where a job lies now.
    pub fn stands(&mut self, job: JobId, subscription: SubscriptionId, in_tier: bool) {
        self.due.remove(&job);
        let waiting = self.in_tiers.entry(subscription).or_default();
        if in_tier {
            waiting.insert(job);
        } else {
            waiting.remove(&job);
            self.failed.remove(&job);
        }
    }

    /// An attempt starts; whether it is its job's first.
    ///
    /// # Errors
    /// When its caller knew that the way is closed.
    pub fn call(&mut self, call: &Call, is_first: bool) -> Result<(), Violation> {
        let Call { job, subscription, .. } = call;
        if !self.delivery_ids.insert(call.delivery_id) {
            let what = format!("job {job} is attempted again as {}", call.delivery_id);
            return broken(Invariant::I4, what);
        }
        self.made_by.insert(call.delivery_id, call.caller);
        if let Some(gate) = &call.behind {
            return broken(Invariant::Gate, format!("job {job} is attempted behind a {gate}"));
        }
        let of = (call.owner.clone(), call.target.clone());
        if let Some((since, until)) = self.closed.get(&(call.caller, of))
            && (since + 1..*until).contains(&call.at_ms)
        {
            let what = format!("job {job} is attempted at {}, throttled until {until}", call.at_ms);
            return broken(Invariant::Gate, what);
        }
        if is_first && self.strict.get(subscription) == Some(&true) {
            return self.in_order(call);
        }
        Ok(())
    }

    /// In strict order nothing is begun while a job that failed is not over.
    fn in_order(&self, call: &Call) -> Result<(), Violation> {
        let waiting = self.in_tiers.get(&call.subscription).into_iter().flatten();
        for other in waiting.filter(|other| **other != call.job) {
            let Some((caller, newest)) = self.failed.get(other) else { continue };
            if self.over.contains(&(*other, call.caller)) {
                continue;
            }
            // Somebody else may have had the task before, and not know that it is lost.
            if *caller == call.caller || call.caller.0 > *newest {
                let what = format!("job {} is begun before {other} is over", call.job);
                return broken(Invariant::Gate, what);
            }
        }
        Ok(())
    }
}
