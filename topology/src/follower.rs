//! Reads the published topics that this instance needs whole (design 10): subscriptions from the
//! beginning, registry replies from now on. By explicit assignment, read-committed, without a
//! group. One thread, one consumer.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_model::time::UnixMillis;

use crate::changes::Replies;
use crate::clock::Watch;
use crate::kafka::{error, offsets};
use crate::runtime::thread::Stop;
use crate::shared::Shared;
use crate::table::Table;
use crate::topics::Topic;

/// The longest wait for a record; positions are looked at in between.
const POLL: Duration = Duration::from_millis(20);
/// How often the table is compared with the topic's end.
const CONFIRM: Duration = Duration::from_secs(2);
/// How long a broken reader waits before it starts again.
const PAUSE: Duration = Duration::from_secs(1);

/// The thread that follows the published topics.
pub struct Follower {
    shared: Arc<Shared>,
    watermarks: Arc<BaseConsumer>,
    table: Arc<Table>,
    replies: Arc<Replies>,
    stop: Stop,
    subscriptions: String,
    answers: String,
}

/// The topic's ends at a moment: once passed, the table is current as of then.
struct Marks {
    at: UnixMillis,
    ends: Vec<i64>,
}

impl Follower {
    /// A follower that feeds `table` and `replies`.
    #[must_use]
    pub fn new(
        shared: Arc<Shared>,
        watermarks: Arc<BaseConsumer>,
        table: Arc<Table>,
        replies: Arc<Replies>,
        stop: Stop,
    ) -> Self {
        let subscriptions = Topic::Subscriptions.name(&shared.application);
        let answers = Topic::SubscriptionReplies.name(&shared.application);
        Self { shared, watermarks, table, replies, stop, subscriptions, answers }
    }

    /// Follows until the stop.
    pub fn run(self) {
        while !self.stop.is_requested() {
            if let Err(error) = self.follow() {
                tracing::warn!(%error, "following the subscriptions; it starts again");
                std::thread::park_timeout(PAUSE);
            }
        }
    }

    fn follow(&self) -> KafkaResult<()> {
        let group = format!("{}-follower", self.shared.application);
        let client_id = format!("{group}-{}", self.shared.instance);
        let consumer: BaseConsumer =
            self.shared.kafka.assigned_reader(&client_id, &group).create()?;
        consumer.assign(&self.start()?)?;
        self.replies.listening(true);
        let result = self.read(&consumer);
        self.replies.listening(false);
        result
    }

    /// Where each partition is read from: the table where it stands, replies from their end.
    fn start(&self) -> KafkaResult<TopicPartitionList> {
        let mut list = TopicPartitionList::new();
        let asked = self.table_partitions();
        let low = offsets::low_watermarks(&self.watermarks, &asked)?;
        for ((topic, partition), low) in asked.into_iter().zip(low) {
            let from = self.table.position(partition).max(low);
            list.add_partition_offset(topic, partition, Offset::Offset(from))?;
        }
        let end = offsets::high_watermarks(&self.watermarks, &[(&self.answers, 0)])?;
        list.add_partition_offset(&self.answers, 0, Offset::Offset(end[0]))?;
        Ok(list)
    }

    fn table_partitions(&self) -> Vec<(&str, i32)> {
        (0..self.shared.topics.partitions).map(|p| (self.subscriptions.as_str(), p)).collect()
    }

    fn read(&self, consumer: &BaseConsumer) -> KafkaResult<()> {
        let mut marks = self.marks()?;
        let mut asked = Watch::start();
        while !self.stop.is_requested() {
            let first = consumer.poll(POLL);
            let mut next = first;
            let mut count = 0;
            while let Some(message) = next {
                self.take(message)?;
                count += 1;
                next = if count < 1_000 { consumer.poll(Duration::ZERO) } else { None };
            }
            // Positions pass transaction markers, which bring no record.
            for element in consumer.position()?.elements_for_topic(&self.subscriptions) {
                if let Offset::Offset(position) = element.offset() {
                    self.table.advance(element.partition(), position);
                }
            }
            self.table.announce();
            if self.table.has_reached(&marks.ends) {
                self.table.confirm(marks.at);
                self.shared.metrics.table(self.table.len());
                if asked.elapsed() > CONFIRM {
                    asked = Watch::start();
                    marks = self.marks()?;
                }
            }
        }
        Ok(())
    }

    fn marks(&self) -> KafkaResult<Marks> {
        let at = self.shared.clock.now();
        let ends = offsets::high_watermarks(&self.watermarks, &self.table_partitions())?;
        Ok(Marks { at, ends })
    }

    fn take(&self, message: KafkaResult<rdkafka::message::BorrowedMessage<'_>>) -> KafkaResult<()> {
        let message = match message {
            Ok(message) => message,
            Err(error) => return failed(error),
        };
        if message.topic() == self.answers {
            self.replies.take(message.payload());
            return Ok(());
        }
        if !self.table.take(message.key(), message.payload()) {
            tracing::warn!(topic = message.topic(), partition = message.partition(), offset =
                message.offset(), "a subscription record that does not parse is skipped");
            self.shared.metrics.unreadable("table");
        }
        self.table.advance(message.partition(), message.offset() + 1);
        Ok(())
    }
}

fn failed(error: KafkaError) -> KafkaResult<()> {
    match error::Error::of(&error) {
        error::Error::Retry(text) => {
            tracing::debug!(error = text, "the follower waits for the broker");
            Ok(())
        }
        _ => Err(error),
    }
}
