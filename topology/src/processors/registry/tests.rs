//! The registry decides one change after the other, says what it decided, and finds its rows again
//! in the topic that it writes.

use std::collections::BTreeMap;

use streaming_hub_model::change::{Action, Refusal};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_state::{Family, KeyRange};
use uuid::Uuid;

use super::*;
use crate::processors::testing::fixtures::Counters;
use crate::processors::testing::logs::Entry;
use crate::processors::testing::{Bench, Restart};
use crate::table::tests::{id, subscription as row};
use crate::topology;
use proptest::prelude::*;

const PARTITION: i32 = 1;

fn bench(subscriptions_per_tenant: u32) -> (Bench<Registry>, Counters) {
    let counters = Counters::new();
    let metrics = Arc::clone(&counters.metrics);
    let make = move || Registry::new(Limits { subscriptions_per_tenant }, Arc::clone(&metrics));
    (Bench::new(topology::registry(), PARTITION, make), counters)
}

/// A wish of `tenant` about its subscription `n`; wishes are told apart by `number`.
fn change(number: u128, tenant: &str, n: u8, action: Action) -> Change {
    Change {
        id: Uuid::from_u128(number),
        reply_to: "instance".into(),
        tenant: TenantId::parse(tenant).unwrap(),
        subscription: id(n),
        action,
    }
}

fn create(tenant: &str, n: u8) -> Action {
    let record = serde_json::from_value(row(n, tenant, &["account.created"])).unwrap();
    Action::Create { record: Box::new(record) }
}

fn verified(sink_generation: u64) -> Action {
    Action::Verified { sink_generation, failure: None }
}

fn record(change: &Change) -> Entry {
    let key = change.tenant.as_str().as_bytes().to_vec();
    Entry { key: Some(key), value: serde_json::to_vec(change).ok(), ..Entry::default() }
}

/// What became of a change, by the reply in the open transaction.
fn decide(bench: &mut Bench<Registry>, change: &Change) -> Decision {
    bench.feed(record(change));
    let (topic, entry) = bench.open().last().unwrap();
    assert_eq!((*topic, entry.partition), (Topic::SubscriptionReplies, 0));
    assert_eq!(entry.key_text(), change.id.to_string());
    let reply: Reply = serde_json::from_value(entry.json()).unwrap();
    assert_eq!(reply.change, change.id);
    reply.verdict
}

fn refused(refusal: Refusal) -> Decision {
    Decision::Refused { refusal }
}

/// The subscriptions topic: what is there now.
fn published(bench: &Bench<Registry>) -> BTreeMap<String, Subscription> {
    let live = bench.logs.live(Topic::Subscriptions);
    live.into_iter().map(|(id, e)| (id, serde_json::from_value(e.json()).unwrap())).collect()
}

/// The store says what the topic says, and lists each row under its tenant.
fn check(bench: &Bench<Registry>) {
    let mut rows = BTreeMap::new();
    for (_, value) in bench.state.collect(&KeyRange::family(Family::Subscription), 999).unwrap() {
        let row: Subscription = serde_json::from_slice(&value).unwrap();
        rows.insert(row.id.to_string(), row);
    }
    assert_eq!(rows, published(bench));
    let all = KeyRange::family(Family::TenantSubscription);
    let listed: Vec<_> =
        bench.state.collect(&all, 999).unwrap().into_iter().map(|(key, _)| key).collect();
    let mut expected: Vec<_> = rows
        .values()
        .map(|row| tenant_subscription::key(row.tenant.as_str().as_bytes(), row.id.as_bytes()))
        .collect();
    expected.sort();
    assert_eq!(listed, expected);
}

#[test]
fn a_change_is_written_whole_and_its_reply_carries_the_decision() {
    let (mut bench, counters) = bench(9);
    let created = change(1, "acme", 1, create("acme", 1));
    assert_eq!(decide(&mut bench, &created), Decision::Written { version: 1 });
    let (topic, entry) = &bench.open()[0];
    assert_eq!((*topic, entry.partition), (Topic::Subscriptions, PARTITION));
    assert_eq!(entry.key_text(), id(1).to_string());
    assert_eq!(entry.json()["verification_state"], "pending");
    let probed = change(2, "acme", 1, verified(1));
    assert_eq!(decide(&mut bench, &probed), Decision::Written { version: 2 });
    let failed = Action::Verified { sink_generation: 1, failure: Some("http_5xx".into()) };
    let failed = change(3, "acme", 1, failed);
    assert_eq!(decide(&mut bench, &failed), Decision::Written { version: 3 });
    bench.commit();
    check(&bench);
    let rows = published(&bench);
    assert_eq!(rows[&id(1).to_string()].verification_failure.as_deref(), Some("http_5xx"));
    let deleted = change(4, "acme", 1, Action::Delete { expected: None });
    assert_eq!(decide(&mut bench, &deleted), Decision::Deleted);
    assert_eq!(bench.open()[0].1.value, None, "a tombstone");
    bench.commit();
    check(&bench);
    assert!(published(&bench).is_empty());
    assert_eq!(counters.count("changes_total", "written"), 3);
    assert_eq!(counters.count("changes_total", "deleted"), 1);
}

#[test]
fn a_refused_change_writes_its_reply_and_nothing_else() {
    let (mut bench, counters) = bench(9);
    decide(&mut bench, &change(1, "acme", 1, create("acme", 1)));
    bench.commit();
    let cases = [
        (change(2, "acme", 1, verified(7)), Refusal::DestinationChanged),
        (change(3, "acme", 2, Action::Delete { expected: None }), Refusal::NotFound),
        (change(4, "evil", 1, Action::Delete { expected: None }), Refusal::NotFound),
        (change(5, "evil", 1, create("evil", 1)), Refusal::Exists),
    ];
    for (wish, refusal) in cases {
        assert_eq!(decide(&mut bench, &wish), refused(refusal));
        assert_eq!(bench.open().len(), 1);
        bench.commit();
        check(&bench);
    }
    assert_eq!(counters.count("changes_total", "refused"), 4);
}

#[test]
fn of_two_creates_of_one_id_the_first_wins_also_within_a_transaction() {
    let (mut bench, _) = bench(9);
    let created = |number| change(number, "acme", 1, create("acme", 1));
    assert_eq!(decide(&mut bench, &created(1)), Decision::Written { version: 1 });
    assert_eq!(decide(&mut bench, &created(2)), refused(Refusal::Exists));
    bench.commit();
    assert_eq!(decide(&mut bench, &created(3)), refused(Refusal::Exists));
    for how in Restart::all() {
        bench.restart(how);
        assert_eq!(decide(&mut bench, &created(4)), refused(Refusal::Exists), "{how:?}");
        bench.commit();
    }
}

#[test]
fn the_limit_holds_per_tenant_and_over_restarts_and_a_deletion_makes_room() {
    for how in Restart::all() {
        let (mut bench, _) = bench(2);
        let wish = |bench: &mut Bench<Registry>, tenant: &str, n: u8, action| {
            let decision = decide(bench, &change(u128::from(n), tenant, n, action));
            bench.commit();
            decision
        };
        wish(&mut bench, "acme", 1, create("acme", 1));
        wish(&mut bench, "acme", 2, create("acme", 2));
        let other = wish(&mut bench, "acme2", 3, create("acme2", 3));
        assert_eq!(other, Decision::Written { version: 1 }, "another tenant's limit is its own");
        bench.flush();
        assert_eq!(wish(&mut bench, "acme", 4, create("acme", 4)), refused(Refusal::TooMany));
        bench.restart(how);
        check(&bench);
        assert_eq!(wish(&mut bench, "acme", 4, create("acme", 4)), refused(Refusal::TooMany));
        wish(&mut bench, "acme", 1, Action::Delete { expected: None });
        bench.restart(how);
        check(&bench);
        let written = wish(&mut bench, "acme", 4, create("acme", 4));
        assert_eq!(written, Decision::Written { version: 1 });
        bench.restart(how);
        assert_eq!(wish(&mut bench, "acme", 5, create("acme", 5)), refused(Refusal::TooMany));
    }
}

#[test]
fn a_change_is_decided_anew_after_an_abort_and_counted_once() {
    let (mut bench, counters) = bench(1);
    let created = change(1, "acme", 1, create("acme", 1));
    decide(&mut bench, &created);
    bench.abort();
    assert_eq!(bench.position, 0);
    bench.read(9);
    bench.commit();
    check(&bench);
    assert_eq!(bench.logs.all(Topic::SubscriptionReplies).len(), 1);
    assert_eq!(counters.count("changes_total", "written"), 1);
}

#[test]
fn garbage_among_the_changes_is_skipped_and_counted() {
    let (mut bench, counters) = bench(9);
    for value in [None, Some(b"".to_vec()), Some(b"{\"id\":1}".to_vec()), Some(vec![0xff])] {
        bench.feed(Entry { value, ..Entry::default() });
    }
    assert!(bench.open().is_empty());
    let created = change(1, "acme", 1, create("acme", 1));
    assert_eq!(decide(&mut bench, &created), Decision::Written { version: 1 });
    bench.commit();
    assert_eq!(counters.count("changes_total", "unreadable"), 4);
}

#[test]
fn a_strangers_record_among_the_subscriptions_makes_no_row() {
    let (mut bench, _) = bench(9);
    let key = |n| Some(id(n).to_string().into_bytes());
    let other = row(2, "acme", &["*"]).to_string().into_bytes();
    for (key, value) in [
        (None, Some(other.clone())),
        (Some(vec![0xff]), None),
        (key(1), Some(other)),
        (key(3), None),
    ] {
        let entry = Entry { key, value, partition: PARTITION, ..Entry::default() };
        bench.logs.commit(vec![("hub-subscriptions".into(), entry)], 0);
    }
    bench.restart(Restart::COLD);
    let rows = bench.state.collect(&KeyRange::family(Family::Subscription), 9).unwrap();
    assert!(rows.is_empty());
}

#[derive(Debug, Clone)]
enum Op {
    Create(u8),
    Delete(u8),
    Verify(u8),
    Commit,
    Abort,
    Flush,
    Restart(Restart),
}

fn op() -> impl Strategy<Value = Op> {
    let restart = (any::<bool>(), any::<bool>(), any::<u64>())
        .prop_map(|(keeps_store, compacted, seed)| Restart { keeps_store, compacted, seed });
    prop_oneof![
        4 => (0u8..6).prop_map(Op::Create),
        3 => (0u8..6).prop_map(Op::Delete),
        2 => (0u8..6).prop_map(Op::Verify),
        3 => Just(Op::Commit),
        1 => Just(Op::Abort),
        1 => Just(Op::Flush),
        1 => restart.prop_map(Op::Restart),
    ]
}

proptest! {
    #[test]
    fn the_store_is_the_topic_and_no_limit_is_exceeded_whatever_aborts_and_restarts_there_are(
        ops in prop::collection::vec(op(), 0..60),
    ) {
        let (mut bench, _) = bench(2);
        let tenant = |n: u8| if n < 3 { "acme" } else { "globex" };
        let mut number = 0;
        for op in ops {
            let mut wish = |n: u8, action| {
                number += 1;
                bench.produce(record(&change(number, tenant(n), n, action)));
            };
            match op {
                Op::Create(n) => wish(n, create(tenant(n), n)),
                Op::Delete(n) => wish(n, Action::Delete { expected: None }),
                Op::Verify(n) => wish(n, verified(1)),
                Op::Commit => bench.commit(),
                Op::Abort => bench.abort(),
                Op::Flush => bench.flush(),
                Op::Restart(how) => bench.restart(how),
            }
            bench.read(2);
        }
        bench.read(usize::MAX);
        bench.commit();
        check(&bench);
        let replies = bench.logs.all(Topic::SubscriptionReplies).len();
        prop_assert_eq!(u128::try_from(replies).unwrap(), number, "one decision for each change");
        for tenant in ["acme", "globex"] {
            let rows = published(&bench);
            let count = rows.values().filter(|row| row.tenant.as_str() == tenant).count();
            prop_assert!(count <= 2);
        }
    }
}

fn key_wish(number: u128, n: u8, wish: Wish) -> Change {
    change(number, "acme", n, Action::Idempotency { wish })
}

fn claim(body: &str) -> Wish {
    Wish::Claim { scope: "ab".repeat(32), body: body.into(), lease_ms: 1_000 }
}

#[test]
fn an_idempotency_key_is_known_over_restarts_and_with_it_the_answer() {
    for how in Restart::all() {
        let (mut bench, _) = bench(9);
        let first = decide(&mut bench, &key_wish(1, 1, claim("b")));
        assert_eq!(first, Decision::Claimed { seed: id(1) });
        bench.commit();
        bench.restart(how);
        let second = decide(&mut bench, &key_wish(2, 2, claim("b")));
        assert_eq!(second, refused(Refusal::InProgress), "{how:?}");
        let answer =
            keys::Answer { status: 201, headers: Vec::new(), body: "{}".into(), secret: None };
        let keep = Wish::Keep { scope: "ab".repeat(32), answer: Box::new(answer.clone()) };
        assert_eq!(decide(&mut bench, &key_wish(3, 3, keep)), Decision::Noted);
        bench.commit();
        bench.restart(how);
        let again = decide(&mut bench, &key_wish(4, 4, claim("b")));
        assert_eq!(again, Decision::Repeated { answer: Box::new(answer) }, "{how:?}");
        let other = decide(&mut bench, &key_wish(5, 5, claim("c")));
        assert_eq!(other, refused(Refusal::OtherBody), "{how:?}");
        bench.commit();
        check(&bench);
    }
}

#[test]
fn an_aborted_claim_was_never_made() {
    let (mut bench, _) = bench(9);
    decide(&mut bench, &key_wish(1, 1, claim("b")));
    bench.abort();
    assert!(bench.logs.live(Topic::Idempotency).is_empty());
}
