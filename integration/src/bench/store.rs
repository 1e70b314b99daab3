//! `make bench STORE=1`: what many keys and many partitions cost. First an instance with
//! [`MANY`] partitions of each topic and a tenth of the keys: its memory beside its budget, and its
//! processor time with nothing to do. Then all keys in few partitions: from `kill -9` until the
//! instance runs again, with the state directory as it was, and without it, from Kafka alone.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::deliveries::{as_f64, mib};
use super::options::Options;
use super::report::Report;
use super::stage::{self, ALL_ROLES, Stage};
use crate::broker::Broker;
use crate::generate::Shape;
use crate::hub::Hub;
use crate::{say, wait};

/// Partitions of the first phase.
const MANY: i32 = 200;
/// Bytes of a payload: what is kept of a fact is its key.
const PAYLOAD: usize = 64;
/// How long the keys may take.
const LONG: Duration = Duration::from_secs(3_600);
/// How long an instance that has taken everything in settles, and is watched then.
const IDLE: Duration = Duration::from_secs(30);

/// Runs both phases, each on a broker of its own.
///
/// # Errors
/// When a hub does not come back, or ends.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    partitions(options, report).context("many partitions")?;
    keys(options, report).context("many keys")
}

fn partitions(options: &Options, report: &mut Report) -> Result<()> {
    let wide = Options { partitions: MANY, ..options.clone() };
    let (mut stage, mut hub) = ground(&wide, report)?;
    let measured = idle(&mut stage, &mut hub, options.keys / 10, report);
    measured.with_context(|| hub.log_tail())
}

fn idle(stage: &mut Stage, hub: &mut Hub, keys: usize, report: &mut Report) -> Result<()> {
    take_in(stage, hub, keys)?;
    say!("store: idle for {:?}", 2 * IDLE);
    pass(hub, IDLE)?;
    let before = hub.cpu_seconds()?;
    pass(hub, IDLE)?;
    let used = (hub.cpu_seconds()? - before) / IDLE.as_secs_f64();
    let (now, peak) = hub.rss_bytes()?;
    let mut add = |name, what, value, unit| report.add(name, what, value, unit);
    add("partitions.partitions", "partitions of each topic", f64::from(MANY), "");
    add("partitions.keys", "live dedup keys", as_f64(keys), "");
    add("partitions.idle_cpu_percent", "one core, with nothing to do", 100.0 * used, "%");
    add("partitions.rss_mib", "memory then", mib(now), "MiB");
    add("partitions.peak_mib", "memory at its peak, facts included", mib(peak), "MiB");
    Ok(())
}

fn keys(options: &Options, report: &mut Report) -> Result<()> {
    let (mut stage, mut hub) = ground(options, report)?;
    let measured = restarts(&mut stage, &mut hub, options.keys, report);
    measured.with_context(|| hub.log_tail())
}

fn restarts(stage: &mut Stage, hub: &mut Hub, keys: usize, report: &mut Report) -> Result<()> {
    take_in(stage, hub, keys)?;
    let directory = hub.config().directory().join("state");
    let disk = bytes_below(&directory)?;
    hub.kill9()?;
    let (warm, tail) = restart(hub)?;
    hub.kill9()?;
    std::fs::remove_dir_all(&directory)?;
    let (cold, all) = restart(hub)?;
    let (_, peak) = hub.rss_bytes()?;
    let mut add = |name, what, value, unit| report.add(name, what, value, unit);
    add("store.keys", "dedup keys", as_f64(keys), "");
    add("store.disk_mib", "state directory", mib(disk), "MiB");
    add("store.restart_s", "kill -9: start to ready", warm.as_secs_f64(), "s");
    add(
        "store.restart_tail_records",
        "records of its tail (each packs the keys of a commit)",
        as_f64(tail),
        "",
    );
    add("store.rebuild_s", "without state directory: start to ready", cold.as_secs_f64(), "s");
    add("store.rebuild_records", "records read for it", as_f64(all), "");
    add("store.rebuild_peak_mib", "memory at its peak meanwhile", mib(peak), "MiB");
    Ok(())
}

/// A broker, and a hub on it that is ready.
fn ground(options: &Options, report: &mut Report) -> Result<(Stage, Hub)> {
    say!("starting a broker");
    let stage = Stage::new(Broker::start()?, options, options.tenants)?;
    let config = stage.config("a", &ALL_ROLES)?;
    let mut hub = Hub::start(config)?;
    hub.wait_ready(LONG)?;
    if report.value("memory.budget_mib").is_none() {
        let budget = budget(&hub)?;
        report.add("memory.budget_mib", "runtime.memory_bytes", mib(budget), "MiB");
    }
    Ok((stage, hub))
}

/// What the hub's own program says of its budget, bytes.
fn budget(hub: &Hub) -> Result<u64> {
    let printed: toml::Table = hub.command(&["config", "print"])?.parse()?;
    let bytes = printed.get("runtime").and_then(|runtime| runtime.get("memory_bytes"));
    let bytes = bytes.and_then(toml::Value::as_integer).context("no runtime.memory_bytes")?;
    Ok(u64::try_from(bytes)?)
}

/// Writes so many facts, and waits until the hub has them.
fn take_in(stage: &mut Stage, hub: &mut Hub, keys: usize) -> Result<()> {
    say!("store: {keys} facts");
    let shape = Shape { payload_bytes: PAYLOAD, ..stage.without_duplicates() };
    stage.load(keys, &shape, |_| {})?;
    let keys = keys as u64;
    wait::until("all facts to be taken in", LONG, || {
        stage::runs(hub)?;
        let Ok(metrics) = hub.metrics() else { return Ok(Err("no metrics yet".to_owned())) };
        let done = metrics.count("streaming_hub_inbox_events_total");
        Ok(if done >= keys { Ok(()) } else { Err(format!("{done} of {keys}")) })
    })
}

/// Lets time pass over a hub that runs.
fn pass(hub: &mut Hub, time: Duration) -> Result<()> {
    let began = wait::instant();
    wait::until("time to pass", 2 * time, || {
        stage::runs(hub)?;
        let passed = began.elapsed();
        Ok(if passed >= time { Ok(()) } else { Err(format!("{passed:?}")) })
    })
}

/// How long it takes, and how many records it restores.
fn restart(hub: &mut Hub) -> Result<(Duration, usize)> {
    let began = wait::instant();
    hub.restart()?;
    hub.wait_ready(LONG)?;
    let took = began.elapsed();
    let records = hub.metrics()?.count("streaming_hub_restored_records_total");
    Ok((took, usize::try_from(records)?))
}

/// The bytes of all files below a directory.
pub(super) fn bytes_below(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(sum)
}
