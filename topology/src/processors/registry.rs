//! Registry (design 17): the one serialised writer of subscriptions. Reads changes, decides each
//! against the current record, writes the whole new record and the decision, in one transaction.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

use streaming_hub_model::change::{Change, Decision, Reply};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::registry::{Current, Limits, Write, decide};
use streaming_hub_model::subscription::Subscription;
use streaming_hub_state::State;
use streaming_hub_state::family::{subscription, tenant_subscription};

use crate::metrics::Metrics;
use crate::runtime::processor::{Error, Output, Processor, Record, Step};
use crate::topics::Topic;

/// The processor of one partition of tenants.
pub struct Registry {
    limits: Limits,
    metrics: Arc<Metrics>,
    tally: Vec<&'static str>,
}

impl Registry {
    /// A registry with these limits.
    #[must_use]
    pub fn new(limits: Limits, metrics: Arc<Metrics>) -> Self {
        Self { limits, metrics, tally: Vec::new() }
    }

    fn current(change: &Change, state: &State) -> Result<(Option<Subscription>, u32), Error> {
        let stored = state.get(&subscription::key(change.subscription.as_bytes()))?;
        let mut count = 0;
        let own = tenant_subscription::of_tenant(change.tenant.as_str().as_bytes());
        let _ = state.scan(&own, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        // A row is written here or restored after it parsed, so it parses.
        Ok((stored.and_then(|bytes| serde_json::from_slice(&bytes).ok()), count))
    }

    fn write(write: &Write, change: &ChangeKey, step: &mut Step<'_>) {
        let id = change.id.to_string();
        let value = match write {
            Write::Put(record) => serde_json::to_vec(record).ok(),
            Write::Delete => None,
        };
        step.outputs.emit(Output {
            topic: Topic::Subscriptions,
            partition: step.partition,
            key: Some(id.as_bytes()),
            headers: &[],
            value: value.as_deref(),
        });
        keep(step.state, change, value);
    }
}

/// Puts a row and its place among its tenant's, or ends both.
fn keep(state: &mut State, change: &ChangeKey, value: Option<Vec<u8>>) {
    let row = subscription::key(change.id.as_bytes());
    let listed = tenant_subscription::key(change.tenant.as_bytes(), change.id.as_bytes());
    match value {
        Some(value) => {
            state.put(row, value);
            state.put(listed, Vec::new());
        }
        None => {
            state.delete(row);
            state.delete(listed);
        }
    }
}

/// What of a change is needed after it was decided.
struct ChangeKey {
    tenant: String,
    id: SubscriptionId,
}

impl Processor for Registry {
    type Message = Infallible;
    type Action = Infallible;

    fn restore(&mut self, _: Topic, record: &Record<'_>, state: &mut State) -> Result<(), Error> {
        let key = record.key.and_then(|key| std::str::from_utf8(key).ok());
        let Some(Ok(id)) = key.map(SubscriptionId::parse) else { return Ok(()) };
        let old = state.get(&subscription::key(id.as_bytes()))?;
        let owner = |bytes: &[u8]| serde_json::from_slice::<Subscription>(bytes).ok();
        if let Some(old) = old.as_deref().and_then(owner) {
            // A tombstone does not say whose it was; the row does.
            let tenant = old.tenant.as_str().to_owned();
            keep(state, &ChangeKey { tenant, id }, None);
        }
        if let Some(value) = record.value
            && let Some(new) = owner(value).filter(|new| new.id == id)
        {
            let tenant = new.tenant.as_str().to_owned();
            keep(state, &ChangeKey { tenant, id }, Some(value.to_vec()));
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>, step: &mut Step<'_>) -> Result<(), Error> {
        let Some(Ok(change)) = record.value.map(serde_json::from_slice::<Change>) else {
            self.tally.push("unreadable");
            return Ok(());
        };
        let (stored, tenant_subscriptions) = Self::current(&change, step.state)?;
        let key = ChangeKey { tenant: change.tenant.as_str().to_owned(), id: change.subscription };
        let change_id = change.id;
        let current = Current { record: stored.as_ref(), tenant_subscriptions };
        let (write, decision) = decide(change, current, self.limits, step.now);
        if let Some(write) = write {
            Self::write(&write, &key, step);
        }
        self.tally.push(match decision {
            Decision::Written { .. } => "written",
            Decision::Deleted => "deleted",
            Decision::Refused { .. } => "refused",
        });
        let reply = Reply { change: change_id, verdict: decision };
        let value = serde_json::to_vec(&reply).unwrap_or_default();
        step.outputs.emit(Output {
            topic: Topic::SubscriptionReplies,
            partition: 0,
            key: Some(change_id.to_string().as_bytes()),
            headers: &[],
            value: Some(&value),
        });
        Ok(())
    }

    fn message(&mut self, message: &Infallible, _: &mut Step<'_>) -> Result<(), Error> {
        match *message {}
    }

    fn committed(&mut self) {
        for decision in self.tally.drain(..) {
            self.metrics.change(decision);
        }
    }

    fn aborted(&mut self) {
        self.tally.clear();
    }
}

#[cfg(test)]
#[path = "registry/tests.rs"]
mod tests;
