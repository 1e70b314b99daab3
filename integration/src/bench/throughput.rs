//! Sustained facts a second through to the inbox: a backlog in the source topic, a hub without
//! deliveries (jobs pile up), and the bare copy loop on the same topic beside it. The hub's
//! processor time is its process's alone. At the end the inbox and the jobs are counted in Kafka.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::copy::{self, Pass};
use super::count;
use super::deliveries::{as_f64, mib};
use super::options::Options;
use super::report::Report;
use super::stage::{self, READY, Stage};
use crate::hub::Hub;
use crate::internal::Internal;
use crate::{say, wait};

/// The target of the copy loop.
const COPY: &str = "bench-copy";
/// How long the hub may take for all facts.
const ALL: Duration = Duration::from_secs(1_800);

/// A moment of the hub's progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    at: Instant,
    /// Facts that were taken in.
    pub(super) facts: u64,
    /// Processor time of all hubs so far.
    pub(super) cpu_seconds: f64,
}

/// Measures the copy loop and the hub on the same facts.
///
/// # Errors
/// When the hub does not take in what it should.
pub fn run(stage: &mut Stage, options: &Options, report: &mut Report) -> Result<()> {
    let facts = options.facts;
    let mut setup = Hub::start(stage.config("setup", &["registry", "api"])?)?;
    setup.wait_ready(READY)?;
    stage.subscribe(&setup, options.matches)?;
    setup.terminate(READY)?;

    say!("throughput: writing {facts} facts");
    let (mut events, mut bytes) = (HashSet::with_capacity(facts), 0);
    stage.preload(facts, |fact| {
        events.insert(fact.id());
        bytes += fact.value.as_ref().map_or(0, Vec::len);
    })?;
    let copied = copies(stage, facts)?;

    say!("throughput: the hub, {} events in {facts} facts", events.len());
    let started = wait::instant();
    let mut hubs = start(stage, options.instances)?;
    let progress = progress(&mut hubs, facts as u64);
    let (first, last) = progress.with_context(|| hubs[0].log_tail())?;
    let mut peak = 0;
    for hub in &hubs {
        peak = peak.max(hub.rss_bytes()?.1);
    }
    let application = hubs[0].config().application();
    for hub in &mut hubs {
        hub.terminate(READY)?;
    }
    counted(stage, &application, (events.len(), options.matches))?;

    let rate = rate(first, last);
    let millions = as_f64(facts) / 1e6;
    let whole = as_f64(facts) / last.at.duration_since(started).as_secs_f64();
    let megabytes = rate * as_f64(bytes) / as_f64(facts) / 1e6;
    let copy_rate = as_f64(facts) / copied.took.as_secs_f64();
    let (hub_cpu, copy_cpu) = (last.cpu_seconds / millions, copied.cpu_seconds / millions);
    let mut add = |name, what, value, unit| report.add(name, what, value, unit);
    add("throughput.rate", "facts a second through to inbox and jobs", rate, "/s");
    add("throughput.rate_with_start", "the same, the hub's start included", whole, "/s");
    add("throughput.payload_mb", "payload", megabytes, "MB/s");
    add("throughput.cpu_per_million_s", "CPU of all hubs for a million facts", hub_cpu, "s");
    add("throughput.cpu_start_s", "of all of it before the first event", first.cpu_seconds, "s");
    add("throughput.peak_mib", "peak memory of a hub", mib(peak), "MiB");
    add("throughput.copy_rate", "bare copy loop: records a second", copy_rate, "/s");
    add("throughput.copy_cpu_per_million_s", "bare copy loop: CPU for a million", copy_cpu, "s");
    add("throughput.rate_ratio", "hub's rate / copy loop's", rate / copy_rate, "");
    add("throughput.cpu_ratio", "hub's CPU / copy loop's", hub_cpu / copy_cpu, "");
    Ok(())
}

/// So many hubs, each with all roles but delivery.
fn start(stage: &Stage, instances: usize) -> Result<Vec<Hub>> {
    ensure!(instances > 0, "instances: at least one");
    let roles = ["ingest", "match", "registry", "api"];
    let names = (1..=instances).map(|number| format!("hub-{number}"));
    names.map(|name| Hub::start(stage.config(&name, &roles)?)).collect()
}

/// The copy loop twice, the second time with everything warm, as the hub finds it.
fn copies(stage: &Stage, facts: usize) -> Result<Pass> {
    say!("throughput: bare copy loop, twice");
    let source = stage.topic();
    let partitions = count::partitions(stage.broker.bootstrap(), &source)?;
    stage.broker.create_topic(COPY, i32::try_from(partitions.len())?, &[])?;
    let pass = |group| copy::run(stage.broker.bootstrap(), group, (&source, COPY), facts);
    pass("bench-copy-1")?;
    pass("bench-copy-2")
}

/// Waits until the hubs have taken in all facts: the first moment at which some are, and the last.
pub(super) fn progress(hubs: &mut [Hub], facts: u64) -> Result<(Moment, Moment)> {
    let mut first = None;
    let last = wait::until("all facts to be taken in", ALL, || {
        let mut moment = Moment { at: wait::instant(), facts: 0, cpu_seconds: 0.0 };
        for hub in hubs.iter_mut() {
            stage::runs(hub)?;
            let Ok(metrics) = hub.metrics() else { return Ok(Err("no metrics yet".to_owned())) };
            let count = |name| metrics.count(name);
            moment.facts += count("streaming_hub_inbox_events_total");
            moment.facts += count("streaming_hub_duplicates_total");
            moment.cpu_seconds += hub.cpu_seconds()?;
        }
        if moment.facts > 0 {
            first.get_or_insert(moment);
        }
        let done = moment.facts;
        Ok(if done == facts { Ok(moment) } else { Err(format!("{done} of {facts}")) })
    })?;
    Ok((first.unwrap_or(last), last))
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn rate(first: Moment, last: Moment) -> f64 {
    (last.facts - first.facts) as f64 / last.at.duration_since(first.at).as_secs_f64()
}

/// Whether every event lies in the inbox once, with a job for each match.
fn counted(stage: &Stage, application: &str, (events, matches): (usize, usize)) -> Result<()> {
    let bootstrap = stage.broker.bootstrap();
    let internal = Internal::new(bootstrap, application)?;
    for (topic, wanted) in [("inbox", events), ("deliveries", events * matches)] {
        let found = count::committed(bootstrap, &internal.name(topic))?;
        ensure!(found == wanted, "{topic} holds {found} records, not {wanted}");
    }
    Ok(())
}
