//! What follows from an outcome, and what is written about it.

use super::*;
use crate::processors::testing::fixtures::{HOUR, T0};

/// A job of subscription 1 that failed so many times, in a turn each.
fn failed_times(world: &mut World, times: usize) -> JobId {
    let [job] = world.jobs(1);
    for _ in 0..times {
        assert_eq!(world.turn(), [job]);
        world.answer(job, failed());
        world.turn();
        world.bench.turn_clock(10 * HOUR);
    }
    job
}

#[test]
fn a_delivered_job_is_a_tombstone_and_a_line_in_the_attempt_log() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.turn();
    let delivery_id = world.orders[0].attempt.delivery_id;
    world.bench.turn_clock(50);
    world.answer(job, delivered());
    let topics: Vec<Topic> = world.bench.open().iter().map(|(topic, _)| *topic).collect();
    assert_eq!(topics, [Topic::Attempts, Topic::Deliveries]);
    assert!(world.bench.open().iter().all(|(_, entry)| entry.partition == PARTITION));
    assert_eq!(world.bench.open()[1].1.value, None);
    assert_eq!(world.counters.count("deliveries_total", ""), 0, "not committed yet");
    world.commit();
    assert_eq!(world.counters.count("deliveries_total", ""), 1);
    assert_eq!(world.place(job), None);
    let line = json!({
        "job": job.to_string(), "delivery_id": delivery_id.to_string(),
        "subscription": id(1).to_string(), "tenant": TENANT,
        "event_id": event_id(1).to_string(), "attempt": 1, "started_at": T0,
        "duration_ms": 12, "outcome": "delivered", "status": 204,
        "step": 0, "tier": 0, "number": 0,
    });
    assert_eq!(world.attempts(job), [line]);
    assert_eq!(world.bench.processor.under_way(), 0);
}

#[test]
fn what_can_never_be_delivered_is_a_dead_letter_at_once_with_the_class_as_the_reason() {
    for class in [ErrorClass::TooLarge, ErrorClass::RoutingKeyTooLong] {
        let mut world = World::new();
        world.subscribe(1, |_| ());
        let [job] = world.jobs(1);
        world.turn();
        world.answer(job, Outcome::failed(class, "no"));
        world.commit();
        assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
        assert_eq!(world.counters.count("dead_letters_total", class.as_str()), 1);
        assert_eq!(world.attempts(job).len(), 1);
    }
}

#[test]
fn a_failed_job_moves_to_the_next_tier_in_the_transaction_that_records_the_attempt() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    let before = world.record_of(job);
    world.turn();
    world.bench.turn_clock(50);
    world.answer(job, failed());
    let topics: Vec<Topic> = world.bench.open().iter().map(|(topic, _)| *topic).collect();
    assert_eq!(topics, [Topic::Attempts, Topic::Failures, Topic::Deliveries, Topic::Retry(1)]);
    world.commit();
    assert_eq!(world.place(job).as_deref(), Some("retry-01"));
    let moved = world.record_of(job);
    assert_eq!(moved.value, before.value);
    let facts = [internal::SUBSCRIPTION, internal::MATCHED, internal::TABLE]
        .into_iter()
        .chain([internal::ATTEMPTS, internal::DUE]);
    let own = before.headers.iter().map(|(name, _)| std::str::from_utf8(name).unwrap());
    for name in own.filter(|name| *name != "hub-job").chain(facts) {
        let expected = match name {
            internal::ATTEMPTS => "1".to_owned(),
            internal::DUE => (T0 + 50).to_string(),
            _ => before.text(name),
        };
        assert_eq!(moved.text(name), expected, "{name}");
    }
    assert_eq!(moved.headers.len(), before.headers.len());
    let line = &world.attempts(job)[0];
    assert_eq!((&line["outcome"], &line["error_class"]), (&json!("failed"), &json!("http_5xx")));
    assert_eq!(line["response_excerpt"], "try later \u{fffd}");
}

#[test]
fn a_retry_is_made_although_nothing_else_happens_to_its_subscription() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.turn();
    world.answer(job, failed());
    assert_eq!(world.act(), [], "its outcome has not committed");
    world.commit();
    assert_eq!(world.act(), [job]);
}

#[test]
fn a_job_whose_schedule_is_used_up_is_a_dead_letter_with_its_last_outcome() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    let before = world.record_of(job);
    for place in ["retry-01", "retry-02", "dead-letters"] {
        assert_eq!(world.turn(), [job]);
        world.answer(job, failed());
        world.turn();
        assert_eq!(world.place(job).as_deref(), Some(place));
        world.bench.turn_clock(HOUR);
    }
    assert_eq!(world.turn(), []);
    let dead = world.record_of(job);
    for (name, expected) in [
        (internal::REASON, "exhausted"),
        (internal::CLASS, "http_5xx"),
        (internal::STATUS, "503"),
        (internal::DETAIL, "the destination answered 503"),
        (internal::ATTEMPTS, "3"),
        (internal::AT, &*(T0 + 2 * HOUR).to_string()),
        ("ce-id", &*event_id(1).to_string()),
        (internal::TENANT, TENANT),
        (internal::SUBSCRIPTION, &*id(1).to_string()),
    ] {
        assert_eq!(dead.text(name), expected, "{name}");
    }
    assert_eq!((&dead.value, dead.key_text()), (&before.value, &*job.to_string()));
    assert_eq!(world.counters.count("dead_letters_total", "exhausted"), 1);
    assert_eq!(world.attempts(job).len(), 3);
}

#[test]
fn the_longest_schedule_uses_every_tier() {
    let mut world = World::new();
    world.attempts_max = 12;
    world.subscribe(1, |row| row["retry_schedule"] = json!(vec![0; 12]));
    let job = failed_times(&mut world, 11);
    assert_eq!(world.place(job).as_deref(), Some("retry-11"));
    assert_eq!(world.turn(), [job]);
    world.answer(job, failed());
    world.turn();
    assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
}

#[test]
fn the_schedule_in_force_at_the_outcome_decides() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.turn();
    world.subscribe(1, |row| row["retry_schedule"] = json!([0]));
    world.answer(job, failed());
    world.commit();
    assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
    world.unsubscribe(1);
    world.subscribe(1, |_| ());
    let [other] = world.jobs(1);
    world.turn();
    world.unsubscribe(1);
    world.answer(other, failed());
    world.commit();
    assert_eq!(world.place(other).as_deref(), Some("retry-01"), "the default one");
}

#[test]
fn a_job_beyond_a_schedule_that_was_shortened_is_not_attempted_again() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let job = failed_times(&mut world, 2);
    world.subscribe(1, |row| row["retry_schedule"] = json!([0, 0]));
    assert_eq!(world.turn(), []);
    assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
    assert_eq!(world.record_of(job).text(internal::REASON), "exhausted");
    assert_eq!(world.attempts(job).len(), 2);
}

#[test]
fn a_fault_of_the_hubs_own_uses_no_step_and_is_tried_again_after_30_seconds() {
    let mut world = World::new();
    world.subscribe(1, strict(2));
    let [first, second] = world.jobs(1);
    assert_eq!(world.turn(), [first, second]);
    world.answer(first, not_attempted());
    assert!(world.bench.open().is_empty());
    assert_eq!(world.turn(), []);
    world.answer(second, delivered());
    let third = world.job(1);
    world.bench.turn_clock(29_999);
    assert_eq!(world.turn(), [], "neither a new job nor a returning attempt wakes it");
    assert_eq!(world.bench.wake_at, Some(world.bench.now.plus(1)));
    world.bench.turn_clock(1);
    assert_eq!(world.turn(), [first, third]);
    assert!(world.attempts(first).is_empty());
    world.answer(first, failed());
    world.commit();
    assert_eq!(world.record_of(first).number(internal::ATTEMPTS), 1);
}

#[test]
fn a_retry_that_the_hub_could_not_make_stays_in_its_tier() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let job = failed_times(&mut world, 1);
    assert_eq!(world.turn(), [job]);
    world.answer(job, not_attempted());
    assert_eq!(world.turn(), []);
    assert_eq!(world.place(job).as_deref(), Some("retry-01"));
    world.bench.turn_clock(30_000);
    assert_eq!(world.turn(), [job]);
    assert_eq!(world.bench.logs.all(Topic::Retry(1)).len(), 1);
}

#[test]
fn an_outcome_that_nobody_waits_for_changes_nothing() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.turn();
    world.answer(job, delivered());
    let (other, _) = record(
        99,
        &JobFacts {
            subscription: id(1),
            matched: world.bench.now,
            table: 0,
            attempts: 0,
            due: world.bench.now,
        },
    );
    world.commit();
    for job in [job, other] {
        let delivery_id = Uuid::from_u128(5);
        let started = world.bench.now;
        let returned =
            Returned { job, delivery_id, started, sink_generation: 1, outcome: failed() };
        world.bench.message(Message::Returned(returned));
    }
    assert!(world.bench.open().is_empty());
}

#[test]
fn payloads_and_headers_reach_the_dead_letters_byte_exact() {
    let mut world = World::new();
    world.attempts_max = 1;
    world.subscribe(1, |row| row["retry_schedule"] = json!([0]));
    let now = world.bench.now;
    let facts = JobFacts { subscription: id(1), matched: now, table: 0, attempts: 0, due: now };
    for (n, value) in [(1, b"\x00\xff{".to_vec()), (2, Vec::new())] {
        let (job, mut entry) = record(n, &facts);
        let own = [header("ce-sig", b"\xff"), header("ce-sig", b""), (b"ce-x".to_vec(), None)];
        entry.headers.splice(3..3, own.clone());
        entry.value = Some(value.clone());
        world.bench.feed(entry);
        assert_eq!(world.turn(), [job]);
        world.answer(job, failed());
        world.commit();
        let dead = world.record_of(job);
        assert_eq!((&dead.headers[3..6], dead.value), (&own[..], Some(value)));
    }
}
