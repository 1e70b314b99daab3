//! The one serialised writer of subscriptions (design 17): decides a change against the current
//! record. Pure: the caller brings the record, the tenant's count and the clock, and writes what
//! is decided. No update is lost, because decisions of one tenant follow one another.

use crate::change::{Action, Change, Decision, Refusal};
use crate::subscription::{DisabledReason, Subscription, VerificationState};
use crate::time::UnixMillis;

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
    match (change.action, own) {
        (Action::Create { record }, _) => create(*record, current, limits, now),
        (_, None) => refuse(Refusal::NotFound),
        (Action::Delete, Some(_)) => (Some(Write::Delete), Decision::Deleted),
        (Action::Disable { reason, sink_generation }, Some(record)) => {
            disable(record.clone(), sink_generation, reason, now)
        }
        (Action::Verified { sink_generation, failure }, Some(record)) => {
            verified(record.clone(), sink_generation, failure, now)
        }
    }
}

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
    put(record, now)
}

fn disable(
    mut record: Subscription,
    sink_generation: u64,
    reason: DisabledReason,
    now: UnixMillis,
) -> (Option<Write>, Decision) {
    if record.sink_generation != sink_generation {
        return refuse(Refusal::DestinationChanged);
    }
    if !record.enabled {
        return (None, Decision::Written { version: record.version });
    }
    record.enabled = false;
    record.disabled_reason = Some(reason);
    put(record, now)
}

fn verified(
    mut record: Subscription,
    sink_generation: u64,
    failure: Option<String>,
    now: UnixMillis,
) -> (Option<Write>, Decision) {
    if record.sink_generation != sink_generation {
        return refuse(Refusal::DestinationChanged);
    }
    record.verification_state = match failure {
        None => VerificationState::Active,
        Some(_) => VerificationState::Failed,
    };
    record.verification_failure = failure;
    put(record, now)
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
mod tests {
    use super::*;
    use crate::subscription::SinkConfig;
    use crate::subscription::tests::subscription;
    use crate::tenant::TenantId;
    use uuid::Uuid;

    const LIMITS: Limits = Limits { subscriptions_per_tenant: 2 };
    const NOW: UnixMillis = UnixMillis(77);

    fn change(tenant: &str, action: Action) -> Change {
        Change {
            id: Uuid::nil(),
            reply_to: "i".into(),
            tenant: TenantId::parse(tenant).unwrap(),
            subscription: subscription().id,
            action,
        }
    }

    fn step(record: Option<&Subscription>, change: Change) -> (Option<Write>, Decision) {
        decide(change, Current { record, tenant_subscriptions: 1 }, LIMITS, NOW)
    }

    #[test]
    fn a_new_subscription_is_pending_whatever_was_asked() {
        let asked = Action::Create { record: Box::new(subscription()) };
        let (write, decision) = step(None, change("acme", asked));
        assert_eq!(decision, Decision::Written { version: 1 });
        let Some(Write::Put(record)) = write else { panic!("nothing written") };
        assert_eq!(record.verification_state, VerificationState::Pending);
        assert_eq!((record.created_at, record.updated_at), (NOW, NOW));
    }

    #[test]
    fn a_pull_subscription_is_active_from_birth() {
        let asked = Subscription { sink: SinkConfig::Pull, ..subscription() };
        let asked = Action::Create { record: Box::new(asked) };
        let (Some(Write::Put(record)), _) = step(None, change("acme", asked)) else {
            panic!("nothing written")
        };
        assert_eq!(record.verification_state, VerificationState::Active);
    }

    #[test]
    fn an_id_is_used_once_and_the_limit_holds() {
        let create = || change("acme", Action::Create { record: Box::new(subscription()) });
        assert_eq!(step(Some(&subscription()), create()), refuse(Refusal::Exists));
        let full = Current { record: None, tenant_subscriptions: 2 };
        assert_eq!(decide(create(), full, LIMITS, NOW), refuse(Refusal::TooMany));
    }

    #[test]
    fn another_tenants_subscription_does_not_exist() {
        let record = subscription();
        let verified = Action::Verified { sink_generation: 1, failure: None };
        for action in [Action::Delete, verified] {
            assert_eq!(step(Some(&record), change("evil", action)), refuse(Refusal::NotFound));
        }
        assert_eq!(step(None, change("acme", Action::Delete)), refuse(Refusal::NotFound));
    }

    #[test]
    fn a_verification_counts_for_the_generation_that_it_probed() {
        let mut record = subscription();
        record.sink_generation = 4;
        let stale = Action::Verified { sink_generation: 3, failure: None };
        let answer = step(Some(&record), change("acme", stale));
        assert_eq!(answer, refuse(Refusal::DestinationChanged));
        let failed = Action::Verified { sink_generation: 4, failure: Some("http_5xx".into()) };
        let (Some(Write::Put(record)), _) = step(Some(&record), change("acme", failed)) else {
            panic!("nothing written")
        };
        assert_eq!(record.verification_state, VerificationState::Failed);
        assert_eq!(record.version, 2);
    }

    #[test]
    fn a_subscription_is_disabled_once_and_for_the_destination_that_failed() {
        let disable = |sink_generation| {
            change("acme", Action::Disable { reason: DisabledReason::Gone, sink_generation })
        };
        let record = subscription();
        assert_eq!(step(Some(&record), disable(2)), refuse(Refusal::DestinationChanged));
        let (Some(Write::Put(off)), _) = step(Some(&record), disable(1)) else {
            panic!("nothing written")
        };
        assert!(!off.enabled);
        assert_eq!(off.disabled_reason, Some(DisabledReason::Gone));
        let again = step(Some(&off), disable(1));
        assert_eq!(again, (None, Decision::Written { version: off.version }));
    }

    #[test]
    fn a_deletion_writes_a_tombstone() {
        let answer = step(Some(&subscription()), change("acme", Action::Delete));
        assert_eq!(answer, (Some(Write::Delete), Decision::Deleted));
    }
}
