//! The rules against forged histories: the true one is without fault, each forgery is found.

use std::sync::Arc;

use super::*;
use crate::api::{Subscriber, Wanted};
use crate::chaos::consume::Consumed;
use crate::chaos::gather::source;
use crate::chaos::writer::Acknowledged;
use crate::check::{Delivered, History};
use crate::facts::{Fact, header};
use crate::internal::Position;
use crate::producer::Source;
use crate::receiver::Request;
use crate::signature;

const SECRET: &str = "whsec_of-a-test";
const TOPIC: &str = "lerian.streaming.ledger";

fn record(topic: &str, offset: i64, key: &str, value: Option<&[u8]>) -> Record {
    Record {
        topic: topic.to_owned(),
        partition: 0,
        offset,
        timestamp_ms: 5,
        key: Some(key.as_bytes().to_vec()),
        headers: Vec::new(),
        value: value.map(<[u8]>::to_vec),
    }
}

fn fact(n: u8) -> Fact {
    let id = format!("01a0c450-6d12-7c2b-8128-9b05b624f9{n:02}");
    Fact::new("ledger", "t", &id, ("account", "created"))
}

/// A record of the source topic.
fn produced(fact: &Fact, offset: i64) -> Source {
    let record = record(TOPIC, offset, "t", fact.value.as_deref());
    source(Record { headers: fact.headers.clone(), ..record })
}

/// An internal record of an event.
fn internal(topic: &str, of: &Source, key: &str, hubs: &[(&str, &str)]) -> Record {
    let mut headers = of.fact.travelling();
    let (id, place) = (of.fact.id(), of.place());
    let own = [("hub-tenant", "t"), ("hub-id", &id), ("hub-major", "1"), ("hub-from", &place)];
    headers.extend(own.iter().chain(hubs).map(|(name, value)| header(name, value)));
    Record { headers, ..record(topic, of.offset, key, of.fact.value.as_deref()) }
}

fn request(of: &Source, delivery: usize) -> Arc<Request> {
    let body = of.fact.value.clone().unwrap_or_default();
    let lines = [
        ("X-Webhook-Timestamp", "100".to_owned()),
        ("X-Webhook-Signature", signature::expected(SECRET, "100", &body)),
        ("X-Lerian-Event-Id", of.fact.id()),
        ("X-Lerian-Event-Type", "account.created".to_owned()),
        ("X-Lerian-Tenant-Id", "t".to_owned()),
        ("X-Lerian-Delivery-Id", format!("{delivery:036}")),
        ("X-Lerian-Schema-Version", "1.0.0".to_owned()),
        ("Content-Type", "application/json".to_owned()),
    ];
    Arc::new(Request {
        at_ms: 100_000,
        method: "POST".to_owned(),
        target: "/t/all".to_owned(),
        headers: lines.map(|(name, value)| (name.to_owned(), value.into_bytes())).to_vec(),
        body,
    })
}

fn attempt(of: &Source, job: usize, number: u64, outcome: &str) -> Record {
    let value = serde_json::json!({
        "job": format!("job-{job}"), "delivery_id": format!("{job:036}"), "subscription": "s-1",
        "event_id": of.fact.id(), "attempt": number, "outcome": outcome,
    });
    record("attempts", of.offset, "s-1", Some(value.to_string().as_bytes()))
}

/// Four events, one of them twice, and a malformed record; all jobs delivered but the last, which
/// is given up after its two attempts.
fn truth() -> Evidence {
    let bad = fact(9).without("ce-time");
    let facts = [fact(1), fact(2), fact(3), fact(4), fact(2), bad];
    let sources: Vec<_> = facts.iter().zip(0..).map(|(fact, n)| produced(fact, n)).collect();
    let (mut inbox, mut deliveries, mut requests) = (vec![], vec![], vec![]);
    let (mut attempts, mut dead_letters) = (vec![], vec![]);
    for (n, of) in sources[..4].iter().enumerate() {
        let job = format!("job-{n}");
        inbox.push(internal("inbox", of, &of.fact.id(), &[]));
        deliveries.push(internal("deliveries", of, &job, &[("hub-subscription", "s-1")]));
        deliveries.push(record("deliveries", 10 + of.offset, &job, None));
        requests.push(request(of, n));
        attempts.push(attempt(of, n, 1, if n == 3 { "failed" } else { "delivered" }));
    }
    attempts.push(attempt(&sources[3], 3, 2, "failed"));
    dead_letters.push(internal(
        "dead-letters",
        &sources[3],
        "job-3",
        &[("hub-reason", "exhausted")],
    ));
    let tier = internal("retry-01", &sources[3], "job-3", &[("hub-due", "90000")]);
    let place = sources[5].place();
    let mut quarantine = record("quarantine", 0, &place, sources[5].fact.value.as_deref());
    quarantine.headers.clone_from(&sources[5].fact.headers);
    let hubs = [("hub-reason", "missing_header"), ("hub-from", &place), ("hub-timestamp", "5")];
    let hubs = hubs.into_iter().chain([("hub-key", "t")]);
    quarantine.headers.extend(hubs.map(|(name, value)| header(name, value)));
    let acknowledged = sources.iter().map(|source| Acknowledged {
        topic: TOPIC.to_owned(),
        partition: 0,
        offset: source.offset,
        id: source.fact.id(),
    });
    let acknowledged = acknowledged.collect();
    Evidence {
        history: History {
            sources,
            subscribers: vec![subscriber()],
            default_tenant: None,
            inbox,
            deliveries,
            quarantine: vec![quarantine],
            requests,
            delivered: Delivered::AtLeastOnce,
        },
        acknowledged,
        tiers: [(1, vec![tier, record("retry-01", 9, "job-3", None)])].into(),
        dead_letters,
        attempts,
        consumed: vec![Consumed {
            id: "p-1".to_owned(),
            wanted: Wanted::all("t", "pull"),
            served: (0u64..4).map(|n| (3 * n + 1, facts[n as usize].id())).collect(),
            failed: 2,
        }],
        positions: vec![position(Some(6))],
        salted: Vec::new(),
        attempts_max: 2,
        read_ms: 100_000,
    }
}

fn subscriber() -> Subscriber {
    Subscriber {
        id: "s-1".to_owned(),
        secret: SECRET.to_owned(),
        path: "/t/all".to_owned(),
        wanted: Wanted::all("t", "all").in_flight(1),
        takes: true,
    }
}

fn position(committed: Option<i64>) -> Position {
    Position { topic: TOPIC.to_owned(), partition: 0, committed, end: 6 }
}

/// The first fault of a forged history.
fn found(forge: impl FnOnce(&mut Evidence)) -> String {
    let mut evidence = truth();
    forge(&mut evidence);
    faults(&evidence).into_iter().next().unwrap_or_default()
}

fn assert_found(what: &str, forge: impl FnOnce(&mut Evidence)) {
    let fault = found(forge);
    assert!(fault.starts_with(what), "{what}: {fault:?}");
}

#[test]
fn a_true_history_is_without_fault() {
    assert_eq!(faults(&truth()), Vec::<String>::new());
    assert_eq!(accepted(&truth()), (5, 4));
}

#[test]
fn one_that_is_lost_is_found() {
    assert_found("inbox", |e| drop(e.history.inbox.remove(1)));
    assert_found("jobs", |e| drop(e.history.deliveries.drain(2..4)));
    assert_found("quarantine", |e| e.history.quarantine.clear());
    assert_found("requests", |e| drop(e.history.requests.remove(1)));
    assert_found("sources", |e| e.acknowledged[4].offset = 77);
    assert_found("positions", |e| e.positions = vec![position(Some(5))]);
    assert_found("positions", |e| e.positions = vec![position(None)]);
    // The outcome of a job, the dead letter of one, an attempt in the middle.
    assert_found("jobs: job-1 waits in []", |e| drop(e.attempts.remove(1)));
    assert_found("jobs: job-3 waits in []", |e| e.dead_letters.clear());
    assert_found("attempts: job-3 has the numbers [2]", |e| drop(e.attempts.remove(3)));
}

#[test]
fn one_that_is_doubled_is_found() {
    assert_found("inbox", |e| e.history.inbox.push(e.history.inbox[1].clone()));
    assert_found("jobs", |e| e.history.deliveries.push(e.history.deliveries[0].clone()));
    assert_found("quarantine", |e| e.history.quarantine.push(e.history.quarantine[0].clone()));
    assert_found("jobs: job-1 waits in []", |e| e.attempts.push(e.attempts[1].clone()));
    assert_found("attempts: job-3 has the numbers", |e| e.attempts.push(e.attempts[4].clone()));
    assert_found("jobs: job-3", |e| e.dead_letters.push(e.dead_letters[0].clone()));
    // A tombstone that was lost: the job lies in two places.
    assert_found("jobs: job-3 waits in [\"retry-01/0/3\"]", |e| {
        e.tiers.entry(1).and_modify(|tier| drop(tier.pop()));
    });
    assert_found("jobs: job-0 waits in [\"deliveries/0/0\"]", |e| {
        drop(e.history.deliveries.remove(1));
    });
}

#[test]
fn two_that_are_swapped_are_found() {
    assert_found("order: the receiver", |e| e.history.requests.swap(0, 1));
    assert_found("order: the log of attempts", |e| e.attempts.swap(0, 1));
    assert_found("inbox", |e| {
        let value = e.history.inbox[0].value.take();
        e.history.inbox[0].value = std::mem::replace(&mut e.history.inbox[1].value, value);
    });
    let both = |e: &mut Evidence| {
        e.history.requests.swap(0, 1);
        e.attempts.swap(0, 1);
    };
    assert_ne!(found(both), "");
    // A salted tenant has no order, and several attempts at once have none.
    assert_eq!(found(|e| (both(e), e.salted = vec!["t".to_owned()]).1), "");
    let several = |e: &mut Evidence| e.history.subscribers[0].wanted.max_in_flight = Some(8);
    assert_eq!(found(|e| (both(e), several(e)).1), "");
}

#[test]
fn an_entry_that_a_consumer_lost_or_got_twice_or_out_of_order_is_found() {
    assert_found("pull: p-1 was never served", |e| drop(e.consumed[0].served.remove(1)));
    let again = |e: &mut Evidence| {
        let id = e.consumed[0].served[1].1.clone();
        e.consumed[0].served.push((99, id));
    };
    assert_found("pull: p-1 was served 01a0c450", again);
    assert_found("pull: p-1 was served (4", |e| {
        let twice = e.consumed[0].served[1].clone();
        e.consumed[0].served.insert(2, twice);
    });
    // The entries, and only their events.
    assert_found("pull: p-1 was served (1", |e| e.consumed[0].served.swap(0, 1));
    let swapped = |e: &mut Evidence| {
        let served = &mut e.consumed[0].served;
        let id = std::mem::take(&mut served[0].1);
        served[0].1 = std::mem::replace(&mut served[1].1, id);
    };
    assert_found("order: the consumer", swapped);
    assert_eq!(found(|e| (swapped(e), e.salted = vec!["t".to_owned()]).1), "");
    // Another's event.
    let foreign = |e: &mut Evidence| e.consumed[0].wanted.tenant = "t-2".to_owned();
    assert_found("pull: p-1 was served 01a0c450", foreign);
}

#[test]
fn what_a_crash_may_repeat_is_no_fault() {
    let again = |e: &mut Evidence| {
        let again = request(&e.history.sources[0], 70);
        e.history.requests.insert(2, again);
    };
    assert_eq!(found(again), "");
    // A first attempt that never arrived: its retry is seen behind the next job's.
    let late = |e: &mut Evidence| {
        let retry = Arc::unwrap_or_clone(e.history.requests.remove(0));
        e.history.requests.insert(2, Arc::new(retry));
        let retry = String::from_utf8(e.attempts[0].value.clone().unwrap_or_default());
        let failed = retry.unwrap_or_default().replace("delivered", "failed");
        let failed = failed.replace(&format!("{:036}", 0), "lost");
        let delivered = e.attempts[0].clone();
        let second = String::from_utf8(delivered.value.unwrap_or_default()).unwrap_or_default();
        e.attempts[0].value = Some(failed.into_bytes());
        let second = second.replace("\"attempt\":1", "\"attempt\":2").into_bytes();
        e.attempts.push(Record { value: Some(second), ..e.attempts[0].clone() });
    };
    assert_eq!(found(late), "");
    // A first attempt whose owner died before it was recorded: its repetition is recorded late.
    let unrecorded = |e: &mut Evidence| {
        let first = request(&e.history.sources[0], 71);
        e.history.requests.insert(0, first);
        e.attempts.swap(0, 1);
    };
    assert_eq!(found(unrecorded), "");
}

#[test]
fn a_job_that_waits_is_scheduled_until_it_is_overdue() {
    let waits = |e: &mut Evidence| {
        e.tiers.entry(1).and_modify(|tier| drop(tier.pop()));
        e.dead_letters.clear();
        e.attempts.pop();
    };
    assert_eq!(found(waits), "");
    assert_found("jobs: job-3 waits in retry-01/0/3, due for", |e| {
        waits(e);
        e.read_ms = 1_000_000;
    });
}

#[test]
fn an_unsalted_tenant_in_two_partitions_is_found() {
    assert_found("routes", |e| e.history.inbox[1].partition = 3);
    let salted = |e: &mut Evidence| {
        e.history.inbox[1].partition = 3;
        e.salted = vec!["t".to_owned()];
    };
    assert_eq!(found(salted), "");
}

#[test]
fn a_delivery_that_nobody_saw_and_an_attempt_behind_one_are_found() {
    assert_found("attempts: the receiver has not seen", |e| {
        Arc::make_mut(&mut e.history.requests[0]).headers[5].1 = vec![b'9'; 36];
    });
    assert_ne!(found(|e| e.dead_letters[0].headers.push(header("hub-reason", "poison"))), "");
    assert_ne!(found(|e| e.attempts_max = 1), "");
    assert_ne!(found(|e| e.attempts[0].value = Some(b"{}".to_vec())), "");
}
