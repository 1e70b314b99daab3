//! The configuration: one tree of structs, filled from the embedded `config/default.toml`, a file,
//! the environment and flags, and checked as a whole before anything starts.
//!
//! The structs carry no defaults: `config/default.toml` names every key, and a test holds the two
//! together. What each key means for an operator is written there; the comments here say what code
//! may rely on once [`load::Loaded::checked`] has answered `Ok`.

mod destinations;
mod kafka;
mod keys;
mod layers;
mod load;
mod memory;
mod print;
mod problem;
mod reference;
mod validate;
mod values;

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod validate_tests;

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use streaming_hub_model::breaker::BreakerSettings;
use streaming_hub_model::retry::RetrySchedule;
use streaming_hub_model::secret::Keyring;
use streaming_hub_model::tenant::TenantId;
use url::Url;

pub(crate) use destinations::{Aws, RabbitMq};
pub(crate) use kafka::KafkaProperties;
pub(crate) use load::Sources;
pub(crate) use problem::Problems;
pub(crate) use reference::markdown as reference_markdown;
pub(crate) use values::{KeyError, LogFormat, Role, Roles, Start, Token};

/// Every setting of a hub.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Prefix of internal topics, groups and transactional ids: `[a-zA-Z0-9._-]{1,100}`.
    pub(crate) application_id: String,
    /// Name of the instance, by the same rule; `None`: kept in the state directory.
    #[serde(with = "values::optional_text")]
    pub(crate) instance_id: Option<String>,
    /// Directory of the state stores.
    pub(crate) state_dir: PathBuf,
    /// What this instance does; never empty.
    pub(crate) roles: Roles,
    /// The cluster.
    pub(crate) kafka: Kafka,
    /// Internal topics.
    pub(crate) topics: Topics,
    /// What is read from the producers' topics.
    pub(crate) ingest: Ingest,
    /// Deduplication.
    pub(crate) dedup: Dedup,
    /// Stream threads, transactions, memory.
    pub(crate) runtime: Runtime,
    /// Attempts of deliveries.
    pub(crate) delivery: Delivery,
    /// Circuit breakers of destinations.
    pub(crate) breaker: BreakerSettings,
    /// When a subscription that fails is disabled.
    pub(crate) autodisable: AutoDisable,
    /// Pull subscriptions.
    pub(crate) pull: Pull,
    /// Deliveries over HTTP.
    pub(crate) webhook: Webhook,
    /// Deliveries to SQS and EventBridge.
    pub(crate) aws: Aws,
    /// Deliveries to RabbitMQ.
    pub(crate) rabbitmq: RabbitMq,
    /// What a destination may be.
    pub(crate) sinks: Sinks,
    /// The producers' dead letters.
    pub(crate) dlq: Dlq,
    /// Secrets at rest.
    pub(crate) encryption: Encryption,
    /// The HTTP interface.
    pub(crate) api: Api,
    /// JSON web tokens.
    pub(crate) jwt: Jwt,
    /// How instances call each other.
    pub(crate) cluster: Cluster,
    /// Log lines.
    pub(crate) log: Log,
}

/// The Kafka cluster.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kafka {
    /// `bootstrap.servers`: at least one `host:port`.
    pub(crate) bootstrap_servers: String,
    /// Properties for every client; none that the hub sets itself.
    pub(crate) properties: KafkaProperties,
}

/// Internal topics.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Topics {
    /// Partitions of each, 1 to 1000.
    pub(crate) partitions: i32,
    /// Replicas of each.
    pub(crate) replication_factor: i32,
    /// Make missing ones at start.
    pub(crate) auto_create: bool,
    /// Retention of `-inbox`, hours.
    pub(crate) inbox_retention_hours: u32,
    /// Retention of `-quarantine`, hours.
    pub(crate) quarantine_retention_hours: u32,
    /// Retention of `-attempts`, hours.
    pub(crate) attempts_retention_hours: u32,
    /// Retention of `-dead-letters`, hours.
    pub(crate) dead_letter_retention_hours: u32,
}

/// What is read from the producers' topics, contract section 1.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ingest {
    /// The tenant of a fact that names none; `None`: such a fact is quarantined.
    #[serde(with = "values::optional_tenant")]
    pub(crate) default_tenant: Option<TenantId>,
    /// Follow the older layout too.
    pub(crate) follow_v1: bool,
    /// Topic names, or beginnings of names and a `*`; `FollowSet` takes them.
    pub(crate) follow_extra: Vec<String>,
    /// The largest payload, bytes.
    pub(crate) payload_bytes_max: usize,
    /// Metadata refresh, milliseconds.
    pub(crate) metadata_refresh_ms: u64,
    /// Where the very first start reads from.
    pub(crate) start: Start,
}

/// Deduplication, contract section 2.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dedup {
    /// How long an id is remembered after its arrival, hours.
    pub(crate) horizon_hours: u32,
}

/// The stream runtime. Validated: heartbeat < session / 3, session and transaction ≤ max. poll,
/// commit interval ≤ transaction / 4, transaction ≤ watchdog / 2.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runtime {
    /// Longest time between commits under load, milliseconds.
    pub(crate) commit_interval_ms: u64,
    /// Input that ends a transaction, bytes.
    pub(crate) commit_bytes: usize,
    /// Uncommitted writes of a task in memory, bytes; at least `commit_bytes`.
    pub(crate) uncommitted_bytes_max: usize,
    /// `transaction.timeout.ms`, and `message.timeout.ms` of the same producer.
    pub(crate) transaction_timeout_ms: u64,
    /// `session.timeout.ms`.
    pub(crate) session_timeout_ms: u64,
    /// `heartbeat.interval.ms`.
    pub(crate) heartbeat_interval_ms: u64,
    /// `max.poll.interval.ms`.
    pub(crate) max_poll_interval_ms: u64,
    /// `queued.max.messages.kbytes` of a stream thread's consumer, KiB.
    pub(crate) fetch_queue_kbytes: u32,
    /// `queue.buffering.max.kbytes` of a stream thread's producer, KiB.
    pub(crate) producer_queue_kbytes: u32,
    /// On how many other instances a warm copy of each store is kept.
    pub(crate) num_standby_replicas: usize,
    /// Longest blocking call into the Kafka client, milliseconds.
    pub(crate) watchdog_ms: u64,
    /// What stores, uncommitted writes and Kafka clients may use together, bytes; their own keys
    /// hold shares of it, and fit into it.
    pub(crate) memory_bytes: u64,
    /// Block cache of all stores, bytes.
    pub(crate) block_cache_bytes: usize,
    /// Write buffers of all stores, bytes.
    pub(crate) memtable_bytes: usize,
}

/// Attempts of deliveries, contract section 4.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delivery {
    /// Attempts at the same time on this instance.
    pub(crate) attempts_in_flight: usize,
    /// Their payloads together, bytes; at least `ingest.payload_bytes_max`.
    pub(crate) attempt_bytes_in_flight: usize,
    /// The back-off curve of subscriptions that bring none.
    pub(crate) retry_schedule_ms: RetrySchedule,
    /// When an attempt is cancelled, milliseconds; above what a sink needs by itself.
    pub(crate) lease_ms: u64,
    /// The longest that a 429 closes the way to a destination, milliseconds.
    pub(crate) throttle_max_ms: u64,
    /// The oldest that a job gets, hours since its match.
    pub(crate) job_age_hours_max: u32,
    /// The most jobs that wait for a subscription.
    pub(crate) backlog_jobs_max: u64,
    /// The most bytes of jobs that wait for a subscription.
    pub(crate) backlog_bytes_max: u64,
    /// How long a stop waits for running attempts, milliseconds.
    pub(crate) drain_ms: u64,
    /// Dead letters of one subscription; the oldest go first.
    pub(crate) dead_letters_per_subscription: u64,
}

/// When a subscription that fails is disabled, contract section 4.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AutoDisable {
    /// The kill switch.
    pub(crate) enabled: bool,
    /// How long ago the first failure must be, hours.
    pub(crate) sustained_hours: u32,
    /// How far apart the first and the last must be, hours.
    pub(crate) spread_hours: u32,
}

/// Pull subscriptions, contract sections 5 and 8.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pull {
    /// How long read entries stay behind the cursor, milliseconds.
    pub(crate) read_retention_ms: u64,
    /// How long unread entries stay, milliseconds.
    pub(crate) unread_retention_ms: u64,
    /// Reads of a tenant in a second.
    pub(crate) reads_per_second: u32,
    /// Reads of a tenant at once; at least `reads_per_second`.
    pub(crate) reads_burst: u32,
}

/// Deliveries over HTTP, contract section 5.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// Limit of an attempt, milliseconds.
    pub(crate) timeout_ms: u64,
    /// Limit of connecting, milliseconds; at most `timeout_ms`.
    pub(crate) connect_timeout_ms: u64,
    /// The largest payload that is sent, bytes.
    pub(crate) payload_bytes_max: usize,
    /// Connections for each (tenant, destination).
    pub(crate) connections_per_destination: usize,
    /// How long an idle connection is kept, milliseconds.
    pub(crate) idle_ms: u64,
    /// PEM file of further certificate authorities; it was readable when checked.
    #[serde(with = "values::optional_path")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// What a destination may be, contract section 5.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sinks {
    /// Private, loopback and other special addresses, and plain `http`.
    pub(crate) allow_private: bool,
    /// Networks that are allowed although they are private.
    #[serde(with = "values::networks")]
    pub(crate) allow_cidrs: Vec<IpNet>,
}

/// The index of the producers' dead letters, contract section 6.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dlq {
    /// The most entries.
    pub(crate) index_entries_max: usize,
    /// How long an entry is listed, hours.
    pub(crate) index_retention_hours: u32,
}

/// Secrets at rest, contract section 5.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Encryption {
    /// Id stored beside each secret: `[a-zA-Z0-9._-]{1,100}`.
    pub(crate) key_id: String,
    /// 32 bytes in base64.
    #[serde(with = "values::optional_secret")]
    pub(crate) key: Option<SecretString>,
    /// File that holds the same.
    #[serde(with = "values::optional_path")]
    pub(crate) key_file: Option<PathBuf>,
    /// File of keys that open what they sealed: lines of an id and 32 bytes in base64.
    #[serde(with = "values::optional_path")]
    pub(crate) old_keys_file: Option<PathBuf>,
}

/// JSON web tokens, contract section 7. Without keys they are not accepted.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Jwt {
    /// Algorithms that count.
    pub(crate) algorithms: Vec<String>,
    /// File with a JWKS document.
    #[serde(with = "values::optional_path")]
    pub(crate) keys_file: Option<PathBuf>,
    /// Where a JWKS document is fetched; empty: nowhere.
    pub(crate) jwks_url: String,
    /// How often, milliseconds.
    pub(crate) jwks_refresh_ms: u64,
    /// What `iss` must be; empty: anything.
    pub(crate) issuer: String,
    /// One of these must be in `aud`; empty: anything.
    pub(crate) audiences: Vec<String>,
    /// How far clocks may differ, milliseconds.
    pub(crate) leeway_ms: u64,
    /// The claim that names the tenant.
    pub(crate) tenant_claim: String,
    /// The claim that lists scopes.
    pub(crate) scope_claim: String,
    /// The scope of an operator.
    pub(crate) admin_scope: String,
}

impl Encryption {
    /// The keys that seal and open secrets; reads `key_file`.
    ///
    /// # Errors
    /// See [`KeyError`]. Validation calls this for the roles that need a key.
    pub(crate) fn keyring(&self) -> Result<Keyring, KeyError> {
        let key = match (&self.key, &self.key_file) {
            (None, None) => return Err(KeyError::Missing),
            (Some(_), Some(_)) => return Err(KeyError::Both),
            (Some(key), None) => key.clone(),
            (None, Some(path)) => {
                SecretString::from(std::fs::read_to_string(path).map_err(KeyError::Unreadable)?)
            }
        };
        let mut keyring = Keyring::new(&self.key_id, &key).map_err(KeyError::Bad)?;
        if let Some(path) = &self.old_keys_file {
            let text = std::fs::read_to_string(path).map_err(KeyError::Unreadable)?;
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
                let (id, key) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
                let key = SecretString::from(key.trim());
                keyring = keyring.with_old(id, &key).map_err(KeyError::Bad)?;
            }
        }
        Ok(keyring)
    }
}

/// The HTTP interface, contract section 7.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Api {
    /// Where to listen.
    pub(crate) listen: SocketAddr,
    /// Where other instances reach this one: `http` or `https`, with a host. When the setting is
    /// empty it is derived from `listen`.
    #[serde(with = "values::http_url")]
    pub(crate) advertised_url: Url,
    /// Subscriptions that a tenant may have.
    pub(crate) subscriptions_per_tenant: usize,
    /// Event types that a subscription may list.
    pub(crate) event_types_per_subscription: usize,
    /// Requests of a tenant in a second.
    pub(crate) requests_per_second: u32,
    /// Requests of a tenant at once.
    pub(crate) requests_burst: u32,
    /// Limit of a request, milliseconds; above `webhook.timeout_ms` where the API runs.
    pub(crate) request_timeout_ms: u64,
    /// Static bearer tokens: names and digests differ.
    pub(crate) tokens: Vec<Token>,
}

/// How instances call each other, design 24.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    /// At least 32 bytes of text.
    #[serde(with = "values::optional_secret")]
    pub(crate) key: Option<SecretString>,
    /// File that holds the same.
    #[serde(with = "values::optional_path")]
    pub(crate) key_file: Option<PathBuf>,
    /// Names, `*.` and a domain, addresses or networks; the API takes them.
    pub(crate) hosts: Vec<String>,
}

impl Cluster {
    /// The key's text, if one is configured; reads `key_file`.
    ///
    /// # Errors
    /// What is wrong, in words: both are given, or the file cannot be read.
    pub(crate) fn secret(&self) -> Result<Option<SecretString>, String> {
        match (&self.key, &self.key_file) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err("is set, and so is cluster.key_file".to_owned()),
            (Some(key), None) => Ok(Some(key.clone())),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|error| format!("cannot be read: {error}"))?;
                Ok(Some(SecretString::from(text.trim_end().to_owned())))
            }
        }
    }
}

/// Log lines.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    /// Their form.
    pub(crate) format: LogFormat,
    /// `tracing` directives, known to parse.
    pub(crate) filter: String,
}
