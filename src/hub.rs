//! The composition root: makes every part of an instance, starts the roles that it has, watches
//! them, and stops them in order: not ready first, then drained, committed and gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use prometheus::Registry as Metrics;
use streaming_hub_api::{Api, Buckets, Limits, Operations, OperatorPorts, Replays, Tokens};
use streaming_hub_model::ports::{Clock, Deliveries, Entropy, Readiness};
use streaming_hub_model::secret::Keyring;
use streaming_hub_model::sink::Sink;
use streaming_hub_sinks::Sinks;
use streaming_hub_topology::changes::{ChangeClient, Replies, TableReader};
use streaming_hub_topology::clock::{SystemClock, SystemEntropy};
use streaming_hub_topology::destinations::{Destinations, NamedDestinations};
use streaming_hub_topology::follower::{Follower, Views};
use streaming_hub_topology::holds::{HoldClient, Holds};
use streaming_hub_topology::instances::Owners;
use streaming_hub_topology::kafka::admin::{Administrator, Consumed};
use streaming_hub_topology::kafka::statistics;
use streaming_hub_topology::metrics::Metrics as TopologyMetrics;
use streaming_hub_topology::overview::HubOverview;
use streaming_hub_topology::pull::PullClient;
use streaming_hub_topology::reader::StoredReader;
use streaming_hub_topology::runtime::status::Status;
use streaming_hub_topology::runtime::thread::{Gate, Outside, Running, Stop};
use streaming_hub_topology::runtime::watchdog::Watchdog;
use streaming_hub_topology::salting::Salting;
use streaming_hub_topology::shared::Shared;
use streaming_hub_topology::table::Table;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Config, Role};
use crate::instance::Instance;
use crate::threads::{self, Started};
use crate::{logging, observer, settings};

/// How often queues are trimmed below what was consumed.
const TRIM: Duration = Duration::from_secs(30);
/// How often stream threads are looked at.
const WATCH: Duration = Duration::from_millis(200);
/// How long open requests may take after the stop.
const REQUESTS_DRAIN: Duration = Duration::from_secs(5);
/// Exit code after a second signal.
const EXIT_NOW: i32 = 130;

/// Everything that the roles share.
pub(crate) struct Parts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) views: Views,
    pub(crate) sink: Option<Arc<dyn Sink>>,
    pub(crate) stop: Stop,
    pub(crate) outside: Outside,
}

/// Runs the hub until a signal or a failure ends it.
///
/// # Errors
/// What kept it from starting, or ended it.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("async")
        .enable_all()
        .build()?;
    runtime.block_on(start(config))
}

async fn start(config: &Config) -> anyhow::Result<()> {
    let clock = Arc::new(SystemClock);
    let instance =
        Instance::claim(config.instance_id.as_deref(), &config.state_dir, &*clock, &SystemEntropy)?;
    tracing::info!(instance = instance.id, version = env!("CARGO_PKG_VERSION"), "starting");
    let administrator = Administrator::new(settings::kafka(config), settings::topics(config))
        .context("kafka: no client can be made of these settings")?;
    administrator.ensure(config.topics.auto_create).await?;
    let pull_base = administrator.pull_base()?;
    let metrics = Metrics::new();
    statistics::register(&metrics)?;
    let shared = shared(config, &instance, &metrics)?;
    let views = Views {
        table: Arc::new(Table::new(config.topics.partitions, clock)),
        replies: Arc::new(Replies::default()),
        owners: Arc::new(Owners::default()),
        salting: Arc::new(Salting::default()),
        holds: Arc::new(Holds::default()),
        destinations: Arc::new(Destinations::default()),
    };
    let keyring = keyring(config)?;
    let sink = keyring.clone().map(|keyring| sinks(config, keyring)).transpose()?;
    let stop = Stop::default();
    let watchdog = Watchdog::new(Duration::from_millis(config.runtime.watchdog_ms));
    watch(&watchdog, &stop)?;
    let client_id = format!("{}-watermarks-{}", config.application_id, instance.id);
    let watermarks = Arc::new(shared.kafka.watermark_reader(&client_id).create()?);
    let owners = Arc::clone(&views.owners);
    let outside = Outside { watermarks, owners, watchdog };
    let parts = Parts { shared, views, sink, stop, outside };
    follow(&parts)?;
    let operator = OperatorPorts {
        producer_dlq: observer::start(config, &parts, &metrics)?,
        log: logging::filter(),
    };
    let Started { running, deliveries, pull } = threads::start(config, &parts, pull_base)?;
    let ready = Arc::new(Ready::new(&parts));
    let ports = (keyring, Tasks { deliveries, pull }, operator);
    let (drained, server) = serve(config, &parts, ports, (&ready, metrics)).await?;
    trim(administrator, &parts);
    let ended = supervise(&running, &parts.views.table).await;
    ready.stopping.store(true, Ordering::Relaxed);
    let stopped = finish(&parts.stop, running).await;
    drop(drained);
    server.await.context("the HTTP server")??;
    tracing::info!("stopped");
    ended.and(stopped)
}

fn shared(config: &Config, instance: &Instance, metrics: &Metrics) -> anyhow::Result<Arc<Shared>> {
    Ok(Arc::new(Shared {
        application: config.application_id.clone(),
        instance: instance.id.clone(),
        advertised_url: config.api.advertised_url.to_string(),
        kafka: settings::kafka(config),
        topics: settings::topics(config),
        start_at: settings::start_at(config),
        standby_replicas: config.runtime.num_standby_replicas,
        commit: settings::commit(config),
        stores: Arc::new(settings::stores(config)?),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        status: Arc::new(Status::default()),
        metrics: Arc::new(TopologyMetrics::new(metrics)?),
        consumed: Consumed::default(),
        incarnations: AtomicU64::new(0),
    }))
}

fn keyring(config: &Config) -> anyhow::Result<Option<Arc<Keyring>>> {
    let needed = config.roles.has(Role::Api) || config.roles.has(Role::Delivery);
    let keyring = needed.then(|| config.encryption.keyring()).transpose();
    Ok(keyring.context("encryption")?.map(Arc::new))
}

fn sinks(config: &Config, keyring: Arc<Keyring>) -> anyhow::Result<Arc<dyn Sink>> {
    Ok(Arc::new(Sinks::new(settings::sinks(config), keyring, Arc::new(SystemClock))?))
}

/// Starts the thread that follows the published topics.
fn follow(parts: &Parts) -> anyhow::Result<()> {
    let follower = Follower::new(
        Arc::clone(&parts.shared),
        Arc::clone(&parts.outside.watermarks),
        &parts.views,
        parts.stop.clone(),
    );
    std::thread::Builder::new().name("follower".into()).spawn(move || follower.run())?;
    Ok(())
}

fn watch(watchdog: &Arc<Watchdog>, stop: &Stop) -> anyhow::Result<()> {
    let (watchdog, stop) = (Arc::clone(watchdog), stop.clone());
    std::thread::Builder::new()
        .name("watchdog".into())
        .spawn(move || watchdog.watch(|| stop.is_requested()))?;
    Ok(())
}

/// Deletes from queues what their readers have committed (design 10).
fn trim(administrator: Administrator, parts: &Parts) {
    let shared = Arc::clone(&parts.shared);
    Handle::current().spawn(async move {
        loop {
            tokio::time::sleep(TRIM).await;
            if let Err(error) = administrator.trim(&shared.consumed.take()).await {
                tracing::warn!(%error, "queues could not be trimmed; it is tried again");
            }
        }
    });
}

/// What readiness asks.
struct Ready {
    status: Arc<Status>,
    table: Arc<Table>,
    stopping: AtomicBool,
}

impl Ready {
    fn new(parts: &Parts) -> Self {
        Self {
            status: Arc::clone(&parts.shared.status),
            table: Arc::clone(&parts.views.table),
            stopping: AtomicBool::new(false),
        }
    }
}

impl Readiness for Ready {
    fn missing(&self) -> Vec<String> {
        let mut missing = self.status.missing();
        if !self.table.is_open() {
            missing.push("the subscriptions table has not caught up".to_owned());
        }
        if self.stopping.load(Ordering::Relaxed) {
            missing.push("the instance is stopping".to_owned());
        }
        missing
    }
}

/// The ways to tasks that are asked from outside.
struct Tasks {
    deliveries: Arc<dyn Deliveries>,
    pull: PullClient,
}

type Server = tokio::task::JoinHandle<std::io::Result<()>>;

/// Starts the HTTP server; it drains once the sender is dropped.
async fn serve(
    config: &Config,
    parts: &Parts,
    (keyring, tasks, operator): (Option<Arc<Keyring>>, Tasks, OperatorPorts),
    (ready, metrics): (&Arc<Ready>, Metrics),
) -> anyhow::Result<(tokio::sync::oneshot::Sender<()>, Server)> {
    let listener = TcpListener::bind(config.api.listen)
        .await
        .with_context(|| format!("api.listen: cannot listen on {}", config.api.listen))?;
    let operations = Arc::new(Operations {
        readiness: Arc::clone(ready) as Arc<dyn Readiness>,
        metrics: streaming_hub_api::Metrics::new(metrics)?,
        clock: Arc::new(SystemClock) as Arc<dyn Clock>,
        entropy: Arc::new(SystemEntropy) as Arc<dyn Entropy>,
        request_timeout: Duration::from_millis(config.api.request_timeout_ms),
    });
    let router = match (&parts.sink, keyring) {
        (Some(sink), Some(keyring)) if config.roles.has(Role::Api) => {
            let (shared, table) = (Arc::clone(&parts.shared), Arc::clone(&parts.views.table));
            let replies = Arc::clone(&parts.views.replies);
            let changes = ChangeClient::new(Arc::clone(&shared), Arc::clone(&table), replies)?;
            streaming_hub_api::router(Api {
                table: Arc::new(TableReader {
                    table,
                    watermarks: Arc::clone(&parts.outside.watermarks),
                    topics: shared.topics.clone(),
                }),
                changes: Arc::new(changes),
                deliveries: tasks.deliveries,
                sink: Arc::clone(sink),
                operations,
                operator,
                tokens: Tokens::new(&settings::tokens(config)?)?,
                destinations: destinations(parts, &keyring)?,
                holds: Arc::new(HoldClient::new(&shared, Arc::clone(&parts.views.holds))?),
                stored: Arc::new(StoredReader::new(
                    Arc::clone(&shared),
                    Arc::clone(&parts.views.salting),
                )),
                overview: Arc::new(HubOverview::new(
                    Arc::clone(&shared),
                    Arc::clone(&parts.views.owners),
                    settings::follow(config)?,
                )),
                replays: Replays::default(),
                retention_hours: settings::last_copy_hours(config),
                jwt: jwt(config)?,
                cluster: settings::cluster(config, &parts.shared.instance)?,
                pull: Arc::new(tasks.pull),
                reads: Buckets::reads(settings::read_rate(config)),
                requests: Buckets::requests(settings::request_rate(config)),
                keyring,
                limits: Limits {
                    event_types_max: config.api.event_types_per_subscription,
                    ..Limits::default()
                },
            })
        }
        _ => streaming_hub_api::operations_router(operations),
    };
    tracing::info!(address = %config.api.listen, "listening");
    let (drain, drained) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async move {
        let _ = drained.await;
    };
    let serving = streaming_hub_api::serve(listener, router, shutdown, REQUESTS_DRAIN);
    Ok((drain, Handle::current().spawn(serving)))
}

fn destinations(parts: &Parts, keyring: &Keyring) -> anyhow::Result<Arc<NamedDestinations>> {
    let known = Arc::clone(&parts.views.destinations);
    Ok(Arc::new(NamedDestinations { key: keyring.destination_key()?, known }))
}

/// What verifies JSON web tokens; its keys are fetched from now on.
fn jwt(config: &Config) -> anyhow::Result<Option<Arc<streaming_hub_api::Jwt>>> {
    let jwt = settings::jwt(config)?.map(Arc::new);
    if let Some(jwt) = &jwt {
        Handle::current().spawn(Arc::clone(jwt).refresh());
    }
    Ok(jwt)
}

/// Waits for a signal, for a stream thread that ends by itself, or for a table that only a new
/// start mends.
async fn supervise(running: &[Running], table: &Table) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = tokio::time::sleep(WATCH) => {
                if let Some(ended) = running.iter().find(|thread| thread.is_finished()) {
                    bail!("the stream thread of {} ended", ended.name());
                }
                if table.is_outdated() {
                    bail!(
                        "the subscriptions could not be read for days, and deletions of that time \
                         may be compacted away: start the instance again, it reads them whole"
                    );
                }
            }
        }
    }
    tracing::info!("stopping; a second signal stops at once");
    Handle::current().spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("stopped at once");
        std::process::exit(EXIT_NOW);
    });
    Ok(())
}

/// Stops the stream threads and waits for them.
async fn finish(stop: &Stop, running: Vec<Running>) -> anyhow::Result<()> {
    stop.request();
    for thread in &running {
        thread.wake();
    }
    let joined = tokio::task::spawn_blocking(move || {
        let ended: Vec<_> = running.into_iter().map(Running::join).collect();
        ended.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    });
    joined.await.context("stopping the stream threads")?.map_err(Into::into)
}
