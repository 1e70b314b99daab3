//! Questions about offsets, asked in lists: high and low watermarks, and a group's positions.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

/// How long one question to the broker may take.
const ANSWER: Duration = Duration::from_secs(5);

/// The high watermarks of these partitions, in their order, by a read-uncommitted client.
pub(crate) fn high_watermarks<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    partitions: &[(&str, i32)],
) -> KafkaResult<Vec<i64>> {
    ends(client, partitions, Offset::End)
}

/// The low watermarks (log starts) of these partitions, in their order.
pub(crate) fn low_watermarks<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    partitions: &[(&str, i32)],
) -> KafkaResult<Vec<i64>> {
    ends(client, partitions, Offset::Beginning)
}

fn ends<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    partitions: &[(&str, i32)],
    end: Offset,
) -> KafkaResult<Vec<i64>> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition_offset(topic, *partition, end)?;
    }
    // The logical offsets -1 and -2 are the timestamps "latest" and "earliest" of ListOffsets.
    let answer = client.offsets_for_times(list, ANSWER)?;
    let find = |(topic, partition): &(&str, i32)| {
        let element = answer.find_partition(topic, *partition);
        element.map_or(Ok(0), |e| e.error().map(|()| e.offset().to_raw().unwrap_or(0).max(0)))
    };
    partitions.iter().map(find).collect()
}

/// For each partition, whose offset in `times` is a time in Unix milliseconds: the first offset of
/// that time or later. A partition without one is left out.
pub(crate) fn at_times<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    times: TopicPartitionList,
) -> KafkaResult<BTreeMap<i32, i64>> {
    if times.count() == 0 {
        return Ok(BTreeMap::new());
    }
    let answer = client.offsets_for_times(times, ANSWER)?;
    let mut found = BTreeMap::new();
    for element in answer.elements() {
        element.error()?;
        if let Offset::Offset(offset) = element.offset() {
            found.insert(element.partition(), offset);
        }
    }
    Ok(found)
}

/// A group's stable position on one partition: offset and metadata, or `None` when it never
/// committed one. Answers an error (a time-out) while a transaction is pending.
pub(crate) fn committed<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    topic: &str,
    partition: i32,
    wait: Duration,
) -> KafkaResult<Option<(i64, String)>> {
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition(topic, partition);
    let answer = client.committed_offsets(list, wait)?;
    let Some(element) = answer.find_partition(topic, partition) else { return Ok(None) };
    element.error()?;
    Ok(match element.offset() {
        Offset::Offset(offset) => Some((offset, element.metadata().to_owned())),
        _ => None,
    })
}
