//! Reads the published topics that this instance needs whole (design 10): subscriptions, owners and
//! salts from the beginning, registry replies from now on. By explicit assignment, read-committed,
//! without a group. One thread, one consumer.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_model::time::UnixMillis;

use crate::changes::Replies;
use crate::clock::Watch;
use crate::destinations::Destinations;
use crate::holds::Holds;
use crate::instances::Owners;
use crate::kafka::{error, offsets};
use crate::runtime::thread::Stop;
use crate::salting::Salting;
use crate::shared::Shared;
use crate::table::Table;
use crate::topics::Topic;

/// The longest sleep; positions are looked at in between.
const SLEEP: Duration = Duration::from_millis(20);
/// Records between two looks at positions.
const BATCH: usize = 1_000;
/// How often the table is compared with the topic's end.
const CONFIRM: Duration = Duration::from_secs(2);
/// How long a broken reader waits before it starts again.
const PAUSE: Duration = Duration::from_secs(1);

/// What a published topic becomes in memory.
pub trait View: Send + Sync {
    /// Its topic.
    fn topic(&self) -> Topic;

    /// Whether only what is written from now on matters.
    fn is_from_end(&self) -> bool {
        false
    }

    /// Takes one record. Answers whether it could be read.
    fn take(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> bool;

    /// Everything below `position` of a partition has been taken.
    fn advance(&self, partition: i32, position: i64) {
        let _ = (partition, position);
    }
}

/// The thread that follows the published topics.
pub struct Follower {
    shared: Arc<Shared>,
    watermarks: Arc<BaseConsumer>,
    /// Told when all views have reached their topics' ends.
    table: Arc<Table>,
    replies: Arc<Replies>,
    views: Vec<(String, Arc<dyn View>)>,
    stop: Stop,
}

/// The views that follow topics from their beginning.
pub struct Views {
    /// Subscriptions.
    pub table: Arc<Table>,
    /// Decisions that somebody waits for.
    pub replies: Arc<Replies>,
    /// Who runs which task.
    pub owners: Arc<Owners>,
    /// Which tenants are salted.
    pub salting: Arc<Salting>,
    /// What operators hold.
    pub holds: Arc<Holds>,
    /// Whose breakers are open.
    pub destinations: Arc<Destinations>,
}

type Partition = (String, i32);

/// Where the topics ended at a moment: once passed, the views are current as of then.
struct Marks {
    at: UnixMillis,
    ends: Vec<(Partition, i64)>,
}

impl Follower {
    /// A follower that feeds these views.
    #[must_use]
    pub fn new(
        shared: Arc<Shared>,
        watermarks: Arc<BaseConsumer>,
        views: &Views,
        stop: Stop,
    ) -> Self {
        let all: [Arc<dyn View>; 6] = [
            Arc::clone(&views.table) as _,
            Arc::clone(&views.replies) as _,
            Arc::clone(&views.owners) as _,
            Arc::clone(&views.salting) as _,
            Arc::clone(&views.holds) as _,
            Arc::clone(&views.destinations) as _,
        ];
        let named = all.into_iter().map(|view| (view.topic().name(&shared.application), view));
        let views_by_name = named.collect();
        let (table, replies) = (Arc::clone(&views.table), Arc::clone(&views.replies));
        Self { shared, watermarks, table, replies, views: views_by_name, stop }
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
        let mut consumer: BaseConsumer =
            self.shared.kafka.assigned_reader(&client_id, &group).create()?;
        let thread = std::thread::current();
        consumer.set_nonempty_callback(move || thread.unpark());
        consumer.assign(&self.start()?)?;
        self.replies.listening(true);
        let result = self.read(&consumer);
        self.replies.listening(false);
        result
    }

    /// The partitions of all views that are read from their beginning, or of the others.
    fn partitions(&self, from_end: bool) -> Vec<(&str, i32)> {
        let wanted = self.views.iter().filter(|(_, view)| view.is_from_end() == from_end);
        wanted
            .flat_map(|(name, view)| {
                let count = view.topic().partitions(&self.shared.topics);
                (0..count).map(|partition| (name.as_str(), partition))
            })
            .collect()
    }

    /// Where each partition is read from.
    fn start(&self) -> KafkaResult<TopicPartitionList> {
        let mut list = TopicPartitionList::new();
        let asked = self.partitions(false);
        let low = offsets::low_watermarks(&self.watermarks, &asked)?;
        for ((topic, partition), low) in asked.into_iter().zip(low) {
            list.add_partition_offset(topic, partition, Offset::Offset(low))?;
        }
        let asked = self.partitions(true);
        let end = offsets::high_watermarks(&self.watermarks, &asked)?;
        for ((topic, partition), end) in asked.into_iter().zip(end) {
            list.add_partition_offset(topic, partition, Offset::Offset(end))?;
        }
        Ok(list)
    }

    fn read(&self, consumer: &BaseConsumer) -> KafkaResult<()> {
        let mut marks = self.marks()?;
        let mut asked = Watch::start();
        while !self.stop.is_requested() {
            let mut count = 0;
            // Never with a time-out: the wrapper's poll spins for its last millisecond.
            while count < BATCH
                && let Some(message) = consumer.poll(Duration::ZERO)
            {
                self.take(message)?;
                count += 1;
            }
            if count == 0 {
                std::thread::park_timeout(SLEEP);
            }
            // Positions pass transaction markers, which bring no record.
            let positions = consumer.position()?;
            for element in positions.elements() {
                if let (Offset::Offset(position), Some(view)) =
                    (element.offset(), self.view(element.topic()))
                {
                    view.advance(element.partition(), position);
                }
            }
            self.table.announce();
            if reached(&positions, &marks) {
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
        let asked = self.partitions(false);
        let ends = offsets::high_watermarks(&self.watermarks, &asked)?;
        let owned = asked.into_iter().map(|(topic, partition)| (topic.to_owned(), partition));
        Ok(Marks { at, ends: owned.zip(ends).collect() })
    }

    fn view(&self, topic: &str) -> Option<&dyn View> {
        self.views.iter().find(|(name, _)| name == topic).map(|(_, view)| &**view)
    }

    fn take(&self, message: KafkaResult<rdkafka::message::BorrowedMessage<'_>>) -> KafkaResult<()> {
        let message = match message {
            Ok(message) => message,
            Err(error) => return failed(error),
        };
        let Some(view) = self.view(message.topic()) else { return Ok(()) };
        if !view.take(message.key(), message.payload()) {
            tracing::warn!(
                topic = message.topic(),
                partition = message.partition(),
                offset = message.offset(),
                "a record that does not parse is skipped"
            );
            self.shared.metrics.unreadable("follower");
        }
        view.advance(message.partition(), message.offset() + 1);
        Ok(())
    }
}

/// Whether every partition has passed its mark; an empty one has no position and needs none.
fn reached(positions: &TopicPartitionList, marks: &Marks) -> bool {
    marks.ends.iter().all(|((topic, partition), end)| {
        *end == 0
            || positions.find_partition(topic, *partition).is_some_and(
                |element| matches!(element.offset(), Offset::Offset(position) if position >= *end),
            )
    })
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
