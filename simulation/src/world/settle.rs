//! The end of a run: faults stop, everything that was begun comes to its end, all leave in order,
//! and the whole history and all stores are judged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use streaming_hub_model::headers::Headers;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::{internal, pull};
use streaming_hub_state::family::{dedup, pull_entry, subscription};
use streaming_hub_state::{Base, Family, KeyRange, MemoryBase};
use streaming_hub_topology::topics::Topic;

use super::{Instance, World, sub_topologies};
use crate::check::{Invariant, Violation, ended};
use crate::process::Process;
use crate::shape::{PULL_BASE, Shape};

/// How many rounds may pass in which nothing is recorded although something is left to do.
const STANDSTILL_ROUNDS: u32 = 600;
/// How many quiet rounds in a row end it.
const QUIET_ROUNDS: u32 = 4;
/// For how many rounds consumers still read, in every second of them.
const READ_ROUNDS: u32 = 80;
/// The most milliseconds of one round.
const ROUND_MS_MAX: i64 = 500;

/// All keys of a family.
pub(super) fn keys(base: &MemoryBase, family: Family) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    // Only a damaged disk would answer an error, and none is.
    let _ = base.scan(&KeyRange::family(family), &mut |key, _| {
        found.push(key.to_vec());
        ControlFlow::Continue(())
    });
    found
}

impl<'a> World<'a> {
    /// Lets everything come to its end, and judges it.
    pub fn settle(&self) {
        self.seam.trace.say(|| "faults are over".to_owned());
        self.seam.faults.rest();
        self.instances.iter().for_each(|instance| instance.disks.rest());
        for process in self.processes() {
            process.life.sleep_until(0);
        }
        self.wake_sleepers();
        self.workload.borrow_mut().let_go(&self.seam, &mut self.history.borrow_mut());
        if !self.come_to_an_end() || self.is_over() {
            return;
        }
        self.processes().iter().for_each(|process| self.stop(process));
        self.note();
        if self.is_over() {
            return;
        }
        let partitions = self.settings.topics.partitions.unsigned_abs();
        let history = self.history.borrow();
        self.judge(ended::all(&history, partitions, Shape::limits()));
        self.judge(self.judge_stores());
    }

    /// Runs rounds until nothing is left to do; answers whether that came.
    fn come_to_an_end(&self) -> bool {
        let (mut quiet, mut recorded, mut standstill) = (0, 0, 0);
        let mut rounds = 0..READ_ROUNDS;
        while standstill < STANDSTILL_ROUNDS {
            let so_far = self.history.borrow().len();
            standstill = if so_far > recorded { 0 } else { standstill + 1 };
            recorded = so_far;
            if self.is_over() {
                return false;
            }
            let down = self.instances.iter().filter(|one| one.process.borrow().is_none());
            down.collect::<Vec<_>>().into_iter().for_each(|instance| self.start(instance));
            let worked = self.processes().iter().any(|process| self.round(process));
            (0..8).for_each(|_| self.background());
            if rounds.next().is_some_and(|round| round % 2 == 0) {
                self.some_read();
            }
            self.note();
            let by_ms = if worked { 10 } else { ROUND_MS_MAX };
            self.seam.clock.advance(by_ms);
            self.seam.cluster.borrow_mut().tick();
            quiet = if self.is_settled() { quiet + 1 } else { 0 };
            if quiet >= QUIET_ROUNDS {
                return true;
            }
        }
        self.judge(Err(self.unsettled()));
        false
    }

    /// Everyone's turn; answers whether anybody did anything.
    fn round(&self, process: &Rc<Process<'a>>) -> bool {
        self.follow(process, u64::MAX);
        let mut worked = false;
        for index in 0..process.threads.len() {
            if process.life.is_dead() {
                return true;
            }
            while process.threads[index].wants_restore() {
                process.threads[index].restore();
                worked = true;
            }
            worked |= self.turn(process, index);
            self.note();
        }
        while self.answer(process) {
            worked = true;
        }
        worked
    }

    fn groups(&self) -> impl Iterator<Item = String> + '_ {
        sub_topologies().into_iter().map(|spec| spec.group(&self.settings.topics.application))
    }

    fn is_settled(&self) -> bool {
        let cluster = self.seam.cluster.borrow();
        let idle = |process: &Rc<Process<'a>>| {
            process.destinations.borrow().is_idle() && process.shared.status.missing().is_empty()
        };
        !cluster.has_transactions()
            && cluster.is_quiet()
            && self.groups().all(|group| !cluster.misses_partitions(&group))
            && self.groups().all(|group| cluster.unread(&group).is_empty())
            && self.processes().iter().all(idle)
            && self.jobs_left().is_empty()
    }

    /// Keys and topics of jobs that wait, as the logs have it.
    fn jobs_left(&self) -> Vec<(String, Topic)> {
        let cluster = self.seam.cluster.borrow();
        let is_place = |topic: &Topic| matches!(topic, Topic::Deliveries | Topic::Retry(_));
        let mut left = Vec::new();
        for topic in Topic::all().filter(is_place) {
            let name = topic.name(&self.settings.topics.application);
            for partition in 0..self.settings.topics.partitions {
                let Some(log) = cluster.log(&name, partition) else { continue };
                let mut jobs = BTreeSet::new();
                for (_, data) in log.committed() {
                    let key = data.key.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                    if data.value.is_some() {
                        jobs.insert(key.into_owned());
                    } else {
                        jobs.remove(&*key);
                    }
                }
                left.extend(jobs.into_iter().map(|job| (job, topic)));
            }
        }
        left
    }

    fn unsettled(&self) -> Violation {
        let cluster = self.seam.cluster.borrow();
        for group in self.groups() {
            if let Some((task, position, end)) = cluster.unread(&group).first() {
                let what = format!("{group} stands at {position} of {task}, which ends at {end}");
                return Violation::new(Invariant::I5, what);
            }
        }
        if let Some(group) = self.groups().find(|group| cluster.misses_partitions(group)) {
            return Violation::new(Invariant::I5, format!("a partition of {group} is nobody's"));
        }
        for process in self.processes() {
            let instance = &process.life.instance;
            let under_way = process.destinations.borrow().ids().count();
            let (slots, missing) = (process.slots.in_use(), process.shared.status.missing());
            self.seam.trace.say(|| {
                format!("  {instance}: {under_way} calls, {slots} slots taken, {missing:?}")
            });
        }
        let left = self.jobs_left();
        self.seam.trace.say(|| format!("  waiting: {left:?}"));
        let what = match left.first() {
            Some((job, topic)) => format!("job {job} waits in {topic} and never ends"),
            None => "transactions, rebalances or restores never end".to_owned(),
        };
        Violation::new(Invariant::I5, what)
    }

    /// Of each store, the last owner's copy is exactly the view of its topics.
    fn judge_stores(&self) -> Result<(), Violation> {
        for partition in 0..self.settings.topics.partitions {
            self.some_store("match", partition, |base| self.is_dedup(base, partition))?;
            self.some_store("registry", partition, |base| self.is_registry(base, partition))?;
            self.some_store("pull", partition, |base| self.is_pull(base, partition))?;
            self.some_store("delivery", partition, |base| {
                let families = [Family::Job, Family::Ready, Family::Due];
                families.into_iter().all(|family| keys(base, family).is_empty())
            })?;
        }
        Ok(())
    }

    fn some_store(
        &self,
        name: &'static str,
        partition: i32,
        fits: impl Fn(&MemoryBase) -> bool,
    ) -> Result<(), Violation> {
        let copies = self.instances.iter().flat_map(|one: &Instance<'_>| one.disks.stores());
        let mut copies = copies.filter(|(id, _)| *id == (name, partition));
        if copies.any(|(_, base)| fits(&base)) {
            return Ok(());
        }
        let what = format!("no store of {name} {partition} is the view of its topics");
        Err(Violation::new(Invariant::Store, what))
    }

    fn is_dedup(&self, base: &MemoryBase, partition: i32) -> bool {
        let name = Topic::Dedup.name(&self.settings.topics.application);
        let cluster = self.seam.cluster.borrow();
        let Some(log) = cluster.log(&name, partition) else { return false };
        let values = log.committed().filter_map(|(_, data)| data.value.as_deref());
        let mut newest = i64::MIN;
        let mut wanted = Vec::new();
        for entry in values.filter_map(|v| dedup::unpack(v).ok()).flatten().flatten() {
            newest = newest.max(entry.arrival_ms);
            wanted.push((entry.arrival_ms, entry.key().to_vec()));
        }
        // What lies beyond the horizon may be there or not.
        let oldest = newest.saturating_sub(self.settings.horizon_ms);
        let held: BTreeSet<_> = keys(base, Family::Dedup).into_iter().collect();
        wanted.iter().all(|(arrival, key)| *arrival < oldest || held.contains(key))
    }

    fn is_pull(&self, base: &MemoryBase, partition: i32) -> bool {
        let name = Topic::Pull.name(&self.settings.topics.application);
        let cluster = self.seam.cluster.borrow();
        let Some(log) = cluster.log(&name, partition) else { return false };
        let (mut puts, mut keys_of) = (BTreeMap::new(), BTreeMap::<_, u32>::new());
        for (offset, data) in log.committed() {
            let headers = data.header_refs();
            let headers = Headers::new(&headers);
            let Ok(id) = pull::subscription(headers) else { continue };
            if data.value.is_some() {
                *keys_of.entry(data.key.clone()).or_default() += 1;
                let seq = pull::seq(PULL_BASE, offset).unwrap_or(0);
                puts.insert(pull_entry::key(id.as_bytes(), seq).to_vec(), data.key.clone());
            } else if let Ok(seq) = internal::number::<u64>(headers, internal::SEQ) {
                puts.remove(&pull_entry::key(id.as_bytes(), seq).to_vec());
            }
        }
        let held: BTreeSet<_> = keys(base, Family::PullEntry).into_iter().collect();
        // Of an event that came again, cleaning leaves the newest record alone.
        let is_single = |key: &_| keys_of.get(key) == Some(&1);
        puts.iter().all(|(entry, key)| held.contains(entry) || !is_single(key))
            && held.len() <= puts.len()
    }

    fn is_registry(&self, base: &MemoryBase, partition: i32) -> bool {
        let name = Topic::Subscriptions.name(&self.settings.topics.application);
        let cluster = self.seam.cluster.borrow();
        let Some(log) = cluster.log(&name, partition) else { return false };
        let mut wanted = BTreeSet::new();
        for (_, data) in log.committed() {
            let key = data.key.as_deref().and_then(|key| std::str::from_utf8(key).ok());
            let Some(Ok(id)) = key.map(SubscriptionId::parse) else { continue };
            let key = subscription::key(id.as_bytes()).to_vec();
            if data.value.is_some() {
                wanted.insert(key)
            } else {
                wanted.remove(&key)
            };
        }
        let held: BTreeSet<_> = keys(base, Family::Subscription).into_iter().collect();
        held == wanted
    }
}
