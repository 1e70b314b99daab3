//! One step of the scheduler: somebody's turn, something that the cluster does by itself, the
//! clock, a fact, a fault.

use std::rc::Rc;

use streaming_hub_model::attempt::AttemptResult;
use streaming_hub_model::routing;
use streaming_hub_topology::topics::Topic;

use super::{Instance, World};
use crate::check::gates::Request;
use crate::check::{Invariant, Violation};
use crate::clients::add_one;
use crate::defect::Defect;
use crate::destinations::Answer;
use crate::faults::Fault;
use crate::process::{self, Process};
use crate::seam::Life;
use crate::shape::THROTTLE_MS_MAX;
use crate::threads::Turned;

const HOUR_MS: i64 = 3_600_000;
/// How often a cluster gets to do something by itself before hours pass.
const LEAP_ROUNDS: u32 = 50;
/// The most partitions that a source grows to.
const SOURCE_PARTITIONS_MAX: usize = 5;

impl<'a> World<'a> {
    /// Takes one step.
    pub fn step(&self) {
        if self.is_over() {
            return;
        }
        add_one(&self.steps);
        let drawn = self.seam.below(1_000);
        match drawn {
            0..420 => self.some_turn(),
            420..500 => self.some_restore(),
            500..590 => self.some_follower(),
            590..690 => self.some_answer(),
            690..790 => self.background(),
            790..880 => self.clock(),
            880..906 => self.change(),
            906..909 => self.hold(),
            909..930 => self.start_one(),
            930..940 => self.trim(),
            940..942 => self.salt(),
            942..960 => self.misfortune(),
            960..1_000 => self.some_read(),
            _ => {}
        }
        if self.seam.below(1_000) < self.shape.facts {
            self.fact();
        }
        self.note();
    }

    fn some_process(&self) -> Option<Rc<Process<'a>>> {
        let awake = self.awake();
        self.seam.random.borrow_mut().pick(&awake).cloned()
    }

    fn some_turn(&self) {
        let Some(process) = self.some_process() else { return };
        let index = self.seam.random.borrow_mut().index(process.threads.len());
        self.turn(&process, index);
    }

    /// A turn of one thread; answers whether it did anything.
    pub(super) fn turn(&self, process: &Process<'a>, index: usize) -> bool {
        let thread = &process.threads[index];
        let instance = &process.life.instance;
        self.seam.trace.head(|| format!("{} turn {instance} {}", self.steps.get(), thread.name()));
        match thread.turn() {
            Turned::Idle | Turned::Busy => false,
            Turned::Worked => true,
            Turned::Rebuilt(why) => {
                self.seam.trace.say(|| format!("  {instance} {} rebuilt: {why}", thread.name()));
                true
            }
            Turned::Ended(why) => {
                let what = format!("{} of {instance} ended: {why}", thread.name());
                self.judge(Err(Violation::new(Invariant::Alive, what)));
                false
            }
        }
    }

    fn some_restore(&self) {
        let Some(process) = self.some_process() else { return };
        let waiting: Vec<_> = process.threads.iter().filter(|t| t.wants_restore()).collect();
        let thread = self.seam.random.borrow_mut().pick(&waiting).copied();
        if let Some(thread) = thread {
            let (instance, name) = (&process.life.instance, thread.name());
            self.seam.trace.head(|| format!("{} restore {instance} {name}", self.steps.get()));
            thread.restore();
        }
    }

    fn some_follower(&self) {
        let reads = self.seam.random.borrow_mut().chance(self.shape.followers);
        if let Some(process) = self.some_process().filter(|_| reads) {
            let at_most = 1 + self.seam.below(20);
            self.follow(&process, at_most);
        }
    }

    /// The follower of a process reads, and ends it if it is cut off for too long.
    pub(super) fn follow(&self, process: &Process<'a>, at_most: u64) {
        if process.is_outdated() {
            return self.seam.kill(&process.life, "an outdated table");
        }
        process.follow(&self.seam, at_most);
    }

    fn some_answer(&self) {
        if let Some(process) = self.some_process() {
            self.answer(&process);
        }
    }

    /// A consumer reads, or hangs up.
    pub(super) fn some_read(&self) {
        let pulls = self.workload.borrow().pulls();
        let mut random = self.seam.random.borrow_mut();
        let Some(id) = random.pick(&pulls).copied() else { return };
        let mut consumers = self.consumers.borrow_mut();
        if random.below(16) == 0 {
            return consumers.hang_up(&mut random);
        }
        let ask = consumers.ask(id, &mut random);
        drop(random);
        let partitions = self.settings.topics.partitions.unsigned_abs();
        let partition = routing::partition_for_subscription(id, partitions);
        // Whoever believes that it has the task: the last one may be wrong by now.
        let awake = self.awake();
        let tasks = awake.iter().filter_map(|one| Some((one, one.pull_task(partition)?)));
        let tasks: Vec<_> = tasks.collect();
        let picked = self.seam.random.borrow_mut().pick(&tasks).cloned();
        let Some((process, address)) = picked else { return };
        let asked = self.pull_logs.borrow().asked(id, ask);
        self.seam.trace.say(|| format!("{} read of {id} after {:?}", self.steps.get(), ask.after));
        process.read(address, consumers.read(asked));
    }

    /// One call answers; answers whether one did.
    pub(super) fn answer(&self, process: &Process<'a>) -> bool {
        let to_newest = self.seam.has(Defect::OldOutcome);
        let now_ms = self.seam.clock.now_ms();
        let answered = process.destinations.borrow_mut().answered(
            now_ms,
            &mut self.seam.random.borrow_mut(),
            to_newest,
        );
        let Some(Answer { call, address, of, mut returned }) = answered else { return false };
        let mut ledger = self.ledger.borrow_mut();
        ledger.returned(call);
        let caller = (process.life.number, address.incarnation);
        if returned.outcome.result == AttemptResult::Delivered {
            ledger.succeeded(returned.job, caller);
        }
        if let Some(asked_ms) = returned.outcome.retry_after_ms {
            let closes = returned.outcome.status == Some(429);
            let closed_ms = i64::try_from(asked_ms.min(THROTTLE_MS_MAX)).unwrap_or(0);
            let request = Request {
                caller,
                of,
                closed_until_ms: closes.then_some(now_ms + closed_ms),
                due: process.shared.clock.now().plus(asked_ms),
            };
            ledger.asked(call, request);
        }
        drop(ledger);
        if self.seam.has(Defect::RetryAfterUnheard) {
            returned.outcome.retry_after_ms = None;
        }
        process.answer(address, returned);
        true
    }

    /// What a cluster does by itself: markers, rebalances.
    pub(super) fn background(&self) {
        let mut cluster = self.seam.cluster.borrow_mut();
        let mut random = self.seam.random.borrow_mut();
        let unmarked = cluster.unmarked();
        for _ in 0..2 {
            let writes = self.seam.faults.is_resting() || random.chance(self.shape.markers);
            if let Some(txn) = random.pick(&unmarked).copied().filter(|_| writes) {
                let nth = random.index(8);
                cluster.mark_one(txn, nth);
            }
        }
        let ready = cluster.rebalancing();
        if let Some(group) = random.pick(&ready) {
            self.seam.trace.say(|| format!("  {group} is rebalanced"));
            cluster.rebalance(group);
        }
    }

    fn clock(&self) {
        if self.seam.strikes(Fault::Leap) {
            return self.leap();
        }
        let by_ms = self.seam.random.borrow_mut().range(0, self.shape.pace_ms);
        self.advance(by_ms);
    }

    fn advance(&self, by_ms: i64) {
        self.seam.clock.advance(by_ms);
        self.seam.cluster.borrow_mut().tick();
        self.wake_sleepers();
    }

    /// The clock leaps, over hours or days in which nothing new comes.
    fn leap(&self) {
        // Never longer than dedup survives (design 12), and nobody's turn lasts for days.
        let longest_ms = self.shape.horizon_ms + 70 * HOUR_MS;
        let longest = [20_000, 600_000, 6 * HOUR_MS, longest_ms];
        let choices = if self.seam.is_nested() { 2 } else { longest.len() };
        let mut random = self.seam.random.borrow_mut();
        let index = random.index(choices);
        let by_ms = random.range(0, longest[index]);
        drop(random);
        self.seam.trace.say(|| format!("{} the clock leaps {by_ms} ms", self.steps.get()));
        if by_ms > HOUR_MS {
            let now = self.seam.clock.now_ms();
            let stands_still = |one: &&Rc<Process<'a>>| one.life.asleep_until_ms() > now;
            let all = self.processes();
            all.iter().filter(stands_still).for_each(|one| self.seam.kill(&one.life, "a leap"));
            (0..LEAP_ROUNDS).for_each(|_| self.background());
            self.awake().iter().for_each(|one| one.follow(&self.seam, u64::MAX));
        }
        self.advance(by_ms);
        if by_ms > HOUR_MS {
            self.clean_all();
        }
    }

    /// What the log cleaner does in an hour.
    fn clean_all(&self) {
        self.seam.trace.say(|| format!("{} everything is cleaned", self.steps.get()));
        let mut cluster = self.seam.cluster.borrow_mut();
        for topic in Topic::all() {
            for partition in 0..topic.partitions(&self.settings.topics) {
                cluster.clean(topic, partition, i64::MAX, &self.settings.topics);
            }
        }
    }

    /// Those whose time has come send heartbeats again.
    pub(super) fn wake_sleepers(&self) {
        for process in self.awake() {
            let mut cluster = self.seam.cluster.borrow_mut();
            cluster.set_awake(&process.life.instance, true);
        }
    }

    fn fact(&self) {
        let mut workload = self.workload.borrow_mut();
        let said = workload.fact(&self.seam, &mut self.history.borrow_mut());
        self.seam.trace.say(|| format!("{} {said}", self.steps.get()));
    }

    fn change(&self) {
        let mut workload = self.workload.borrow_mut();
        if let Some(said) = workload.change(&self.seam, &mut self.history.borrow_mut()) {
            self.seam.trace.say(|| format!("{} wish: {said}", self.steps.get()));
        }
    }

    fn hold(&self) {
        if !self.seam.random.borrow_mut().chance(self.shape.holds) {
            return;
        }
        if let Some(said) = self.workload.borrow_mut().hold(&self.seam) {
            self.seam.trace.say(|| format!("{} {said}", self.steps.get()));
        }
    }

    fn salt(&self) {
        if let Some(tenant) = self.workload.borrow_mut().salt(&self.seam) {
            self.seam.trace.say(|| format!("{} {tenant} is salted", self.steps.get()));
            self.ledger.borrow_mut().salt(&tenant);
        }
    }

    fn start_one(&self) {
        let now = self.seam.clock.now_ms();
        let is_down =
            |one: &&Instance<'_>| one.process.borrow().is_none() && one.down_until_ms.get() <= now;
        let down: Vec<_> = self.instances.iter().filter(is_down).collect();
        let one = self.seam.random.borrow_mut().pick(&down).copied();
        if let Some(instance) = one {
            self.start(instance);
        }
    }

    fn trim(&self) {
        let Some(process) = self.some_process() else { return };
        let mut consumed = process.shared.consumed.take();
        consumed.sort_unstable();
        for ((topic, partition), position) in consumed {
            self.seam.cluster.borrow_mut().delete_records(&topic, partition, position);
        }
    }

    /// What goes wrong, or happens seldom, at any moment.
    fn misfortune(&self) {
        if let Some(process) = self.some_process() {
            let instance = &process.life.instance;
            if self.seam.strikes(Fault::Kill) {
                self.seam.kill(&process.life, "any moment");
            } else if self.seam.strikes(Fault::Sleep) {
                let length_ms = 1 + self.seam.below(40_000).cast_signed();
                self.seam.trace.say(|| format!("  {instance} sleeps {length_ms} ms"));
                process.life.sleep_until(self.seam.clock.now_ms() + length_ms);
                self.seam.cluster.borrow_mut().set_awake(instance, false);
            } else if self.seam.strikes(Fault::Stop) {
                self.stop(&process);
            }
        }
        if self.seam.strikes(Fault::Clean) {
            self.clean();
        }
        if self.seam.strikes(Fault::Grow) {
            self.grow();
        }
        if self.seam.strikes(Fault::NewSource) {
            let topic = self.workload.borrow_mut().new_source();
            self.seam.cluster.borrow_mut().add_topic(&topic, 1);
        }
    }

    fn clean(&self) {
        let all: Vec<_> = Topic::all().collect();
        let mut random = self.seam.random.borrow_mut();
        let Some(topic) = random.pick(&all).copied() else { return };
        let count = topic.partitions(&self.settings.topics);
        let partition = random.range(0, i64::from(count - 1));
        let Ok(partition) = i32::try_from(partition) else { return };
        let name = topic.name(&self.settings.topics.application);
        let mut cluster = self.seam.cluster.borrow_mut();
        let ends = cluster.log(&name, partition).map_or((0, 0), |log| (log.low(), log.high()));
        let upto = random.range(ends.0, ends.1);
        self.seam.trace.say(|| format!("  {name}/{partition} is cleaned below {upto}"));
        cluster.clean(topic, partition, upto, &self.settings.topics);
    }

    fn grow(&self) {
        let topics: Vec<_> = self.workload.borrow().topics().collect();
        let Some(topic) = self.seam.random.borrow_mut().pick(&topics).cloned() else { return };
        let mut cluster = self.seam.cluster.borrow_mut();
        let count = cluster.partitions(&topic) + 1;
        if count <= SOURCE_PARTITIONS_MAX {
            cluster.add_topic(&topic, count);
        }
    }
}

impl<'a> World<'a> {
    /// Starts a process.
    pub(super) fn start(&self, instance: &Instance<'a>) {
        let life = Life::new(add_one(&self.lives), &instance.name);
        self.ledger.borrow_mut().born(life.number);
        self.seam.trace.say(|| format!("{} {} starts", self.steps.get(), instance.name));
        self.seam.cluster.borrow_mut().set_awake(&instance.name, true);
        let process =
            process::start(self.arenas, &self.seam, &self.settings, &life, &instance.disks);
        *instance.process.borrow_mut() = Some(Rc::new(process));
    }

    /// Stops a process in order.
    pub(super) fn stop(&self, process: &Process<'a>) {
        let instance = &process.life.instance;
        self.seam.trace.say(|| format!("{} {instance} stops", self.steps.get()));
        let mut crashed = false;
        for thread in &process.threads {
            if let Err(error) = thread.leave() {
                self.seam.trace.say(|| format!("  {instance} stops at once: {error}"));
                crashed = true;
            }
        }
        if let Some(instance) = self.instance_of(&process.life) {
            self.bury(instance, crashed || process.life.is_dead());
        }
    }
}
