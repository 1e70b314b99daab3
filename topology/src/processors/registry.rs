//! Registry (design 17): the one serialised writer of subscriptions. Reads changes, decides each
//! against the current record, writes the whole new record and the decision, in one transaction.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use streaming_hub_model::change::{Action, Change, Decision, Refusal, Reply};
use streaming_hub_model::hex;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::idempotency::{self as keys, Entry, Wish};
use streaming_hub_model::registry::{Current, Limits, Write, decide};
use streaming_hub_model::subscription::Subscription;
use streaming_hub_state::family::{idempotency, subscription, tenant_subscription};
use streaming_hub_state::{ExpiryRule, Family, State};

use crate::metrics::Metrics;
use crate::runtime::processor::{Error, Output, Processor, Record, Step};
use crate::topics::Topic;

/// The processor of one partition of tenants.
pub struct Registry {
    limits: Limits,
    metrics: Arc<Metrics>,
    tally: Vec<&'static str>,
    /// Idempotency keys first seen before this are over, Unix milliseconds.
    forget: i64,
    forgotten: Arc<AtomicI64>,
}

impl Registry {
    /// A registry with these limits.
    #[must_use]
    pub fn new(limits: Limits, metrics: Arc<Metrics>) -> Self {
        let forgotten = Arc::new(AtomicI64::new(i64::MIN));
        Self { limits, metrics, tally: Vec::new(), forget: i64::MIN, forgotten }
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

    /// Decides a change of a subscription, and writes what comes of it.
    fn change(&mut self, change: Change, step: &mut Step<'_>) -> Result<Decision, Error> {
        let (stored, tenant_subscriptions) = Self::current(&change, step.state)?;
        let key = ChangeKey { tenant: change.tenant.as_str().to_owned(), id: change.subscription };
        let current = Current { record: stored.as_ref(), tenant_subscriptions };
        let (write, decision) = decide(change, current, self.limits, step.now);
        if let Some(write) = write {
            Self::write(&write, &key, step);
        }
        Ok(decision)
    }

    /// Decides about an idempotency key, and keeps what is to be known of it.
    fn note(
        &mut self,
        change: &Change,
        wish: &Wish,
        step: &mut Step<'_>,
    ) -> Result<Decision, Error> {
        let now = step.now;
        let Some(scope) = hex::decode(wish.scope()) else {
            return Ok(Decision::Refused { refusal: Refusal::NotFound });
        };
        let row = idempotency::key(&scope);
        let known = step.state.get(&row)?;
        let known = known.and_then(|v| serde_json::from_slice(idempotency::entry(&v)).ok());
        let (entry, decision) = keys::decide(wish.clone(), known, change.subscription, now);
        if let Some(entry) = entry
            && let Ok(value) = serde_json::to_vec(&entry)
        {
            step.outputs.emit(Output {
                topic: Topic::Idempotency,
                partition: step.partition,
                key: Some(wish.scope().as_bytes()),
                headers: &[],
                value: Some(&value),
            });
            step.state.put(row, idempotency::value(entry.at.0, &value));
        }
        self.forget = now.0.saturating_sub(i64::try_from(keys::KEPT_MS).unwrap_or(i64::MAX));
        Ok(decision)
    }

    /// A restored idempotency key.
    fn restore_key(record: &Record<'_>, state: &mut State) {
        let scope = record.key.and_then(|key| std::str::from_utf8(key).ok());
        let Some(scope) = scope.and_then(hex::decode) else { return };
        let entry = |value: &[u8]| serde_json::from_slice::<Entry>(value).ok();
        match record.value {
            None => state.delete(idempotency::key(&scope)),
            Some(value) => {
                if let Some(entry) = entry(value) {
                    state.put(idempotency::key(&scope), idempotency::value(entry.at.0, value));
                }
            }
        }
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

    fn expiry(&self) -> Vec<ExpiryRule> {
        let bound = Arc::clone(&self.forgotten);
        vec![ExpiryRule { family: Family::Idempotency, bound }]
    }

    fn restore(
        &mut self,
        topic: Topic,
        record: &Record<'_>,
        state: &mut State,
    ) -> Result<(), Error> {
        if topic == Topic::Idempotency {
            Self::restore_key(record, state);
            return Ok(());
        }
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
        let change_id = change.id;
        let decision = match &change.action {
            Action::Idempotency { wish } => self.note(&change, wish, step)?,
            _ => self.change(change, step)?,
        };
        self.tally.push(match decision {
            Decision::Written { .. } => "written",
            Decision::Deleted => "deleted",
            Decision::Claimed { .. } | Decision::Noted => "noted",
            Decision::Repeated { .. } => "repeated",
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
        // Alone in its word: compaction that sees it late removes less.
        self.forgotten.fetch_max(self.forget, Ordering::Relaxed);
    }

    fn aborted(&mut self) {
        self.tally.clear();
    }
}

#[cfg(test)]
#[path = "registry/tests.rs"]
mod tests;
