//! `make bench PULL=1`: what reading pull subscriptions costs. Each of [`TENANTS`] tenants has one,
//! and a consumer that reads pages of [`PAGE`] entries: first as fast as it gets them, then all
//! together at half of that rate. Before that, what a long poll sees on an idle hub, and what
//! unread entries cost.
//!
//! Every page that is counted moved its cursor: entries are read once.

mod page;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use self::page::Consumer;
use super::deliveries::{as_f64, mib};
use super::floor;
use super::machine;
use super::options::Options;
use super::pace::{self, Pace};
use super::percentiles::Percentiles;
use super::report::Report;
use super::stage::{self, READY, Stage};
use super::store::bytes_below;
use super::writer::Writer;
use crate::broker::Broker;
use crate::hub::Hub;
use crate::{say, wait};

/// What the hub does.
const ROLES: [&str; 5] = ["ingest", "match", "pull", "registry", "api"];
/// Tenants with a subscription and a consumer each.
const TENANTS: usize = 64;
/// Entries of a page.
const PAGE: usize = 100;
/// Of a subscription's pages, so many in a hundred are read as fast as they come.
const FLAT_OUT_PERCENT: usize = 60;
/// Facts to warm up, facts whose way is measured, and how many a second.
const POLLED: (usize, usize, u32) = (40, 200, 20);
/// How long the entries may take.
const LONG: Duration = Duration::from_secs(3_600);

/// A tenant and its subscription.
struct Log {
    tenant: String,
    id: String,
}

/// Measures on a broker of its own.
///
/// # Errors
/// A read that fails, or a hub that does not come back.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    say!("starting a broker");
    let broker = Broker::start()?;
    floor::run(&broker, options.payload_bytes, report)?;
    let mut stage = Stage::new(broker, options, TENANTS)?;
    // The limits are not what is measured.
    let limits = ["pull.reads", "api.requests"];
    let config = limits.iter().fold(stage.config("a", &ROLES)?, |config, limit| {
        config.set(&format!("{limit}_per_second"), 10_000).set(&format!("{limit}_burst"), 10_000)
    });
    let mut hub = Hub::start(config)?;
    hub.wait_ready(READY)?;
    let measured = measure(&mut stage, &mut hub, options.entries, report);
    measured.with_context(|| hub.log_tail())
}

fn measure(stage: &mut Stage, hub: &mut Hub, entries: usize, report: &mut Report) -> Result<()> {
    say!("creating {TENANTS} pull subscriptions");
    let created = stage.tenants.iter().map(|tenant| create(hub, tenant));
    let logs = created.collect::<Result<Vec<_>>>()?;
    polled(stage, hub, &logs[0], report)?;
    unread(stage, hub, &logs, entries, report)?;
    pages(hub, &logs, entries, report)
}

fn create(hub: &Hub, tenant: &str) -> Result<Log> {
    let body = json!({"name": "bench", "event_types": ["*"], "sink": {"type": "pull"}});
    let answer = hub.api(tenant).call("POST", "/v1/subscriptions", Some(&body))?;
    ensure!(answer.status == 201, "a subscription: {} {}", answer.status, answer.body);
    let id = answer.json()["id"].as_str().context("no id")?.to_owned();
    Ok(Log { tenant: tenant.to_owned(), id })
}

/// From producing a fact until a consumer that waits has it, one fact after the other.
fn polled(stage: &mut Stage, hub: &Hub, log: &Log, report: &mut Report) -> Result<()> {
    let (warm_up, measured, per_second) = POLLED;
    say!("pull: {measured} facts for a long poll, at most {per_second} a second");
    let all = std::mem::replace(&mut stage.shape.tenants, vec![log.tenant.clone()]);
    let facts = stage.unique_facts(warm_up + measured);
    stage.shape.tenants = all;
    let writer = Writer::prompt(stage.broker.bootstrap())?;
    let mut consumer = Consumer::connect(hub.address(), &log.tenant, &log.id)?;
    let (arrived, arrivals) = mpsc::channel();
    let (mut pace, mut took) = (Pace::per_second(per_second), Vec::new());
    std::thread::scope(|scope| {
        let count = facts.len();
        let polling = scope.spawn(move || -> Result<()> {
            let mut left = count;
            while left > 0 {
                let before = consumer.processed;
                consumer.read("&wait=20")?;
                if consumer.processed > before {
                    left -= 1;
                    arrived.send(wait::instant())?;
                }
            }
            Ok(())
        });
        for fact in &facts {
            pace.wait();
            let sent = wait::instant();
            writer.send(fact)?;
            writer.finish()?;
            match arrivals.recv_timeout(READY) {
                Ok(at) => took.push(at.saturating_duration_since(sent)),
                Err(_) => break,
            }
        }
        polling.join().unwrap_or_else(|_| bail!("the consumer panicked"))
    })?;
    report.add_percentiles(
        &Percentiles::of(took.split_off(warm_up)),
        &[
            ("pull.visible_p50_ms", "produce to a long poll's answer, p50", 500),
            ("pull.visible_p99_ms", "produce to a long poll's answer, p99", 990),
        ],
    );
    let what = "four commits of the floor, 20 a second, p50";
    floor::add_apart(report, "pull.four_commits_apart_p50_ms", what, 4.0);
    Ok(())
}

/// What entries that nobody reads cost: on disk, and in memory as they came and after a restart.
fn unread(
    stage: &mut Stage,
    hub: &mut Hub,
    logs: &[Log],
    entries: usize,
    report: &mut Report,
) -> Result<()> {
    say!("pull: {entries} entries");
    let shape = stage.without_duplicates();
    let began = wait::instant();
    stage.load(entries, &shape, |_| {})?;
    wait::until("all entries", LONG, || {
        stage::runs(hub)?;
        let backlog = logs.iter().map(|log| backlog(hub, log)).sum::<Result<u64>>()?;
        let there = backlog >= entries as u64;
        Ok(if there { Ok(()) } else { Err(format!("{backlog} of {entries}")) })
    })?;
    let rate = as_f64(entries) / began.elapsed().as_secs_f64();
    let (now, peak) = hub.rss_bytes()?;
    let disk = bytes_below(&hub.config().directory().join("state"))?;
    hub.terminate(READY)?;
    hub.restart()?;
    hub.wait_ready(LONG)?;
    let (restarted, _) = hub.rss_bytes()?;
    let mut add = |name, what, value, unit| report.add(name, what, value, unit);
    add("pull.unread", "unread entries", as_f64(entries), "");
    add("pull.intake_per_s", "entries a second, from their producer on", rate, "/s");
    add("pull.unread_rss_mib", "memory with them", mib(now), "MiB");
    add("pull.unread_peak_mib", "memory at its peak as they came", mib(peak), "MiB");
    add("pull.restarted_rss_mib", "memory after a restart with them", mib(restarted), "MiB");
    add("pull.disk_mib", "state directory", mib(disk), "MiB");
    Ok(())
}

/// How many entries of a subscription nobody has read.
fn backlog(hub: &Hub, log: &Log) -> Result<u64> {
    let shown = hub.api(&log.tenant).get(&log.id)?.context("a subscription is gone")?;
    // Nobody knows it while the task is not there.
    Ok(shown["pull"]["backlog"].as_u64().unwrap_or(0))
}

/// Pages as fast as they come, and all consumers together at half of that rate.
fn pages(hub: &Hub, logs: &[Log], entries: usize, report: &mut Report) -> Result<()> {
    let each = entries / logs.len() / PAGE;
    let fast = each * FLAT_OUT_PERCENT / 100;
    let connected = logs.iter().map(|log| Consumer::connect(hub.address(), &log.tenant, &log.id));
    let mut consumers = connected.collect::<Result<Vec<_>>>()?;
    say!("pull: {} pages as fast as they come", fast * consumers.len());
    let flat_out = read(hub, &mut consumers, fast, None)?;
    let half = flat_out.per_second / 2.0;
    say!("pull: {:.0} pages a second; now at half of that", flat_out.per_second);
    let step = Duration::from_secs_f64(as_f64(consumers.len()) / half);
    let steady = read(hub, &mut consumers, each - fast, Some(step))?;
    let mut add = |name, what, value, unit| report.add(name, what, value, unit);
    add("pull.pages_per_s", "pages of 100 entries a second, flat out", flat_out.per_second, "/s");
    add("pull.page_kib", "of which each has", flat_out.page_kib, "KiB");
    add("pull.pages_cpu", "processors that the hub used", flat_out.cpu, "");
    add("pull.pages_own_cpu", "processors that the consumers used", flat_out.own_cpu, "");
    add("pull.commits_per_s", "commits a second that they shared", flat_out.commits, "/s");
    add("pull.half_pages_per_s", "pages a second at half of that", steady.per_second, "/s");
    add("pull.half_cpu", "processors that the hub used", steady.cpu, "");
    report.add_percentiles(
        &flat_out.took,
        &[
            ("pull.flat_out_p50_ms", "a page, flat out, p50", 500),
            ("pull.flat_out_p99_ms", "a page, flat out, p99", 990),
        ],
    );
    report.add_percentiles(
        &steady.took,
        &[
            ("pull.half_p50_ms", "a page at half of that rate, p50", 500),
            ("pull.half_p99_ms", "a page at half of that rate, p99", 990),
        ],
    );
    Ok(())
}

/// What reading came to.
struct Read {
    per_second: f64,
    page_kib: f64,
    cpu: f64,
    own_cpu: f64,
    commits: f64,
    took: Percentiles,
}

/// Has each consumer read so many pages, one each `step` when it is given. A page that comes late
/// delays the next one's call, not its time: what waits is counted.
fn read(
    hub: &Hub,
    consumers: &mut [Consumer],
    pages: usize,
    step: Option<Duration>,
) -> Result<Read> {
    let (count, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let own = |consumer: &mut Consumer, first: Instant| {
        let mut took = Vec::with_capacity(pages);
        let mut due = first;
        for _ in 0..pages {
            if step.is_some() {
                pace::until(due);
            } else {
                due = wait::instant();
            }
            let read = consumer.read("&limit=100")?.len();
            took.push(wait::instant().saturating_duration_since(due));
            due += step.unwrap_or_default();
            count.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(read as u64, Ordering::Relaxed);
        }
        anyhow::Ok(took)
    };
    let (cpu, own_cpu, commits) = (hub.cpu_seconds()?, machine::own_cpu_seconds()?, commits(hub)?);
    let (began, shift) = (wait::instant(), consumers.len());
    let took = std::thread::scope(|scope| {
        let threads = (0u32..).zip(consumers).map(|(n, consumer)| {
            // Spread over the first step.
            let first = began + step.unwrap_or_default() * n / u32::try_from(shift).unwrap_or(1);
            let own = &own;
            scope.spawn(move || own(consumer, first))
        });
        let threads = threads.collect::<Vec<_>>();
        let joined = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a panic")));
        joined.collect::<Result<Vec<_>>>()
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let [count, bytes] = [count, bytes].map(|n| n.into_inner() as usize);
    Ok(Read {
        per_second: as_f64(count) / seconds,
        page_kib: as_f64(bytes / count.max(1)) / 1024.0,
        cpu: (hub.cpu_seconds()? - cpu) / seconds,
        own_cpu: (machine::own_cpu_seconds()? - own_cpu) / seconds,
        commits: (self::commits(hub)? - commits) / seconds,
        took: Percentiles::of(took.into_iter().flatten().collect()),
    })
}

/// Transactions of the pull sub-topology so far.
fn commits(hub: &Hub) -> Result<f64> {
    Ok(hub.metrics()?.with("streaming_hub_commit_seconds_count", "sub_topology", "pull"))
}
