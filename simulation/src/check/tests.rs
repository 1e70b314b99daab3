//! Forged histories: a checker that could not fail would prove nothing. Each takes a history that
//! is sound, changes one thing, and names the invariant that has to notice.

use std::collections::BTreeSet;

use serde_json::json;
use streaming_hub_model::id::{EventId, JobId, SubscriptionId};
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::registry::Limits;
use streaming_hub_model::retry::RetrySchedule;
use streaming_hub_model::subscription::{Ordering, Subscription};
use streaming_hub_model::time::UnixMillis;
use uuid::Uuid;

use super::gates::Request;
use super::ledger::{Ledger, Rules};
use super::{Invariant, Violation, ended};
use crate::history::{
    Attempted, Call, Fact, Fate, History, JobRecord, Line, Place, Put, Row, Taken, Verdict,
};

const LIMITS: Limits = Limits { subscriptions_per_tenant: 9 };

fn event(n: u8) -> (String, EventId) {
    ("acme".to_owned(), EventId::from_parts(1_000, [n; 10]))
}

fn subscription_id() -> SubscriptionId {
    SubscriptionId::from_parts(1, [7; 10])
}

fn job_id(n: u8) -> JobId {
    JobId::derive("acme", event(n).1, subscription_id(), b"")
}

fn subscription(tenant: &str) -> Subscription {
    serde_json::from_value(json!({
        "id": subscription_id(), "tenant": tenant, "name": "all", "event_types": ["*"],
        "schema_major": 1, "sink": {"type": "webhook", "url": "https://d/", "secrets": []},
        "sink_generation": 1, "enabled": true, "verification_state": "active",
        "created_at": 1, "updated_at": 1, "version": 1,
    }))
    .unwrap()
}

fn row(tenant: &str) -> Row {
    let (id, row) = (subscription_id(), Some(subscription(tenant)));
    Row { partition: 0, offset: 0, at_ms: 0, id, row }
}

fn taken(n: u8) -> Taken {
    let wanted = ("app".to_owned(), "account".to_owned(), "created".to_owned(), 1);
    let offset = i64::from(n);
    let (table, at_ms) = (Some(1), Some(5));
    Taken { event: event(n), partition: 0, offset, arrival_ms: 5, table, at_ms, wanted }
}

fn put(n: u8, place: Place, attempts: u32) -> JobRecord {
    let facts = JobFacts {
        subscription: subscription_id(),
        matched: UnixMillis(5),
        table: 1,
        attempts,
        due: UnixMillis(5),
    };
    let put = Some(Put { event: event(n), facts, reason: None });
    JobRecord { place, partition: 0, offset: i64::from(n), job: job_id(n), put }
}

fn end(n: u8, place: Place) -> JobRecord {
    JobRecord { place, partition: 0, offset: 90, job: job_id(n), put: None }
}

fn attempted(n: u8, number: u32, delivered: bool) -> Attempted {
    let delivery_id = Uuid::from_u128(u128::from(n));
    Attempted { job: job_id(n), delivery_id, number, delivered, at_ms: 7 }
}

fn call(n: u8) -> Call {
    Call {
        job: job_id(n),
        delivery_id: Uuid::from_u128(u128::from(n)),
        subscription: subscription_id(),
        owner: "acme".to_owned(),
        tenant: "acme".to_owned(),
        caller: (1, 1),
        in_lane: false,
        at_most: 2,
        target: "https://d/".to_owned(),
        at_ms: 10,
        behind: None,
    }
}

/// A ledger that knows the subscription and the jobs of two events.
fn ledger() -> Ledger {
    ledger_with(row("acme"))
}

fn ledger_with(row: Row) -> Ledger {
    let mut ledger = Ledger::new(Rules {
        horizon_ms: 100_000,
        skew_ms: 0,
        clocks_ms: 0,
        schedule: RetrySchedule::new(vec![0, 1]).unwrap(),
        partitions: 1,
        salted: BTreeSet::new(),
    });
    ledger.take(&[Line::Row(row)]).unwrap();
    for n in [1, 2] {
        let lines = [Line::Taken(taken(n)), Line::Job(put(n, Place::Ready, 0))];
        ledger.take(&lines).unwrap();
    }
    // The second one's destination takes it.
    ledger.returned(call(2).delivery_id, true);
    ledger
}

fn noticed(result: Result<(), Violation>) -> Invariant {
    result.expect_err("a forged history passed").invariant
}

/// What a transaction of these lines breaks in a sound ledger.
fn breaks(lines: Vec<Line>) -> Invariant {
    noticed(ledger().take(&lines))
}

/// The first attempt of the job fails, and the job moves to the first tier.
fn fails_first(ledger: &mut Ledger) {
    ledger.call(&call(1)).unwrap();
    ledger.returned(call(1).delivery_id, false);
    let failed = [
        Line::Attempted(attempted(1, 1, false)),
        Line::Job(end(1, Place::Ready)),
        Line::Job(put(1, Place::Tier(1), 1)),
    ];
    ledger.take(&failed).unwrap();
}

#[test]
fn a_life_of_a_job_passes() {
    let mut ledger = ledger();
    fails_first(&mut ledger);
    ledger.call(&call(2)).unwrap();
    let delivered = [Line::Attempted(attempted(2, 1, true)), Line::Job(end(2, Place::Ready))];
    ledger.take(&delivered).unwrap();
    let exhausted = [
        Line::Attempted(attempted(1, 2, false)),
        Line::Job(end(1, Place::Tier(1))),
        Line::Job(put(1, Place::DeadLetter, 2)),
    ];
    ledger.take(&exhausted).unwrap();
}

#[test]
fn a_forged_transaction_is_noticed() {
    use Invariant::{I1, I2, I3, I4, I7, I8, I9};
    let stranger = Row { row: Some(subscription("other")), ..row("acme") };
    let early = Taken { table: Some(0), ..taken(3) };
    let late = Taken { table: Some(0), at_ms: Some(20_000), ..taken(3) };
    let swapped = Taken { offset: 0, ..taken(3) };
    let cases: Vec<(Invariant, Vec<Line>)> = vec![
        (I1, vec![Line::Taken(taken(1))]),
        (I2, vec![Line::Job(put(2, Place::Ready, 0))]),
        (I2, vec![Line::Job(put(5, Place::Ready, 0))]),
        (I2, vec![Line::Taken(early)]),
        (I2, vec![Line::Taken(late)]),
        (I3, vec![Line::Job(end(1, Place::Ready))]),
        (I3, vec![Line::Attempted(attempted(2, 1, true))]),
        (I7, vec![Line::Attempted(attempted(1, 1, true))]),
        (I3, vec![Line::Job(put(1, Place::Tier(1), 0))]),
        (I4, vec![Line::Attempted(attempted(1, 2, false))]),
        (I4, vec![Line::Attempted(attempted(9, 1, false))]),
        (I4, vec![Line::Job(put(1, Place::Tier(1), 1))]),
        (I8, vec![Line::Row(stranger), Line::Job(put(1, Place::Tier(1), 0))]),
        (I9, vec![Line::Taken(swapped), Line::Job(put(3, Place::Ready, 0))]),
    ];
    for (index, (invariant, lines)) in cases.into_iter().enumerate() {
        assert_eq!(breaks(lines), invariant, "case {index}");
    }
}

#[test]
fn attempts_that_never_end_break_their_schedule() {
    let mut ledger = ledger();
    for number in [1, 2] {
        ledger.take(&[Line::Attempted(attempted(1, number, false))]).unwrap();
    }
    let third = ledger.take(&[Line::Attempted(attempted(1, 3, false))]);
    assert_eq!(noticed(third), Invariant::I4);
}

#[test]
fn a_job_that_ends_with_a_subscription_that_was_never_deleted_is_noticed() {
    let mut dead = put(1, Place::DeadLetter, 0);
    dead.put.as_mut().unwrap().reason = Some("subscription_deleted".to_owned());
    assert_eq!(breaks(vec![Line::Job(end(1, Place::Ready)), Line::Job(dead)]), Invariant::I3);
}

#[test]
fn a_forged_call_is_noticed() {
    let foreign = Call { tenant: "other".to_owned(), ..call(1) };
    assert_eq!(noticed(ledger().call(&foreign)), Invariant::I8);
    assert_eq!(noticed(ledger().call(&call(5))), Invariant::I7, "a job that never committed");
    let mut swapped = ledger();
    swapped.call(&call(2)).unwrap();
    assert_eq!(noticed(swapped.call(&call(1))), Invariant::I9);
    let mut crowded = ledger();
    let narrow = |n| Call { at_most: 1, ..call(n) };
    crowded.call(&narrow(1)).unwrap();
    assert_eq!(noticed(crowded.call(&narrow(2))), Invariant::Limit);
}

#[test]
fn in_strict_order_nothing_is_begun_before_a_failed_job_is_over() {
    let mut strict = row("acme");
    strict.row.as_mut().unwrap().ordering = Ordering::Strict;
    let mut ledger = ledger_with(strict);
    ledger.born(1);
    fails_first(&mut ledger);
    let stale = Call { caller: (0, 1), ..call(2) };
    assert!(ledger.call(&stale).is_ok(), "who has lost the task may not know");
    let next = Call { delivery_id: Uuid::from_u128(70), ..call(2) };
    assert_eq!(noticed(ledger.call(&next)), Invariant::Gate);
    let restarted = Call { delivery_id: Uuid::from_u128(71), caller: (2, 1), ..call(2) };
    assert_eq!(noticed(ledger.call(&restarted)), Invariant::Gate);
}

#[test]
fn a_call_behind_what_its_caller_knows_is_noticed() {
    let held = Call { behind: Some("hold of everything".to_owned()), ..call(1) };
    assert_eq!(noticed(ledger().call(&held)), Invariant::Gate);
    let mut again = ledger();
    again.call(&call(1)).unwrap();
    again.returned(call(1).delivery_id, false);
    assert_eq!(noticed(again.call(&call(1))), Invariant::I4, "the same delivery id");
}

#[test]
fn a_destination_that_asks_for_time_has_it() {
    let asked = || {
        let mut ledger = ledger();
        ledger.call(&call(1)).unwrap();
        let of = ("acme".to_owned(), "https://d/".to_owned());
        let (caller, closed_until_ms, due) = ((1, 1), Some(20), UnixMillis(30));
        let request = Request { caller, of, closed_until_ms, due };
        ledger.asked(call(1).delivery_id, request);
        ledger
    };
    let retried = |due| {
        let mut moved = put(1, Place::Tier(1), 1);
        moved.put.as_mut().unwrap().facts.due = UnixMillis(due);
        let failed = Line::Attempted(attempted(1, 1, false));
        [failed, Line::Job(end(1, Place::Ready)), Line::Job(moved)]
    };
    assert_eq!(noticed(asked().take(&retried(29))), Invariant::Gate);
    let mut known = asked();
    known.take(&retried(30)).unwrap();
    known.call(&Call { caller: (2, 1), ..call(2) }).unwrap();
    let early = Call { delivery_id: Uuid::from_u128(70), ..call(2) };
    assert_eq!(noticed(known.call(&early)), Invariant::Gate);
    let late = Call { delivery_id: Uuid::from_u128(71), at_ms: 20, ..call(2) };
    known.call(&late).unwrap();
}

#[test]
fn a_position_that_goes_back_is_noticed() {
    let mut ledger = ledger();
    ledger.take_position("g", ("t", 0), 5).unwrap();
    ledger.take_position("g", ("t", 1), 1).unwrap();
    assert_eq!(noticed(ledger.take_position("g", ("t", 0), 4)), Invariant::I7);
}

/// A history of one event, one poison record and one system event, settled.
fn history() -> History {
    let fact = |from: &str, fate| Fact { from: from.to_owned(), fate };
    let verdict = |from: &str, quarantined| Verdict { from: from.to_owned(), quarantined };
    History {
        facts: vec![
            fact("f/0/0", Fate::Accept(event(1))),
            fact("f/0/1", Fate::Quarantine),
            fact("f/0/2", Fate::Drop),
        ],
        verdicts: vec![verdict("f/0/0", false), verdict("f/0/1", true)],
        inbox: vec![taken(1)],
        jobs: vec![put(1, Place::Ready, 0)],
        rows: vec![row("acme")],
        ..History::default()
    }
}

#[test]
fn a_forged_history_is_noticed() {
    type Forge = fn(&mut History);
    let cases: [(Invariant, Forge); 9] = [
        (Invariant::I7, |h| h.verdicts.truncate(1)),
        (Invariant::I7, |h| h.verdicts.push(h.verdicts[0].clone())),
        (Invariant::I7, |h| h.verdicts[0].quarantined = true),
        (Invariant::I7, |h| h.verdicts[0].from = "f/0/2".to_owned()),
        (Invariant::I1, |h| h.inbox.clear()),
        (Invariant::I1, |h| h.inbox.push(taken(2))),
        (Invariant::I2, |h| h.jobs.clear()),
        (Invariant::I2, |h| h.jobs.push(h.jobs[0].clone())),
        (Invariant::I2, |h| h.inbox[0].table = Some(0)),
    ];
    let judge = |h: &History| {
        ended::verdicts(h).and_then(|()| ended::inbox(h)).and_then(|()| ended::jobs(h, 1))
    };
    judge(&history()).unwrap();
    for (index, (invariant, forge)) in cases.into_iter().enumerate() {
        let mut forged = history();
        forge(&mut forged);
        assert_eq!(noticed(judge(&forged)), invariant, "case {index}");
    }
    // A row that no change made.
    assert_eq!(noticed(ended::registry(&history(), LIMITS)), Invariant::I7);
}
