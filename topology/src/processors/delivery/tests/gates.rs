//! Gates: pause, holds, destinations that ask to be left alone, breakers, strict order, bounds.

use streaming_hub_model::attempt::ErrorClass;
use streaming_hub_model::delivery_calls::{Answer, Question};
use streaming_hub_model::destination::DestinationRecord;
use streaming_hub_model::hold::Scope;

use super::*;
use crate::follower::View;
use crate::processors::testing::Restart;
use crate::processors::testing::fixtures::T0;

const MINUTE: i64 = 60_000;
/// How long a breaker is open the first and the second time, with all of its jitter.
const FIRST: i64 = 32_999;
const SECOND: i64 = 65_999;

/// A world with breakers of the contract's numbers.
fn guarded() -> World {
    World::with(256, Retention::default(), BreakerSettings::default())
}

fn throttled(retry_after_ms: u64) -> Outcome {
    let throttled = Outcome::failed(ErrorClass::Throttled, "429");
    Outcome { status: Some(429), retry_after_ms: Some(retry_after_ms), ..throttled }
}

/// A schedule that is never used up here.
fn patient(row: &mut Value) {
    row["retry_schedule"] = json!(vec![0, 36_000_000, 36_000_000]);
}

/// Subscription 1 with so many jobs, whose first five attempts fail: its breaker is open.
fn opened(world: &mut World, jobs: usize) -> Vec<JobId> {
    world.subscribe(1, patient);
    world.entropy.jitter.store(255, std::sync::atomic::Ordering::Relaxed);
    let jobs: Vec<JobId> = (0..jobs).map(|_| world.job(1)).collect();
    for job in &jobs[..5] {
        assert_eq!(world.turn(), [*job]);
        world.answer(*job, failed());
        world.commit();
    }
    assert_eq!(world.turn(), []);
    jobs
}

/// What the tasks wrote about destinations reaches the view.
fn publish(world: &World) {
    for entry in world.bench.logs.all(Topic::Destinations) {
        let key = entry.key_text().to_owned();
        assert!(world.destinations.take(Some(key.as_bytes()), entry.value.as_deref()));
    }
}

fn hold(world: &World, scope: &Scope, on: bool) {
    let mut value = serde_json::to_value(scope).unwrap();
    value["since"] = json!(1);
    value["by"] = json!("ops");
    let value = value.to_string();
    let key = scope.key();
    assert!(world.holds.take(Some(key.as_bytes()), on.then_some(value.as_bytes())));
}

#[test]
fn a_paused_subscription_matches_and_waits_and_goes_on_in_order() {
    let mut world = World::new();
    world.subscribe(1, |row| row["paused"] = json!(true));
    let jobs = world.jobs::<3>(1);
    for _ in 0..3 {
        assert_eq!(world.turn(), []);
        world.bench.turn_clock(MINUTE);
    }
    let written = world.bench.logs.all(Topic::Attempts).len();
    world.subscribe(1, |_| ());
    for job in jobs {
        assert_eq!(world.turn(), [job]);
        world.answer(job, delivered());
        world.commit();
    }
    assert_eq!(written, 0);
}

#[test]
fn a_hold_of_any_scope_stops_attempts_and_lifting_it_goes_on_in_order() {
    let subscription: Subscription = serde_json::from_value(row(1, TENANT, &["*"])).unwrap();
    let destination = DestinationKey::new([1; 32]).id(&subscription.sink).to_string();
    let scopes = [
        Scope::Everything,
        Scope::Tenant { tenant: subscription.tenant.clone() },
        Scope::Destination { destination },
        Scope::Subscription { subscription: id(1) },
    ];
    for key in scopes {
        let mut world = World::new();
        world.subscribe(1, |_| ());
        hold(&world, &key, true);
        let [first, second] = world.jobs(1);
        assert_eq!(world.turn(), [], "{key}");
        hold(&world, &key, false);
        assert_eq!(world.turn(), [first], "{key}");
        hold(&world, &key, true);
        world.answer(first, delivered());
        assert_eq!(world.turn(), [], "{key}");
        hold(&world, &key, false);
        assert_eq!(world.turn(), [second], "{key}");
    }
}

#[test]
fn a_job_behind_a_closed_gate_expires_all_the_same() {
    let mut world = World::new();
    world.subscribe(1, |row| row["paused"] = json!(true));
    let [job] = world.jobs(1);
    world.turn();
    assert_eq!(world.bench.wake_at, Some(world.bench.now.plus(BOUNDS.age_ms_max)));
    world.bench.turn_clock(i64::try_from(BOUNDS.age_ms_max).unwrap() - 1);
    world.turn();
    assert_eq!(world.place(job).as_deref(), Some("deliveries"));
    world.bench.turn_clock(1);
    world.turn();
    world.turn();
    assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
    assert_eq!(world.record_of(job).text(internal::REASON), "expired");
    assert!(world.attempts(job).is_empty());
}

#[test]
fn a_retry_behind_a_closed_gate_expires_although_another_is_due_before_it() {
    let mut world = World::new();
    world.subscribe(1, patient);
    world.entropy.jitter.store(255, std::sync::atomic::Ordering::Relaxed);
    // More of them than one walk passes.
    let old = world.jobs::<70>(1);
    for job in old {
        assert_eq!(world.turn(), [job]);
        world.answer(job, failed());
    }
    world.bench.turn_clock(10 * MINUTE);
    world.subscribe(1, |row| row["retry_schedule"] = json!(vec![0, 1, 36_000_000]));
    let [young] = world.jobs(1);
    assert_eq!(world.turn(), [young]);
    world.answer(young, failed());
    world.subscribe(1, |row| row["paused"] = json!(true));
    world.turn();
    world.bench.turn_clock(10);
    world.turn();
    let ended = |world: &World| {
        let dead = |job: &&JobId| world.place(**job).as_deref() == Some("dead-letters");
        old.iter().filter(dead).count()
    };
    world.bench.turn_clock(i64::try_from(BOUNDS.age_ms_max).unwrap() - 5 * MINUTE);
    assert_eq!((world.turn(), ended(&world)), (Vec::new(), 63));
    world.bench.turn_clock(MINUTE + 1);
    assert_eq!((world.turn(), ended(&world)), (Vec::new(), 70));
    assert_eq!(world.place(young).as_deref(), Some("retry-01"), "it is younger");
    assert_eq!(world.record_of(old[69]).text(internal::REASON), "expired");
}

#[test]
fn a_429_closes_the_way_for_all_of_the_tenants_subscriptions_there() {
    let mut world = World::new();
    world.subscribe(1, patient);
    world.subscribe(2, patient);
    world.subscribe(3, |row| row["sink"]["url"] = json!("https://elsewhere.example/"));
    let ([one], [two], [three]) = (world.jobs(1), world.jobs(2), world.jobs(3));
    assert_eq!(world.act(), [one, two, three]);
    world.answer(one, throttled(20_000));
    world.answer(two, delivered());
    world.answer(three, delivered());
    world.commit();
    let (second, other) = (world.job(2), world.job(3));
    assert_eq!(world.turn(), [other]);
    world.bench.turn_clock(19_999);
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(1);
    assert_eq!(world.turn(), [one, second]);
    assert_eq!(world.record_of(one).number(internal::DUE), T0 + 20_000);
}

#[test]
fn a_429_closes_the_way_for_ten_minutes_at_the_most() {
    let mut world = World::new();
    world.subscribe(1, patient);
    let [first] = world.jobs(1);
    world.turn();
    world.answer(first, throttled(3_600_000));
    world.commit();
    let second = world.job(1);
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(10 * MINUTE);
    assert_eq!(world.turn(), [second]);
    assert_eq!(world.record_of(first).number(internal::DUE), T0 + 3_600_000);
}

#[test]
fn five_failures_in_a_row_open_the_breaker_and_jobs_wait_where_they_are() {
    let mut world = guarded();
    let jobs = opened(&mut world, 20);
    let ends = |world: &World| {
        let all = checker::topics().into_iter().map(|topic| world.bench.logs.all(topic).len());
        all.sum::<usize>()
    };
    let before = ends(&world);
    world.bench.turn_clock(FIRST - 1);
    assert_eq!(world.turn(), []);
    assert_eq!(ends(&world), before, "no record per job");
    for job in &jobs[5..] {
        assert_eq!(world.place(*job).as_deref(), Some("deliveries"));
        assert_eq!(world.record_of(*job).number(internal::ATTEMPTS), 0, "no step");
    }
    world.bench.turn_clock(1);
    assert_eq!(world.turn(), [jobs[5]], "in order");
}

#[test]
fn three_probes_that_succeed_close_it_and_one_that_fails_opens_it_for_longer() {
    let mut world = guarded();
    let jobs = opened(&mut world, 12);
    world.bench.turn_clock(FIRST);
    assert_eq!(world.turn(), [jobs[5]]);
    world.answer(jobs[5], failed());
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(SECOND - 1);
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(1);
    for job in &jobs[6..9] {
        assert_eq!(world.turn(), [*job], "one at a time is all that its limit allows");
        world.answer(*job, delivered());
        world.commit();
    }
    world.subscribe(1, |row| row["max_in_flight"] = json!(9));
    assert_eq!(world.turn(), jobs[9..], "closed");
    let open: Vec<_> = world.bench.logs.all(Topic::Destinations);
    assert_eq!(open.len(), 3, "opened twice and closed");
    assert_eq!(open[2].value, None);
}

#[test]
fn the_probes_are_the_jobs_that_are_due_longest_of_all_the_subscriptions_there() {
    let mut world = guarded();
    opened(&mut world, 5);
    let mut later = Vec::new();
    for n in [4, 2, 5, 3] {
        world.subscribe(n, patient);
        later.push(world.job(n));
        assert_eq!(world.turn(), []);
        world.bench.turn_clock(1);
    }
    world.bench.turn_clock(FIRST);
    assert_eq!(world.turn(), later[..3]);
    world.answer(later[1], delivered());
    world.answer(later[0], not_attempted());
    world.commit();
    assert_eq!(world.turn(), [later[3]], "the place of the one that was no attempt");
}

#[test]
fn an_open_breaker_survives_a_restart_and_a_new_owner_goes_on_with_it() {
    for publishes in [true, false] {
        let mut world = guarded();
        let jobs = opened(&mut world, 7);
        if publishes {
            publish(&world);
        }
        world.restart(Restart::COLD);
        assert_eq!(world.attempts_start(), if publishes { vec![] } else { vec![jobs[5]] });
        if !publishes {
            continue;
        }
        world.bench.turn_clock(FIRST);
        assert_eq!(world.attempts_start(), [jobs[5]]);
        world.answer(jobs[5], failed());
        world.commit();
        world.bench.turn_clock(SECOND - 1);
        assert_eq!(world.turn(), [], "the second opening is longer");
    }
}

#[test]
fn what_another_owner_says_is_honoured_and_forgotten_when_it_says_so() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [first] = world.jobs(1);
    world.turn();
    world.answer(first, delivered());
    world.commit();
    let subscription = world.table.get(id(1)).unwrap();
    let destination = DestinationKey::new([1; 32]).id(&subscription.sink);
    let record = json!({
        "tenant": TENANT, "destination": destination, "sink": "webhook", "host": "example.com",
        "until": T0 + 60_000, "openings": 1, "partition": 7, "at": T0,
    });
    let key = DestinationRecord::key(&subscription.tenant, destination);
    let tell = |value: Option<&[u8]>| assert!(world.destinations.take(Some(key.as_bytes()), value));
    tell(Some(record.to_string().as_bytes()));
    let second = world.job(1);
    assert_eq!(world.turn(), []);
    let key = DestinationRecord::key(&subscription.tenant, destination);
    assert!(world.destinations.take(Some(key.as_bytes()), None));
    assert_eq!(world.turn(), [second]);
    assert!(world.bench.logs.all(Topic::Destinations).is_empty(), "only who opened it says so");
}

#[test]
fn an_outcome_that_comes_again_after_an_abort_counts_once_and_is_told_once() {
    let mut world = guarded();
    world.subscribe(1, patient);
    world.entropy.jitter.store(255, std::sync::atomic::Ordering::Relaxed);
    let jobs: Vec<JobId> = (0..9).map(|_| world.job(1)).collect();
    for job in &jobs[..5] {
        assert_eq!(world.turn(), [*job]);
        world.answer(*job, failed());
        world.bench.abort();
        world.commit();
    }
    assert_eq!(world.turn(), []);
    assert_eq!(world.bench.logs.all(Topic::Destinations).len(), 1);
    assert_eq!(world.counters.count("breaker_changes_total", "open"), 1);
}

#[test]
fn two_hundred_thousand_jobs_behind_an_open_breaker_write_next_to_nothing() {
    let mut world = guarded();
    // Fewer stand for many: nothing of what follows depends on their number.
    let jobs = opened(&mut world, 150);
    let written = |world: &World| {
        let all = checker::topics().into_iter().chain([Topic::Attempts, Topic::Destinations]);
        all.map(|topic| world.bench.logs.all(topic).len()).sum::<usize>()
    };
    let before = written(&world);
    let mut probed = Vec::new();
    for _ in 0..120 {
        world.bench.turn_clock(5_000);
        let started = world.turn();
        for job in started {
            world.answer(job, failed());
            probed.push(job);
        }
    }
    world.commit();
    let records = written(&world) - before;
    assert!(records < 100, "{records} records in ten minutes");
    assert_eq!(probed, jobs[5..5 + probed.len()], "in order");
}

#[test]
fn in_strict_order_nothing_passes_a_job_that_failed() {
    let mut world = World::new();
    world.entropy.jitter.store(255, std::sync::atomic::Ordering::Relaxed);
    world.subscribe(1, |row| row["ordering"] = json!("strict"));
    let [first, second, third] = world.jobs(1);
    assert_eq!(world.turn(), [first]);
    world.answer(first, failed());
    assert_eq!(world.act(), [], "not even before the outcome is committed");
    world.commit();
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(1_000);
    assert_eq!(world.turn(), [first], "its retry");
    world.answer(first, delivered());
    assert_eq!(world.act(), [second], "a success waits for no commit");
    world.commit();
    for _ in 0..STEPS_MS.len() {
        world.answer(second, failed());
        world.turn();
        world.bench.turn_clock(MINUTE);
        world.turn();
    }
    assert_eq!(world.place(second).as_deref(), Some("dead-letters"));
    assert!(world.orders.iter().any(|order| order.job == third), "a dead letter lets it go on");
}

#[test]
fn strict_order_survives_a_restart() {
    for how in Restart::all() {
        let mut world = World::new();
        world.entropy.jitter.store(255, std::sync::atomic::Ordering::Relaxed);
        world.subscribe(1, |row| row["ordering"] = json!("strict"));
        let [first, _] = world.jobs(1);
        world.turn();
        world.answer(first, failed());
        world.commit();
        world.restart(how);
        assert_eq!(world.turn(), []);
        world.bench.turn_clock(1_000);
        assert_eq!(world.attempts_start(), [first]);
    }
}

#[test]
fn beyond_the_bound_the_oldest_ends_for_each_that_comes() {
    let mut world = World::new();
    world.subscribe(1, |row| row["paused"] = json!(true));
    let count = usize::try_from(BOUNDS.jobs_max).unwrap();
    let jobs: Vec<JobId> = (0..count + 3).map(|_| world.job(1)).collect();
    world.turn();
    let dead: Vec<_> = world.bench.logs.all(Topic::DeadLetters);
    let keys: Vec<String> = dead.iter().map(|entry| entry.key_text().to_owned()).collect();
    let expected: Vec<String> = jobs[..3].iter().map(ToString::to_string).collect();
    assert_eq!(keys, expected);
    assert!(dead.iter().all(|entry| entry.text(internal::REASON) == "backlog_full"));
}

#[test]
fn bytes_that_wait_are_bounded_too_and_an_abort_ends_nothing() {
    let mut world = World::new();
    world.subscribe(1, |row| row["paused"] = json!(true));
    let now = world.bench.now;
    let facts = JobFacts { subscription: id(1), matched: now, table: 0, attempts: 0, due: now };
    for n in 1..=9 {
        let (_, mut entry) = record(n, &facts);
        entry.value = Some(vec![b'x'; 300_000]);
        world.bench.produce(entry);
    }
    world.bench.read(usize::MAX);
    assert_eq!(world.bench.open().iter().filter(|(t, _)| *t == Topic::DeadLetters).count(), 3);
    world.bench.abort();
    assert!(world.bench.logs.all(Topic::DeadLetters).is_empty());
    world.bench.read(usize::MAX);
    world.commit();
    let dead = world.bench.logs.all(Topic::DeadLetters);
    let keys: Vec<String> = dead.iter().map(|entry| entry.key_text().to_owned()).collect();
    let oldest: Vec<String> = (1..=3).map(|n| record(n, &facts).0.to_string()).collect();
    assert_eq!(keys, oldest, "the same ones as before the abort");
}

#[test]
fn a_clock_that_was_turned_back_closes_no_gate_for_longer_than_it_may_be() {
    let mut world = guarded();
    opened(&mut world, 5);
    world.bench.turn_clock(-86_400_000);
    world.subscribe(2, patient);
    let [job] = world.jobs(2);
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(11 * MINUTE - 1);
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(1);
    assert_eq!(world.turn(), [job]);
}

#[test]
fn the_oldest_job_that_is_due_and_not_attempted_is_told() {
    let mut world = World::with_slots(1);
    world.subscribe(1, |_| ());
    world.subscribe(2, |_| ());
    world.subscribe(3, |row| row["paused"] = json!(true));
    let ([_], [_], [_]) = (world.jobs::<1>(1), world.jobs::<1>(2), world.jobs::<1>(3));
    for _ in 0..3 {
        world.turn();
        world.bench.turn_clock(61_000);
    }
    world.act();
    assert_eq!(world.counters.gauge("overdue_age_ms"), 183_000, "the one without a slot");
    assert_eq!(world.counters.count("forgotten_jobs_total", ""), 0);
    assert_eq!(world.counters.gauge("waiting_jobs_count"), 3);
}

#[test]
fn an_operator_is_told_of_gates_and_spans_and_of_nothing_that_is_in_order() {
    let mut world = guarded();
    opened(&mut world, 6);
    world.subscribe(2, |row| row["sink"]["url"] = json!("https://other.example.com/"));
    let name = |n| {
        let row = world.table.get(id(n)).unwrap();
        (row.tenant.clone(), DestinationKey::new([1; 32]).id(&row.sink))
    };
    let (broken, fine) = (name(1), name(2));
    let question = Question::Destinations {
        destinations: vec![fine, broken.clone()],
        subscriptions: vec![id(1), id(2)],
    };
    let (now, opened_at) = (world.bench.now, T0);
    let Answer::Destinations { gates, spans } = world.ask(question) else { panic!("misfit") };
    assert_eq!(gates.len(), 1, "{gates:?}");
    assert_eq!((&gates[0].tenant, gates[0].destination), (&broken.0, broken.1));
    assert_eq!((gates[0].phase.as_str(), gates[0].waiting), ("open", 1));
    assert!(gates[0].opening.is_some_and(|opening| opening.until > now && opening.openings == 1));
    assert_eq!(spans.len(), 1);
    assert_eq!((spans[0].subscription, spans[0].first.0 >= opened_at), (id(1), true));
}
