//! Aborts and restarts: an outcome is recorded once, nothing that is done comes back, nothing that
//! is not done is forgotten.

use super::*;
use crate::processors::testing::Restart;
use crate::processors::testing::fixtures::HOUR;

#[test]
fn an_outcome_is_recorded_once_although_its_transaction_aborted() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [done, failing] = world.jobs(1);
    world.turn();
    world.answer(done, delivered());
    world.bench.abort();
    assert_eq!(world.turn(), [failing]);
    world.answer(failing, failed());
    world.bench.abort();
    world.bench.abort();
    world.commit();
    assert_eq!((world.place(done), world.place(failing).as_deref()), (None, Some("retry-01")));
    assert_eq!([world.attempts(done).len(), world.attempts(failing).len()], [1, 1]);
    assert_eq!(world.counters.count("deliveries_total", ""), 1);
}

#[test]
fn an_attempt_under_way_survives_an_abort_and_is_not_made_twice() {
    let mut world = World::new();
    world.subscribe(1, strict(2));
    let jobs = world.jobs::<3>(1);
    assert_eq!(world.act(), jobs[..2]);
    world.bench.abort();
    assert_eq!(world.act(), [], "all records are to be read again");
    assert_eq!(world.turn(), []);
    world.answer(jobs[0], delivered());
    assert_eq!(world.turn(), jobs[2..]);
}

/// A job whose attempt started while its record was read in a transaction that aborted.
fn rewound(world: &mut World) -> JobId {
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    assert_eq!(world.act(), [job]);
    world.bench.abort();
    job
}

#[test]
fn an_outcome_before_its_record_is_read_again_counts_and_does_not_bring_the_job_back() {
    for (outcome, place) in [(delivered(), None), (failed(), Some("retry-01"))] {
        let mut world = World::new();
        let job = rewound(&mut world);
        world.answer(job, outcome);
        world.commit();
        assert_eq!(world.place(job).as_deref(), place);
        world.bench.read(1);
        world.commit();
        assert_eq!(world.place(job).as_deref(), place);
        let again = world.turn();
        assert_eq!(again.len(), usize::from(place.is_some()), "only as a retry");
    }
}

#[test]
fn the_same_holds_when_the_record_is_read_again_in_the_outcomes_transaction() {
    for (outcome, place) in [(delivered(), None), (failed(), Some("retry-01"))] {
        let mut world = World::new();
        let job = rewound(&mut world);
        world.answer(job, outcome);
        world.bench.read(usize::MAX);
        world.commit();
        assert_eq!(world.place(job).as_deref(), place);
        let again = world.turn();
        assert_eq!(again.len(), usize::from(place.is_some()), "only as a retry");
    }
}

#[test]
fn the_same_holds_when_both_come_again_and_again() {
    for (outcome, place) in [(delivered(), None), (failed(), Some("retry-01"))] {
        let mut world = World::new();
        let job = rewound(&mut world);
        world.answer(job, outcome);
        world.bench.read(usize::MAX);
        world.bench.abort();
        world.commit();
        for _ in 0..3 {
            world.bench.read(usize::MAX);
            world.bench.abort();
        }
        world.bench.read(usize::MAX);
        world.commit();
        assert_eq!(world.place(job).as_deref(), place);
        assert_eq!(world.attempts(job).len(), 1);
    }
}

#[test]
fn a_retry_is_made_before_its_first_record_was_read_again() {
    let mut world = World::new();
    let job = rewound(&mut world);
    world.answer(job, failed());
    world.commit();
    assert_eq!(world.act(), [job]);
    world.answer(job, delivered());
    world.commit();
    assert_eq!(world.turn(), []);
    assert_eq!((world.place(job), world.attempts(job).len()), (None, 2));
}

#[test]
fn what_is_put_again_under_the_id_of_a_settled_job_is_a_job() {
    let mut world = World::new();
    let job = rewound(&mut world);
    world.answer(job, delivered());
    world.commit();
    assert_eq!(world.turn(), []);
    let now = world.bench.now;
    let facts = JobFacts { subscription: id(1), matched: now, table: 0, attempts: 0, due: now };
    world.bench.feed(record(1, &facts).1);
    assert_eq!(world.act(), [job]);
}

#[test]
fn a_rewound_job_that_the_hub_could_not_try_is_tried_again() {
    let mut world = World::new();
    let job = rewound(&mut world);
    world.answer(job, not_attempted());
    assert_eq!(world.turn(), []);
    world.bench.turn_clock(30_000);
    assert_eq!(world.turn(), [job]);
}

#[test]
fn an_outcome_is_not_taken_for_that_of_a_later_attempt() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    assert_eq!(world.turn(), [job]);
    world.answer(job, not_attempted());
    world.bench.turn_clock(30_000);
    assert_eq!(world.act(), [job]);
    world.bench.abort();
    assert_eq!(world.act(), [], "the first outcome came again, the second attempt goes on");
    assert_eq!(world.bench.processor.under_way(), 1);
    world.answer(job, delivered());
    world.commit();
    assert_eq!((world.place(job), world.attempts(job).len()), (None, 1));
}

#[test]
fn a_job_ends_once_although_its_record_is_read_again() {
    let mut world = World::new();
    let [job] = world.jobs(1);
    world.act();
    world.bench.abort();
    world.bench.take_step();
    world.bench.read(usize::MAX);
    world.commit();
    for _ in 0..3 {
        world.turn();
    }
    assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
    assert_eq!(world.bench.logs.all(Topic::DeadLetters).len(), 1);
}

#[test]
fn the_tasks_own_tombstone_read_again_changes_nothing() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.turn();
    world.answer(job, failed());
    world.commit();
    let (before, end) = (world.bench.position, world.bench.logs.end("hub-deliveries", PARTITION));
    assert!(before < end);
    world.bench.read(usize::MAX);
    assert!(world.bench.open().is_empty());
    world.commit();
    assert_eq!(world.place(job).as_deref(), Some("retry-01"));
    assert_eq!(world.turn(), [job]);
}

/// Jobs in every stage: done, dead, in each tier that the curve has, waiting, under way.
fn in_every_stage(world: &mut World) -> (Vec<JobId>, Vec<JobId>) {
    world.subscribe(1, strict(9));
    let [done, dead, once, twice, under_way] = world.jobs(1);
    world.turn();
    world.bench.flush();
    world.answer(done, delivered());
    for times in 1..=3 {
        for (job, failures) in [(dead, 3), (once, 1), (twice, 2)] {
            if times <= failures && world.orders.iter().any(|order| order.job == job) {
                world.answer(job, failed());
            }
        }
        world.commit();
        world.turn();
    }
    let waiting = world.job(1);
    world.bench.read(usize::MAX);
    world.commit();
    (vec![done, dead], vec![once, twice, under_way, waiting])
}

#[test]
fn a_restarted_task_claims_everything_that_is_neither_done_nor_dead() {
    for how in Restart::all() {
        let mut world = World::new();
        let (ended, open) = in_every_stage(&mut world);
        let places = |world: &World| open.iter().map(|job| world.place(*job)).collect::<Vec<_>>();
        assert_eq!(world.place(ended[1]).as_deref(), Some("dead-letters"));
        let before = places(&world);
        let expected = ["retry-01", "retry-02", "deliveries", "deliveries"];
        assert_eq!(before, expected.map(|place| Some(place.to_owned())));
        world.restart(how);
        checker::check(&world);
        assert_eq!(places(&world), before, "{how:?}");
        world.bench.turn_clock(HOUR);
        assert_eq!(world.turn(), [], "their claims commit first");
        let mut claimed = world.turn();
        claimed.sort_unstable();
        let mut open = open;
        open.sort_unstable();
        assert_eq!(claimed, open, "{how:?}");
        for job in claimed {
            world.answer(job, delivered());
        }
        world.commit();
        assert_eq!(world.turn(), []);
        assert!(world.bench.logs.live(Topic::Deliveries).is_empty());
    }
}

#[test]
fn a_restart_in_the_middle_of_a_transaction_keeps_what_had_committed() {
    for how in Restart::all() {
        let mut world = World::new();
        world.subscribe(1, strict(9));
        let [first, second] = world.jobs(1);
        world.turn();
        world.bench.flush();
        world.answer(first, failed());
        world.commit();
        world.answer(second, delivered());
        world.restart(how);
        world.turn();
        world.turn();
        assert_eq!(world.place(first).as_deref(), Some("retry-01"), "{how:?}");
        assert_eq!(world.place(second).as_deref(), Some("deliveries"), "{how:?}");
        assert_eq!(world.orders.len(), 2);
    }
}
