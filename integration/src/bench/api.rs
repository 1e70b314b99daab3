//! The API: what a write costs on an idle hub, how many there are in a second, and what a large
//! table of subscriptions does to a start, to memory and to the match of a fact. A write is two
//! commits at the least: the change, and the registry's decision.

mod matching;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use serde_json::{Value, json};

use super::deliveries::{as_f64, mib};
use super::floor;
use super::options::Options;
use super::pace::Pace;
use super::percentiles::Percentiles;
use super::report::Report;
use super::stage::{ALL_ROLES, READY, Stage};
use crate::api::Api;
use crate::broker::Broker;
use crate::hub::Hub;
use crate::{say, wait};

/// Writes one after the other, and how many a second.
const IDLE: (usize, u32) = (100, 10);
/// How long writers write at once, each for its own tenant.
const SUSTAINED: Duration = Duration::from_secs(10);
/// Rows of the large table, a hundred of each tenant.
const ROWS: usize = 100_000;
/// How long the client may take for them.
const FLUSH: Duration = Duration::from_secs(60);

/// Tenants with a subscription of their own, and writers.
const TENANTS: usize = 64;

/// Measures on a broker of its own.
///
/// # Errors
/// A write that is refused, or a hub that does not come back.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    say!("starting a broker");
    let broker = Broker::start()?;
    floor::run(&broker, options.payload_bytes, report)?;
    let mut stage = Stage::new(broker, options, TENANTS)?;
    let mut hub = Hub::start(stage.config("a", &ALL_ROLES)?)?;
    hub.wait_ready(READY)?;
    stage.subscribe(&hub, 1)?;
    let measured = writes(&stage, &hub, report)
        .and_then(|()| table(&stage, &mut hub, report))
        .and_then(|()| matching::run(&mut stage, &mut hub, options.facts, report));
    measured.with_context(|| hub.log_tail())
}

fn writes(stage: &Stage, hub: &Hub, report: &mut Report) -> Result<()> {
    say!("api: {} writes at {} a second", IDLE.0, IDLE.1);
    let own = stage.tenants.iter().map(|tenant| {
        let api = hub.api(tenant);
        let id = api.list()?.first().and_then(|row| row["id"].as_str().map(str::to_owned));
        Ok((api, id.context("a tenant without a subscription")?))
    });
    let own = own.collect::<Result<Vec<(Api, String)>>>()?;
    let (mut pace, mut took) = (Pace::per_second(IDLE.1), Vec::new());
    for number in 0..IDLE.0 {
        pace.wait();
        let began = wait::instant();
        write(&own[0], number)?;
        took.push(began.elapsed());
    }
    let took = Percentiles::of(took);
    report.add("api.write_p50_ms", "a PATCH on an idle hub, p50", took.p50_ms(), "ms");
    let what = "two commits of the floor, 20 a second, p50";
    floor::add_apart(report, "api.two_commits_apart_p50_ms", what, 2.0);
    say!("api: {} writers at once for {SUSTAINED:?}", own.len());
    let what = "writes a second, one writer for each of the tenants";
    report.add("api.writes_per_s", what, sustained(&own)?, "/s");
    Ok(())
}

fn write((api, id): &(Api, String), number: usize) -> Result<()> {
    let body = json!({ "name": format!("name {number}") });
    let answer = api.call("PATCH", &format!("/v1/subscriptions/{id}"), Some(&body))?;
    ensure!(answer.status == 200, "a PATCH: {} {}", answer.status, answer.body);
    Ok(())
}

/// Writes a second with a writer for each tenant.
fn sustained(own: &[(Api, String)]) -> Result<f64> {
    let (count, began) = (AtomicUsize::new(0), wait::instant());
    let writer = |own: &(Api, String)| {
        while began.elapsed() < SUSTAINED {
            write(own, count.fetch_add(1, Ordering::Relaxed))?;
        }
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = own.iter().map(|own| scope.spawn(move || writer(own))).collect();
        writers.into_iter().try_for_each(|writer| match writer.join() {
            Ok(ended) => ended,
            Err(_) => anyhow::bail!("a writer panicked"),
        })
    })?;
    Ok(as_f64(count.load(Ordering::Relaxed)) / began.elapsed().as_secs_f64())
}

/// Starts without and with many subscriptions.
fn table(stage: &Stage, hub: &mut Hub, report: &mut Report) -> Result<()> {
    let (empty_s, empty) = started(hub)?;
    say!("api: writing {ROWS} subscriptions");
    hub.terminate(READY)?;
    fill(stage, &format!("{}-subscriptions", hub.config().application()))?;
    let (full_s, full) = started(hub)?;
    let rows = hub.metrics()?.count("streaming_hub_subscriptions_count");
    ensure!(rows >= ROWS as u64, "the table has {rows} rows");
    report.add("api.start_s", "start to ready, 64 subscriptions", empty_s, "s");
    report.add("api.start_100k_s", "the same with 100,000 more", full_s, "s");
    let more = mib(full.saturating_sub(empty));
    report.add("api.table_100k_mib", "memory that they take, stores included", more, "MiB");
    Ok(())
}

/// Starts the hub anew: seconds until it is ready, and its memory then, bytes.
fn started(hub: &mut Hub) -> Result<(f64, u64)> {
    if hub.pid().is_some() {
        hub.terminate(READY)?;
    }
    let began = wait::instant();
    hub.restart()?;
    hub.wait_ready(READY)?;
    Ok((began.elapsed().as_secs_f64(), hub.rss_bytes()?.0))
}

fn fill(stage: &Stage, topic: &str) -> Result<()> {
    let producer = Rows::new(stage, topic)?;
    for number in 0..ROWS {
        producer.write(number, Some(&row(number).to_string()))?;
    }
    producer.finish()
}

/// Writes rows of the table where the registry writes them.
struct Rows<'a> {
    producer: BaseProducer,
    topic: &'a str,
}

impl<'a> Rows<'a> {
    fn new(stage: &Stage, topic: &'a str) -> Result<Self> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", stage.broker.bootstrap())
            .set("enable.idempotence", "true")
            .set("linger.ms", "20")
            .set("queue.buffering.max.messages", (2 * ROWS).to_string())
            .create()?;
        Ok(Self { producer, topic })
    }

    /// A row, or its end.
    fn write(&self, number: usize, value: Option<&str>) -> Result<()> {
        let id = id_of(number);
        let mut record = BaseRecord::to(self.topic).key(&id);
        record.payload = value;
        self.producer.send(record).map_err(|(error, _)| error)?;
        self.producer.poll(Duration::ZERO);
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(self.producer.flush(FLUSH)?)
    }
}

fn id_of(number: usize) -> String {
    format!("0190a000-0000-7000-8000-{number:012x}")
}

/// Whose a row is: a hundred each.
fn tenant_of(number: usize) -> String {
    format!("many-{}", number / 100)
}

/// A subscription as the hub stores it.
fn row(number: usize) -> Value {
    json!({
        "id": id_of(number), "tenant": tenant_of(number), "name": "one of many",
        "event_types": [format!("account.event-{}", number % 100)], "schema_major": 1,
        "sink_generation": 1, "enabled": true, "verification_state": "active",
        "created_at": 1, "updated_at": 1, "version": 1,
        "sink": {"type": "webhook", "url": "https://example.com/hook", "secrets": []},
    })
}
