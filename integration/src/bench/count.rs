//! Counts the committed records of a topic that is too large to be read into memory.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::metadata::MetadataPartition;
use rdkafka::{Offset, TopicPartitionList};

use crate::wait;

/// How long an answer or a record may take.
const ANSWER: Duration = Duration::from_secs(30);

/// How many committed records there are.
///
/// # Errors
/// When they cannot be read.
pub fn committed(bootstrap: &str, topic: &str) -> Result<usize> {
    let reader = reader(bootstrap)?;
    let mut list = TopicPartitionList::new();
    let mut open = partitions(bootstrap, topic)?;
    for partition in &open {
        list.add_partition_offset(topic, *partition, Offset::Beginning)?;
    }
    reader.assign(&list)?;
    let (mut count, mut last) = (0, wait::instant());
    while !open.is_empty() {
        match reader.poll(Duration::from_millis(100)) {
            Some(Ok(_)) => (count, last) = (count + 1, wait::instant()),
            Some(Err(KafkaError::PartitionEOF(partition))) => open.retain(|own| *own != partition),
            Some(Err(error)) => return Err(error.into()),
            None => ensure!(last.elapsed() < ANSWER, "no record of {topic} came"),
        }
    }
    Ok(count)
}

/// The partitions of a topic.
///
/// # Errors
/// When there is no such topic.
pub fn partitions(bootstrap: &str, topic: &str) -> Result<Vec<i32>> {
    let metadata = reader(bootstrap)?.fetch_metadata(Some(topic), ANSWER)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let found = found.with_context(|| format!("there is no topic {topic}"))?;
    Ok(found.partitions().iter().map(MetadataPartition::id).collect())
}

/// How many offsets are taken in all topics whose names begin so: records, and markers of
/// transactions.
///
/// # Errors
/// When they cannot be asked for.
pub fn offsets(bootstrap: &str, prefix: &str) -> Result<i64> {
    let reader = reader(bootstrap)?;
    let metadata = reader.fetch_metadata(None, ANSWER)?;
    let mut sum = 0;
    for topic in metadata.topics().iter().filter(|topic| topic.name().starts_with(prefix)) {
        for partition in topic.partitions() {
            sum += reader.fetch_watermarks(topic.name(), partition.id(), ANSWER)?.1;
        }
    }
    Ok(sum)
}

fn reader(bootstrap: &str) -> Result<BaseConsumer> {
    let config = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "bench-count")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        .clone();
    Ok(config.create()?)
}
