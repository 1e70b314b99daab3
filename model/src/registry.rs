//! The one serialised writer of subscriptions (design 17): decides a change against the current
//! record. Pure: the caller brings the record, the tenant's count and the clock, and writes what
//! is decided. No update is lost, because decisions of one tenant follow one another.

use crate::change::{Action, Change, Decision, Refusal};
use crate::subscription::{DisabledReason, Subscription, VerificationState};
use crate::time::UnixMillis;

mod patch;

/// Per-tenant limits (contract section 7, "Defaults").
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most subscriptions of one tenant.
    pub subscriptions_per_tenant: u32,
}

/// What the registry knows when it decides.
#[derive(Debug, Clone, Copy)]
pub struct Current<'a> {
    /// The record under the change's id, whoever owns it.
    pub record: Option<&'a Subscription>,
    /// How many subscriptions the change's tenant has.
    pub tenant_subscriptions: u32,
}

/// What is to be written, before the reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// The whole new record.
    Put(Box<Subscription>),
    /// A tombstone.
    Delete,
}

/// Decides one change.
#[must_use]
pub fn decide(
    change: Change,
    current: Current<'_>,
    limits: Limits,
    now: UnixMillis,
) -> (Option<Write>, Decision) {
    let own = current.record.filter(|record| record.tenant == change.tenant);
    let record = match (change.action, own) {
        (Action::Create { record }, _) => return create(*record, current, limits, now),
        (Action::Idempotency { .. }, _) | (_, None) => return refuse(Refusal::NotFound),
        (Action::Delete { expected }, Some(record)) => {
            return match is_stale(record, expected) {
                true => refuse(Refusal::Stale),
                false => (Some(Write::Delete), Decision::Deleted),
            };
        }
        (Action::Patch { expected, by, set }, Some(record)) => match is_stale(record, expected) {
            true => Err(Refusal::Stale),
            false => patch::patched(record, set, by),
        },
        (Action::Rotate { expected, sealed, overlap_ms }, Some(record)) => {
            match is_stale(record, expected) {
                true => Err(Refusal::Stale),
                false => Ok(patch::rotated(record, sealed, change.id, now.plus(overlap_ms), now)),
            }
        }
        (Action::Resealed { pairs }, Some(record)) => Ok(patch::resealed(record, &pairs)),
        (Action::Disable { reason, sink_generation }, Some(record)) => {
            disabled(record, sink_generation, reason)
        }
        (Action::Verified { sink_generation, failure }, Some(record)) => {
            verified(record, sink_generation, failure, now)
        }
    };
    match record {
        Ok(Some(record)) => put(record, now),
        Ok(None) => {
            let version = own.map_or(0, |record| record.version);
            (None, Decision::Written { version })
        }
        Err(refusal) => refuse(refusal),
    }
}

fn is_stale(record: &Subscription, expected: Option<u64>) -> bool {
    expected.is_some_and(|version| version != record.version)
}

/// What a record becomes: another, the same, or a refusal.
type Changed = Result<Option<Subscription>, Refusal>;

fn create(
    mut record: Subscription,
    current: Current<'_>,
    limits: Limits,
    now: UnixMillis,
) -> (Option<Write>, Decision) {
    if current.record.is_some() {
        return refuse(Refusal::Exists);
    }
    if current.tenant_subscriptions >= limits.subscriptions_per_tenant {
        return refuse(Refusal::TooMany);
    }
    record.created_at = now;
    record.version = 0;
    record.sink_generation = 1;
    // There is nothing to verify about a log that its owner reads.
    record.verification_state = match record.sink.is_pull() {
        true => VerificationState::Active,
        false => VerificationState::Pending,
    };
    record.verification_failure = None;
    record.verified_at = None;
    put(record, now)
}

fn disabled(record: &Subscription, sink_generation: u64, reason: DisabledReason) -> Changed {
    if record.sink_generation != sink_generation {
        return Err(Refusal::DestinationChanged);
    }
    if !record.enabled {
        return Ok(None);
    }
    let mut record = record.clone();
    record.enabled = false;
    record.disabled_reason = Some(reason);
    Ok(Some(record))
}

/// A success enables again what its destination's failures had switched off.
fn verified(
    record: &Subscription,
    sink_generation: u64,
    failure: Option<String>,
    now: UnixMillis,
) -> Changed {
    if record.sink_generation != sink_generation {
        return Err(Refusal::DestinationChanged);
    }
    let mut record = record.clone();
    record.verification_failure = failure;
    if record.verification_failure.is_some() {
        record.verification_state = VerificationState::Failed;
        return Ok(Some(record));
    }
    record.verification_state = VerificationState::Active;
    record.verified_at = Some(now);
    if matches!(record.disabled_reason, Some(DisabledReason::Gone | DisabledReason::Failing)) {
        record.enabled = true;
        record.disabled_reason = None;
    }
    Ok(Some(record))
}

fn put(mut record: Subscription, now: UnixMillis) -> (Option<Write>, Decision) {
    record.version += 1;
    record.updated_at = now;
    let version = record.version;
    (Some(Write::Put(Box::new(record))), Decision::Written { version })
}

fn refuse(refusal: Refusal) -> (Option<Write>, Decision) {
    (None, Decision::Refused { refusal })
}

#[cfg(test)]
mod tests;
