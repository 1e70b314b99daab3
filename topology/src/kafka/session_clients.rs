//! A session's clients against a real cluster: a static group member and a transactional producer.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::metadata::Metadata;
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_model::follow::Followed;

use super::error::Error;
use super::membership::{self, Membership};
use super::offsets;
use super::record;
use super::transactor::Transactor;
use super::{ffi, group};
use crate::clock::Watch;
use crate::runtime::clients::{Clients, GroupEvent, Position, Take};
use crate::runtime::mailbox::TaskId;
use crate::runtime::processor::Outputs;
use crate::runtime::spec::{Source, SubTopology};
use crate::runtime::watchdog::Guard;
use crate::shared::Shared;

/// How long the list of topics may take.
const METADATA: Duration = Duration::from_secs(10);
/// How long after joining the group's assignment is looked at.
const SETTLED: Duration = Duration::from_secs(3);
/// How long leaving the group may take.
const LEAVE: Duration = Duration::from_secs(5);

/// The clients of one session.
pub(crate) struct KafkaClients {
    // The producer outlives the consumer, whose drop still runs callbacks.
    consumer: BaseConsumer<Membership>,
    transactor: Transactor,
    watermarks: Arc<BaseConsumer>,
    guard: Guard,
    source: Source,
    topics: Vec<String>,
    group: String,
    joined: Watch,
}

impl Drop for KafkaClients {
    fn drop(&mut self) {
        self.consumer.context().close();
    }
}

impl KafkaClients {
    /// New clients: the producer first, since `init_transactions` ends a predecessor's transaction
    /// before any position is asked for (design 2).
    pub(crate) fn open(
        spec: &SubTopology,
        shared: &Shared,
        watermarks: Arc<BaseConsumer>,
        guard: Guard,
    ) -> Result<Self, Error> {
        let member = spec.member(&shared.application, &shared.instance, 0);
        let transactor = guard.watched(|| {
            Transactor::new(&shared.kafka.transactional(&member), &shared.application)
        })?;
        let group = spec.group(&shared.application);
        let config = shared.kafka.member(&group, &member);
        let thread = std::thread::current();
        let consumer = membership::join(&config, move || thread.unpark())
            .map_err(|error| Error::Fatal(error.to_string()))?;
        let topics = spec.source.subscription(&shared.application);
        let source = spec.source.clone();
        let joined = Watch::start();
        let mut own =
            Self { consumer, transactor, watermarks, guard, source, topics, group, joined };
        if own.has_nothing_to_join() {
            shared.status.joined(spec.name);
        }
        own.subscribe()?;
        Ok(own)
    }

    fn is_source(&self, topic: &str) -> bool {
        match &self.source {
            Source::Facts(follow) => !matches!(follow.classify(topic), Followed::NotFollowed),
            Source::Internal(_) => self.topics.iter().any(|own| own == topic),
        }
    }

    fn metadata(&self) -> rdkafka::error::KafkaResult<Metadata> {
        self.guard.watched(|| self.consumer.fetch_metadata(None, METADATA))
    }

    /// Whether no topic of the producers exists: the client joins its group only once one does, so
    /// an instance is ready without it.
    fn has_nothing_to_join(&self) -> bool {
        matches!(self.source, Source::Facts(_))
            && self.metadata().is_ok_and(|metadata| {
                !metadata.topics().iter().any(|topic| self.is_source(topic.name()))
            })
    }

    /// The partitions of the source that exist.
    fn existing(&self) -> rdkafka::error::KafkaResult<Vec<(String, i32)>> {
        let metadata = self.metadata()?;
        let topics = metadata.topics().iter().filter(|topic| self.is_source(topic.name()));
        let named = |topic: &rdkafka::metadata::MetadataTopic| {
            let name = topic.name().to_owned();
            topic.partitions().iter().map(|p| (name.clone(), p.id())).collect::<Vec<_>>()
        };
        Ok(topics.flat_map(named).collect())
    }

    /// Those of `tasks` that are really assigned.
    fn assigned(&self, tasks: &[TaskId]) -> Result<TopicPartitionList, Error> {
        let assigned = self.consumer.assignment().map_err(rebuild)?;
        let mut list = TopicPartitionList::new();
        for element in assigned.elements() {
            let (topic, partition) = (element.topic(), element.partition());
            if tasks.iter().any(|task| &*task.topic == topic && task.partition == partition) {
                list.add_partition(topic, partition);
            }
        }
        Ok(list)
    }
}

impl Clients for KafkaClients {
    fn poll(&mut self, take: &mut Take<'_>) -> Result<bool, Error> {
        let message = match self.consumer.poll(Duration::ZERO) {
            None => return Ok(false),
            Some(Ok(message)) => message,
            Some(Err(error)) => return failed_poll(&error).map(|()| true),
        };
        let mut headers = Vec::with_capacity(24);
        if let Some(list) = message.headers() {
            ffi::read_headers(list, &mut headers);
        }
        take(&record(&message, &headers), &mut self.transactor).map(|()| true)
    }

    fn next_event(&mut self) -> Option<GroupEvent> {
        self.consumer.context().next()
    }

    fn has_event(&self) -> bool {
        self.consumer.context().has_event()
    }

    fn accept_assignment(&mut self) -> Result<(), Error> {
        self.consumer.incremental_assign(&TopicPartitionList::new()).map_err(rebuild)
    }

    fn fetch(&mut self, from: &[(TaskId, i64)]) -> Result<(), Error> {
        let mut list = TopicPartitionList::new();
        for (task, offset) in from {
            list.add_partition_offset(&task.topic, task.partition, Offset::Offset(*offset))
                .map_err(rebuild)?;
        }
        self.consumer.incremental_assign(&list).map_err(rebuild)
    }

    fn stop_fetching(&mut self, tasks: &[TaskId]) -> Result<(), Error> {
        let list = self.assigned(tasks)?;
        self.consumer.incremental_unassign(&list).map_err(rebuild)
    }

    fn release(&mut self, tasks: &[TaskId]) -> Result<(), Error> {
        // Also when nothing of it was fetched: the group waits for this answer.
        self.stop_fetching(tasks)
    }

    fn misses_partitions(&mut self) -> bool {
        if self.joined.elapsed() < SETTLED {
            return false;
        }
        let looked = self.existing().and_then(|existing| {
            let group = self.guard.watched(|| group::describe(&self.consumer, &self.group))?;
            Ok(group.is_stable && existing.iter().any(|p| !group.assigned.contains_key(p)))
        });
        looked.unwrap_or_else(|error| {
            tracing::debug!(%error, "looking for partitions that nobody has");
            false
        })
    }

    fn unsubscribe(&mut self) {
        self.consumer.unsubscribe();
    }

    fn subscribe(&mut self) -> Result<(), Error> {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        self.joined = Watch::start();
        self.consumer.subscribe(&topics).map_err(|error| Error::Fatal(error.to_string()))
    }

    fn leave(&mut self) {
        self.unsubscribe();
        let watch = Watch::start();
        while watch.elapsed() < LEAVE {
            let _ = self.consumer.poll(Duration::from_millis(50));
            while let Some(GroupEvent::Revoked(tasks) | GroupEvent::Lost(tasks)) = self.next_event()
            {
                if let Err(error) = self.release(&tasks) {
                    tracing::debug!(%error, "leaving the group");
                }
            }
            if self.consumer.assignment().is_ok_and(|assigned| assigned.count() == 0) {
                return;
            }
        }
    }

    fn outputs(&mut self) -> &mut dyn Outputs {
        &mut self.transactor
    }

    fn is_open(&self) -> bool {
        self.transactor.is_open()
    }

    fn produced_bytes(&self) -> usize {
        self.transactor.produced_bytes()
    }

    fn commit(&mut self, positions: &[Position]) -> Result<(), Error> {
        let mut list = TopicPartitionList::with_capacity(positions.len());
        for position in positions {
            let mut element = list.add_partition(&position.task.topic, position.task.partition);
            element.set_offset(Offset::Offset(position.offset)).map_err(rebuild)?;
            element.set_metadata(&position.metadata);
        }
        let Self { guard, transactor, consumer, .. } = self;
        guard.watched(|| transactor.commit(&list, consumer))
    }

    fn abort(&mut self) -> Result<(), Error> {
        let Self { guard, transactor, .. } = self;
        guard.watched(|| transactor.abort())
    }

    fn high_watermarks(&mut self, asked: &[(&str, i32)]) -> Result<Vec<i64>, Error> {
        let ends = self.guard.watched(|| offsets::high_watermarks(&self.watermarks, asked));
        ends.map_err(|error| Error::of(&error))
    }

    fn sleep(&mut self, at_most_ms: u64) {
        self.transactor.serve();
        std::thread::park_timeout(Duration::from_millis(at_most_ms));
    }
}

fn rebuild(error: KafkaError) -> Error {
    Error::Rebuild(error.to_string())
}

fn failed_poll(error: &KafkaError) -> Result<(), Error> {
    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) {
        // The log moved below a running task: a restart of the task finds out by how much.
        return Err(Error::Rebuild(format!("a source's log moved: {error}")));
    }
    match Error::of(error) {
        fenced @ (Error::Fenced(_) | Error::Fatal(_)) => Err(fenced),
        other => {
            tracing::debug!(error = %other, "poll");
            Ok(())
        }
    }
}
