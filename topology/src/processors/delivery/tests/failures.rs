//! Failure spans: a subscription that fails for days is disabled once, a 410 disables at once, and
//! one success clears everything.

use streaming_hub_model::change::{Action, Change};
use streaming_hub_model::subscription::DisabledReason;

use super::*;
use crate::processors::testing::Restart;
use crate::processors::testing::fixtures::{DAY, HOUR};

impl World {
    /// The changes that the task wished of the registry.
    fn changes(&self) -> Vec<Change> {
        let all = self.bench.logs.all(Topic::SubscriptionChanges);
        all.into_iter().map(|entry| serde_json::from_value(entry.json()).unwrap()).collect()
    }

    fn spans(&self) -> usize {
        self.bench.logs.live(Topic::Failures).len()
    }

    /// A job of subscription `n` whose first attempt ends so.
    fn attempt(&mut self, n: u8, outcome: Outcome) {
        let job = self.job(n);
        self.bench.read(usize::MAX);
        self.act();
        self.answer(job, outcome);
        self.commit();
        // Its retries are of no interest here.
        self.orders.clear();
    }
}

/// A world whose jobs have one attempt each, and subscription 1.
fn world() -> World {
    let mut world = World::new();
    world.attempts_max = 1;
    world.subscribe(1, |row| row["retry_schedule"] = json!([0]));
    world
}

#[test]
fn a_subscription_that_fails_for_five_days_is_disabled_once() {
    let mut world = world();
    world.attempt(1, failed());
    for hours in [1, 12, 106] {
        world.bench.turn_clock(hours * HOUR);
        world.attempt(1, failed());
        world.turn();
        assert_eq!(world.changes(), [], "not sustained yet");
    }
    world.bench.turn_clock(HOUR);
    for _ in 0..3 {
        world.turn();
        world.bench.turn_clock(600_000);
    }
    let changes = world.changes();
    let [change] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((change.tenant.as_str(), change.subscription), (TENANT, id(1)));
    let reason = DisabledReason::Failing;
    let sink_generation = world.table.get(id(1)).unwrap().sink_generation;
    assert_eq!(change.action, Action::Disable { reason, sink_generation });
    let entry = world.bench.logs.all(Topic::SubscriptionChanges)[0];
    assert_eq!((entry.partition, entry.key_text()), (home(), TENANT));
    assert_eq!(world.spans(), 0, "its span is over: enabled again, it begins anew");
    assert_eq!(world.counters.count("auto_disabled_total", "failing"), 1);
}

#[test]
fn failures_that_are_not_spread_disable_nothing() {
    let mut world = world();
    world.attempt(1, failed());
    world.bench.turn_clock(11 * HOUR);
    world.attempt(1, failed());
    world.bench.turn_clock(30 * DAY);
    world.turn();
    world.turn();
    assert_eq!((world.changes(), world.spans()), (vec![], 1));
}

#[test]
fn one_success_clears_the_span() {
    let mut world = world();
    world.attempt(1, failed());
    world.bench.turn_clock(100 * HOUR);
    world.attempt(1, failed());
    world.attempt(1, delivered());
    assert_eq!(world.spans(), 0);
    world.bench.turn_clock(100 * HOUR);
    world.attempt(1, failed());
    world.turn();
    assert_eq!((world.changes(), world.spans()), (vec![], 1));
}

#[test]
fn what_the_hub_could_not_do_and_what_never_reached_the_destination_are_no_failures() {
    let mut world = world();
    world.attempt(1, not_attempted());
    world.bench.turn_clock(30_000);
    world.turn();
    let job = world.orders[0].job;
    world.answer(job, Outcome::failed(ErrorClass::TooLarge, "too large"));
    world.commit();
    assert_eq!(world.spans(), 0);
}

#[test]
fn a_410_disables_at_once_and_only_the_destination_that_answered_it() {
    let gone = || Outcome { status: Some(410), ..Outcome::failed(ErrorClass::Gone, "410") };
    let mut world = world();
    world.attempt(1, failed());
    world.attempt(1, gone());
    let reason = DisabledReason::Gone;
    let sink_generation = world.table.get(id(1)).unwrap().sink_generation;
    assert_eq!(world.changes()[0].action, Action::Disable { reason, sink_generation });
    assert_eq!((world.changes().len(), world.spans()), (1, 0));
    let [job] = world.jobs(1);
    world.act();
    world.subscribe(1, |row| row["sink_generation"] = json!(9));
    world.answer(job, gone());
    world.commit();
    assert_eq!(world.changes().len(), 1, "another destination is in its place");
}

#[test]
fn a_span_survives_a_restart_and_ends_with_its_subscription() {
    for how in Restart::all() {
        let mut world = world();
        world.attempt(1, failed());
        world.bench.flush();
        world.bench.turn_clock(13 * HOUR);
        world.attempt(1, failed());
        world.restart(how);
        world.bench.turn_clock(107 * HOUR);
        world.turn();
        assert_eq!(world.changes().len(), 1, "{how:?}");
        world.attempt(1, failed());
        assert_eq!(world.spans(), 1);
        world.subscribe(1, |row| row["enabled"] = json!(false));
        world.bench.turn_clock(600_000);
        world.turn();
        assert_eq!((world.changes().len(), world.spans()), (1, 0));
    }
}

#[test]
fn after_an_abort_a_look_comes_again() {
    let mut world = world();
    world.attempt(1, failed());
    world.bench.turn_clock(120 * HOUR);
    world.attempt(1, failed());
    world.act();
    world.bench.take_step();
    world.bench.abort();
    assert_eq!(world.changes(), []);
    world.turn();
    assert_eq!(world.changes().len(), 1);
}

#[test]
fn a_strangers_span_is_passed_over() {
    let mut world = world();
    world.attempt(1, failed());
    for (key, value) in [("x", "{}"), (&*id(1).to_string(), "no json")] {
        let (key, value) = (Some(key.into()), Some(value.into()));
        let entry = Entry { partition: PARTITION, key, value, ..Entry::default() };
        world.bench.logs.commit(vec![("hub-failures".to_owned(), entry)], 0);
    }
    world.restart(Restart::COLD);
    world.bench.turn_clock(DAY);
    world.attempt(1, delivered());
    let left: Vec<_> = world.bench.logs.live(Topic::Failures).into_keys().collect();
    assert_eq!(left, ["x"], "the span of before was still there to be cleared");
}
