//! Crash in an attempt (design 21): a job that kills its process ends as poison, the jobs beside it
//! do not, and the live path writes no claims.

use std::collections::HashSet;

use streaming_hub_model::destination::DestinationRecord;

use super::*;
use crate::follower::View;
use crate::processors::testing::Restart;
use crate::processors::testing::fixtures::HOUR;

impl World {
    /// Turns of the thread until something is attempted, at most a few.
    pub(super) fn attempts_start(&mut self) -> Vec<JobId> {
        for _ in 0..4 {
            let started = self.turn();
            if !started.is_empty() {
                return started;
            }
        }
        Vec::new()
    }

    /// The process dies in the middle of whatever it does.
    fn crash(&mut self, how: Restart) {
        self.restart(how);
        checker::check(self);
    }

    /// All attempts under way return.
    fn all_return(&mut self, outcome: impl Fn() -> Outcome) {
        while !self.orders.is_empty() {
            let returned = self.take_order(0, outcome());
            self.bench.message(Message::Returned(returned));
        }
        self.commit();
    }

    fn reason(&self, job: JobId) -> String {
        assert_eq!(self.place(job).as_deref(), Some("dead-letters"));
        self.record_of(job).text(internal::REASON)
    }
}

/// Attempts start until the process dies of `poison`, or nothing is left; answers how often it
/// died.
fn live_with(world: &mut World, poison: &HashSet<JobId>, how: Restart) -> usize {
    let mut deaths = 0;
    for _ in 0..200 {
        let started = world.attempts_start();
        if world.orders.iter().any(|order| poison.contains(&order.job)) {
            deaths += 1;
            world.crash(how);
            continue;
        }
        world.all_return(delivered);
        if started.is_empty() && world.orders.is_empty() {
            return deaths;
        }
    }
    panic!("it does not come to an end");
}

#[test]
fn what_arrives_live_is_attempted_without_a_claim_and_so_are_its_retries() {
    let mut world = World::new();
    world.subscribe(1, strict(4));
    let jobs = world.jobs::<3>(1);
    assert_eq!(world.turn(), jobs);
    for _ in 0..2 {
        world.all_return(failed);
        world.bench.turn_clock(HOUR);
        assert_eq!(world.turn().len(), 3);
    }
    world.all_return(delivered);
    assert!(world.bench.logs.all(Topic::Claims).is_empty());
}

#[test]
fn a_restored_job_is_attempted_only_after_its_claim_has_committed_and_its_outcome_ends_it() {
    for outcome in [delivered, failed] {
        let mut world = World::new();
        world.subscribe(1, |_| ());
        let [job] = world.jobs(1);
        world.commit();
        world.crash(Restart::COLD);
        assert_eq!(world.act(), [], "its claim is not written yet");
        world.bench.take_step();
        assert_eq!(world.act(), [], "nor committed");
        world.commit();
        assert_eq!(world.act(), [job]);
        assert_eq!(world.durable(job), Some(DurableClaim::outside(None)));
        world.answer(job, outcome());
        world.commit();
        assert_eq!(world.durable(job), None);
    }
}

#[test]
fn what_was_restored_is_claimed_in_one_transaction_as_far_as_slots_go() {
    let mut world = World::new();
    world.subscribe(1, strict(40));
    let jobs = world.jobs::<40>(1);
    world.commit();
    world.crash(Restart::COLD);
    assert_eq!(world.act(), []);
    world.bench.take_step();
    assert!(jobs.iter().all(|job| world.durable(*job).is_none()), "not before they commit");
    world.commit();
    assert!(jobs.iter().all(|job| world.durable(*job).is_some()));
    assert_eq!(world.act(), jobs);
}

#[test]
fn what_arrives_live_does_not_overtake_what_waits_for_its_claim() {
    let mut world = World::new();
    world.subscribe(1, strict(4));
    let restored = world.jobs::<2>(1);
    world.commit();
    world.crash(Restart::COLD);
    world.act();
    let live = world.jobs::<2>(1);
    assert_eq!(world.act(), []);
    assert_eq!(world.attempts_start(), [restored, live].concat());
}

#[test]
fn a_claim_whose_transaction_aborts_is_written_again_and_nothing_starts_before() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.commit();
    world.crash(Restart::COLD);
    world.act();
    world.bench.take_step();
    world.bench.abort();
    assert_eq!(world.act(), []);
    assert!(world.bench.processor.wants_step());
    assert_eq!(world.attempts_start(), [job]);
    assert!(world.durable(job).is_some());
}

#[test]
fn a_job_that_kills_its_process_again_and_again_ends_as_poison_and_nobody_beside_it() {
    for how in Restart::all() {
        let mut world = World::new();
        for n in 1..=3 {
            world.subscribe(n, strict(4));
        }
        let beside: Vec<_> = (1..=3).flat_map(|n| world.jobs::<4>(n)).collect();
        let [poison] = world.jobs(2);
        world.commit();
        let deaths = live_with(&mut world, &HashSet::from([poison]), how);
        // Live, then among others, then alone as often as it may.
        assert!(deaths <= 2 + usize::try_from(RECLAIMS_MAX).unwrap(), "{deaths} deaths");
        assert_eq!(world.reason(poison), "poison", "{how:?}");
        for job in beside {
            assert_eq!(world.place(job), None, "{job} is delivered");
        }
        assert_eq!(world.counters.count("dead_letters_total", "poison"), 1);
        assert!(world.bench.logs.live(Topic::Claims).is_empty());
    }
}

#[test]
fn several_poisoned_jobs_end_and_the_jobs_beside_them_arrive() {
    let mut world = World::new();
    for n in 1..=4 {
        world.subscribe(n, strict(3));
    }
    let beside: Vec<_> = (1..=4).flat_map(|n| world.jobs::<6>(n)).collect();
    let poison: HashSet<_> = [1, 3].map(|n| world.jobs::<1>(n)[0]).into();
    world.commit();
    live_with(&mut world, &poison, Restart::COLD);
    for job in &poison {
        assert_eq!(world.reason(*job), "poison");
    }
    assert!(beside.iter().all(|job| world.place(*job).is_none()), "all others are delivered");
}

#[test]
fn suspects_are_attempted_one_at_a_time_and_hold_up_nobody() {
    let mut world = World::new();
    world.subscribe(1, strict(3));
    world.subscribe(2, strict(3));
    let suspects = world.jobs::<3>(1);
    world.commit();
    world.crash(Restart::COLD);
    assert_eq!(world.attempts_start(), suspects);
    world.crash(Restart::COLD);
    let live = world.jobs::<2>(1);
    let other = world.jobs::<2>(2);
    let mut started = world.turn();
    started.extend(world.turn());
    let alone: Vec<_> = started.iter().filter(|job| suspects.contains(job)).collect();
    assert_eq!(alone.len(), 1, "one is in the lane");
    assert!(live.iter().chain(&other).all(|job| started.contains(job)), "{started:?}");
    for _ in 0..3 {
        world.all_return(delivered);
        world.attempts_start();
    }
    assert!(suspects.iter().all(|job| world.place(*job).is_none()));
}

#[test]
fn a_suspect_behind_a_breaker_is_not_forgotten_when_the_lane_is_taken_as_it_half_opens() {
    let mut world = World::new();
    let elsewhere = |row: &mut Value| row["sink"]["url"] = json!("https://elsewhere.example/");
    world.subscribe(1, |_| ());
    world.subscribe(2, elsewhere);
    let ([beside], [job]) = (world.jobs(1), world.jobs(2));
    world.commit();
    world.crash(Restart::COLD);
    assert_eq!(world.attempts_start().len(), 2);
    let subscription = world.table.get(id(2)).unwrap();
    let destination = DestinationKey::new([1; 32]).id(&subscription.sink);
    let record = json!({
        "tenant": TENANT, "destination": destination, "sink": "webhook", "host": "example.com",
        "until": world.bench.now.0 + 60_000, "openings": 1, "partition": 7,
        "at": world.bench.now.0,
    });
    let key = DestinationRecord::key(&subscription.tenant, destination);
    let value = record.to_string();
    assert!(world.destinations.take(Some(key.as_bytes()), Some(value.as_bytes())));
    world.subscribe(1, |row| row["paused"] = json!(true));
    // Both are suspects of the next process.
    world.crash(Restart::COLD);
    assert_eq!(world.attempts_start(), []);
    world.subscribe(1, |_| ());
    assert_eq!(world.attempts_start(), [beside]);
    assert!(world.is_in_lane(beside));
    world.bench.turn_clock(60_001);
    assert_eq!(world.attempts_start(), [], "the lane is taken");
    world.answer(beside, delivered());
    world.commit();
    world.bench.turn_clock(5_000);
    assert_eq!(world.attempts_start(), [job]);
}

#[test]
fn in_strict_order_nothing_passes_a_suspect() {
    let mut world = World::new();
    for n in [1, 2] {
        world.subscribe(n, |row| row["ordering"] = json!("strict"));
    }
    let (first, second) = (world.jobs::<2>(1), world.jobs::<2>(2));
    world.commit();
    world.crash(Restart::COLD);
    assert_eq!(world.attempts_start().len(), 2);
    world.crash(Restart::COLD);
    let mut started = world.attempts_start();
    assert!(started == [first[0]] || started == [second[0]], "one is in the lane: {started:?}");
    assert_eq!(world.attempts_start(), [], "what is behind the other one waits for it");
    for _ in 0..3 {
        world.all_return(delivered);
        started.extend(world.attempts_start());
    }
    let at = |job: JobId| started.iter().position(|one| *one == job);
    assert!(at(first[0]) < at(first[1]) && at(second[0]) < at(second[1]));
}

#[test]
fn a_recorded_outcome_clears_what_was_counted() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.commit();
    for _ in 0..4 {
        world.crash(Restart::COLD);
        assert_eq!(world.attempts_start(), [job]);
    }
    assert_eq!(world.durable(job).unwrap().reclaims, 3);
    world.all_return(failed);
    assert_eq!(world.durable(job), None);
    world.bench.turn_clock(HOUR);
    world.crash(Restart::COLD);
    assert_eq!(world.attempts_start(), [job]);
    assert_eq!(world.durable(job), Some(DurableClaim::outside(None)), "it begins anew");
}

#[test]
fn what_is_handed_back_is_no_suspect_of_the_next_owner() {
    let mut world = World::new();
    world.subscribe(1, strict(2));
    let jobs = world.jobs::<3>(1);
    world.commit();
    world.crash(Restart::COLD);
    assert_eq!(world.attempts_start(), jobs[..2]);
    assert!(world.bench.processor.has_to_hand_back());
    world.bench.hand_back();
    assert!(world.bench.logs.live(Topic::Claims).is_empty());
    world.crash(Restart::COLD);
    assert_eq!(world.attempts_start(), jobs[..2], "both at once");
    // One in the lane keeps what was counted before, and no more.
    world.crash(Restart::COLD);
    world.attempts_start();
    world.crash(Restart::COLD);
    let [alone] = world.attempts_start()[..] else { panic!("not alone") };
    let before = world.durable(alone).unwrap().reclaims;
    world.bench.hand_back();
    let back = world.durable(alone).map_or(0, |claim| claim.reclaims);
    assert_eq!(back, before - 1);
}

#[test]
fn a_panic_uses_no_step_and_a_job_that_panics_always_ends_as_poison() {
    let panics = || Outcome::failed(ErrorClass::Panic, "the sink's own code failed");
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job, behind] = world.jobs(1);
    let mut tried = 0;
    for _ in 0..40 {
        for started in world.turn() {
            let outcome = if started == job { panics() } else { delivered() };
            tried += u32::from(started == job);
            world.answer(started, outcome);
            world.commit();
        }
        world.bench.turn_clock(1_000);
    }
    assert_eq!(tried, RECLAIMS_MAX);
    assert_eq!(world.reason(job), "poison");
    assert_eq!(world.record_of(job).number(internal::ATTEMPTS), 0);
    assert_eq!((world.place(behind), world.attempts(job).len()), (None, 0));
}

#[test]
fn a_panic_survives_a_restart_and_counts() {
    let panics = || Outcome::failed(ErrorClass::Panic, "the sink's own code failed");
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.turn();
    world.answer(job, panics());
    world.turn();
    assert_eq!(world.durable(job), Some(DurableClaim::panicked(None)));
    world.crash(Restart::COLD);
    assert_eq!(world.attempts_start(), [job]);
    assert_eq!(world.durable(job).unwrap().reclaims, 2);
}

#[test]
fn what_the_hub_could_not_attempt_counts_against_no_job() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.commit();
    for _ in 0..12 {
        world.crash(Restart::COLD);
        assert_eq!(world.attempts_start(), [job]);
        world.answer(job, not_attempted());
        world.turn();
        world.bench.turn_clock(30_000);
    }
    assert_eq!(world.durable(job), None);
    assert_eq!(world.place(job).as_deref(), Some("deliveries"));
}

#[test]
fn a_strangers_claim_is_passed_over() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.commit();
    let nobody = JobId::derive("x", event_id(9), id(9), b"").to_string();
    let open = serde_json::to_vec(&DurableClaim::in_lane(None)).unwrap();
    for (key, value) in [(job.to_string(), b"no json".to_vec()), (nobody, open)] {
        let (key, value) = (Some(key.into()), Some(value));
        let entry = Entry { partition: PARTITION, key, value, ..Entry::default() };
        world.bench.logs.commit(vec![("hub-claims".to_owned(), entry)], 0);
    }
    world.restart(Restart::COLD);
    let mut started = world.act();
    world.bench.take_step();
    world.bench.commit();
    started.extend(world.act());
    assert_eq!(started, [job]);
}
