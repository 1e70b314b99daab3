//! A fake Kafka cluster: topics, transactions, groups, cleaning. Single-threaded and deterministic;
//! what a real cluster does by itself (markers, rebalances, heartbeats, time-outs, cleaning)
//! happens when the scheduler says so.
//!
//! It holds no records back and loses none: replication is not simulated, the transactional
//! protocol is.

pub mod groups;
pub mod log;
pub mod transactions;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use streaming_hub_topology::runtime::mailbox::TaskId;
use streaming_hub_topology::topics::{Topic, TopicSettings};

use self::groups::Group;
use self::log::{Data, Log};
use self::transactions::{Committed, Producer, Txn};
use crate::clock::VirtualClock;
use crate::print::Print;

/// How long the session of a silent member lasts, milliseconds (design 7).
pub const SESSION_MS: i64 = 10_000;
/// How long a transaction may take, milliseconds (design 7).
pub const TRANSACTION_MS: i64 = 10_000;
/// How often the coordinator looks for late transactions, milliseconds.
const LATE_LOOK_MS: i64 = 10_000;
/// `delete.retention.ms` of compacted topics, milliseconds (design 13).
const DELETE_RETENTION_MS: i64 = 7 * 24 * 3_600_000;

/// What a sound cluster does; a test switches one off to show that it is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Laws {
    /// A producer of an old epoch is refused.
    pub epochs_fence: bool,
    /// `init_transactions` ends what a predecessor left open and starts a new epoch.
    pub init_aborts_the_predecessor: bool,
    /// Positions of a member whose generation is over are refused.
    pub generations_fence: bool,
    /// A position is not told while a transaction on it is pending.
    pub positions_are_stable: bool,
}

impl Default for Laws {
    fn default() -> Self {
        Self {
            epochs_fence: true,
            init_aborts_the_predecessor: true,
            generations_fence: true,
            positions_are_stable: true,
        }
    }
}

/// The cluster.
pub struct Cluster {
    clock: VirtualClock,
    laws: Laws,
    topics: BTreeMap<Arc<str>, Vec<Log>>,
    producers: BTreeMap<String, Producer>,
    txns: BTreeMap<u64, Txn>,
    next_txn: u64,
    groups: BTreeMap<String, Group>,
    /// Which instances' processes run.
    awake: BTreeMap<String, bool>,
    late_look_ms: i64,
    committed: Vec<Committed>,
    print: Print,
}

impl Cluster {
    /// An empty cluster.
    #[must_use]
    pub fn new(clock: VirtualClock, laws: Laws) -> Self {
        let late_look_ms = clock.now_ms();
        Self {
            clock,
            laws,
            topics: BTreeMap::new(),
            producers: BTreeMap::new(),
            txns: BTreeMap::new(),
            next_txn: 0,
            groups: BTreeMap::new(),
            awake: BTreeMap::new(),
            late_look_ms,
            committed: Vec::new(),
            print: Print::default(),
        }
    }

    /// Makes a topic, or gives it more partitions.
    pub fn add_topic(&mut self, name: &str, partitions: usize) {
        let logs = self.topics.entry(name.into()).or_default();
        while logs.len() < partitions {
            logs.push(Log::default());
        }
        self.see_growth(name);
    }

    /// How many partitions a topic has.
    #[must_use]
    pub fn partitions(&self, topic: &str) -> usize {
        self.topics.get(topic).map_or(0, Vec::len)
    }

    /// One partition's log.
    #[must_use]
    pub fn log(&self, topic: &str, partition: i32) -> Option<&Log> {
        self.topics.get(topic)?.get(usize::try_from(partition).ok()?)
    }

    fn log_mut(&mut self, topic: &str, partition: i32) -> Option<&mut Log> {
        self.topics.get_mut(topic)?.get_mut(usize::try_from(partition).ok()?)
    }

    /// Appends a record outside of any transaction (an idempotent producer's); answers its offset.
    pub fn produce(&mut self, topic: &str, partition: i32, data: Data) -> Option<i64> {
        let (at_ms, data) = (self.clock.now_ms(), Rc::new(data));
        let offset = self.log_mut(topic, partition)?.append(at_ms, None, Rc::clone(&data));
        self.fingerprint(&[offset.unsigned_abs()], &data);
        Some(offset)
    }

    fn fingerprint(&mut self, numbers: &[u64], data: &Data) {
        numbers.iter().for_each(|number| self.print.add(*number));
        self.print.add_bytes(data.key.as_deref().unwrap_or_default());
        self.print.add_bytes(data.value.as_deref().unwrap_or_default());
    }

    /// What was decided since the last call.
    pub fn take_committed(&mut self) -> Vec<Committed> {
        std::mem::take(&mut self.committed)
    }

    /// Everything that happened, as one number.
    #[must_use]
    pub fn print(&self) -> u64 {
        self.print.value()
    }

    /// Says whether an instance's process runs: heartbeats come from it.
    pub fn set_awake(&mut self, instance: &str, awake: bool) {
        // Its last heartbeat was just now.
        self.tick_sessions(SESSION_MS);
        self.awake.insert(instance.to_owned(), awake);
    }

    /// What happens by the clock: heartbeats and sessions, late transactions.
    pub fn tick(&mut self) {
        self.tick_sessions(SESSION_MS);
        let now = self.clock.now_ms();
        if now - self.late_look_ms >= LATE_LOOK_MS {
            self.late_look_ms = now;
            self.expire_transactions(TRANSACTION_MS);
        }
    }

    /// Deletes the records of a partition below an offset (DeleteRecords).
    pub fn delete_records(&mut self, topic: &str, partition: i32, before: i64) {
        if let Some(log) = self.log_mut(topic, partition) {
            log.delete_below(before);
        }
    }

    /// Cleans one partition of an internal topic as its settings say.
    pub fn clean(&mut self, topic: Topic, partition: i32, upto: i64, settings: &TopicSettings) {
        let name = topic.name(&settings.application);
        let now = self.clock.now_ms();
        let config = topic.config(settings);
        let get = |name: &str| config.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        let policy = get("cleanup.policy").unwrap_or_default();
        let number = |name: &str| get(name).and_then(|text| text.parse::<i64>().ok());
        let retention_ms = number("retention.ms").unwrap_or(-1);
        let lag_ms = number("min.compaction.lag.ms").unwrap_or(0);
        let Some(log) = self.log_mut(&name, partition) else { return };
        if policy.contains("compact") {
            log.compact(upto, now - lag_ms, now - DELETE_RETENTION_MS);
        }
        if policy.contains("delete") && retention_ms >= 0 {
            log.expire(now - retention_ms);
        }
    }
}

/// The internal topics by name.
#[must_use]
pub fn internal_topics(application: &str) -> BTreeMap<Arc<str>, Topic> {
    Topic::all().map(|topic| (topic.name(application).into(), topic)).collect()
}
