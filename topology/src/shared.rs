//! What all stream threads of an instance share: settings, the clock, where stores are opened, and
//! the board on which they report. It holds no client of Kafka, so that a simulation has one too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use streaming_hub_model::ports::{Clock, Entropy};
use streaming_hub_model::time::UnixMillis;

use crate::kafka::admin::Consumed;
use crate::kafka::client::KafkaSettings;
use crate::metrics::Metrics;
use crate::runtime::status::Status;
use crate::stores::Stores;
use crate::topics::TopicSettings;

/// Shared by all of an instance.
pub struct Shared {
    /// Application id.
    pub application: String,
    /// This instance's id.
    pub instance: String,
    /// The URL at which other instances reach this one's API.
    pub advertised_url: String,
    /// Client settings.
    pub kafka: KafkaSettings,
    /// Topic settings.
    pub topics: TopicSettings,
    /// Where sources are read from on the very first start; earliest when absent.
    pub start_at: Option<UnixMillis>,
    /// On how many other instances a warm copy of each store is kept.
    pub standby_replicas: usize,
    /// Commit cadence.
    pub commit: CommitSettings,
    /// Opens the tasks' stores.
    pub stores: Arc<dyn Stores>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// What runs, and how far it is.
    pub status: Arc<Status>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// How far queues were consumed.
    pub consumed: Consumed,
    /// The last incarnation number given out.
    pub incarnations: AtomicU64,
}

/// When a stream thread commits (design 9).
#[derive(Debug, Clone, Copy)]
pub struct CommitSettings {
    /// At the latest after this long with something to commit, milliseconds.
    pub interval_ms: u64,
    /// At the latest with this many produced bytes.
    pub bytes: usize,
    /// At the latest with this many uncommitted bytes in one store.
    pub uncommitted_bytes_max: usize,
    /// How long a clean stop waits for actions under way, milliseconds.
    pub drain_ms: u64,
    /// How long one blocking call may take before the process ends, milliseconds.
    pub watchdog_ms: u64,
}

impl Shared {
    /// A number that no task of this process had before.
    #[must_use]
    pub(crate) fn next_incarnation(&self) -> u64 {
        self.incarnations.fetch_add(1, Ordering::Relaxed) + 1
    }
}
