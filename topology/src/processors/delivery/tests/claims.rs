//! Which job is claimed next: arrival order, turns, slots, and moments that have not come.

use std::sync::atomic::Ordering;

use super::*;
use crate::processors::testing::fixtures::{HOUR, set};

#[test]
fn jobs_of_one_subscription_are_first_attempted_in_arrival_order_one_at_a_time() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let jobs = world.jobs::<5>(1);
    for job in jobs {
        assert_eq!(world.turn(), [job]);
        assert_eq!(world.turn(), []);
        world.answer(job, delivered());
    }
    assert_eq!(world.turn(), []);
    assert_eq!(world.bench.wake_at, None);
}

#[test]
fn the_limit_of_attempts_in_flight_is_hard_and_counts_retries() {
    let mut world = World::new();
    world.subscribe(1, strict(3));
    let jobs = world.jobs::<9>(1);
    assert_eq!(world.turn(), jobs[..3]);
    assert_eq!(world.turn(), []);
    world.answer(jobs[1], failed());
    assert_eq!(world.turn(), jobs[3..4]);
    world.bench.turn_clock(1_000);
    assert_eq!(world.turn(), [], "the retry is due but three are under way");
    world.answer(jobs[0], delivered());
    assert_eq!(world.turn(), jobs[4..5], "due as long as the retry, and not attempted yet");
    for job in [2, 3, 4].map(|n| jobs[n]) {
        world.answer(job, delivered());
    }
    assert_eq!(world.turn(), jobs[5..8]);
    world.answer(jobs[5], delivered());
    world.answer(jobs[6], delivered());
    assert_eq!(world.turn(), [jobs[8], jobs[1]]);
    assert_eq!(world.bench.processor.under_way(), 3);
    assert_eq!(world.slots.in_use(), 3);
}

#[test]
fn a_limit_of_zero_counts_as_one() {
    let mut world = World::new();
    world.subscribe(1, strict(0));
    let jobs = world.jobs::<2>(1);
    assert_eq!(world.turn(), jobs[..1]);
}

#[test]
fn a_subscription_with_a_thousand_jobs_starves_nobody() {
    let mut world = World::with_slots(4);
    world.subscribe(1, strict(64));
    world.subscribe(2, strict(64));
    let many = world.jobs::<1_000>(1);
    let few = world.jobs::<3>(2);
    assert_eq!(world.turn(), [many[0], few[0], many[1], few[1]]);
    for job in [many[0], few[0], many[1], few[1]] {
        world.answer(job, delivered());
    }
    let next = world.turn();
    assert!(next.contains(&few[2]), "{next:?}");
}

#[test]
fn who_comes_while_all_slots_are_taken_waits_for_one_turn_at_the_most() {
    let mut world = World::with_slots(2);
    world.subscribe(1, strict(64));
    world.subscribe(2, strict(64));
    let many = world.jobs::<9>(1);
    assert_eq!(world.turn(), many[..2]);
    let late = world.jobs::<1>(2);
    let mut started = Vec::new();
    for job in &many[..2] {
        world.answer(*job, delivered());
        started.extend(world.turn());
    }
    assert_eq!(started, [many[2], late[0]]);
}

#[test]
fn without_a_slot_a_subscription_keeps_its_turn() {
    let mut world = World::with_slots(1);
    world.subscribe(1, |_| ());
    world.subscribe(2, |_| ());
    let (first, second) = (world.jobs::<2>(1), world.jobs::<2>(2));
    let mut started = Vec::new();
    for _ in 0..4 {
        started.extend(world.turn());
        assert_eq!(world.turn(), [], "one slot");
        world.answer(*started.last().unwrap(), delivered());
    }
    assert_eq!(started, [first[0], second[0], first[1], second[1]]);
    assert_eq!(world.slots.in_use(), 0);
}

#[test]
fn the_first_step_delays_in_place_and_in_order() {
    let mut world = World::new();
    world.subscribe(1, strict(9));
    let late = world.job_with(1, |facts| facts.due = facts.due.plus(5_000));
    let early = world.job_with(1, |facts| facts.due = facts.due.plus(1_000));
    assert_eq!(world.turn(), []);
    assert_eq!(world.bench.wake_at, Some(world.bench.now.plus(5_000)));
    world.bench.turn_clock(4_999);
    assert_eq!(world.turn(), [], "no later job overtakes");
    world.bench.turn_clock(1);
    assert_eq!(world.turn(), [late, early]);
}

#[test]
fn a_retry_is_made_at_its_due_time_by_a_clock_that_is_turned_both_ways() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    world.entropy.jitter.store(128, Ordering::Relaxed);
    let [job] = world.jobs(1);
    world.turn();
    world.answer(job, failed());
    world.turn();
    let due = UnixMillis(world.record_of(job).number(internal::DUE));
    assert_eq!(due.since(world.bench.now), 501, "half of the step, by the jitter");
    assert_eq!(world.turn(), []);
    assert_eq!(world.bench.wake_at, Some(due));
    world.bench.turn_clock(-5 * HOUR);
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(5 * HOUR + 500);
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(1);
    assert_eq!(world.turn(), [job]);
    world.answer(job, failed());
    world.turn();
    world.bench.turn_clock(900 * HOUR);
    assert_eq!(world.turn(), [job], "a jump ahead makes it due once");
    assert_eq!(world.turn(), []);
}

#[test]
fn what_is_due_longest_goes_first_retries_included() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    world.entropy.jitter.store(128, Ordering::Relaxed);
    let [retried] = world.jobs(1);
    world.turn();
    world.answer(retried, failed());
    world.commit();
    let before = world.job(1);
    world.bench.turn_clock(60_000);
    let after = world.job(1);
    for job in [before, retried, after] {
        assert_eq!(world.turn(), [job]);
        world.answer(job, delivered());
    }
}

#[test]
fn an_attempt_has_the_subscription_as_it_is_now_and_an_id_of_its_own() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.subscribe(1, |row| row["sink"]["url"] = json!("https://new.example.com/"));
    world.bench.turn_clock(77);
    world.turn();
    let (attempt, waited_ms) = (world.orders[0].attempt.clone(), world.orders[0].waited_ms);
    assert_eq!(attempt.subscription.sink.target(), "webhook https://new.example.com/");
    assert_eq!((attempt.at, waited_ms), (world.bench.now, Some(77)));
    assert_eq!((attempt.event.id, attempt.event.tenant.as_str()), (event_id(1), TENANT));
    assert_eq!(&attempt.event.payload[..], format!("data of {}", event_id(1)).as_bytes());
    world.answer(job, failed());
    world.turn();
    world.bench.turn_clock(1_000);
    world.turn();
    assert_ne!(world.orders[0].attempt.delivery_id, attempt.delivery_id);
    assert_eq!(world.orders[0].waited_ms, None, "only a first attempt says how long it waited");
}

#[test]
fn a_strangers_record_is_skipped_and_counted_and_stops_nobody() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let facts = JobFacts {
        subscription: id(1),
        matched: world.bench.now,
        table: 0,
        attempts: 0,
        due: world.bench.now,
    };
    let broken = |name: &str, value: &str| {
        let (_, mut entry) = record(900, &facts);
        set(&mut entry.headers, name, value);
        entry
    };
    let (_, whole) = record(900, &facts);
    for entry in [
        broken(internal::VERSION, ""),
        broken(internal::SUBSCRIPTION, "no-uuid"),
        broken(internal::DUE, "soon"),
        broken(internal::ID, "no-uuid"),
        broken(internal::TENANT, " "),
        Entry { key: None, ..whole.clone() },
        Entry { key: Some(b"\xff".to_vec()), ..whole },
    ] {
        world.bench.feed(entry);
    }
    let [job] = world.jobs(1);
    assert_eq!(world.act(), [job]);
    world.bench.commit();
    assert_eq!(world.counters.count("unreadable_records_total", "delivery"), 7);
    checker::indexes_agree(&world.bench.state);
}

#[test]
fn a_record_of_a_newer_format_stops_the_task() {
    let mut world = World::new();
    let now = world.bench.now;
    let facts = JobFacts { subscription: id(1), matched: now, table: 0, attempts: 0, due: now };
    let (_, mut entry) = record(1, &facts);
    set(&mut entry.headers, internal::VERSION, "3");
    world.bench.produce(entry);
    let error = world.bench.try_read().unwrap_err();
    assert!(matches!(error, Error::Format(internal::Error::Newer { found: 3 })), "{error}");
}
