//! Reads a topic once, from its beginning or from a time to where it ended when the reading began.
//! Read-committed, without a group.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_model::time::UnixMillis;

use super::Error;
use crate::clock::Watch;
use crate::kafka::client::KafkaSettings;
use crate::kafka::{ffi, offsets};
use crate::runtime::processor::Record;

/// How long one question to the broker may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a topic may bring nothing before its reading is given up.
const SILENCE: Duration = Duration::from_secs(30);
/// How long one poll waits.
const POLL: Duration = Duration::from_millis(50);

/// What is read.
#[derive(Debug, Clone, Copy)]
pub struct Scan<'a> {
    /// The topic.
    pub topic: &'a str,
    /// One of its partitions; all of them when absent.
    pub partition: Option<i32>,
    /// From the first record that is not older, by the records' timestamps.
    pub since: Option<UnixMillis>,
}

/// Hands every record to `take`, partitions mixed, each in its order. Answers how many there were.
///
/// # Errors
/// See [`Error`].
pub fn scan(
    settings: &KafkaSettings,
    application: &str,
    what: Scan<'_>,
    take: &mut dyn FnMut(&Record<'_>) -> ControlFlow<()>,
) -> Result<u64, Error> {
    let name = format!("{application}-scan");
    let consumer: BaseConsumer = settings.assigned_reader(&name, &name).create()?;
    let mut left = plan(&consumer, what)?;
    let mut list = TopicPartitionList::new();
    for (partition, (start, _)) in &left {
        list.add_partition_offset(what.topic, *partition, Offset::Offset(*start))?;
    }
    consumer.assign(&list)?;
    let (mut count, mut heard) = (0, Watch::start());
    while !left.is_empty() {
        if let Some(message) = consumer.poll(POLL) {
            let message = message?;
            heard = Watch::start();
            let mut headers = Vec::new();
            if let Some(list) = message.headers() {
                ffi::read_headers(list, &mut headers);
            }
            // What was written since the reading began is not asked for.
            if left.get(&message.partition()).is_some_and(|(_, end)| message.offset() < *end) {
                count += 1;
                if take(&crate::kafka::record(&message, &headers)).is_break() {
                    return Ok(count);
                }
            }
        } else if heard.elapsed() > SILENCE {
            return Err(Error::Unread(what.topic.to_owned()));
        }
        // Positions pass transaction markers, which bring no record.
        for element in consumer.position()?.elements() {
            if let Offset::Offset(position) = element.offset()
                && left.get(&element.partition()).is_some_and(|(_, end)| position >= *end)
            {
                left.remove(&element.partition());
            }
        }
    }
    Ok(count)
}

/// Start and end of each partition that has something to read.
fn plan(consumer: &BaseConsumer, what: Scan<'_>) -> Result<BTreeMap<i32, (i64, i64)>, Error> {
    let metadata = consumer.fetch_metadata(Some(what.topic), ANSWER)?;
    let known = metadata.topics().iter().find(|topic| topic.name() == what.topic);
    let partitions: Vec<_> = known
        .filter(|topic| topic.error().is_none())
        .map(|topic| topic.partitions().iter().map(rdkafka::metadata::MetadataPartition::id))
        .ok_or_else(|| Error::NoTopic(what.topic.to_owned()))?
        .filter(|partition| what.partition.is_none_or(|wanted| wanted == *partition))
        .map(|partition| (what.topic, partition))
        .collect();
    let mut starts = offsets::low_watermarks(consumer, &partitions)?;
    let ends = offsets::high_watermarks(consumer, &partitions)?;
    if let Some(since) = what.since {
        let found = at_time(consumer, &partitions, since)?;
        for ((start, found), end) in starts.iter_mut().zip(found).zip(&ends) {
            *start = found.unwrap_or(*end).max(*start);
        }
    }
    let all = partitions.iter().zip(starts.into_iter().zip(ends));
    Ok(all.filter(|(_, (start, end))| start < end).map(|((_, p), range)| (*p, range)).collect())
}

/// The offset of the first record of each partition that is not older than `time`; none where all
/// are.
pub(super) fn at_time(
    consumer: &BaseConsumer,
    partitions: &[(&str, i32)],
    time: UnixMillis,
) -> Result<Vec<Option<i64>>, Error> {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in partitions {
        list.add_partition_offset(topic, *partition, Offset::Offset(time.0.max(0)))?;
    }
    let answer = consumer.offsets_for_times(list, ANSWER)?;
    let offset = |(topic, partition): &(&str, i32)| match answer
        .find_partition(topic, *partition)
        .map(|element| element.offset())
    {
        Some(Offset::Offset(offset)) => Some(offset),
        _ => None,
    };
    Ok(partitions.iter().map(offset).collect())
}
