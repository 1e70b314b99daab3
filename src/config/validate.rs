//! What must hold of a whole configuration beyond the form of its values: ranges, names, orderings
//! of time-outs and sizes, the encryption key, tokens. It finds everything, not the first.

use secrecy::ExposeSecret as _;
use streaming_hub_api::{Cluster as ClusterOfApi, ClusterError};
use streaming_hub_model::follow::{FollowPolicy, FollowSet};
use tracing_subscriber::EnvFilter;

use super::kafka::{OWNED, refusal};
use super::memory;
use super::problem::Problem;
use super::{Cluster, Config, KeyError, Role, Token};

/// By how much a lease exceeds the limit of an attempt, milliseconds: an attempt may wait for a
/// connection before its own time begins.
const LEASE_MARGIN_MS: u64 = 4_000;

/// Smallest and largest value of every whole number; the reference page shows them.
pub(super) const BOUNDS: &[(&str, i64, i64)] = &[
    ("topics.partitions", 1, 1_000),
    ("topics.replication_factor", 1, 100),
    ("topics.inbox_retention_hours", 1, 87_600),
    ("topics.quarantine_retention_hours", 1, 87_600),
    ("topics.attempts_retention_hours", 1, 87_600),
    ("topics.dead_letter_retention_hours", 1, 87_600),
    ("ingest.payload_bytes_max", 1_024, 67_108_864),
    ("ingest.metadata_refresh_ms", 100, 3_600_000),
    ("dedup.horizon_hours", 1, 8_760),
    ("runtime.commit_interval_ms", 1, 60_000),
    ("runtime.commit_bytes", 1_024, 1_073_741_824),
    ("runtime.uncommitted_bytes_max", 1_024, 4_294_967_296),
    ("runtime.transaction_timeout_ms", 1_000, 900_000),
    ("runtime.session_timeout_ms", 1_000, 1_800_000),
    ("runtime.heartbeat_interval_ms", 100, 600_000),
    ("runtime.max_poll_interval_ms", 1_000, 3_600_000),
    ("runtime.fetch_queue_kbytes", 64, 1_048_576),
    ("runtime.producer_queue_kbytes", 64, 2_097_152),
    ("runtime.num_standby_replicas", 0, 100),
    ("runtime.watchdog_ms", 1_000, 3_600_000),
    ("runtime.memory_bytes", 16_777_216, 1_099_511_627_776),
    ("runtime.block_cache_bytes", 1_048_576, 1_099_511_627_776),
    ("runtime.memtable_bytes", 1_048_576, 1_099_511_627_776),
    ("delivery.attempts_in_flight", 1, 65_536),
    ("delivery.attempt_bytes_in_flight", 1_024, 17_179_869_184),
    ("delivery.lease_ms", 1_000, 600_000),
    ("delivery.throttle_max_ms", 0, 36_000_000),
    ("delivery.job_age_hours_max", 1, 8_760),
    ("delivery.backlog_jobs_max", 1, 1_000_000_000),
    ("delivery.backlog_bytes_max", 1_048_576, 1_099_511_627_776),
    ("delivery.drain_ms", 0, 600_000),
    ("delivery.dead_letters_per_subscription", 1, 10_000_000),
    ("breaker.failures_max", 1, 1_000),
    ("breaker.attempts_min", 1, 100_000),
    ("breaker.failure_percent", 1, 100),
    ("breaker.window_ms", 1_000, 3_600_000),
    ("breaker.open_ms", 100, 36_000_000),
    ("breaker.open_ms_max", 100, 36_000_000),
    ("breaker.probes", 1, 64),
    ("autodisable.sustained_hours", 1, 8_760),
    ("autodisable.spread_hours", 0, 8_760),
    ("pull.read_retention_ms", 1_000, 31_536_000_000),
    ("pull.unread_retention_ms", 1_000, 31_536_000_000),
    ("pull.reads_per_second", 1, 100_000),
    ("pull.reads_burst", 1, 1_000_000),
    ("webhook.timeout_ms", 100, 300_000),
    ("webhook.connect_timeout_ms", 100, 300_000),
    ("webhook.payload_bytes_max", 1_024, 67_108_864),
    ("webhook.connections_per_destination", 1, 128),
    ("webhook.idle_ms", 0, 3_600_000),
    ("aws.timeout_ms", 100, 300_000),
    ("aws.connect_timeout_ms", 100, 300_000),
    ("aws.linger_ms", 0, 1_000),
    ("aws.idle_ms", 0, 3_600_000),
    ("aws.sqs_message_bytes_max", 1_024, 67_108_864),
    ("aws.eventbridge_entry_bytes_max", 1_024, 67_108_864),
    ("rabbitmq.timeout_ms", 100, 300_000),
    ("rabbitmq.connect_timeout_ms", 100, 300_000),
    ("rabbitmq.heartbeat_s", 1, 600),
    ("rabbitmq.idle_ms", 0, 3_600_000),
    ("rabbitmq.payload_bytes_max", 1_024, 67_108_864),
    ("rabbitmq.connections_per_host", 1, 10_000),
    ("dlq.index_entries_max", 1_000, 10_000_000),
    ("dlq.index_retention_hours", 1, 87_600),
    ("api.subscriptions_per_tenant", 1, 100_000),
    ("api.event_types_per_subscription", 1, 1_000),
    ("api.requests_per_second", 1, 100_000),
    ("api.requests_burst", 1, 1_000_000),
    ("api.request_timeout_ms", 1_000, 600_000),
    ("jwt.jwks_refresh_ms", 10_000, 86_400_000),
    ("jwt.leeway_ms", 0, 600_000),
];

/// Everything that is wrong with `config`; `values` are the same values by key.
pub(super) fn validate(config: &Config, values: &toml::Table) -> Vec<Problem> {
    let mut problems = bounds(values);
    let outside: Vec<_> = problems.iter().map(|problem| problem.key.clone()).collect();
    problems.extend(names(config));
    problems.extend(bootstrap_servers(&config.kafka.bootstrap_servers));
    problems.extend(kafka_properties(config));
    problems.extend(config.ingest.follow_extra.iter().filter_map(|pattern| follow_extra(pattern)));
    let orderings = limits(config).into_iter().filter_map(Limit::exceeded);
    // Against a number that is wrong by itself nothing can be said.
    let sound = |problem: &Problem| {
        !outside.iter().any(|key| *key == problem.key || problem.wrong.contains(key))
    };
    problems.extend(orderings.filter(&sound));
    problems.extend(memory::validate(config).into_iter().filter(sound));
    problems.extend(encryption(config));
    problems.extend(ca_files(config));
    problems.extend(jwt(config));
    problems.extend(tokens(&config.api.tokens));
    problems.extend(cluster(&config.cluster));
    problems.extend(log_filter(&config.log.filter));
    problems
}

fn bounds(values: &toml::Table) -> Vec<Problem> {
    let number = |key: &str| {
        let (section, name) = key.split_once('.')?;
        values.get(section)?.get(name)?.as_integer()
    };
    let outside = |&(key, least, most): &(&str, i64, i64)| {
        let value = number(key)?;
        let wrong = format!("is outside {least} to {most}");
        let remedy = format!("Give a number from {least} to {most}");
        (value < least || value > most).then(|| Problem::new(key, wrong, remedy))
    };
    BOUNDS.iter().filter_map(outside).collect()
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=100).contains(&text.len()) && text.bytes().all(allowed)
}

fn names(config: &Config) -> Vec<Problem> {
    let names = [
        ("application_id", Some(&config.application_id)),
        ("instance_id", config.instance_id.as_ref()),
        ("encryption.key_id", Some(&config.encryption.key_id)),
    ];
    let bad = names.into_iter().filter(|(_, name)| name.is_some_and(|name| !is_name(name)));
    let mut problems: Vec<_> = bad
        .map(|(key, _)| {
            let remedy = "Give 1 to 100 characters of `a-z A-Z 0-9 . _ -`";
            Problem::new(key, "is no name", remedy)
        })
        .collect();
    if config.state_dir.as_os_str().is_empty() {
        problems.push(Problem::new("state_dir", "is empty", "Name a directory"));
    }
    problems
}

fn bootstrap_servers(servers: &str) -> Option<Problem> {
    let good = |server: &str| match server.rsplit_once(':') {
        Some((host, port)) => !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0),
        None => false,
    };
    let spaced = |server: &str| server.contains(char::is_whitespace);
    let bad = servers.split(',').map(str::trim).find(|server| !good(server) || spaced(server))?;
    let wrong = format!("names {bad:?}, which is no `host:port`");
    Some(Problem::new("kafka.bootstrap_servers", wrong, "Give `host:port`, or several with commas"))
}

fn kafka_properties(config: &Config) -> Vec<Problem> {
    let check = |(name, value): (&str, &str)| {
        let key = format!("kafka.properties.{name}");
        if let Some((_, instead)) = OWNED.iter().find(|(owned, _)| *owned == name) {
            let remedy = format!("Remove it. {instead}");
            return Some(Problem::new(key, "is set by the hub itself", remedy));
        }
        let text = refusal(name, value)?;
        let wrong = format!("is refused by librdkafka: {text}");
        Some(Problem::new(key, wrong, "See librdkafka's CONFIGURATION.md for names and values"))
    };
    config.kafka.properties.iter().filter_map(check).collect()
}

fn follow_extra(pattern: &str) -> Option<Problem> {
    let policy = FollowPolicy { follow_v1: false, follow_extra: vec![pattern.to_owned()] };
    let error = FollowSet::new(&policy).err()?;
    let remedy = "Give a topic `<source>.<resource>.<event>`, or the beginning of names and a `*`";
    Some(Problem::new("ingest.follow_extra", format!("is refused: {error}"), remedy))
}

/// A value that must not exceed what another setting allows.
struct Limit {
    key: &'static str,
    value: u64,
    most: u64,
    /// What `most` is, with the other setting's key.
    of: &'static str,
    why: &'static str,
}

impl Limit {
    fn exceeded(self) -> Option<Problem> {
        let Self { key, value, most, of, why } = self;
        let wrong = format!("is above {most}, {of}: {why}");
        let remedy = format!("Lower it to {most} or less, or raise the other");
        (value > most).then(|| Problem::new(key, wrong, remedy))
    }
}

fn limits(config: &Config) -> Vec<Limit> {
    let mut limits = time_limits(config);
    limits.extend(delivery_limits(config));
    limits.extend(size_limits(config));
    limits
}

fn time_limits(config: &Config) -> Vec<Limit> {
    let limit = |key, value, (most, of), why| Limit { key, value, most, of, why };
    let runtime = &config.runtime;
    let poll = (runtime.max_poll_interval_ms, "runtime.max_poll_interval_ms");
    let mut limits = vec![
        limit(
            "runtime.heartbeat_interval_ms",
            runtime.heartbeat_interval_ms,
            (
                runtime.session_timeout_ms.saturating_sub(1) / 3,
                "less than a third of runtime.session_timeout_ms",
            ),
            "one lost heartbeat would cost a member its partitions",
        ),
        limit(
            "runtime.session_timeout_ms",
            runtime.session_timeout_ms,
            poll,
            "librdkafka does not accept that",
        ),
        limit(
            "runtime.transaction_timeout_ms",
            runtime.transaction_timeout_ms,
            poll,
            "a commit may take that long and would count as a dead thread",
        ),
        limit(
            "runtime.transaction_timeout_ms",
            runtime.transaction_timeout_ms,
            (runtime.watchdog_ms / 2, "half of runtime.watchdog_ms"),
            "the watchdog would end the process during a commit that may still succeed",
        ),
        limit(
            "runtime.commit_interval_ms",
            runtime.commit_interval_ms,
            (runtime.transaction_timeout_ms / 4, "a quarter of runtime.transaction_timeout_ms"),
            "the broker would end transactions that are merely waiting for their commit",
        ),
    ];
    limits.extend(attempts(config));
    let socket = config.kafka.properties.iter().find(|(name, _)| *name == "socket.timeout.ms");
    limits.extend(socket.and_then(|(_, value)| value.parse().ok()).map(|value| {
        limit(
            "kafka.properties.socket.timeout.ms",
            value,
            (runtime.transaction_timeout_ms, "runtime.transaction_timeout_ms"),
            "librdkafka does not accept that",
        )
    }));
    limits
}

fn delivery_limits(config: &Config) -> Vec<Limit> {
    let mut limits = vec![Limit {
        key: "breaker.open_ms",
        value: config.breaker.open_ms,
        most: config.breaker.open_ms_max,
        of: "breaker.open_ms_max",
        why: "it is the shortest of all openings",
    }];
    if config.roles.has(Role::Delivery) {
        limits.push(Limit {
            key: "webhook.timeout_ms",
            value: config.webhook.timeout_ms,
            most: config.delivery.lease_ms.saturating_sub(LEASE_MARGIN_MS),
            of: "delivery.lease_ms less 4 s",
            why: "attempts would be cancelled before they time out",
        });
    }
    limits
}

fn size_limits(config: &Config) -> Vec<Limit> {
    let runtime = &config.runtime;
    let payload_bytes = config.ingest.payload_bytes_max as u64;
    vec![
        Limit {
            key: "runtime.commit_bytes",
            value: runtime.commit_bytes as u64,
            most: runtime.uncommitted_bytes_max as u64,
            of: "runtime.uncommitted_bytes_max",
            why: "the input of a transaction becomes uncommitted writes",
        },
        Limit {
            key: "ingest.payload_bytes_max",
            value: payload_bytes,
            most: config.delivery.attempt_bytes_in_flight as u64,
            of: "delivery.attempt_bytes_in_flight",
            why: "an event of that size could never be attempted",
        },
        Limit {
            key: "ingest.payload_bytes_max",
            value: payload_bytes,
            most: u64::from(runtime.producer_queue_kbytes) * 1_024 / 2,
            of: "half of runtime.producer_queue_kbytes",
            why: "a record of that size needs room in the producer's queue",
        },
    ]
}

fn encryption(config: &Config) -> Option<Problem> {
    let needed = config.roles.has(Role::Api) || config.roles.has(Role::Delivery);
    let error = match config.encryption.keyring() {
        Ok(_) => return None,
        Err(KeyError::Missing) if !needed => return None,
        Err(error) => error,
    };
    let file = config.encryption.key_file.is_some() && config.encryption.key.is_none();
    let key = if file { "encryption.key_file" } else { "encryption.key" };
    let make = "`openssl rand -base64 32` makes one";
    let remedy = match error {
        KeyError::Missing => format!(
            "Set encryption.key (or STREAMING_HUB_ENCRYPTION_KEY, or encryption.key_file): the \
             roles api and delivery need it. {make}"
        ),
        KeyError::Both => "Set one of them".to_owned(),
        KeyError::Unreadable(_) => "Name a file that the hub may read".to_owned(),
        KeyError::Bad(_) => format!("Give 32 bytes in base64; {make}"),
    };
    Some(Problem::new(key, error.to_string(), remedy))
}

fn jwt(config: &Config) -> Option<Problem> {
    let error = crate::settings::jwt(config).err()?;
    let remedy = "Give algorithms of RFC 7518, and a JWKS document in a file or at an https URL";
    Some(Problem::new("jwt", format!("cannot be used: {error:#}"), remedy))
}

/// The time-outs of each kind of destination.
fn attempts(config: &Config) -> Vec<Limit> {
    let (webhook, aws, rabbitmq) = (&config.webhook, &config.aws, &config.rabbitmq);
    let kinds = [
        (
            ("webhook.connect_timeout_ms", webhook.connect_timeout_ms),
            ("webhook.timeout_ms", webhook.timeout_ms),
        ),
        (("aws.connect_timeout_ms", aws.connect_timeout_ms), ("aws.timeout_ms", aws.timeout_ms)),
        (
            ("rabbitmq.connect_timeout_ms", rabbitmq.connect_timeout_ms),
            ("rabbitmq.timeout_ms", rabbitmq.timeout_ms),
        ),
    ];
    let limit = |key, value, (most, of), why| Limit { key, value, most, of, why };
    let request_ms = config.api.request_timeout_ms.saturating_sub(1);
    let mut limits = Vec::new();
    for ((connect_key, connect_ms), (key, ms)) in kinds {
        let why = "connecting is part of the attempt";
        limits.push(limit(connect_key, connect_ms, (ms, key), why));
        if config.roles.has(Role::Api) {
            let why = "a verification attempts a delivery within its request";
            limits.push(limit(key, ms, (request_ms, "less than api.request_timeout_ms"), why));
        }
    }
    limits
}

fn ca_files(config: &Config) -> Vec<Problem> {
    let files =
        [("webhook.ca_file", &config.webhook.ca_file), ("aws.ca_file", &config.aws.ca_file)];
    files.into_iter().filter_map(|(key, path)| ca_file(key, path.as_ref())).collect()
}

fn ca_file(key: &str, path: Option<&std::path::PathBuf>) -> Option<Problem> {
    let path = path?;
    let wrong = match std::fs::read(path) {
        Err(error) => format!("cannot be read: {error}"),
        Ok(bytes) if !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----") => {
            "holds no certificate".to_owned()
        }
        Ok(_) => return None,
    };
    Some(Problem::new(key, wrong, "Name a PEM file of certificates"))
}

fn tokens(tokens: &[Token]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let key = format!("api.tokens[{index}]");
        let mut wrong = |wrong: String, remedy: &str| {
            problems.push(Problem::new(&key, format!("({:?}) {wrong}", token.name), remedy));
        };
        if token.name.trim().is_empty() {
            wrong("has no name".to_owned(), "Give a name, which the log shows");
        }
        if let Err(error) = token.tenant() {
            wrong(error, "Give role = \"tenant\" with a tenant, or role = \"operator\" without");
        }
        match token.digest() {
            Err(error) => wrong(error, "`printf %s \"$TOKEN\" | sha256sum` prints it"),
            Ok(digest) => {
                let same = |other: &&Token| other.digest().is_ok_and(|other| other == digest);
                if let Some(other) = tokens[..index].iter().find(same) {
                    wrong(format!("is the same token as {:?}", other.name), "Remove one of them");
                }
            }
        }
        if tokens[..index].iter().any(|other| other.name == token.name) {
            wrong("has the name of another token".to_owned(), "Give each its own name");
        }
    }
    problems
}

fn cluster(cluster: &Cluster) -> Option<Problem> {
    let secret = match cluster.secret() {
        Ok(secret) => secret,
        Err(error) => {
            let key = if cluster.key.is_some() { "cluster.key" } else { "cluster.key_file" };
            let remedy = "Give the key in one of them, a file that the hub may read";
            return Some(Problem::new(key, error, remedy));
        }
    };
    let Some(secret) = secret else {
        let remedy = "Set cluster.key or cluster.key_file, too, or remove the hosts";
        let unused = || Problem::new("cluster.hosts", "is of no use without a key", remedy);
        return (!cluster.hosts.is_empty()).then(unused);
    };
    match ClusterOfApi::check(secret.expose_secret().len(), &cluster.hosts) {
        Ok(()) if cluster.hosts.is_empty() => {
            let remedy = "Name the hosts of the instances' advertised URLs";
            Some(Problem::new("cluster.hosts", "is empty, so no instance may be called", remedy))
        }
        Ok(()) => None,
        Err(error @ ClusterError::ShortKey) => {
            let remedy = "`openssl rand -hex 32` makes one";
            Some(Problem::new("cluster.key", format!("is too short: {error}"), remedy))
        }
        Err(error) => {
            let remedy = "Name hosts without scheme and port";
            Some(Problem::new("cluster.hosts", format!("is refused: {error}"), remedy))
        }
    }
}

fn log_filter(filter: &str) -> Option<Problem> {
    let error = EnvFilter::try_new(filter).err()?;
    let remedy = "Give a level such as `info`, or directives such as `info,streaming_hub=debug`";
    Some(Problem::new("log.filter", format!("is no filter: {error}"), remedy))
}
