//! Starts the stream threads of the roles that this instance has, each with its processor and what
//! carries out its actions.

use std::sync::Arc;
use std::time::Duration;

use streaming_hub_model::ports::Deliveries;
use streaming_hub_model::registry::Limits;
use streaming_hub_topology::calls::Calls;
use streaming_hub_topology::deliveries::DeliveryTasks;
use streaming_hub_topology::dispatcher::Dispatcher;
use streaming_hub_topology::processors::delivery::gates::GateSettings;
use streaming_hub_topology::processors::delivery::slots::Slots;
use streaming_hub_topology::processors::delivery::{Delivery, DeliverySettings, Message};
use streaming_hub_topology::processors::ingest::{Ingest, IngestSettings, Notice};
use streaming_hub_topology::processors::matching::{Match, MatchSettings};
use streaming_hub_topology::processors::pull::{Pull, PullSettings, Read};
use streaming_hub_topology::processors::registry::Registry;
use streaming_hub_topology::pull::{Desk, PullClient};
use streaming_hub_topology::runtime::mailbox::{Mailbox, Waker};
use streaming_hub_topology::runtime::processor::Processor;
use streaming_hub_topology::runtime::spec::SubTopology;
use streaming_hub_topology::runtime::thread::{
    AlwaysOpen, Factory, Gate, Parts as ThreadParts, Running, StreamThread,
};
use streaming_hub_topology::topics::Topic;
use streaming_hub_topology::topology;
use tokio::runtime::Handle;

use crate::config::{Config, Role};
use crate::hub::Parts;
use crate::settings;

const MS_PER_HOUR: i64 = 3_600_000;

/// What runs, and the ways to its tasks.
pub(crate) struct Started {
    pub(crate) running: Vec<Running>,
    /// The way to the delivery tasks, wherever they run.
    pub(crate) deliveries: Arc<dyn Deliveries>,
    /// The way to the pull tasks, wherever they run.
    pub(crate) pull: PullClient,
}

/// Starts them all. `pull_base` is what the pull topic's offsets begin above.
pub(crate) fn start(config: &Config, parts: &Parts, pull_base: u64) -> anyhow::Result<Started> {
    let mut running = Vec::new();
    let desk = Arc::new(Desk::default());
    let pull_mailbox = if config.roles.has(Role::Pull) {
        let (thread, mailbox) = pull(config, parts, (pull_base, &desk))?;
        running.push(thread);
        mailbox
    } else {
        // No task is ever here; calls find out where it is.
        Mailbox::new(Waker::default()).0
    };
    if config.roles.has(Role::Registry) {
        running.push(registry(config, parts)?);
    }
    let mailbox = if config.roles.has(Role::Delivery) {
        let (thread, mailbox) = delivery(config, parts)?;
        running.push(thread);
        mailbox
    } else {
        // No task runs here, so that nothing is ever sent.
        Mailbox::new(Waker::default()).0
    };
    if config.roles.has(Role::Match) {
        running.push(matching(config, parts)?);
    }
    if config.roles.has(Role::Ingest) {
        running.push(ingest(config, parts)?);
    }
    let shared = &parts.shared;
    let calls = Calls::new(
        ("pull", Topic::Pull.name(&shared.application).into()),
        shared.instance.clone(),
        pull_mailbox,
        (Arc::clone(&shared.status), Arc::clone(&parts.views.owners)),
    );
    let table = Arc::clone(&parts.views.table);
    let pull = PullClient::new(calls, desk, (table, config.topics.partitions));
    Ok(Started { running, deliveries: deliveries(parts, mailbox), pull })
}

fn pull(
    config: &Config,
    parts: &Parts,
    (base, desk): (u64, &Arc<Desk>),
) -> anyhow::Result<(Running, Mailbox<Read>)> {
    let settings = Arc::new(PullSettings {
        table: Arc::clone(&parts.views.table),
        desk: Arc::clone(desk),
        base,
        read_ms: config.pull.read_retention_ms,
        unread_ms: config.pull.unread_retention_ms,
        partitions: config.topics.partitions,
        metrics: Arc::clone(&parts.shared.metrics),
    });
    let factory: Factory<Pull> = Arc::new(move |p| Pull::new(Arc::clone(&settings), p));
    let gate = Arc::clone(&parts.views.table) as Arc<dyn Gate>;
    let thread = prepare(topology::pull(), factory, gate, parts);
    let mailbox = thread.mailbox();
    Ok((thread.start(Box::new(|_, never| match never {}))?, mailbox))
}

fn deliveries(parts: &Parts, mailbox: Mailbox<Message>) -> Arc<dyn Deliveries> {
    let shared = &parts.shared;
    let (spec, topics) = (topology::delivery(), &shared.topics);
    let source: Arc<str> = Topic::Deliveries.name(&shared.application).into();
    let views = (Arc::clone(&shared.status), Arc::clone(&parts.views.owners));
    let calls = Calls::new((spec.name, source), shared.instance.clone(), mailbox, views);
    Arc::new(DeliveryTasks::new(calls, topics.partitions.unsigned_abs()))
}

fn prepare<P: Processor>(
    spec: SubTopology,
    factory: Factory<P>,
    gate: Arc<dyn Gate>,
    parts: &Parts,
) -> StreamThread<P> {
    let own = ThreadParts {
        spec,
        factory,
        shared: Arc::clone(&parts.shared),
        gate,
        stop: parts.stop.clone(),
    };
    StreamThread::new(own, parts.outside.clone())
}

fn ingest(config: &Config, parts: &Parts) -> anyhow::Result<Running> {
    let settings = Arc::new(IngestSettings {
        policy: settings::ingest(config)?,
        partitions: config.topics.partitions,
        message_bytes_max: parts.shared.topics.message_bytes_max(),
        salting: Arc::clone(&parts.views.salting),
        metrics: Arc::clone(&parts.shared.metrics),
    });
    let spec = topology::ingest(settings.policy.follow.clone());
    let factory: Factory<Ingest> = Arc::new(move |_| Ingest::new(Arc::clone(&settings)));
    // Salts are among what the table's gate waits for.
    let gate = Arc::clone(&parts.views.table) as Arc<dyn Gate>;
    let thread = prepare(spec, factory, gate, parts);
    Ok(thread.start(Box::new(|address, notice| match notice {
        Notice::TenantMissing => tracing::warn!(
            topic = %address.task.topic,
            "events without ce-tenantid are quarantined (missing_tenant); in a single-tenant \
             deployment set ingest.default_tenant"
        ),
    }))?)
}

fn matching(config: &Config, parts: &Parts) -> anyhow::Result<Running> {
    let settings = Arc::new(MatchSettings {
        table: Arc::clone(&parts.views.table),
        retry_schedule: config.delivery.retry_schedule_ms.clone(),
        horizon_ms: i64::from(config.dedup.horizon_hours) * MS_PER_HOUR,
        partitions: config.topics.partitions,
        packed_bytes_max: parts.shared.topics.value_bytes_max(),
        metrics: Arc::clone(&parts.shared.metrics),
    });
    let factory: Factory<Match> = Arc::new(move |p| Match::new(Arc::clone(&settings), p));
    let gate = Arc::clone(&parts.views.table) as Arc<dyn Gate>;
    let thread = prepare(topology::matching(), factory, gate, parts);
    Ok(thread.start(Box::new(|_, never| match never {}))?)
}

fn delivery(config: &Config, parts: &Parts) -> anyhow::Result<(Running, Mailbox<Message>)> {
    let sink = parts.sink.clone().ok_or_else(|| anyhow::anyhow!("delivery without sinks"))?;
    let (attempts, bytes) =
        (config.delivery.attempts_in_flight, config.delivery.attempt_bytes_in_flight);
    let settings = Arc::new(DeliverySettings {
        table: Arc::clone(&parts.views.table),
        slots: Slots::new(attempts, bytes),
        entropy: Arc::clone(&parts.shared.entropy),
        gates: GateSettings {
            breaker: config.breaker.clone(),
            throttle_ms_max: config.delivery.throttle_max_ms,
            key: Arc::new(config.encryption.keyring()?.destination_key()?),
            holds: Arc::clone(&parts.views.holds),
            destinations: Arc::clone(&parts.views.destinations),
        },
        bounds: settings::bounds(config),
        retry_schedule: config.delivery.retry_schedule_ms.clone(),
        partitions: config.topics.partitions,
        lane: Arc::default(),
        auto_disable: settings::auto_disable(config),
        retention: settings::retention(config),
        metrics: Arc::clone(&parts.shared.metrics),
    });
    let factory: Factory<Delivery> = Arc::new(move |p| Delivery::new(Arc::clone(&settings), p));
    let gate = Arc::clone(&parts.views.table) as Arc<dyn Gate>;
    let thread = prepare(topology::delivery(), factory, gate, parts);
    let metrics = Arc::clone(&parts.shared.metrics);
    let lease = Duration::from_millis(config.delivery.lease_ms);
    let mailbox = thread.mailbox();
    let outside = (mailbox.clone(), metrics);
    let dispatcher = Dispatcher::new(Handle::current(), sink, outside, lease);
    let act = Box::new(move |address, order| dispatcher.dispatch(address, order));
    Ok((thread.start(act)?, mailbox))
}

fn registry(config: &Config, parts: &Parts) -> anyhow::Result<Running> {
    let per_tenant = config.api.subscriptions_per_tenant;
    let limits = Limits { subscriptions_per_tenant: u32::try_from(per_tenant).unwrap_or(u32::MAX) };
    let metrics = Arc::clone(&parts.shared.metrics);
    let factory: Factory<Registry> = Arc::new(move |_| Registry::new(limits, Arc::clone(&metrics)));
    let thread = prepare(topology::registry(), factory, Arc::new(AlwaysOpen), parts);
    Ok(thread.start(Box::new(|_, never| match never {}))?)
}
