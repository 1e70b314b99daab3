//! Kafka as the runtime needs it: client settings, error folding, administration, transactions.
//! What decides lives in `processors`; this is shell.

pub mod admin;
pub mod client;
pub mod error;
pub(crate) mod ffi;
pub(crate) mod group;
pub(crate) mod logs;
pub(crate) mod membership;
pub(crate) mod offsets;
pub mod peek;
pub(crate) mod session_clients;
pub mod statistics;
pub(crate) mod transactor;

use rdkafka::message::Message;
use streaming_hub_model::headers::HeaderRef;

use crate::runtime::processor::Record;

/// A fetched message as processors see it.
pub(crate) fn record<'a, M: Message>(message: &'a M, headers: &'a [HeaderRef<'a>]) -> Record<'a> {
    Record {
        topic: message.topic(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis().unwrap_or(-1),
        key: message.key(),
        headers,
        value: message.payload(),
    }
}
