//! One record read by its place, with a client of its own and outside of any group: for people who
//! look at single records, never for processing.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::client::KafkaSettings;
use super::{ffi, offsets};
use crate::clock::Watch;

/// How long a record is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one poll waits.
const POLL: Duration = Duration::from_millis(20);

/// A record with everything that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked {
    /// Its timestamp, Unix milliseconds; -1 when it has none.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its headers in order.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

/// The record at this place; `None` when there is none (any more).
///
/// # Errors
/// When Kafka does not answer.
pub fn peek(
    settings: &KafkaSettings,
    application: &str,
    (topic, partition, offset): (&str, i32, i64),
) -> KafkaResult<Option<Peeked>> {
    let name = format!("{application}-peek");
    let consumer: BaseConsumer = settings.assigned_reader(&name, &name).create()?;
    let asked = [(topic, partition)];
    let low = offsets::low_watermarks(&consumer, &asked)?[0];
    let high = offsets::high_watermarks(&consumer, &asked)?[0];
    if offset < low || offset >= high {
        return Ok(None);
    }
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
    consumer.assign(&list)?;
    let watch = Watch::start();
    while watch.elapsed() < PATIENCE {
        let Some(message) = consumer.poll(POLL) else { continue };
        let message = message?;
        // A record that compaction removed, or a marker: the next one is another.
        if message.offset() != offset {
            return Ok(None);
        }
        let mut headers = Vec::new();
        if let Some(list) = message.headers() {
            ffi::read_headers(list, &mut headers);
        }
        let owned = |(n, v): &(&[u8], Option<&[u8]>)| (n.to_vec(), v.map(<[u8]>::to_vec));
        return Ok(Some(Peeked {
            timestamp_ms: message.timestamp().to_millis().unwrap_or(-1),
            key: message.key().map(<[u8]>::to_vec),
            headers: headers.iter().map(owned).collect(),
            value: message.payload().map(<[u8]>::to_vec),
        }));
    }
    Ok(None)
}
