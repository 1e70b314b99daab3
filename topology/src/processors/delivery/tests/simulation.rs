//! Anything may happen in any order: jobs, outcomes, aborts, restarts, a clock that jumps,
//! subscriptions that come and go. After every commit the checker looks; in the end every job is
//! done or dead, and no attempt was recorded twice.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::processors::testing::Restart;
use crate::processors::testing::fixtures::HOUR;
use proptest::prelude::*;

/// How many attempts subscription 1, 2 and 3 may have under way.
const MAX_IN_FLIGHT: [u16; 3] = [1, 2, 5];

#[derive(Debug, Clone, Copy)]
enum Row {
    Enabled,
    Disabled,
    Absent,
}

#[derive(Debug, Clone)]
enum Op {
    /// A job of this subscription, matched with a table so much newer than ours.
    Job(u8, i64),
    Read(usize),
    Act,
    /// One of the attempts under way returns: delivered, failed, or not attempted.
    Return(prop::sample::Index, u8),
    Step,
    Commit,
    Abort,
    Clock(i64),
    Subscription(u8, Row),
    AdvanceTable,
    Flush,
    Restart(Restart),
}

fn op() -> impl Strategy<Value = Op> {
    let restart = (any::<bool>(), any::<bool>(), any::<u64>())
        .prop_map(|(keeps_store, compacted, seed)| Restart { keeps_store, compacted, seed });
    let rows = prop::sample::select(vec![Row::Enabled, Row::Enabled, Row::Disabled, Row::Absent]);
    let jumps = prop::sample::select(vec![1, 600, 30_000, 60_000, HOUR, -20_000, -2 * HOUR]);
    prop_oneof![
        8 => (1u8..=3, 0i64..2).prop_map(|(n, newer)| Op::Job(n, newer)),
        6 => (1usize..6).prop_map(Op::Read),
        10 => Just(Op::Act),
        10 => (any::<prop::sample::Index>(), 0u8..3).prop_map(|(at, what)| Op::Return(at, what)),
        4 => Just(Op::Step),
        6 => Just(Op::Commit),
        4 => Just(Op::Abort),
        4 => jumps.prop_map(Op::Clock),
        1 => (1u8..=3, rows).prop_map(|(n, row)| Op::Subscription(n, row)),
        1 => Just(Op::AdvanceTable),
        1 => Just(Op::Flush),
        1 => restart.prop_map(Op::Restart),
    ]
}

/// A world that watches what its task asks for.
struct Watched {
    world: World,
    /// Jobs by arrival, with their subscription.
    arrived: HashMap<JobId, (u8, usize)>,
    /// The latest arrival that this incarnation attempted, by subscription, and all that it did.
    latest: HashMap<u8, usize>,
    attempted: HashSet<JobId>,
}

impl Watched {
    fn new(slots: usize) -> Self {
        let world = World::with_slots(slots);
        for n in 1..=3 {
            set_row(&world, n, Row::Enabled);
        }
        Self { world, arrived: HashMap::new(), latest: HashMap::new(), attempted: HashSet::new() }
    }

    fn act(&mut self) {
        for job in self.world.act() {
            let (subscription, arrival) = self.arrived[&job];
            // Between a claim and its commit the clock may have been turned back.
            if self.world.durable(job).is_none() {
                self.is_due(job);
            }
            let is_first = self.attempted.insert(job);
            let waits = self.world.place(job).as_deref() == Some("deliveries");
            if is_first && waits && !self.world.is_in_lane(job) {
                let before = self.latest.insert(subscription, arrival);
                assert!(before < Some(arrival), "I9: {job} overtook");
            }
        }
        for n in 1..=3 {
            let of_it = |order: &&Order| order.attempt.subscription.id == id(n);
            let under_way = self.world.orders.iter().filter(of_it).count();
            assert!(under_way <= usize::from(MAX_IN_FLIGHT[usize::from(n) - 1]));
        }
        let jobs: HashSet<_> = self.world.orders.iter().map(|order| order.job).collect();
        assert_eq!(jobs.len(), self.world.orders.len(), "one attempt of a job at a time");
        let held = self.world.bench.processor.claims.held();
        assert_eq!(self.world.slots.in_use(), self.world.orders.len() + held);
    }

    fn is_due(&self, job: JobId) {
        let due = self.world.record_of(job).number(internal::DUE);
        assert!(due <= self.world.bench.now.0, "{job} came too early");
    }

    fn take(&mut self, op: Op) {
        let world = &mut self.world;
        match op {
            Op::Job(n, newer) => {
                let table = world.table.position(home()) + newer;
                let job = world.job_with(n, |facts| facts.table = table);
                self.arrived.insert(job, (n, self.arrived.len()));
            }
            Op::Read(count) => world.bench.read(count),
            Op::Act => self.act(),
            Op::Return(at, what) if !world.orders.is_empty() => {
                let outcome = [delivered, failed, not_attempted][usize::from(what)]();
                let returned = world.take_order(at.index(world.orders.len()), outcome);
                world.bench.message(Message::Returned(returned));
            }
            Op::Return(..) => {}
            Op::Step => world.bench.take_step(),
            Op::Commit => world.commit(),
            Op::Abort => world.bench.abort(),
            Op::Clock(by_ms) => world.bench.turn_clock(by_ms),
            Op::Subscription(n, row) => set_row(world, n, row),
            Op::AdvanceTable => world.advance_table(world.table.position(home()) + 1),
            Op::Flush => world.bench.flush(),
            Op::Restart(how) => {
                world.restart(how);
                checker::check(world);
                self.latest.clear();
                self.attempted.clear();
            }
        }
    }

    /// Everything is delivered from now on; after a while nothing is left.
    fn drain(&mut self) {
        for n in 1..=3 {
            set_row(&self.world, n, Row::Enabled);
        }
        self.world.advance_table(i64::MAX);
        for _ in 0..self.arrived.len() * 4 + 9 {
            self.world.bench.read(usize::MAX);
            self.act();
            while !self.world.orders.is_empty() {
                let returned = self.world.take_order(0, delivered());
                self.world.bench.message(Message::Returned(returned));
            }
            self.world.bench.take_step();
            self.world.commit();
            self.world.bench.turn_clock(100 * HOUR);
        }
        for job in self.arrived.keys() {
            let place = self.world.place(*job);
            assert!(place.is_none_or(|place| place == "dead-letters"), "{job} was forgotten");
        }
        assert_eq!(self.world.bench.processor.under_way(), 0);
        assert_eq!(self.world.bench.wake_at, None);
    }
}

fn set_row(world: &World, n: u8, state: Row) {
    let max_in_flight = MAX_IN_FLIGHT[usize::from(n) - 1];
    match state {
        Row::Enabled => world.subscribe(n, strict(max_in_flight)),
        Row::Disabled => world.subscribe(n, |row| row["enabled"] = json!(false)),
        Row::Absent => world.unsubscribe(n),
    }
}

proptest! {
    #[test]
    fn whatever_happens_each_job_is_in_one_place_and_ends_done_or_dead(
        ops in prop::collection::vec(op(), 0..120), slots in 1usize..7, jitter: u8,
    ) {
        let mut watched = Watched::new(slots);
        watched.world.entropy.jitter.store(jitter, std::sync::atomic::Ordering::Relaxed);
        for op in ops {
            watched.take(op);
        }
        watched.drain();
    }
}
