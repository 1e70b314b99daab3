//! One life of a stream thread's clients: the loop that polls, processes, commits and acts. When
//! it ends with an error, the next session makes new clients and every task restores its tail.
//!
//! Order within one turn: group events, restored tasks, records, messages, actions, commit. So an
//! action never waits for a commit, and a commit never for an action.

mod assignment;
mod commit;

use std::sync::mpsc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use streaming_hub_model::follow::Followed;
use streaming_hub_model::time::UnixMillis;

use super::mailbox::{Address, Addressed};
use super::processor::{self, Processor, Step};
use super::restore;
use super::spec::Source;
use super::task::Task;
use super::thread::{Act, Parts, RestoreThread};
use super::watchdog::Guard;
use crate::clock::Watch;
use crate::kafka::error::Error;
use crate::kafka::ffi;
use crate::kafka::membership::{self, Membership};
use crate::kafka::transactor::Transactor;

/// Records between two looks at the clock and the group's events.
const BATCH: usize = 500;
/// The longest sleep of an idle thread.
const SLEEP: Duration = Duration::from_millis(100);
/// How long the list of topics may take.
const METADATA: Duration = Duration::from_secs(10);
/// How long leaving the group may take.
const LEAVE: Duration = Duration::from_secs(5);

/// Why a session ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A stop was asked for, and everything is committed or handed back.
    Stopped,
}

/// One life of the clients.
pub(crate) struct Session<'a, P: Processor> {
    parts: &'a Parts<P>,
    inbox: &'a mpsc::Receiver<Addressed<P::Message>>,
    restores: &'a RestoreThread<P>,
    act: &'a Act<P>,
    guard: Guard,
    // The producer outlives the consumer: the latter's drop still runs callbacks.
    consumer: BaseConsumer<Membership>,
    transactor: Transactor,
    tasks: Vec<Task<P>>,
    /// Where the last record's task stood: records come in runs of one partition.
    last: usize,
    /// Since when there is something to commit.
    dirty_since: Option<Watch>,
    last_upkeep: Watch,
    actions: Vec<P::Action>,
}

impl<P: Processor> Drop for Session<'_, P> {
    fn drop(&mut self) {
        // What is still here was not handed back in order: nothing of it may be used any more.
        self.consumer.context().close();
        for task in &self.tasks {
            self.restores.incarnations.set(&task.id, None);
        }
    }
}

impl<'a, P: Processor> Session<'a, P> {
    /// New clients: the producer first, since `init_transactions` ends a predecessor's transaction
    /// before any position is asked for (design 2).
    pub(crate) fn open(
        parts: &'a Parts<P>,
        inbox: &'a mpsc::Receiver<Addressed<P::Message>>,
        restores: &'a RestoreThread<P>,
        act: &'a Act<P>,
        guard: Guard,
    ) -> Result<Self, Error> {
        let (shared, spec) = (&parts.shared, &parts.spec);
        let member = spec.member(&shared.application, &shared.instance, 0);
        let transactor = guard.watched(|| {
            Transactor::new(&shared.kafka.transactional(&member), &shared.application)
        })?;
        let config = shared.kafka.member(&spec.group(&shared.application), &member);
        let thread = std::thread::current();
        let consumer = membership::join(&config, move || thread.unpark())
            .map_err(|error| Error::Fatal(error.to_string()))?;
        if has_nothing_to_join(&consumer, &spec.source) {
            shared.status.joined(spec.name);
        }
        let topics = spec.source.subscription(&shared.application);
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| Error::Fatal(error.to_string()))?;
        Ok(Self {
            parts,
            inbox,
            restores,
            act,
            guard,
            consumer,
            transactor,
            tasks: Vec::new(),
            last: 0,
            dirty_since: None,
            last_upkeep: Watch::start(),
            actions: Vec::new(),
        })
    }

    /// Runs until the stop or an error.
    pub(crate) fn run(mut self) -> Result<Ended, Error> {
        while !self.parts.stop.is_requested() {
            let busy = match self.turn() {
                Ok(busy) => busy,
                Err(Error::Abort(reason)) => {
                    self.rewind(&reason)?;
                    true
                }
                Err(error) => return Err(error),
            };
            if !busy {
                self.sleep()?;
            }
        }
        self.leave()?;
        Ok(Ended::Stopped)
    }

    /// One turn; answers whether there was anything to do.
    fn turn(&mut self) -> Result<bool, Error> {
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
        let Self { consumer, tasks, transactor, last, dirty_since, .. } = self;
        for count in 0..BATCH {
            let message = match consumer.poll(Duration::ZERO) {
                None => return Ok((count, true)),
                Some(Ok(message)) => message,
                Some(Err(error)) => {
                    failed_poll(&error)?;
                    return Ok((count, false));
                }
            };
            let (topic, partition) = (message.topic(), message.partition());
            let is_it = |task: &Task<P>| task.id.partition == partition && &*task.id.topic == topic;
            if !tasks.get(*last).is_some_and(is_it) {
                let Some(found) = tasks.iter().position(is_it) else { continue };
                *last = found;
            }
            let task = &mut tasks[*last];
            if !task.is_running() || message.offset() < task.position {
                // Fetched for an assignment that is gone.
                continue;
            }
            let mut headers = Vec::with_capacity(24);
            if let Some(list) = message.headers() {
                ffi::read_headers(list, &mut headers);
            }
            let record = restore::record(&message, &headers);
            dirty_since.get_or_insert_with(Watch::start);
            step(task, transactor, now, |processor, step| processor.record(&record, step))?;
            task.position = message.offset() + 1;
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
        self.dirty_since.get_or_insert_with(Watch::start);
        // Kept also when its step fails: it comes again after the abort.
        let done = step(task, &mut self.transactor, now, |p, step| p.message(&message, step));
        task.taken.push(message);
        done
    }

    /// Takes the steps that tasks want without a record or a message.
    fn take_steps(&mut self) -> Result<(), Error> {
        let now = self.now();
        let Self { tasks, transactor, dirty_since, .. } = self;
        for task in tasks.iter_mut().filter(|task| task.is_running()) {
            if task.live.as_ref().is_some_and(|live| live.processor.wants_step()) {
                dirty_since.get_or_insert_with(Watch::start);
                step(task, transactor, now, P::step)?;
            }
        }
        Ok(())
    }

    /// Asks every running task what it wants done, and has it done.
    fn act(&mut self) -> Result<(), Error> {
        let now = self.now();
        for task in self.tasks.iter_mut().filter(|task| task.is_running()) {
            let Some(live) = task.live.as_mut() else { continue };
            task.wake_at = live
                .processor
                .act(now, &live.state, &mut self.actions)
                .map_err(|error| failed_step(&task.id, &error))?;
            for action in self.actions.drain(..) {
                let address = Address { task: task.id.clone(), incarnation: task.incarnation };
                (self.act)(address, action);
            }
        }
        Ok(())
    }

    /// Sleeps until something arrives, a task wants to be asked again, or a while.
    fn sleep(&mut self) -> Result<(), Error> {
        let now = self.now();
        let next = self.tasks.iter().filter_map(|task| task.wake_at).min();
        let until = next.map_or(SLEEP, |at| Duration::from_millis(at.since(now)).min(SLEEP));
        self.transactor.serve();
        std::thread::park_timeout(until);
        Ok(())
    }

    /// A clean stop: waits for what is under way (bounded), commits, hands the partitions back at
    /// once instead of after a session time-out (design 7).
    fn leave(&mut self) -> Result<(), Error> {
        let drain = Duration::from_millis(self.parts.shared.commit.drain_ms);
        let watch = Watch::start();
        while self.under_way() > 0 && watch.elapsed() < drain {
            if self.take_messages()? == 0 {
                std::thread::park_timeout(Duration::from_millis(20));
            }
            // Only to stay a member; what it fetched is not processed any more.
            let _ = self.consumer.poll(Duration::ZERO);
            self.follow_group()?;
        }
        self.commit()?;
        self.refresh_own_positions()?;
        let all: Vec<_> = self.tasks.iter().map(|task| task.id.clone()).collect();
        self.close_tasks(&all);
        self.consumer.unsubscribe();
        let watch = Watch::start();
        while watch.elapsed() < LEAVE {
            let _ = self.consumer.poll(Duration::from_millis(50));
            self.follow_group()?;
            if self.consumer.assignment().is_ok_and(|assigned| assigned.count() == 0) {
                break;
            }
        }
        Ok(())
    }

    fn under_way(&self) -> usize {
        let live = self.tasks.iter().filter_map(|task| task.live.as_ref());
        live.map(|live| live.processor.under_way()).sum()
    }
}

/// Whether no topic of the source exists: the client joins its group only once one does, so an
/// instance is ready without it.
fn has_nothing_to_join(consumer: &BaseConsumer<Membership>, source: &Source) -> bool {
    let Source::Facts(follow) = source else { return false };
    consumer.fetch_metadata(None, METADATA).is_ok_and(|metadata| {
        let followed = |topic| !matches!(follow.classify(topic), Followed::NotFollowed);
        !metadata.topics().iter().any(|topic| followed(topic.name()))
    })
}

/// Takes one step of a task within the open transaction.
fn step<P: Processor>(
    task: &mut Task<P>,
    transactor: &mut Transactor,
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
        outputs: transactor,
    };
    take(&mut live.processor, &mut step).map_err(|error| failed_step(&task.id, &error))
}

/// A failed step is a failed store or a record of a newer release: the clients are rebuilt, the
/// store is opened anew, and what it lacks is restored.
fn failed_step(task: &super::mailbox::TaskId, error: &processor::Error) -> Error {
    tracing::error!(%task, %error, "a step failed");
    Error::Rebuild(format!("task {task}: {error}"))
}

fn failed_poll(error: &KafkaError) -> Result<(), Error> {
    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) {
        // The log moved below a running task: a restart of the task finds out by how much.
        return Err(Error::Rebuild(format!("a source's log moved: {error}")));
    }
    match Error::of(error) {
        fatal @ Error::Fatal(_) => Err(fatal),
        other => {
            tracing::debug!(error = %other, "poll");
            Ok(())
        }
    }
}
