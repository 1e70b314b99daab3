//! What the delivery tasks of an instance are started with and share.

use std::sync::Arc;

use streaming_hub_model::dead_letter;
use streaming_hub_model::failure_span::AutoDisable;
use streaming_hub_model::ports::Entropy;
use streaming_hub_model::retry::RetrySchedule;

use super::backlog::Bounds;
use super::claims::Lane;
use super::gates::GateSettings;
use super::slots::Slots;
use crate::metrics::Metrics;
use crate::table::Table;

const MS_PER_DAY: u64 = 24 * 3_600_000;

/// What all delivery tasks share.
pub struct DeliverySettings {
    /// The subscriptions.
    pub table: Arc<Table>,
    /// Attempt slots of the instance.
    pub slots: Arc<Slots>,
    /// Jitter and delivery ids.
    pub entropy: Arc<dyn Entropy>,
    /// What closes the way to a destination.
    pub gates: GateSettings,
    /// How much may wait.
    pub bounds: Bounds,
    /// The curve of subscriptions without one of their own.
    pub retry_schedule: RetrySchedule,
    /// Partitions of the internal topics.
    pub partitions: i32,
    /// Where jobs that may have killed a process are attempted one at a time.
    pub lane: Arc<Lane>,
    /// When a subscription that fails is disabled.
    pub auto_disable: AutoDisable,
    /// How long and how much is kept.
    pub retention: Retention,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// How long and how much a delivery task keeps of what has ended (contract section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Dead letters, milliseconds.
    pub dead_letters_ms: u64,
    /// Dead letters of one subscription; the oldest go first.
    pub dead_letters_per_subscription: u64,
    /// Lines of the attempt log, milliseconds.
    pub attempts_ms: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            dead_letters_ms: 30 * MS_PER_DAY,
            dead_letters_per_subscription: dead_letter::PER_SUBSCRIPTION,
            attempts_ms: 7 * MS_PER_DAY,
        }
    }
}
