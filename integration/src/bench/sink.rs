//! `make bench SINK=rabbitmq|sqs|eventbridge`: deliveries a second to a destination of this kind,
//! of jobs that come faster than that, by an instance that only delivers; what it costs that
//! instance; its connections. Beside it, in the same run, what a bare client gets out of the same
//! server with nothing else to do ([`bare`]): the emulator's is a ceiling that no hub can exceed.

mod bare;

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::deliveries::as_f64;
use super::options::{Options, SinkKind};
use super::report::Report;
use super::stage::{self, READY, Stage};
use crate::broker::Broker;
use crate::hub::Hub;
use crate::sinks::{Aws, RabbitMq, subscribe};
use crate::{say, wait};

/// Queues of a broker: one queue is one process there.
const QUEUES: usize = 4;
/// Attempts of one subscription at once, the most that there may be.
const IN_FLIGHT: usize = 64;
/// How long making all jobs, or delivering them, may take.
const LONG: Duration = Duration::from_secs(1_800);
/// Probes between two looks at what costs something to look at.
const SELDOM: usize = 8;
const DELIVERED: &str = "streaming_hub_attempts_total";
const DURATION: &str = "streaming_hub_attempt_seconds";

/// Names of the report: rate, the bare client's, CPU, time of an attempt, connections.
type Names = [&'static str; 5];

/// A kind of destination: its server, and a destination for each tenant.
enum Destinations {
    RabbitMq(RabbitMq),
    Sqs { aws: Aws, queues: Vec<String> },
    EventBridge(Aws),
}

impl Destinations {
    fn start(kind: SinkKind, tenants: usize) -> Result<Self> {
        Ok(match kind {
            SinkKind::RabbitMq => {
                let rabbitmq = RabbitMq::start()?;
                (0..QUEUES).try_for_each(|n| rabbitmq.bind(&queue(n), "#", &queue(n)))?;
                Self::RabbitMq(rabbitmq)
            }
            SinkKind::Sqs => {
                let aws = Aws::start()?;
                let queues = (0..tenants).map(|n| aws.make_queue(&queue(n)));
                Self::Sqs { queues: queues.collect::<Result<_>>()?, aws }
            }
            SinkKind::EventBridge => {
                let aws = Aws::start()?;
                for number in 0..tenants {
                    aws.call("AWSEvents.CreateEventBus", &json!({"Name": queue(number)}))?;
                }
                Self::EventBridge(aws)
            }
        })
    }

    /// The destination of the tenant of this number.
    fn sink(&self, number: usize) -> Value {
        match self {
            Self::RabbitMq(rabbitmq) => rabbitmq.sink(&queue(number % QUEUES), "{type}"),
            Self::Sqs { aws, queues } => aws.queue_sink(&queues[number]),
            Self::EventBridge(aws) => aws.bus_sink(&queue(number)),
        }
    }

    fn port(&self) -> u16 {
        match self {
            Self::RabbitMq(rabbitmq) => rabbitmq.port(),
            Self::Sqs { aws, .. } | Self::EventBridge(aws) => aws.port(),
        }
    }

    /// Messages a second of a bare client.
    fn bare(&self, count: usize, payload: usize) -> Result<f64> {
        match self {
            Self::RabbitMq(rabbitmq) => bare::rabbitmq(rabbitmq, count, payload),
            Self::Sqs { aws, .. } => {
                let url = aws.make_queue("bare")?;
                bare::aws(aws, "AmazonSQS.SendMessageBatch", count, &bare::messages(&url, payload))
            }
            Self::EventBridge(aws) => {
                aws.call("AWSEvents.CreateEventBus", &json!({"Name": "bare"}))?;
                bare::aws(aws, "AWSEvents.PutEvents", count, &bare::entries("bare", payload))
            }
        }
    }
}

fn queue(number: usize) -> String {
    format!("bench-{number}")
}

fn names(kind: SinkKind) -> Names {
    match kind {
        SinkKind::RabbitMq => [
            "rabbitmq.rate",
            "rabbitmq.bare_rate",
            "rabbitmq.cpu_per_100k_s",
            "rabbitmq.attempt_mean_ms",
            "rabbitmq.connections",
        ],
        SinkKind::Sqs => [
            "sqs.rate",
            "sqs.bare_rate",
            "sqs.cpu_per_100k_s",
            "sqs.attempt_mean_ms",
            "sqs.connections",
        ],
        SinkKind::EventBridge => [
            "eventbridge.rate",
            "eventbridge.bare_rate",
            "eventbridge.cpu_per_100k_s",
            "eventbridge.attempt_mean_ms",
            "eventbridge.connections",
        ],
    }
}

/// Tenants of each kind: connections to a broker are a tenant's own; messages of the services of
/// AWS share a request with those of the same destination, and a few destinations fill the slots.
fn tenants(kind: SinkKind) -> usize {
    if kind == SinkKind::RabbitMq { 16 } else { 4 }
}

/// Deliveries of each kind: the emulator takes some hundreds a second.
fn jobs(kind: SinkKind, options: &Options) -> usize {
    if kind == SinkKind::RabbitMq { options.deliveries } else { options.deliveries.div_ceil(10) }
}

/// Measures the kinds that were named, each on brokers of its own.
///
/// # Errors
/// When a delivery is missing in the end, or a server does not do its part.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    options.sinks.iter().try_for_each(|kind| measure(*kind, options, report))
}

fn measure(kind: SinkKind, options: &Options, report: &mut Report) -> Result<()> {
    let (jobs, tenants) = (jobs(kind, options), tenants(kind));
    say!("{kind:?}: starting Kafka and the destinations' server");
    let destinations = Destinations::start(kind, tenants)?;
    let mut stage = Stage::new(Broker::start()?, options, tenants)?;
    let mut maker = Hub::start(stage.config("a", &["ingest", "match", "registry", "api"])?)?;
    maker.wait_ready(READY)?;
    for (number, tenant) in stage.tenants.iter().enumerate() {
        let sink = destinations.sink(number);
        let body = json!({
            "name": "all", "event_types": ["*"], "sink": sink, "max_in_flight": IN_FLIGHT,
        });
        subscribe(&maker.api(tenant), &body)?;
    }
    say!("{kind:?}: a bare client");
    let bare = destinations.bare(jobs, options.payload_bytes)?;
    say!("{kind:?}: the hub, {jobs} jobs");
    let mut hub = Hub::start(stage.config("b", &["delivery", "api"])?)?;
    hub.wait_ready(READY)?;
    let shape = stage.without_duplicates();
    stage.load(jobs, &shape, |_| {})?;
    let seen = delivered(&mut hub, destinations.port(), jobs).with_context(|| hub.log_tail())?;
    let [rate, bare_rate, cpu, attempt, connections] = names(kind);
    report.add(rate, "deliveries a second, first to last", seen.rate, "/s");
    report.add(bare_rate, "a bare client on the same server", bare, "/s");
    let what = "CPU of the delivering instance for 100,000";
    report.add(cpu, what, seen.cpu_s * 1e5 / as_f64(jobs), "s");
    report.add(attempt, "an attempt, from its slot to its outcome, mean", seen.attempt_ms, "ms");
    report.add(connections, "connections, at the most", as_f64(seen.connections), "");
    Ok(())
}

/// What was seen of a run.
struct Run {
    rate: f64,
    cpu_s: f64,
    attempt_ms: f64,
    connections: usize,
}

/// Waits for all deliveries.
fn delivered(hub: &mut Hub, port: u16, jobs: usize) -> Result<Run> {
    let (mut first, mut most, mut probes) = (None, 0, 0_usize);
    wait::until("all deliveries", LONG, || {
        stage::runs(hub)?;
        most = most.max(connections(port)?);
        probes += 1;
        if first.is_some() && !probes.is_multiple_of(SELDOM) {
            return Ok(Err("not looked at".to_owned()));
        }
        let Ok(metrics) = hub.metrics() else { return Ok(Err("no metrics".to_owned())) };
        let count = usize::try_from(metrics.count_with(DELIVERED, "outcome", "delivered"))?;
        let (now, cpu) = (wait::instant(), hub.cpu_seconds()?);
        if count == 0 {
            return Ok(Err("none yet".to_owned()));
        }
        let (began, before, cpu_before) = *first.get_or_insert((now, count, cpu));
        if count < jobs {
            return Ok(Err(format!("{count} of {jobs}")));
        }
        let rate = as_f64(count - before) / now.duration_since(began).as_secs_f64();
        let [sum, count] = ["sum", "count"].map(|of| metrics.sum(&format!("{DURATION}_{of}")));
        let attempt_ms = sum / count * 1e3;
        Ok(Ok(Run { rate, cpu_s: cpu - cpu_before, attempt_ms, connections: most }))
    })
}

/// Connections of this machine to a port of it.
fn connections(port: u16) -> Result<usize> {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/self/net/tcp").context("/proc/self/net/tcp")?;
    let wanted = format!(":{port:04X}");
    let is_to = |line: &&str| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        fields.next().is_some_and(|remote| remote.ends_with(&wanted))
            && fields.next() == Some(ESTABLISHED)
    };
    Ok(table.lines().filter(is_to).count())
}
