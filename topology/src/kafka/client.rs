//! How each librdkafka client of the hub is configured (design 2, 4, 7, 9; the reasons for single
//! values stand beside them). The operator's own properties come first, ours win.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;

use super::statistics;

/// What one partition gives to an answer of the broker, bytes.
const FETCH_PARTITION_BYTES: usize = 1024 * 1024;
/// The size of one answer, bytes.
const FETCH_BYTES: usize = 4 * 1024 * 1024;

/// What a batch of records takes beside them, at the most, bytes.
const BATCH_FRAMING: usize = 1024;

/// What all clients share.
#[derive(Clone)]
pub struct KafkaSettings {
    /// Bootstrap servers, comma-separated.
    pub bootstrap_servers: String,
    /// Properties that go to every client (TLS, SASL, …).
    pub properties: BTreeMap<String, String>,
    /// `transaction.timeout.ms`.
    pub transaction_timeout_ms: u64,
    /// `session.timeout.ms`.
    pub session_timeout_ms: u64,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval_ms: u64,
    /// `max.poll.interval.ms`.
    pub max_poll_interval_ms: u64,
    /// Prefetch queue of one consumer, KiB.
    pub fetch_queue_kbytes: u64,
    /// Send queue of one producer, KiB.
    pub producer_queue_kbytes: u64,
    /// Largest record of an internal topic, bytes.
    pub message_bytes_max: usize,
    /// How soon a new source topic is found, milliseconds.
    pub metadata_refresh_ms: u64,
}

impl std::fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Properties may hold passwords.
        f.debug_struct("KafkaSettings")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("properties", &self.properties.keys())
            .finish_non_exhaustive()
    }
}

impl KafkaSettings {
    fn base(&self, client_id: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.bootstrap_servers);
        config.set("client.id", client_id);
        config.set("topic.metadata.refresh.interval.ms", self.metadata_refresh_ms.to_string());
        // A broker that comes back is found within a second.
        config.set("reconnect.backoff.ms", "50");
        config.set("reconnect.backoff.max.ms", "1000");
        config
    }

    fn reader(&self, client_id: &str) -> ClientConfig {
        let mut config = self.base(client_id);
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        // Explicit offsets always; anything else is a mistake to be heard (design 4).
        config.set("auto.offset.reset", "error");
        config.set("isolation.level", "read_committed");
        config.set("queued.max.messages.kbytes", self.fetch_queue_kbytes.to_string());
        config.set("queued.min.messages", "10000");
        config.set("fetch.queue.backoff.ms", "5");
        // A rewind waits up to one of these for its first record.
        config.set("fetch.wait.max.ms", "100");
        // Answers below 8 MiB: above it the allocator gives their memory back each time, and the
        // system clears its pages anew. A larger record still comes, alone (KIP-74).
        config.set("fetch.message.max.bytes", FETCH_PARTITION_BYTES.to_string());
        config.set("fetch.max.bytes", FETCH_BYTES.to_string());
        config
    }

    /// A static member of a consumer group.
    #[must_use]
    pub fn member(&self, group: &str, instance: &str) -> ClientConfig {
        let mut config = self.reader(instance);
        config.set("group.id", group);
        config.set("group.instance.id", instance);
        config.set("statistics.interval.ms", statistics::INTERVAL_MS);
        config.set("group.protocol", "classic");
        config.set("partition.assignment.strategy", "cooperative-sticky");
        config.set("session.timeout.ms", self.session_timeout_ms.to_string());
        config.set("heartbeat.interval.ms", self.heartbeat_interval_ms.to_string());
        config.set("max.poll.interval.ms", self.max_poll_interval_ms.to_string());
        config
    }

    /// A reader by explicit assignment that may also ask for a group's positions, without ever
    /// joining it.
    #[must_use]
    pub fn assigned_reader(&self, client_id: &str, group: &str) -> ClientConfig {
        let mut config = self.reader(client_id);
        config.set("group.id", group);
        config
    }

    /// A client that asks for high watermarks: a read-committed one would answer the LSO, which
    /// may lack a predecessor's last committed writes (design 2).
    #[must_use]
    pub fn watermark_reader(&self, client_id: &str) -> ClientConfig {
        let mut config = self.base(client_id);
        config.set("isolation.level", "read_uncommitted");
        config.set("enable.auto.commit", "false");
        config
    }

    fn writer(&self, client_id: &str) -> ClientConfig {
        let mut config = self.base(client_id);
        config.set("enable.idempotence", "true");
        config.set("acks", "all");
        // The default refuses a legal 1 MiB payload: it counts the headers too.
        config.set("message.max.bytes", self.message_bytes_max.to_string());
        config.set("queue.buffering.max.kbytes", self.producer_queue_kbytes.to_string());
        config.set("queue.buffering.max.messages", "1000000");
        config.set("message.timeout.ms", self.transaction_timeout_ms.to_string());
        config
    }

    /// A transactional producer.
    #[must_use]
    pub fn transactional(&self, transactional_id: &str) -> ClientConfig {
        let mut config = self.writer(transactional_id);
        config.set("transactional.id", transactional_id);
        config.set("statistics.interval.ms", statistics::INTERVAL_MS);
        config.set("transaction.timeout.ms", self.transaction_timeout_ms.to_string());
        // The next transaction meets the markers of the last one; the defaults sleep 100 ms.
        config.set("retry.backoff.ms", "1");
        config.set("retry.backoff.max.ms", "5");
        // Batches leave when they are full or by the flush before the commit, never by time: an
        // idempotent sender has one batch of a partition under way, and while a second one is due
        // it asks for its turn in a busy loop (a quarter of all processor time at 50 ms).
        config.set("linger.ms", "1000");
        // Reports of what succeeded say nothing that the commit does not say.
        config.set("delivery.report.only.error", "true");
        config.set("batch.num.messages", "100000");
        // As large as the topics take: what a partition is given within a transaction is one batch.
        config.set("batch.size", self.message_bytes_max.saturating_sub(BATCH_FRAMING).to_string());
        config
    }

    /// A plain producer whose delivery reports are awaited.
    #[must_use]
    pub fn producer(&self, client_id: &str) -> ClientConfig {
        let mut config = self.writer(client_id);
        config.set("linger.ms", "0");
        config
    }

    /// A client for administration.
    #[must_use]
    pub fn admin(&self, client_id: &str) -> ClientConfig {
        self.base(client_id)
    }
}
