//! Turns, timers and gates of subscriptions, and the share of slots that their tenants get.

use super::*;
use crate::processors::delivery::slots::Slot;

fn id(n: u8) -> SubscriptionId {
    SubscriptionId::from_parts(1, [n; 10])
}

/// Lanes over so many slots.
fn over(slots: usize) -> Lanes {
    Lanes::new(Slots::new(slots, usize::MAX))
}

fn lanes() -> Lanes {
    over(1_000)
}

fn queue(lanes: &mut Lanes, n: u8, tenant: &str) {
    lanes.belongs_to(id(n), tenant);
    lanes.queue(id(n));
}

/// The turns until nobody's is left.
fn turns(lanes: &mut Lanes) -> Vec<SubscriptionId> {
    std::iter::from_fn(|| match lanes.next_turn() {
        Turn::Of(id) => Some(id),
        Turn::Elsewhere | Turn::Nobody => None,
    })
    .collect()
}

/// Takes as many slots as there are turns; those of a tenant stay in the queue for ever.
fn greedy(lanes: &mut Lanes) -> Vec<Slot> {
    let mut taken = Vec::new();
    while let Turn::Of(id) = lanes.next_turn() {
        let tenant = Arc::clone(&lanes.lanes[&id].tenant);
        let slots = Arc::clone(&lanes.slots);
        taken.extend(slots.try_take(&tenant, 1));
        lanes.queue(id);
    }
    taken
}

#[test]
fn subscriptions_take_turns_and_each_stands_in_the_queue_once() {
    let mut lanes = lanes();
    for n in [1, 2, 1, 3, 2] {
        queue(&mut lanes, n, "a");
    }
    assert_eq!([lanes.next_turn(), lanes.next_turn()], [Turn::Of(id(1)), Turn::Of(id(2))]);
    queue(&mut lanes, 1, "a");
    assert_eq!(turns(&mut lanes), [id(3), id(1)]);
}

#[test]
fn tenants_take_turns_before_their_subscriptions_do() {
    let mut lanes = lanes();
    for n in 1..=3 {
        queue(&mut lanes, n, "a");
    }
    queue(&mut lanes, 9, "b");
    assert_eq!(turns(&mut lanes), [id(1), id(9), id(2), id(3)]);
}

#[test]
fn a_timer_wakes_at_its_moment_and_only_the_last_one_set_counts() {
    let mut lanes = lanes();
    lanes.queue_at(id(1), UnixMillis(50));
    lanes.queue_at(id(1), UnixMillis(80));
    assert_eq!(lanes.next_wake(), Some(UnixMillis(80)));
    lanes.wake(UnixMillis(79));
    assert_eq!(lanes.next_turn(), Turn::Nobody);
    lanes.wake(UnixMillis(80));
    assert_eq!(lanes.next_turn(), Turn::Of(id(1)));
    assert_eq!(lanes.next_wake(), None);
}

#[test]
fn a_held_subscription_is_not_woken_by_new_jobs() {
    let mut lanes = lanes();
    lanes.hold_until(id(1), UnixMillis(100));
    lanes.queue(id(1));
    assert_eq!(lanes.next_turn(), Turn::Nobody);
    lanes.wake(UnixMillis(100));
    assert_eq!(lanes.next_turn(), Turn::Of(id(1)));
}

#[test]
fn a_subscription_that_is_held_loses_the_turn_that_it_has() {
    let mut lanes = lanes();
    queue(&mut lanes, 1, "a");
    queue(&mut lanes, 2, "a");
    lanes.hold_until(id(1), UnixMillis(100));
    assert_eq!(turns(&mut lanes), [id(2)]);
    lanes.wake(UnixMillis(100));
    assert_eq!(turns(&mut lanes), [id(1)]);
}

#[test]
fn a_parked_subscription_comes_back_only_when_it_is_unparked() {
    let mut lanes = lanes();
    lanes.queue_at(id(1), UnixMillis(5));
    lanes.park(id(1));
    lanes.wake(UnixMillis(1_000));
    lanes.started(id(1));
    lanes.returned(id(1));
    assert_eq!(lanes.next_turn(), Turn::Nobody);
    lanes.unpark(id(1));
    assert_eq!(lanes.next_turn(), Turn::Of(id(1)));
    lanes.unpark(id(2));
    assert_eq!(lanes.next_turn(), Turn::Nobody, "what nobody parked is not woken");
}

#[test]
fn a_resting_subscription_leaves_nothing_in_memory() {
    let mut lanes = lanes();
    queue(&mut lanes, 1, "a");
    lanes.next_turn();
    lanes.rest(id(1));
    lanes.next_turn();
    assert!(lanes.lanes.is_empty() && lanes.tenants.is_empty() && lanes.timers.is_empty());
    assert!(lanes.order.is_empty());
}

#[test]
fn tenants_that_never_let_go_leave_a_slot_for_each_that_comes() {
    let mut lanes = over(256);
    for n in 0..64 {
        queue(&mut lanes, n, &format!("hog-{n}"));
    }
    let held = greedy(&mut lanes);
    assert_eq!(held.len(), 192, "three each, and the last quarter for those that have none");
    for n in 64..128 {
        queue(&mut lanes, n, &format!("quiet-{n}"));
        assert_eq!(lanes.next_turn(), Turn::Of(id(n)), "at once");
        std::mem::forget(lanes.slots.try_take(&format!("quiet-{n}"), 1).unwrap());
    }
    assert_eq!(lanes.slots.in_use(), 256);
}

#[test]
fn one_tenant_has_a_quarter_however_many_subscriptions_it_has() {
    let mut lanes = over(256);
    for n in 0..200 {
        queue(&mut lanes, n, "hog");
    }
    let mut held = greedy(&mut lanes);
    assert_eq!(held.len(), 64);
    queue(&mut lanes, 201, "quiet");
    assert_eq!(lanes.next_turn(), Turn::Of(id(201)));
    assert_eq!(lanes.next_turn(), Turn::Nobody, "it has its share");
    held.pop();
    assert!(matches!(lanes.next_turn(), Turn::Of(_)), "one came back");
}

#[test]
fn of_two_tasks_the_one_whose_tenant_has_fewer_attempts_is_next() {
    let slots = Slots::new(8, usize::MAX);
    let (mut one, mut other) = (Lanes::new(Arc::clone(&slots)), Lanes::new(Arc::clone(&slots)));
    let _held: Vec<_> = ["a", "b", "c", "d"].map(|tenant| slots.try_take(tenant, 1)).into();
    queue(&mut one, 1, "a");
    assert_eq!(other.next_turn(), Turn::Nobody);
    queue(&mut other, 2, "e");
    assert_eq!(one.next_turn(), Turn::Elsewhere);
    assert_eq!(other.next_turn(), Turn::Of(id(2)));
    assert_eq!(one.next_turn(), Turn::Of(id(1)), "nobody with fewer waits any more");
}

#[test]
fn a_task_that_does_not_run_holds_up_nobody_nor_does_one_that_ended() {
    let slots = Slots::new(4, usize::MAX);
    let (mut ends, mut restored) = (Lanes::new(Arc::clone(&slots)), Lanes::new(Arc::clone(&slots)));
    let mut runs = Lanes::new(Arc::clone(&slots));
    let _held: Vec<_> = ["a", "b"].map(|tenant| slots.try_take(tenant, 1)).into();
    queue(&mut restored, 1, "x");
    queue(&mut runs, 2, "y");
    queue(&mut ends, 3, "a");
    ends.run();
    assert_eq!(runs.next_turn(), Turn::Of(id(2)));
    drop(ends);
    queue(&mut runs, 2, "y");
    assert_eq!(runs.next_turn(), Turn::Of(id(2)));
    assert_eq!(slots.next(), crate::processors::delivery::slots::Next::Nobody);
}
