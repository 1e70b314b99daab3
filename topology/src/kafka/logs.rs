//! A restore's reading of logs from a real cluster: a read-committed consumer that never joins its
//! group, and the read-uncommitted client that knows where logs really end.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, Producer};
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_model::time::UnixMillis;

use super::error::Error;
use super::{ffi, group, offsets, record};
use crate::clock::Watch;
use crate::instances::Owners;
use crate::runtime::clients::{Ends, Logs, TakeLog};
use crate::runtime::mailbox::{TaskId, Waker};
use crate::runtime::spec::SubTopology;
use crate::runtime::thread::Outside;
use crate::shared::Shared;

/// How long one question for a stable position waits before the task's end is looked for again.
const STABLE_WAIT: Duration = Duration::from_secs(1);
/// How long a question about offsets may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long ending a predecessor's transaction may take.
const END_TRANSACTION: Duration = Duration::from_secs(10);
/// How long a question is asked again.
const PATIENCE: Duration = Duration::from_secs(20);
/// How soon.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How long is waited for a record.
const WAIT: Duration = Duration::from_millis(5);

/// Reads logs for restores of one sub-topology.
pub(crate) struct KafkaLogs {
    consumer: BaseConsumer,
    watermarks: Arc<BaseConsumer>,
    waker: Waker,
    owners: Arc<Owners>,
    shared: Arc<Shared>,
    sub_topology: &'static str,
    group: String,
}

impl KafkaLogs {
    /// A reader that may ask for positions of the sub-topology's group.
    pub(crate) fn open(
        spec: &SubTopology,
        shared: &Arc<Shared>,
        outside: &Outside,
    ) -> Result<Self, KafkaError> {
        let group = spec.group(&shared.application);
        let config = shared.kafka.assigned_reader(&format!("{group}-restore"), &group);
        let waker = Waker::default();
        let mut consumer: BaseConsumer = config.create()?;
        let own = waker.clone();
        consumer.set_nonempty_callback(move || own.wake());
        Ok(Self {
            consumer,
            waker,
            watermarks: Arc::clone(&outside.watermarks),
            owners: Arc::clone(&outside.owners),
            shared: Arc::clone(shared),
            sub_topology: spec.name,
            group,
        })
    }

    /// The next message, waited for a little: by sleeping, since the wrapper's poll spins for the
    /// last millisecond of its time-out.
    fn wait(&self) -> Option<rdkafka::error::KafkaResult<rdkafka::message::BorrowedMessage<'_>>> {
        self.waker.bind();
        self.consumer.poll(Duration::ZERO).or_else(|| {
            std::thread::park_timeout(WAIT);
            self.consumer.poll(Duration::ZERO)
        })
    }

    /// The group of the sub-topology as its coordinator knows it.
    pub(crate) fn group(&self) -> Result<group::Group, KafkaError> {
        group::describe(&self.consumer, &self.group)
    }

    /// Ends the transaction of a producer that nobody runs any more.
    fn end_transaction(&self, transactional_id: &str) -> Result<(), KafkaError> {
        let config = self.shared.kafka.transactional(transactional_id);
        let producer: BaseProducer = config.create()?;
        producer.init_transactions(END_TRANSACTION)
    }
}

impl Logs for KafkaLogs {
    fn committed(&mut self, task: &TaskId) -> Result<Option<(i64, String)>, Error> {
        offsets::committed(&self.consumer, &task.topic, task.partition, STABLE_WAIT)
            .map_err(|error| Error::of(&error))
    }

    fn end_predecessor(&mut self, task: &TaskId) {
        let Some(owner) = self.owners.of(self.sub_topology, task) else { return };
        if owner.instance == self.shared.instance {
            return;
        }
        let gone = self.group().is_ok_and(|group| !group.members.contains(&owner.transactional_id));
        if !gone {
            return;
        }
        match self.end_transaction(&owner.transactional_id) {
            Ok(()) => tracing::info!(%task, predecessor = owner.instance,
                "ended the transaction that the task's last owner left behind"),
            Err(error) => tracing::warn!(%task, %error, "ending a predecessor's transaction"),
        }
    }

    fn ends(&mut self, asked: &[(&str, i32)]) -> Result<Vec<Ends>, Error> {
        let low = patiently(|| offsets::low_watermarks(&self.watermarks, asked))?;
        let high = patiently(|| offsets::high_watermarks(&self.watermarks, asked))?;
        Ok(low.into_iter().zip(high).map(|(low, high)| Ends { low, high }).collect())
    }

    fn offset_at(&mut self, task: &TaskId, time: UnixMillis) -> Result<Option<i64>, Error> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&task.topic, task.partition, Offset::Offset(time.0))
            .map_err(|error| Error::of(&error))?;
        let found =
            self.consumer.offsets_for_times(list, ANSWER).map_err(|error| Error::of(&error))?;
        let element = found.find_partition(&task.topic, task.partition);
        Ok(match element.map(|element| element.offset()) {
            Some(Offset::Offset(offset)) => Some(offset),
            _ => None,
        })
    }

    fn start(&mut self, from: &[(&str, i32, i64)]) -> Result<(), Error> {
        let mut list = TopicPartitionList::new();
        for (topic, partition, offset) in from {
            list.add_partition_offset(topic, *partition, Offset::Offset(*offset))
                .map_err(|error| Error::of(&error))?;
        }
        self.consumer.assign(&list).map_err(|error| Error::of(&error))
    }

    fn next(&mut self, take: &mut TakeLog<'_>) -> Result<bool, Error> {
        let message = match self.wait() {
            None => return Ok(false),
            Some(Ok(message)) => message,
            Some(Err(error)) => return failed_read(&error).map(|()| false),
        };
        let mut headers = Vec::new();
        if let Some(list) = message.headers() {
            ffi::read_headers(list, &mut headers);
        }
        take(&record(&message, &headers)).map(|()| true)
    }

    fn positions(&mut self) -> Result<Vec<(String, i32, i64)>, Error> {
        let list = self.consumer.position().map_err(|error| Error::of(&error))?;
        let known =
            |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| match element
                .offset()
            {
                Offset::Offset(next) => {
                    Some((element.topic().to_owned(), element.partition(), next))
                }
                _ => None,
            };
        Ok(list.elements().iter().filter_map(known).collect())
    }

    fn stop(&mut self) {
        if let Err(error) = self.consumer.unassign() {
            tracing::debug!(%error, "ending a restore");
        }
    }
}

/// Asks again while the answer is only that it is not to be had just now: a topic that was made a
/// moment ago, a leader that moves.
fn patiently<T>(ask: impl Fn() -> rdkafka::error::KafkaResult<T>) -> Result<T, Error> {
    let watch = Watch::start();
    loop {
        match ask().map_err(|error| Error::of(&error)) {
            Err(Error::Retry(_)) if watch.elapsed() < PATIENCE => {
                std::thread::park_timeout(ASK_AGAIN);
            }
            answer => return answer,
        }
    }
}

/// What a failed poll of a restore means.
fn failed_read(error: &KafkaError) -> Result<(), Error> {
    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) {
        return Err(Error::Rebuild(format!("the log moved while it was restored: {error}")));
    }
    match Error::of(error) {
        Error::Retry(text) => {
            tracing::debug!(error = text, "restore waits for the broker");
            Ok(())
        }
        other => Err(other),
    }
}
