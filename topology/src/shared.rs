//! What all stream threads of an instance share: settings, the clock, clients that answer
//! questions, the resources of stores, and the board on which they report.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdkafka::consumer::BaseConsumer;
use streaming_hub_model::ports::{Clock, Entropy};
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::{
    ExpiryRule, Identity, MemoryBase, RocksBase, RocksOptions, SharedResources, State,
};

use crate::kafka::admin::Consumed;
use crate::kafka::client::KafkaSettings;
use crate::metrics::Metrics;
use crate::runtime::mailbox::TaskId;
use crate::runtime::spec::SubTopology;
use crate::runtime::status::Status;
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
    /// Where stores lie.
    pub state_dir: PathBuf,
    /// Where sources are read from on the very first start; earliest when absent.
    pub start_at: Option<UnixMillis>,
    /// Commit cadence.
    pub commit: CommitSettings,
    /// Answers high watermarks (read-uncommitted).
    pub watermarks: BaseConsumer,
    /// Block cache and memtable budget of all stores.
    pub stores: Arc<SharedResources>,
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

    /// Opens the store of a task; one without restored topics lives in memory and stays empty.
    pub(crate) fn open_state(
        &self,
        spec: &SubTopology,
        task: &TaskId,
        expiry: Vec<ExpiryRule>,
    ) -> Result<State, streaming_hub_state::Error> {
        if !spec.has_store() {
            return Ok(State::new(Box::new(MemoryBase::new())));
        }
        let dir = self
            .state_dir
            .join(&self.application)
            .join(spec.name)
            .join(task.partition.to_string());
        let identity = Identity {
            application_id: self.application.clone(),
            sub_topology: spec.name.to_owned(),
            partition: task.partition,
            partition_count: self.topics.partitions,
        };
        let mut options = RocksOptions::new(Arc::clone(&self.stores));
        options.expiry = expiry;
        Ok(State::new(Box::new(RocksBase::open(&dir, &identity, options)?)))
    }
}
