//! What becomes of each change, alone and after others.

use super::*;
use crate::change::{By, NewSink, Setting};
use crate::secret::Sealed;
use crate::subscription::tests::subscription;
use crate::subscription::{Ordering, SigningSecret, SinkConfig, WebhookConfig};
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
    for action in [Action::Delete { expected: None }, verified] {
        assert_eq!(step(Some(&record), change("evil", action)), refuse(Refusal::NotFound));
    }
    assert_eq!(
        step(None, change("acme", Action::Delete { expected: None })),
        refuse(Refusal::NotFound)
    );
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
    let answer = step(Some(&subscription()), change("acme", Action::Delete { expected: None }));
    assert_eq!(answer, (Some(Write::Delete), Decision::Deleted));
}

fn patch(expected: Option<u64>, set: Vec<Setting>) -> Change {
    change("acme", Action::Patch { expected, by: By::Tenant, set })
}

fn put_by((write, decision): (Option<Write>, Decision)) -> Subscription {
    match write {
        Some(Write::Put(record)) => *record,
        _ => panic!("nothing written: {decision:?}"),
    }
}

#[test]
fn a_patch_sets_what_it_names_and_nothing_else() {
    let record = subscription();
    let set = vec![Setting::Name("new".into()), Setting::MaxInFlight(7), Setting::Paused(true)];
    let new = put_by(step(Some(&record), patch(Some(1), set)));
    let mut expected = record.clone();
    expected.name = "new".into();
    (expected.max_in_flight, expected.paused) = (7, true);
    (expected.version, expected.updated_at) = (2, NOW);
    assert_eq!(new, expected);
    let same = step(Some(&record), patch(None, vec![Setting::Paused(false)]));
    assert_eq!(same, (None, Decision::Written { version: 1 }), "no change is no version");
}

#[test]
fn two_patches_of_one_version_do_not_both_win_when_they_say_which_they_saw() {
    let record = subscription();
    let first = put_by(step(Some(&record), patch(Some(1), vec![Setting::Name("a".into())])));
    let second = patch(Some(1), vec![Setting::Name("b".into())]);
    assert_eq!(step(Some(&first), second), refuse(Refusal::Stale));
    // Without it, fields that the other did not name survive.
    let third = put_by(step(Some(&first), patch(None, vec![Setting::MaxInFlight(3)])));
    assert_eq!((&*third.name, third.max_in_flight, third.version), ("a", 3, 3));
    let stale = change("acme", Action::Delete { expected: Some(2) });
    assert_eq!(step(Some(&third), stale), refuse(Refusal::Stale));
}

#[test]
fn a_strict_order_has_one_attempt_at_once_whichever_is_set_first() {
    let mut record = subscription();
    let strict = || Setting::Ordering(Ordering::Strict);
    let set = vec![Setting::MaxInFlight(2), strict()];
    assert_eq!(step(Some(&record), patch(None, set)), refuse(Refusal::StrictNeedsOne));
    record.max_in_flight = 2;
    assert_eq!(step(Some(&record), patch(None, vec![strict()])), refuse(Refusal::StrictNeedsOne));
    let both = vec![strict(), Setting::MaxInFlight(1)];
    let strict = put_by(step(Some(&record), patch(None, both)));
    assert_eq!(
        step(Some(&strict), patch(None, vec![Setting::MaxInFlight(2)])),
        refuse(Refusal::StrictNeedsOne)
    );
}

#[test]
fn who_may_enable_depends_on_why_it_is_off() {
    use DisabledReason as R;
    let table = [
        (R::Tenant, By::Tenant, Ok(())),
        (R::Tenant, By::Operator, Ok(())),
        (R::Operator, By::Tenant, Err(Refusal::DisabledByOperator)),
        (R::Operator, By::Operator, Ok(())),
        (R::Gone, By::Tenant, Err(Refusal::VerificationRequired)),
        (R::Failing, By::Operator, Err(Refusal::VerificationRequired)),
    ];
    for (reason, by, expected) in table {
        let mut off = subscription();
        (off.enabled, off.disabled_reason) = (false, Some(reason));
        let set = vec![Setting::Enabled(true)];
        let answer = step(Some(&off), change("acme", Action::Patch { expected: None, by, set }));
        match expected {
            Ok(()) => {
                let on = put_by(answer);
                assert!(on.enabled && on.disabled_reason.is_none(), "{reason:?}");
            }
            Err(refusal) => assert_eq!(answer, refuse(refusal), "{reason:?} {by:?}"),
        }
    }
}

#[test]
fn a_successful_verification_enables_what_failures_had_switched_off_and_nothing_else() {
    use DisabledReason as R;
    let table = [(R::Gone, true), (R::Failing, true), (R::Tenant, false), (R::Operator, false)];
    for (reason, enabled) in table {
        let mut off = subscription();
        (off.enabled, off.disabled_reason) = (false, Some(reason));
        let failed = Action::Verified { sink_generation: 1, failure: Some("x".into()) };
        assert!(!put_by(step(Some(&off), change("acme", failed))).enabled);
        let verified = Action::Verified { sink_generation: 1, failure: None };
        let on = put_by(step(Some(&off), change("acme", verified)));
        assert_eq!(on.enabled, enabled, "{reason:?}");
        assert_eq!(on.verified_at, Some(NOW));
    }
}

fn webhook(url: &str) -> SinkConfig {
    SinkConfig::Webhook(WebhookConfig { url: url.into(), secrets: Vec::new() })
}

fn redirect(from_generation: u64, verified: bool) -> Change {
    let config = webhook("https://example.com/b");
    let sink = NewSink { config, from_generation, verified };
    patch(None, vec![Setting::Sink(Box::new(sink))])
}

#[test]
fn an_active_destination_is_replaced_only_by_one_that_was_probed() {
    let record = subscription();
    assert_eq!(step(Some(&record), redirect(1, false)), refuse(Refusal::DestinationChanged));
    assert_eq!(step(Some(&record), redirect(2, true)), refuse(Refusal::DestinationChanged));
    let new = put_by(step(Some(&record), redirect(1, true)));
    assert_eq!(new.verification_state, VerificationState::Active);
    assert_eq!((new.sink, new.sink_generation), (webhook("https://example.com/b"), 2));
    let mut failed = record;
    failed.verification_state = VerificationState::Failed;
    let new = put_by(step(Some(&failed), redirect(1, false)));
    assert_eq!(new.verification_state, VerificationState::Pending);
}

#[test]
fn a_verification_of_one_destination_and_a_patch_to_another_come_out_the_same_in_any_order() {
    let mut record = subscription();
    record.verification_state = VerificationState::Pending;
    let verified = || change("acme", Action::Verified { sink_generation: 1, failure: None });
    // The patch first: the probe was of the old destination and does not count.
    let patched = put_by(step(Some(&record), redirect(1, false)));
    assert_eq!(step(Some(&patched), verified()), refuse(Refusal::DestinationChanged));
    // The verification first: an unprobed destination may no longer replace it.
    let active = put_by(step(Some(&record), verified()));
    assert_eq!(step(Some(&active), redirect(1, false)), refuse(Refusal::DestinationChanged));
    // A deletion in between ends both.
    assert_eq!(step(None, verified()), refuse(Refusal::NotFound));
    assert_eq!(step(None, redirect(1, true)), refuse(Refusal::NotFound));
    // Two verifications: the later result stands.
    let again = put_by(step(Some(&active), verified()));
    assert_eq!((again.verification_state, again.version), (VerificationState::Active, 3));
}

fn sealed(text: &str) -> Sealed {
    Sealed { key_id: "k".into(), data: text.into() }
}

fn rotate(id: u128, secret: &str, overlap_ms: u64) -> Change {
    let action = Action::Rotate { expected: None, sealed: sealed(secret), overlap_ms };
    Change { id: Uuid::from_u128(id), ..change("acme", action) }
}

fn secrets(record: &Subscription) -> Vec<(&str, Option<i64>)> {
    let SinkConfig::Webhook(webhook) = &record.sink else { panic!("no webhook") };
    let pair = |s: &SigningSecret| s.valid_until.map(|until| until.0);
    webhook.secrets.iter().map(|s| (&*s.sealed.data, pair(s))).collect()
}

#[test]
fn a_rotation_keeps_the_newest_two_and_the_older_of_them_for_the_overlap() {
    let mut record = subscription();
    let SinkConfig::Webhook(own) = &mut record.sink else { panic!("no webhook") };
    own.secrets.push(SigningSecret { sealed: sealed("a"), valid_until: None, made_by: None });
    let b = put_by(step(Some(&record), rotate(1, "b", 100)));
    assert_eq!(secrets(&b), [("b", None), ("a", Some(177))]);
    assert_eq!((b.sink_generation, b.verification_state), (2, VerificationState::Active));
    let c = put_by(step(Some(&b), rotate(2, "c", 100)));
    assert_eq!(secrets(&c), [("c", None), ("b", Some(177))]);
    let leaked = put_by(step(Some(&c), rotate(3, "d", 0)));
    assert_eq!(secrets(&leaked), [("d", None)], "an overlap of 0 ends the old one at once");
    let again = step(Some(&leaked), rotate(3, "e", 0));
    assert_eq!(again, (None, Decision::Written { version: leaked.version }), "once for a change");
}

#[test]
fn a_reseal_replaces_what_is_still_there() {
    let mut record = subscription();
    let SinkConfig::Webhook(own) = &mut record.sink else { panic!("no webhook") };
    own.secrets.push(SigningSecret { sealed: sealed("a"), valid_until: None, made_by: None });
    let pairs = vec![(sealed("a"), sealed("A")), (sealed("gone"), sealed("G"))];
    let reseal = || change("acme", Action::Resealed { pairs: pairs.clone() });
    let new = put_by(step(Some(&record), reseal()));
    assert_eq!(secrets(&new), [("A", None)]);
    assert_eq!(step(Some(&new), reseal()), (None, Decision::Written { version: new.version }));
}
