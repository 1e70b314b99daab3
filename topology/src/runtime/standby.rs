//! Standby copies: stores of tasks that run elsewhere, kept warm by tailing the topics that they
//! are views of, so that a takeover restores a tail instead of everything. librdkafka's assignor
//! cannot be steered, so a takeover is surely warm with two instances, or with a copy everywhere.
//!
//! A copy is never processed from. It gives its store up as soon as the task is assigned here.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::State;

use super::clients::Logs;
use super::mailbox::TaskId;
use super::processor::Processor;
use super::restore::{self, Incarnations, Part, checkpoint_of, open_store};
use super::spec::{Source, SubTopology};
use super::thread::{Factory, Stop};
use crate::kafka::logs::KafkaLogs;
use crate::shared::Shared;

/// How often it is looked at who has what, milliseconds.
const LOOK_MS: u64 = 3_000;
/// How often what was read is applied, milliseconds.
const APPLY_MS: u64 = 500;
/// The oldest that an unflushed write gets, milliseconds.
const FLUSH_AGE_MS: i64 = 30_000;
/// Uncommitted bytes of all copies before they are applied.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Records between two looks at the clock.
const BATCH: usize = 1_000;

/// One copy.
pub(crate) struct Copy<P> {
    task: TaskId,
    processor: P,
    state: State,
    parts: Vec<Part>,
}

/// The thread that keeps the copies of one sub-topology.
pub(crate) struct Standby<P: Processor> {
    pub(crate) spec: Arc<SubTopology>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) incarnations: Incarnations,
    pub(crate) logs: KafkaLogs,
    pub(crate) factory: Factory<P>,
    pub(crate) stop: Stop,
    pub(crate) copies: Vec<Copy<P>>,
}

impl<P: Processor> Standby<P> {
    /// Keeps copies until the stop.
    pub(crate) fn run(mut self) {
        let (mut looked, mut applied) = (UnixMillis(0), UnixMillis(0));
        while !self.stop.is_requested() {
            let now = self.shared.clock.now();
            let mut changed = self.give_way();
            if now.since(looked) > LOOK_MS {
                looked = now;
                changed |= self.choose();
                self.report();
            }
            if let Err(error) = self.read(changed) {
                tracing::warn!(sub_topology = self.spec.name, %error, "standby copies start again");
                self.close_all();
                looked = now;
            }
            if now.since(applied) > APPLY_MS || self.buffered() > BATCH_BYTES {
                applied = now;
                self.apply(now);
            }
        }
        self.close_all();
    }

    /// Closes the copies of tasks that are wanted here.
    fn give_way(&mut self) -> bool {
        let wanted = |copy: &Copy<P>| self.incarnations.is_active(&copy.task);
        if !self.copies.iter().any(wanted) {
            return false;
        }
        let (leaving, staying) =
            std::mem::take(&mut self.copies).into_iter().partition::<Vec<_>, _>(wanted);
        self.copies = staying;
        leaving.into_iter().for_each(|copy| self.close(copy));
        true
    }

    /// Looks at the group and opens and closes copies; answers whether anything changed.
    fn choose(&mut self) -> bool {
        let Ok(group) = self.logs.group() else { return false };
        let Source::Internal(topic) = &self.spec.source else { return false };
        if !group.is_stable {
            return false;
        }
        let name: Arc<str> = topic.name(&self.shared.application).into();
        let me = self.spec.member(&self.shared.application, &self.shared.instance, 0);
        let mut wanted = BTreeSet::new();
        for ((topic, partition), owner) in &group.assigned {
            let others = group.members.iter().filter(|member| *member != owner);
            let is_mine = keepers(others, *partition, self.shared.standby_replicas).contains(&&me);
            if is_mine && **topic == *name {
                wanted.insert(TaskId { topic: Arc::clone(&name), partition: *partition });
            }
        }
        let unwanted = |copy: &Copy<P>| !wanted.contains(&copy.task);
        let (leaving, staying) =
            std::mem::take(&mut self.copies).into_iter().partition::<Vec<_>, _>(unwanted);
        self.copies = staying;
        let mut changed = !leaving.is_empty();
        leaving.into_iter().for_each(|copy| self.close(copy));
        for task in wanted {
            let is_new = !self.copies.iter().any(|copy| copy.task == task);
            changed |= is_new && self.open(task);
        }
        changed
    }

    fn open(&mut self, task: TaskId) -> bool {
        if !self.incarnations.take_for_copy(&task) {
            return false;
        }
        match self.start(&task) {
            Ok(copy) => {
                tracing::info!(%task, "standby copy kept");
                self.copies.push(copy);
                true
            }
            Err(error) => {
                tracing::debug!(%task, %error, "no standby copy yet");
                self.incarnations.copy_closed(&task);
                false
            }
        }
    }

    fn start(&mut self, task: &TaskId) -> Result<Copy<P>, restore::Error> {
        let processor = (self.factory)(task.partition);
        let expiry = processor.expiry();
        let (state, parts) = open_store(&self.spec, &self.shared, task, expiry, &mut self.logs)?;
        Ok(Copy { task: task.clone(), processor, state, parts })
    }

    /// Reads some records; starts the reading anew when the set of copies changed.
    fn read(&mut self, changed: bool) -> Result<(), restore::Error> {
        let Self { copies, logs, .. } = self;
        if changed {
            let from: Vec<_> = copies
                .iter()
                .flat_map(|c| c.parts.iter().map(|p| (&*p.name, c.task.partition, p.next)))
                .collect();
            logs.start(&from)?;
        }
        for _ in 0..BATCH {
            let mut failed = None;
            let more = logs.next(&mut |record| {
                let kept = copies.iter_mut().find(|c| c.task.partition == record.partition);
                let Some(copy) = kept else { return Ok(()) };
                let Some(part) = copy.parts.iter_mut().find(|p| p.name == record.topic) else {
                    return Ok(());
                };
                failed = copy.processor.restore(part.topic, record, &mut copy.state).err();
                part.next = record.offset + 1;
                Ok(())
            })?;
            if let Some(error) = failed {
                return Err(error.into());
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn buffered(&self) -> usize {
        self.copies.iter().map(|copy| copy.state.buffered_bytes()).sum()
    }

    fn apply(&mut self, now: UnixMillis) {
        for copy in &mut self.copies {
            if copy.state.buffered_bytes() == 0 {
                continue;
            }
            let checkpoint = checkpoint_of(&copy.parts, copy.task.partition, now);
            let applied = copy.state.commit(&checkpoint);
            let flushed =
                applied.and_then(|()| copy.state.flush_if_older_than(now.0, FLUSH_AGE_MS));
            if let Err(error) = flushed {
                tracing::warn!(task = %copy.task, %error, "a standby copy cannot be written");
            }
        }
    }

    /// How far the copies are behind.
    fn report(&mut self) {
        // Positions pass transaction markers, our own count does not.
        for (name, partition, next) in self.logs.positions().unwrap_or_default() {
            let of_partition = self.copies.iter_mut().filter(|c| c.task.partition == partition);
            for part in of_partition.flat_map(|copy| &mut copy.parts).filter(|p| p.name == name) {
                part.next = part.next.max(next);
            }
        }
        let (mut lag, mut board) = (0, Vec::with_capacity(self.copies.len()));
        for copy in &self.copies {
            let asked: Vec<_> =
                copy.parts.iter().map(|p| (p.name.as_str(), copy.task.partition)).collect();
            if let Ok(ends) = self.logs.ends(&asked) {
                let behind = copy.parts.iter().zip(ends).map(|(p, e)| (e.high - p.next).max(0));
                let behind = behind.sum::<i64>();
                board.push((copy.task.clone(), behind));
                lag += behind;
            }
        }
        self.shared.status.copied(self.spec.name, board);
        self.shared.metrics.standby(self.spec.name, self.copies.len(), lag);
    }

    fn close(&self, mut copy: Copy<P>) {
        let now = self.shared.clock.now();
        let checkpoint = checkpoint_of(&copy.parts, copy.task.partition, now);
        let closed = copy.state.commit(&checkpoint).and_then(|()| copy.state.close());
        if let Err(error) = closed {
            tracing::warn!(task = %copy.task, %error, "closing a standby copy");
        }
        self.incarnations.copy_closed(&copy.task);
    }

    fn close_all(&mut self) {
        for copy in std::mem::take(&mut self.copies) {
            self.close(copy);
        }
        self.logs.stop();
    }
}

/// Which members keep a copy of a partition: those whose hash with it is lowest, so that the choice
/// needs no talk and moves little when a member comes or goes.
fn keepers<'a>(
    members: impl Iterator<Item = &'a String>,
    partition: i32,
    count: usize,
) -> Vec<&'a String> {
    let hash = |member: &String| {
        let mut hasher = DefaultHasher::new();
        (member, partition).hash(&mut hasher);
        hasher.finish()
    };
    let mut ranked: Vec<_> = members.map(|member| (hash(member), member)).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(count).map(|(_, member)| member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_as_many_keepers_as_asked_and_they_move_little() {
        let members: Vec<String> = (0..5).map(|n| format!("m{n}")).collect();
        for partition in 0..50 {
            let kept = keepers(members.iter(), partition, 2);
            assert_eq!(kept.len(), 2);
            let without: Vec<_> = members.iter().filter(|m| *m != kept[0]).collect();
            assert!(keepers(without.into_iter(), partition, 2).contains(&kept[1]));
        }
        assert_eq!(keepers(members.iter(), 0, 9).len(), 5);
    }

    #[test]
    fn a_copy_gives_way_and_is_not_taken_while_the_task_runs_here() {
        let incarnations = Incarnations::default();
        let task = TaskId { topic: "t".into(), partition: 0 };
        assert!(incarnations.take_for_copy(&task));
        assert!(!incarnations.take_for_copy(&task), "one copy");
        incarnations.set(&task, Some(1));
        assert!(incarnations.is_active(&task));
        incarnations.copy_closed(&task);
        assert!(!incarnations.take_for_copy(&task), "the task runs here");
        incarnations.set(&task, None);
        assert!(incarnations.take_for_copy(&task));
    }
}
