//! Jobs whose subscription is gone or disabled end without an attempt, but not before the table is
//! as new as their match (design 18).

use super::*;
use crate::processors::testing::fixtures::HOUR;

#[test]
fn jobs_of_a_deleted_or_disabled_subscription_become_dead_letters_that_say_so() {
    let mut world = World::new();
    world.subscribe(2, |row| row["enabled"] = json!(false));
    let (gone, off) = (world.jobs::<3>(1), world.jobs::<3>(2));
    for _ in 0..4 {
        assert_eq!(world.turn(), []);
    }
    for (jobs, reason) in [(gone, "subscription_deleted"), (off, "subscription_disabled")] {
        for job in jobs {
            assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
            assert_eq!(world.record_of(job).text(internal::REASON), reason);
            assert!(!world.record_of(job).has(internal::CLASS));
            assert!(world.attempts(job).is_empty());
        }
        assert_eq!(world.counters.count("dead_letters_total", reason), 3);
    }
    assert_eq!(world.bench.processor.under_way(), 0);
    assert_eq!(world.turn(), []);
}

#[test]
fn a_subscription_is_absent_only_once_the_table_is_as_new_as_the_match() {
    let mut world = World::new();
    let job = world.job_with(1, |facts| facts.table = 9);
    world.advance_table(8);
    for _ in 0..3 {
        assert_eq!(world.turn(), []);
        assert_eq!(world.place(job).as_deref(), Some("deliveries"));
        assert_eq!(world.bench.wake_at, Some(world.bench.now.plus(100)), "it asks again soon");
        world.bench.turn_clock(100);
    }
    world.subscribe(1, |_| ());
    world.advance_table(9);
    assert_eq!(world.turn(), [job], "the table knows it now");
    world.answer(job, delivered());
    let absent = world.job_with(2, |facts| facts.table = 10);
    world.turn();
    world.advance_table(10);
    world.bench.turn_clock(100);
    world.turn();
    world.turn();
    assert_eq!(world.place(absent).as_deref(), Some("dead-letters"));
}

#[test]
fn a_disabled_subscription_is_believed_only_from_the_tables_position_of_the_match_on() {
    let mut world = World::new();
    world.subscribe(1, |row| row["enabled"] = json!(false));
    let job = world.job_with(1, |facts| facts.table = 5);
    assert_eq!(world.turn(), []);
    assert_eq!(world.place(job).as_deref(), Some("deliveries"));
    world.subscribe(1, |_| ());
    world.bench.turn_clock(100);
    assert_eq!(world.turn(), [job]);
}

#[test]
fn a_backlog_ends_in_few_transactions_and_asks_to_go_on_at_once() {
    let mut world = World::new();
    let _ = world.jobs::<1_000>(1);
    let mut turns = 0;
    while world.bench.logs.live(Topic::DeadLetters).len() < 1_000 {
        world.turn();
        turns += 1;
        assert!(world.bench.wake_at.is_some_and(|at| at <= world.bench.now), "it goes on");
        assert!(turns <= 20, "{} ended", world.bench.logs.live(Topic::DeadLetters).len());
    }
    assert!(turns > 1, "a transaction stays bounded");
}

#[test]
fn a_long_transaction_ends_a_job_once() {
    let mut world = World::new();
    let jobs = world.jobs::<2>(1);
    for _ in 0..3 {
        world.act();
        world.bench.take_step();
    }
    world.commit();
    assert_eq!(world.bench.logs.all(Topic::DeadLetters).len(), jobs.len());
    assert_eq!(world.counters.count("dead_letters_total", ""), 2);
}

#[test]
fn what_was_chosen_to_end_is_not_forgotten_by_a_commit_before_its_step() {
    let mut world = World::new();
    let [job] = world.jobs(1);
    world.act();
    world.commit();
    world.turn();
    assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
}

#[test]
fn after_an_abort_a_job_ends_again_and_is_counted_once() {
    let mut world = World::new();
    let [job] = world.jobs(1);
    world.act();
    world.bench.take_step();
    world.bench.abort();
    assert_eq!(world.bench.open().len(), 0);
    for _ in 0..2 {
        world.turn();
    }
    assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
    assert_eq!(world.bench.logs.all(Topic::DeadLetters).len(), 1);
    assert_eq!(world.counters.count("dead_letters_total", "subscription_deleted"), 1);
}

#[test]
fn an_attempt_under_way_is_recorded_although_its_subscription_is_gone() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [first, second] = world.jobs(1);
    world.turn();
    world.unsubscribe(1);
    assert_eq!(world.turn(), []);
    assert_eq!(world.place(second).as_deref(), Some("deliveries"), "in order, one at a time");
    world.answer(first, delivered());
    for _ in 0..2 {
        world.turn();
    }
    assert_eq!((world.place(first), world.attempts(first).len()), (None, 1));
    assert_eq!(world.place(second).as_deref(), Some("dead-letters"));
}

#[test]
fn what_waits_for_a_retry_ends_at_once_when_its_subscription_is_disabled_or_deleted() {
    for reason in [EndReason::SubscriptionDisabled, EndReason::SubscriptionDeleted] {
        let mut world = World::new();
        world.subscribe(1, strict(9));
        world.entropy.jitter.store(255, std::sync::atomic::Ordering::Relaxed);
        let retried = world.jobs::<3>(1);
        world.turn();
        for job in retried {
            world.answer(job, failed());
        }
        world.commit();
        let late = world.job_with(1, |facts| facts.due = facts.due.plus(HOUR.unsigned_abs()));
        assert_eq!(world.turn(), [], "nothing is due");
        match reason {
            EndReason::SubscriptionDeleted => world.unsubscribe(1),
            _ => world.subscribe(1, |row| row["enabled"] = json!(false)),
        }
        for _ in 0..2 {
            assert_eq!(world.turn(), []);
        }
        for job in retried {
            assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
            assert_eq!(world.record_of(job).text(internal::REASON), reason.as_str());
            assert_eq!(world.record_of(job).number(internal::ATTEMPTS), 1);
        }
        assert_eq!(world.place(late).as_deref(), Some("dead-letters"));
    }
}

#[test]
fn a_restart_ends_what_its_predecessor_left_of_a_disabled_subscription() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    world.entropy.jitter.store(255, std::sync::atomic::Ordering::Relaxed);
    let [job] = world.jobs(1);
    world.turn();
    world.answer(job, failed());
    world.commit();
    world.subscribe(1, |row| row["enabled"] = json!(false));
    world.restart(crate::processors::testing::Restart::COLD);
    world.turn();
    world.turn();
    assert_eq!(world.place(job).as_deref(), Some("dead-letters"));
}

#[test]
fn enabled_again_a_subscription_goes_on_with_what_comes_then() {
    let mut world = World::new();
    world.subscribe(1, |row| row["enabled"] = json!(false));
    let [ended] = world.jobs(1);
    for _ in 0..2 {
        world.turn();
    }
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    assert_eq!(world.turn(), [job]);
    assert_eq!(world.place(ended).as_deref(), Some("dead-letters"), "until it is redelivered");
}

#[test]
fn a_paused_subscription_keeps_what_waits() {
    let mut world = World::new();
    world.subscribe(1, |row| row["paused"] = json!(true));
    let jobs = world.jobs::<2>(1);
    for _ in 0..3 {
        assert_eq!(world.turn(), []);
        world.bench.turn_clock(HOUR);
    }
    world.subscribe(1, strict(9));
    assert_eq!(world.turn(), jobs);
}
