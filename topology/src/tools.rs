//! What an operator's commands do to Kafka beside a running hub: scan internal topics, look at
//! consumer groups and move them, probe the cluster, send quarantined records through
//! classification again. No running hub needs any of it.

pub mod groups;
pub mod probe;
pub mod requeue;
pub mod scan;

use rdkafka::error::KafkaError;

use crate::kafka::error::Error as ClientError;

/// Why a tool could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Kafka did not answer or refused.
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
    /// A transaction failed; nothing of it was written.
    #[error("the transaction was not committed: {0}")]
    Transaction(ClientError),
    /// The classification of a record failed.
    #[error(transparent)]
    Processor(#[from] crate::runtime::processor::Error),
    /// A topic is not there.
    #[error("there is no topic {0}")]
    NoTopic(String),
    /// A topic could not be read to where it ended.
    #[error("{0} could not be read to its end: no record for 30 s; are all brokers up?")]
    Unread(String),
    /// A topic could not be made or deleted.
    #[error("the topic {topic}: {reason}")]
    Topic {
        /// Its name.
        topic: String,
        /// What Kafka said.
        reason: String,
    },
    /// What the caller's own part said.
    #[error("{0}")]
    Stopped(String),
}
