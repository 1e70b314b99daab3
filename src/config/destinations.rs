//! How destinations beside webhooks are called.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use streaming_hub_sinks::aws::AmbientGrant;

use super::values;

/// Deliveries to SQS and EventBridge, contract section 5.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Aws {
    /// Limit of a request, milliseconds.
    pub(crate) timeout_ms: u64,
    /// Limit of connecting, milliseconds; at most `timeout_ms`.
    pub(crate) connect_timeout_ms: u64,
    /// How long a delivery waits for company, milliseconds.
    pub(crate) linger_ms: u64,
    /// How long an unused client is kept, milliseconds.
    pub(crate) idle_ms: u64,
    /// The largest message, bytes.
    pub(crate) sqs_message_bytes_max: usize,
    /// The largest entry and request, bytes.
    pub(crate) eventbridge_entry_bytes_max: usize,
    /// PEM file of further certificate authorities; it was readable when checked.
    #[serde(with = "values::optional_path")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Where roles are assumed.
    #[serde(with = "values::optional_text")]
    pub(crate) sts_endpoint: Option<String>,
    /// What the hub's own identity may be used for.
    pub(crate) ambient: Vec<AmbientGrant>,
}

/// Deliveries to RabbitMQ, contract section 5.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RabbitMq {
    /// Limit of an attempt, milliseconds.
    pub(crate) timeout_ms: u64,
    /// Limit of connecting, milliseconds; at most `timeout_ms`.
    pub(crate) connect_timeout_ms: u64,
    /// Seconds between heartbeats.
    pub(crate) heartbeat_s: u16,
    /// How long an unused connection is kept, milliseconds.
    pub(crate) idle_ms: u64,
    /// The largest payload that is sent, bytes.
    pub(crate) payload_bytes_max: usize,
    /// Connections to one host name and port.
    pub(crate) connections_per_host: usize,
}
