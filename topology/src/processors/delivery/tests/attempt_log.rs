//! The attempt log as it is served, and that it never drives a delivery.

use streaming_hub_model::delivery_calls::{Answer, AttemptsPage, DeliveryStats, Question};

use super::*;
use crate::processors::testing::Restart;
use crate::processors::testing::fixtures::DAY;

impl World {
    fn page(&mut self, n: u8, before: Option<u64>, limit: u16) -> AttemptsPage {
        match self.ask(Question::Attempts { subscription: id(n), before, limit }) {
            Answer::Attempts(page) => page,
            other => panic!("{other:?}"),
        }
    }

    /// So many jobs of subscription `n`, delivered.
    fn deliver(&mut self, n: u8, count: usize) -> Vec<JobId> {
        let mut done = Vec::new();
        for _ in 0..count {
            let [job] = self.jobs(n);
            self.act();
            self.answer(job, delivered());
            done.push(job);
        }
        self.commit();
        done
    }

    fn stats(&mut self, n: u8) -> DeliveryStats {
        match self.ask(Question::Stats { subscription: id(n) }) {
            Answer::Stats(stats) => stats,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_last_attempts_are_served_newest_first_with_what_became_of_them() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.turn();
    let delivery_id = world.orders[0].attempt.delivery_id;
    world.answer(job, failed());
    world.turn();
    world.turn();
    world.answer(job, delivered());
    world.commit();
    let AttemptsPage { attempts, next } = world.page(1, None, 9);
    let [second, first] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!((first.delivery_id, first.job, next), (delivery_id, job, None));
    assert_eq!((first.attempt, first.step, first.tier), (1, 0, 0));
    assert_eq!((second.attempt, second.step, second.tier), (2, 1, 1));
    assert_eq!((first.status, first.error_class), (Some(503), Some(ErrorClass::Http5xx)));
    assert_eq!(first.response_excerpt.as_deref(), Some("try later \u{fffd}"));
    assert_eq!(second.response_excerpt, None, "only of failures");
    assert_eq!(world.page(2, None, 9), AttemptsPage::default());
}

#[test]
fn two_hundred_lines_of_a_subscription_are_kept_and_read_in_pages() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    world.subscribe(2, |_| ());
    let other = world.deliver(2, 1);
    let done = world.deliver(1, 450);
    let (mut before, mut read) = (None, Vec::new());
    loop {
        let page = world.page(1, before, 64);
        read.extend(page.attempts.into_iter().map(|line| line.job));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let expected: Vec<_> = done.into_iter().rev().take(200).collect();
    assert_eq!(read, expected);
    assert_eq!(world.page(2, None, 9).attempts[0].job, other[0], "each has its own");
}

#[test]
fn lines_older_than_seven_days_are_not_served() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    world.deliver(1, 2);
    world.bench.turn_clock(7 * DAY - 1_000);
    let young = world.deliver(1, 1);
    assert_eq!(world.page(1, None, 9).attempts.len(), 3);
    world.bench.turn_clock(700_000);
    world.act();
    let left: Vec<_> = world.page(1, None, 9).attempts.iter().map(|line| line.job).collect();
    assert_eq!(left, young);
}

#[test]
fn a_restart_serves_the_same_lines_and_numbers_go_on() {
    for how in Restart::all() {
        let mut world = World::new();
        world.subscribe(1, |_| ());
        world.deliver(1, 3);
        world.bench.flush();
        world.deliver(1, 2);
        let before = world.page(1, None, 9);
        world.restart(Restart { compacted: false, ..how });
        assert_eq!(world.page(1, None, 9), before, "{how:?}");
        world.deliver(1, 1);
        assert_eq!(world.page(1, None, 9).attempts.len(), 6);
    }
}

#[test]
fn after_an_abort_a_line_is_there_once() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    world.deliver(1, 1);
    let [job] = world.jobs(1);
    world.act();
    world.answer(job, delivered());
    world.bench.abort();
    world.bench.read(usize::MAX);
    world.commit();
    let numbers: Vec<_> = world.page(1, None, 9).attempts.iter().map(|l| l.number).collect();
    assert_eq!(numbers, [1, 0]);
}

#[test]
fn what_a_failure_says_is_cut_so_that_a_line_always_fits() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let [job] = world.jobs(1);
    world.turn();
    let mut outcome = failed();
    outcome.excerpt = vec![b'x'; 5_000];
    outcome.result =
        AttemptResult::Failed { class: ErrorClass::Protocol, detail: "ä".repeat(9_000) };
    world.answer(job, outcome);
    world.commit();
    let line = &world.page(1, None, 1).attempts[0];
    assert_eq!(line.response_excerpt.as_ref().unwrap().len(), 1_024);
    assert_eq!(line.detail.as_ref().unwrap().chars().count(), 1_024);
}

#[test]
fn a_strangers_line_is_passed_over() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    let done = world.deliver(1, 1);
    for value in [None, Some(b"no json".to_vec()), Some(b"{}".to_vec())] {
        let entry = Entry { partition: PARTITION, value, ..Entry::default() };
        world.bench.logs.commit(vec![("hub-attempts".to_owned(), entry)], 0);
    }
    world.restart(Restart::COLD);
    assert_eq!(world.page(1, None, 9).attempts[0].job, done[0]);
}

#[test]
fn stats_count_what_waits_and_name_the_oldest() {
    let mut world = World::new();
    world.subscribe(1, |_| ());
    assert_eq!(world.stats(1), DeliveryStats::default());
    let [first] = world.jobs(1);
    let matched = world.bench.now;
    world.turn();
    world.answer(first, failed());
    world.commit();
    world.bench.turn_clock(500);
    let _ = world.jobs::<2>(1);
    let stats = world.stats(1);
    assert_eq!((stats.backlog, stats.oldest_waiting_at), (3, Some(matched)));
}
