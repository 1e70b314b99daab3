//! One life of a stream thread's clients: the loop that polls, processes, commits and acts. When
//! it ends with an error, the next session makes new clients and every task restores its tail.
//!
//! Order within one turn: group events, restored tasks, records, messages, actions, steps, commit.
//! So an action never waits for a commit, and a commit never for an action.

mod assignment;
mod commit;
mod upkeep;

use std::sync::mpsc;

use streaming_hub_model::time::UnixMillis;

use super::clients::Clients;
use super::mailbox::{Address, Addressed, TaskId};
use super::processor::{self, Acted, Outputs, Processor, Step};
use super::restore::Restores;
use super::task::Task;
use super::thread::{Act, Parts};
use crate::kafka::error::Error;

/// Records between two looks at the clock and the group's events.
const BATCH: usize = 500;
/// The longest sleep of an idle thread, milliseconds.
const SLEEP_MS: u64 = 100;
/// One wait for what is under way at a stop, milliseconds.
const DRAIN_SLICE_MS: u64 = 20;

/// Why a session ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A stop was asked for, and everything is committed or handed back.
    Stopped,
}

/// One life of the clients.
pub struct Session<'a, P: Processor, C: Clients> {
    parts: &'a Parts<P>,
    inbox: &'a mpsc::Receiver<Addressed<P::Message>>,
    restores: &'a dyn Restores<P>,
    act: &'a Act<P>,
    clients: C,
    tasks: Vec<Task<P>>,
    /// Where the last record's task stood: records come in runs of one partition.
    last: usize,
    /// Since when there is something to commit.
    dirty_since: Option<UnixMillis>,
    last_upkeep: UnixMillis,
    actions: Vec<P::Action>,
}

impl<P: Processor, C: Clients> Drop for Session<'_, P, C> {
    fn drop(&mut self) {
        // What is still here was not handed back in order: nothing of it may be used any more.
        for task in &self.tasks {
            self.restores.incarnations().set(&task.id, None);
        }
    }
}

impl<'a, P: Processor, C: Clients> Session<'a, P, C> {
    /// A session with these clients, which have joined their group.
    pub fn new(
        parts: &'a Parts<P>,
        inbox: &'a mpsc::Receiver<Addressed<P::Message>>,
        restores: &'a dyn Restores<P>,
        act: &'a Act<P>,
        clients: C,
    ) -> Self {
        Self {
            parts,
            inbox,
            restores,
            act,
            clients,
            tasks: Vec::new(),
            last: 0,
            dirty_since: None,
            last_upkeep: parts.shared.clock.now(),
            actions: Vec::new(),
        }
    }

    /// Runs until the stop or an error.
    ///
    /// # Errors
    /// [`Error::Rebuild`] when new clients may help, [`Error::Fatal`] when nothing does.
    pub fn run(mut self) -> Result<Ended, Error> {
        while !self.parts.stop.is_requested() {
            if !self.turn()? {
                self.sleep();
            }
        }
        self.leave()?;
        Ok(Ended::Stopped)
    }

    /// One turn, an abort included; answers whether there was anything to do.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn turn(&mut self) -> Result<bool, Error> {
        match self.try_turn() {
            Err(Error::Abort(reason) | Error::Retry(reason)) => self.rewind(&reason).map(|()| true),
            other => other,
        }
    }

    fn try_turn(&mut self) -> Result<bool, Error> {
        self.follow_group()?;
        self.take_restored()?;
        self.follow_gate()?;
        let (records, drained) = self.take_records()?;
        let messages = self.take_messages()?;
        self.act()?;
        self.take_steps()?;
        self.commit_if_due(drained)?;
        self.upkeep()?;
        Ok(records + messages > 0 || !drained)
    }

    fn now(&self) -> UnixMillis {
        self.parts.shared.clock.now()
    }

    /// Processes what the consumer has, up to a batch; answers how many records that was and
    /// whether the consumer has no more.
    fn take_records(&mut self) -> Result<(usize, bool), Error> {
        let now = self.now();
        let Self { clients, tasks, last, dirty_since, .. } = self;
        for count in 0..BATCH {
            let more = clients.poll(&mut |record, outputs| {
                let (topic, partition) = (record.topic, record.partition);
                let is_it =
                    |task: &Task<P>| task.id.partition == partition && &*task.id.topic == topic;
                if !tasks.get(*last).is_some_and(is_it) {
                    let Some(found) = tasks.iter().position(is_it) else { return Ok(()) };
                    *last = found;
                }
                let task = &mut tasks[*last];
                if !task.is_running() || record.offset < task.position {
                    // Fetched for an assignment that is gone.
                    return Ok(());
                }
                dirty_since.get_or_insert(now);
                step(task, outputs, now, |processor, step| processor.record(record, step))?;
                task.position = record.offset + 1;
                Ok(())
            })?;
            if !more {
                return Ok((count, true));
            }
        }
        Ok((BATCH, false))
    }

    /// Hands waiting messages to their tasks; those of past incarnations are dropped (design 6).
    fn take_messages(&mut self) -> Result<usize, Error> {
        let mut count = 0;
        while let Ok((address, message)) = self.inbox.try_recv() {
            count += 1;
            self.give(&address, message)?;
        }
        Ok(count)
    }

    fn give(&mut self, address: &Address, message: P::Message) -> Result<(), Error> {
        let now = self.now();
        let current = |task: &&mut Task<P>| {
            task.id == address.task && task.incarnation == address.incarnation
        };
        let Some(task) = self.tasks.iter_mut().find(current) else {
            self.parts.shared.metrics.stale_message(self.parts.spec.name);
            return Ok(());
        };
        self.dirty_since.get_or_insert(now);
        let outputs = self.clients.outputs();
        // Kept also when its step fails: it comes again after the abort.
        let done = step(task, outputs, now, |processor, step| processor.message(&message, step));
        task.taken.push(message);
        done
    }

    /// Takes the steps that tasks want without a record or a message.
    fn take_steps(&mut self) -> Result<(), Error> {
        let now = self.now();
        let Self { tasks, clients, dirty_since, .. } = self;
        for task in tasks.iter_mut().filter(|task| task.is_running()) {
            if task.live.as_ref().is_some_and(|live| live.processor.wants_step()) {
                dirty_since.get_or_insert(now);
                step(task, clients.outputs(), now, P::step)?;
            }
        }
        Ok(())
    }

    /// Asks every running task what it wants done, and has it done; again while one waits for its
    /// turn and others take theirs, so that a turn never waits for a commit.
    fn act(&mut self) -> Result<(), Error> {
        while self.act_once()? {}
        Ok(())
    }

    fn act_once(&mut self) -> Result<bool, Error> {
        let now = self.now();
        let mut all = Acted::default();
        for task in self.tasks.iter_mut().filter(|task| task.is_running()) {
            let Some(live) = task.live.as_mut() else { continue };
            task.wake_at = live
                .processor
                .act(now, &live.state, &mut self.actions)
                .map_err(|error| failed_step(&task.id, &error))?;
            let acted = live.processor.acted();
            all.took |= acted.took;
            all.yielded |= acted.yielded;
            for action in self.actions.drain(..) {
                let address = Address { task: task.id.clone(), incarnation: task.incarnation };
                (self.act)(address, action);
            }
        }
        Ok(all.took && all.yielded)
    }

    /// Sleeps until something arrives, a task wants to be asked again, or a while.
    fn sleep(&mut self) {
        let now = self.now();
        let next = self.tasks.iter().filter_map(|task| task.wake_at).min();
        self.clients.sleep(next.map_or(SLEEP_MS, |at| at.since(now).min(SLEEP_MS)));
    }

    /// A clean stop: waits for what is under way (bounded), commits, hands the partitions back at
    /// once instead of after a session time-out (design 7).
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn leave(&mut self) -> Result<(), Error> {
        let started = self.now();
        while self.under_way() > 0 && self.now().since(started) < self.parts.shared.commit.drain_ms
        {
            if self.take_messages()? == 0 {
                self.clients.sleep(DRAIN_SLICE_MS);
            }
            // Only to stay a member; what it fetched is not processed any more.
            self.clients.poll(&mut |_, _| Ok(()))?;
            self.follow_group()?;
        }
        let all: Vec<_> = self.tasks.iter().map(|task| task.id.clone()).collect();
        self.hand_back(&all)?;
        self.commit_with_ends()?;
        self.close_tasks(&all);
        self.clients.leave();
        Ok(())
    }

    fn under_way(&self) -> usize {
        let live = self.tasks.iter().filter_map(|task| task.live.as_ref());
        live.map(|live| live.processor.under_way()).sum()
    }
}

/// Takes one step of a task within the open transaction.
fn step<P: Processor>(
    task: &mut Task<P>,
    outputs: &mut dyn Outputs,
    now: UnixMillis,
    take: impl FnOnce(&mut P, &mut Step<'_>) -> Result<(), processor::Error>,
) -> Result<(), Error> {
    let Some(live) = task.live.as_mut() else {
        return Err(Error::Rebuild(format!("task {} runs without a store", task.id)));
    };
    task.dirty = true;
    let mut step = Step {
        now,
        partition: task.id.partition,
        position: task.position,
        state: &mut live.state,
        outputs,
    };
    take(&mut live.processor, &mut step).map_err(|error| failed_step(&task.id, &error))
}

/// A failed step is a failed store or a record of a newer release: the clients are rebuilt, the
/// store is opened anew, and what it lacks is restored.
fn failed_step(task: &TaskId, error: &processor::Error) -> Error {
    match error {
        processor::Error::State(_) => Error::Rebuild(format!("task {task}: {error}")),
        processor::Error::Format(_) | processor::Error::Refused(_) => {
            Error::Fatal(format!("task {task}: {error}"))
        }
    }
}
