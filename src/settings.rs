//! From the configuration to what each part of the hub is started with. The one place that knows
//! both sides.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use streaming_hub_api::{Cluster, Jwt, JwtSettings, ReadRate, Role as TokenRole, TokenConfig};
use streaming_hub_model::envelope::IngestPolicy;
use streaming_hub_model::failure_span::AutoDisable;
use streaming_hub_model::follow::{FollowPolicy, FollowSet};
use streaming_hub_model::hex;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_sinks::SinkSettings;
use streaming_hub_sinks::aws::AwsSettings;
use streaming_hub_sinks::guard::AddressPolicy;
use streaming_hub_sinks::rabbitmq::RabbitMqSettings;
use streaming_hub_sinks::webhook::WebhookSettings;
use streaming_hub_state::{ResourceLimits, SharedResources};
use streaming_hub_topology::clock::SystemClock;
use streaming_hub_topology::dlq::DlqSettings;
use streaming_hub_topology::kafka::client::KafkaSettings;
use streaming_hub_topology::processors::delivery::Retention;
use streaming_hub_topology::processors::delivery::backlog::Bounds;
use streaming_hub_topology::shared::CommitSettings;
use streaming_hub_topology::stores::DiskStores;
use streaming_hub_topology::topics::TopicSettings;
use url::Url;

use crate::config::{Config, Start};

const MS_PER_HOUR: u64 = 3_600_000;

/// What the internal topics are made with.
pub(crate) fn topics(config: &Config) -> TopicSettings {
    TopicSettings {
        application: config.application_id.clone(),
        partitions: config.topics.partitions,
        replication: config.topics.replication_factor,
        inbox_hours: config.topics.inbox_retention_hours.into(),
        quarantine_hours: config.topics.quarantine_retention_hours.into(),
        attempts_hours: config.topics.attempts_retention_hours.into(),
        dead_letter_hours: config.topics.dead_letter_retention_hours.into(),
        dedup_horizon_hours: config.dedup.horizon_hours.into(),
        payload_bytes_max: config.ingest.payload_bytes_max,
    }
}

/// What every Kafka client is made with.
pub(crate) fn kafka(config: &Config) -> KafkaSettings {
    let properties = config.kafka.properties.iter();
    KafkaSettings {
        bootstrap_servers: config.kafka.bootstrap_servers.clone(),
        properties: properties.map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
        transaction_timeout_ms: config.runtime.transaction_timeout_ms,
        session_timeout_ms: config.runtime.session_timeout_ms,
        heartbeat_interval_ms: config.runtime.heartbeat_interval_ms,
        max_poll_interval_ms: config.runtime.max_poll_interval_ms,
        fetch_queue_kbytes: config.runtime.fetch_queue_kbytes.into(),
        producer_queue_kbytes: config.runtime.producer_queue_kbytes.into(),
        message_bytes_max: topics(config).message_bytes_max(),
        metadata_refresh_ms: config.ingest.metadata_refresh_ms,
    }
}

/// When stream threads commit.
pub(crate) fn commit(config: &Config) -> CommitSettings {
    CommitSettings {
        interval_ms: config.runtime.commit_interval_ms,
        bytes: config.runtime.commit_bytes,
        uncommitted_bytes_max: config.runtime.uncommitted_bytes_max,
        drain_ms: config.delivery.drain_ms,
        watchdog_ms: config.runtime.watchdog_ms,
    }
}

/// How much may wait for a subscription.
pub(crate) fn bounds(config: &Config) -> Bounds {
    Bounds {
        age_ms_max: u64::from(config.delivery.job_age_hours_max) * 3_600_000,
        jobs_max: config.delivery.backlog_jobs_max,
        bytes_max: config.delivery.backlog_bytes_max,
    }
}

/// When a subscription that fails is disabled.
pub(crate) fn auto_disable(config: &Config) -> AutoDisable {
    AutoDisable {
        enabled: config.autodisable.enabled,
        sustained_ms: u64::from(config.autodisable.sustained_hours) * MS_PER_HOUR,
        spread_ms: u64::from(config.autodisable.spread_hours) * MS_PER_HOUR,
    }
}

/// What delivery keeps of what has ended.
pub(crate) fn retention(config: &Config) -> Retention {
    let ms = |hours: u32| u64::from(hours) * MS_PER_HOUR;
    Retention {
        dead_letters_ms: ms(config.topics.dead_letter_retention_hours),
        dead_letters_per_subscription: config.delivery.dead_letters_per_subscription,
        attempts_ms: ms(config.topics.attempts_retention_hours),
    }
}

/// Which topics are followed.
pub(crate) fn follow(config: &Config) -> anyhow::Result<FollowSet> {
    let policy = FollowPolicy {
        follow_v1: config.ingest.follow_v1,
        follow_extra: config.ingest.follow_extra.clone(),
    };
    FollowSet::new(&policy).context("ingest.follow_extra")
}

/// How records are classified.
pub(crate) fn ingest(config: &Config) -> anyhow::Result<IngestPolicy> {
    Ok(IngestPolicy {
        default_tenant: config.ingest.default_tenant.clone(),
        payload_bytes_max: config.ingest.payload_bytes_max,
        follow: follow(config)?,
    })
}

/// Where the very first start reads from.
pub(crate) fn start_at(config: &Config) -> Option<UnixMillis> {
    match config.ingest.start {
        Start::Earliest => None,
        Start::At(time) => Some(UnixMillis(time.as_millisecond())),
    }
}

/// Where stores lie, and the memory that they share.
pub(crate) fn stores(config: &Config) -> anyhow::Result<DiskStores> {
    let limits = ResourceLimits {
        block_cache_bytes: config.runtime.block_cache_bytes,
        write_buffers_bytes: config.runtime.memtable_bytes,
        ..ResourceLimits::default()
    };
    Ok(DiskStores {
        application: config.application_id.clone(),
        partitions: config.topics.partitions,
        state_dir: config.state_dir.clone(),
        resources: SharedResources::new(&limits)?,
    })
}

/// Bounds of the index of the producers' dead letters.
pub(crate) fn dlq(config: &Config) -> DlqSettings {
    DlqSettings {
        entries_max: config.dlq.index_entries_max,
        retention_ms: u64::from(config.dlq.index_retention_hours) * 3_600_000,
    }
}

/// What destinations may be, and how they are called.
pub(crate) fn sinks(config: &Config) -> SinkSettings {
    SinkSettings {
        addresses: AddressPolicy {
            allow_private: config.sinks.allow_private,
            allow: config.sinks.allow_cidrs.clone(),
        },
        webhook: WebhookSettings {
            timeout_ms: config.webhook.timeout_ms,
            connect_timeout_ms: config.webhook.connect_timeout_ms,
            payload_bytes_max: config.webhook.payload_bytes_max,
            connections_per_destination_max: config.webhook.connections_per_destination,
            pool_idle_ms: config.webhook.idle_ms,
            ca_file: config.webhook.ca_file.clone(),
            ..WebhookSettings::default()
        },
        aws: AwsSettings {
            timeout_ms: config.aws.timeout_ms,
            connect_timeout_ms: config.aws.connect_timeout_ms,
            linger_ms: config.aws.linger_ms,
            pool_idle_ms: config.aws.idle_ms,
            ca_file: config.aws.ca_file.clone(),
            sts_endpoint: config.aws.sts_endpoint.clone(),
            ambient: config.aws.ambient.clone(),
            sqs_message_bytes_max: config.aws.sqs_message_bytes_max,
            eventbridge_entry_bytes_max: config.aws.eventbridge_entry_bytes_max,
            ..AwsSettings::default()
        },
        rabbitmq: RabbitMqSettings {
            timeout_ms: config.rabbitmq.timeout_ms,
            connect_timeout_ms: config.rabbitmq.connect_timeout_ms,
            heartbeat_s: config.rabbitmq.heartbeat_s,
            idle_ms: config.rabbitmq.idle_ms,
            payload_bytes_max: config.rabbitmq.payload_bytes_max,
            connections_per_host_max: config.rabbitmq.connections_per_host,
            ..RabbitMqSettings::default()
        },
    }
}

/// After how many hours retention has removed the last copy of an event.
pub(crate) fn last_copy_hours(config: &Config) -> u64 {
    let topics = &config.topics;
    let hours = [
        topics.inbox_retention_hours,
        topics.attempts_retention_hours,
        topics.quarantine_retention_hours,
    ];
    hours.into_iter().max().unwrap_or_default().into()
}

/// What verifies JSON web tokens, where there are keys for them.
pub(crate) fn jwt(config: &Config) -> anyhow::Result<Option<Jwt>> {
    let own = &config.jwt;
    if own.keys_file.is_none() && own.jwks_url.is_empty() {
        return Ok(None);
    }
    let keys = own.keys_file.as_ref().map(std::fs::read_to_string).transpose();
    let url = (!own.jwks_url.is_empty()).then(|| jwks_url(&own.jwks_url)).transpose()?;
    let settings = JwtSettings {
        algorithms: own.algorithms.clone(),
        keys: keys.context("jwt.keys_file")?,
        jwks_url: url,
        refresh: Duration::from_millis(own.jwks_refresh_ms),
        issuer: (!own.issuer.is_empty()).then(|| own.issuer.clone()),
        audiences: own.audiences.clone(),
        leeway_ms: own.leeway_ms,
        tenant_claim: own.tenant_claim.clone(),
        scope_claim: own.scope_claim.clone(),
        admin_scope: own.admin_scope.clone(),
    };
    Ok(Some(Jwt::new(settings, Arc::new(SystemClock))?))
}

/// `https`, or this machine: whoever can change the document on its way names any caller.
fn jwks_url(text: &str) -> anyhow::Result<Url> {
    let url = Url::parse(text).context("jwt.jwks_url")?;
    let own = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    anyhow::ensure!(url.scheme() == "https" || own, "jwt.jwks_url: must be https");
    Ok(url)
}

/// The way to the other instances, where a key is configured.
pub(crate) fn cluster(config: &Config, instance: &str) -> anyhow::Result<Option<Cluster>> {
    let Some(secret) = config.cluster.secret().map_err(anyhow::Error::msg).context("cluster")?
    else {
        return Ok(None);
    };
    let key = secret.expose_secret().as_bytes().to_vec().into();
    Ok(Some(Cluster::new(key, &config.cluster.hosts, instance.to_owned()).context("cluster")?))
}

/// How often a tenant may read pull subscriptions.
pub(crate) fn read_rate(config: &Config) -> ReadRate {
    ReadRate { per_second: config.pull.reads_per_second, burst: config.pull.reads_burst }
}

/// The static tokens.
pub(crate) fn tokens(config: &Config) -> anyhow::Result<Vec<TokenConfig>> {
    let convert = |token: &crate::config::Token| -> anyhow::Result<TokenConfig> {
        let digest = token.digest().map_err(anyhow::Error::msg)?;
        let tenant = token.tenant().map_err(anyhow::Error::msg)?;
        let role = if tenant.is_some() { TokenRole::Tenant } else { TokenRole::Operator };
        let sha256 = hex::encode(&digest);
        Ok(TokenConfig { name: token.name.clone(), role, tenant, sha256 })
    };
    config.api.tokens.iter().map(convert).collect()
}
