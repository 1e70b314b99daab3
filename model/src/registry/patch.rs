//! What a record becomes when its owner or an operator changes it: its fields, its sink, its
//! secrets. Pure, and all or nothing: a patch with one value that is refused changes nothing.

use uuid::Uuid;

use super::Changed;
use crate::change::{By, NewSink, Refusal, Setting};
use crate::secret::Sealed;
use crate::subscription::{
    DisabledReason, Ordering, SigningSecret, SinkConfig, Subscription, VerificationState,
};
use crate::time::UnixMillis;

/// How many secrets sign at once: the new one and the one before (contract section 5).
const SECRETS_MAX: usize = 2;

/// The record with these values. One that changes nothing is no new version.
pub(super) fn patched(record: &Subscription, set: Vec<Setting>, by: By) -> Changed {
    let mut new = record.clone();
    for setting in set {
        apply(&mut new, setting, by)?;
    }
    if new.ordering == Ordering::Strict && new.max_in_flight != 1 {
        return Err(Refusal::StrictNeedsOne);
    }
    Ok((new != *record).then_some(new))
}

fn apply(record: &mut Subscription, setting: Setting, by: By) -> Result<(), Refusal> {
    match setting {
        Setting::Name(name) => record.name = name,
        Setting::EventTypes(types) => record.event_types = types,
        Setting::Origin(origin) => record.origin = origin,
        Setting::SchemaMajor(major) => record.schema_major = major,
        Setting::RetrySchedule(steps) => {
            record.retry_schedule = steps.map(|steps| Vec::from(steps).into());
        }
        Setting::MaxInFlight(count) => record.max_in_flight = count,
        Setting::Ordering(ordering) => record.ordering = ordering,
        Setting::Paused(paused) => record.paused = paused,
        Setting::Enabled(true) => return enable(record, by),
        Setting::Enabled(false) => disable(record, by),
        Setting::Sink(sink) => return redirect(record, *sink),
    }
    Ok(())
}

fn enable(record: &mut Subscription, by: By) -> Result<(), Refusal> {
    match (record.disabled_reason.filter(|_| !record.enabled), by) {
        (Some(DisabledReason::Gone | DisabledReason::Failing), _) => {
            return Err(Refusal::VerificationRequired);
        }
        (Some(DisabledReason::Operator), By::Tenant) => return Err(Refusal::DisabledByOperator),
        (None | Some(DisabledReason::Tenant | DisabledReason::Operator), _) => {}
    }
    record.enabled = true;
    record.disabled_reason = None;
    Ok(())
}

/// One that is off stays off for the reason that it has; an operator's reason is above all others,
/// since nobody else lifts it.
fn disable(record: &mut Subscription, by: By) {
    let reason = match by {
        By::Tenant if !record.enabled => return,
        By::Tenant => DisabledReason::Tenant,
        By::Operator => DisabledReason::Operator,
    };
    record.enabled = false;
    record.disabled_reason = Some(reason);
}

/// An active subscription's sink is replaced only by one that was probed. Whether it is active is
/// asked here and not of the API, which may have looked before a verification succeeded.
fn redirect(record: &mut Subscription, new: NewSink) -> Result<(), Refusal> {
    let is_active = record.verification_state == VerificationState::Active;
    if record.sink_generation != new.from_generation || (is_active && !new.verified) {
        return Err(Refusal::DestinationChanged);
    }
    if record.sink.kind() != new.config.kind() {
        return Err(Refusal::SinkType);
    }
    record.sink = new.config;
    record.sink_generation += 1;
    record.verification_failure = None;
    record.verification_state = match new.verified {
        true => VerificationState::Active,
        false => VerificationState::Pending,
    };
    Ok(())
}

/// The record with a new signing secret in front. The one before signs until `until`. Nothing
/// changes for a change that has rotated already, or where nothing signs.
pub(super) fn rotated(
    record: &Subscription,
    sealed: Sealed,
    change: Uuid,
    until: UnixMillis,
    now: UnixMillis,
) -> Option<Subscription> {
    let mut new = record.clone();
    let SinkConfig::Webhook(webhook) = &mut new.sink else { return None };
    if webhook.secrets.first().is_some_and(|newest| newest.made_by == Some(change)) {
        return None;
    }
    if let Some(previous) = webhook.secrets.first_mut() {
        previous.valid_until = Some(until);
    }
    let newest = SigningSecret { sealed, valid_until: None, made_by: Some(change) };
    webhook.secrets.insert(0, newest);
    // In this order: an older one that is still valid does not come back for one that is not.
    webhook.secrets.truncate(SECRETS_MAX);
    webhook.secrets.retain(|secret| secret.is_valid_at(now));
    new.sink_generation += 1;
    Some(new)
}

/// The record with the same secrets under other seals.
pub(super) fn resealed(record: &Subscription, pairs: &[(Sealed, Sealed)]) -> Option<Subscription> {
    let mut new = record.clone();
    for sealed in new.sink.seals_mut() {
        if let Some((_, to)) = pairs.iter().find(|(from, _)| *from == *sealed) {
            *sealed = to.clone();
        }
    }
    // A PATCH that was made from the old seals would put them back.
    new.sink_generation += 1;
    (new.sink != record.sink).then_some(new)
}
