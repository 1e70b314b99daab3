//! From producing a fact to its arrival at a webhook, at a rate that leaves the hub idle in between
//! and at a steady one. Everything in one process and on one clock; the producer's own way to the
//! broker is part of it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::floor;
use super::hook::Hook;
use super::inbox::Inbox;
use super::pace::Pace;
use super::percentiles::Percentiles;
use super::report::Report;
use super::stage::{self, Stage};
use super::writer::Writer;
use crate::facts::Fact;
use crate::hub::Hub;
use crate::{say, wait};

/// A rate, and how many facts come at it.
struct Load {
    per_second: u32,
    facts: usize,
}

const WARM_UP: Load = Load { per_second: 100, facts: 1_000 };
const IDLE: Load = Load { per_second: 20, facts: 200 };
const STEADY: Load = Load { per_second: 200, facts: 2_000 };
/// Facts before the first that is measured: some for each partition.
const FIRST: usize = 40;
/// How long the last delivery may take.
const LAST: Duration = Duration::from_secs(60);

/// Measures both rates with the hub that runs on this stage.
///
/// # Errors
/// When facts are not written or do not arrive.
pub fn run(stage: &mut Stage, hub: &mut Hub, report: &mut Report) -> Result<()> {
    say!("latency: {} facts to warm up", WARM_UP.facts);
    let topic = format!("{}-inbox", hub.config().application());
    let inbox = Inbox::watch(stage.broker.bootstrap(), &topic)?;
    measure(stage, hub, &WARM_UP, &inbox)?;
    say!("latency: {} facts at {} a second", IDLE.facts, IDLE.per_second);
    let (idle, _) = measure(stage, hub, &IDLE, &inbox)?;
    report.add_percentiles(
        &idle,
        &[
            ("latency.idle_p50_ms", "produce to webhook, 20 a second, p50", 500),
            ("latency.idle_p99_ms", "produce to webhook, 20 a second, p99", 990),
        ],
    );
    let what = "two commits of the floor, 20 a second, p50";
    floor::add_apart(report, "latency.two_commits_apart_p50_ms", what, 2.0);
    say!("latency: {} facts at {} a second", STEADY.facts, STEADY.per_second);
    let (steady, visible) = measure(stage, hub, &STEADY, &inbox)?;
    report.add_percentiles(
        &visible,
        &[
            ("latency.inbox_p50_ms", "produce to inbox, 200 a second, p50", 500),
            ("latency.inbox_p99_ms", "produce to inbox, 200 a second, p99", 990),
            ("latency.inbox_p999_ms", "produce to inbox, 200 a second, p99.9", 999),
        ],
    );
    report.add_percentiles(
        &steady,
        &[
            ("latency.steady_p50_ms", "produce to webhook, 200 a second, p50", 500),
            ("latency.steady_p99_ms", "produce to webhook, 200 a second, p99", 990),
            ("latency.steady_p999_ms", "produce to webhook, 200 a second, p99.9", 999),
        ],
    );
    if let Some(commit) = report.value("floor.commit_p50_ms") {
        let what = "two commits of the floor, back to back, p50";
        report.add("latency.two_commits_p50_ms", what, 2.0 * commit, "ms");
    }
    Ok(())
}

/// From producing to the webhook, and to the inbox.
fn measure(
    stage: &mut Stage,
    hub: &mut Hub,
    load: &Load,
    inbox: &Inbox,
) -> Result<(Percentiles, Percentiles)> {
    let writer = warm_writer(stage, hub)?;
    let facts = stage.unique_facts(load.facts);
    let before = stage.hook.count();
    let mut pace = Pace::per_second(load.per_second);
    let mut sent = HashMap::with_capacity(facts.len());
    for fact in &facts {
        pace.wait();
        sent.insert(fact.id(), wait::instant());
        writer.send(fact)?;
    }
    writer.finish()?;
    let arrived = arrivals(&stage.hook, before, &facts, hub)?;
    let took = sent.iter().map(|(id, sent)| arrived[id].duration_since(*sent));
    let seen = inbox.times(sent.keys())?;
    // A record can be seen while the call that wrote it still returns.
    let visible = sent.values().zip(seen).map(|(sent, seen)| seen.saturating_duration_since(*sent));
    Ok((Percentiles::of(took.collect()), Percentiles::of(visible.collect())))
}

/// A producer that has written before: its first records wait half a second for its identity.
///
/// # Errors
/// When they are not written, or do not arrive.
pub(super) fn warm_writer(stage: &mut Stage, hub: &mut Hub) -> Result<Writer> {
    let writer = Writer::prompt(stage.broker.bootstrap())?;
    let (facts, before) = (stage.unique_facts(FIRST), stage.hook.count());
    for fact in &facts {
        writer.send(fact)?;
    }
    writer.finish()?;
    arrivals(&stage.hook, before, &facts, hub)?;
    Ok(writer)
}

/// When each of these facts arrived first; waits for the last.
pub(super) fn arrivals(
    hook: &Hook,
    before: usize,
    facts: &[Fact],
    hub: &mut Hub,
) -> Result<HashMap<String, Instant>> {
    let mut missing = facts.iter().map(Fact::id).collect::<HashSet<_>>();
    let mut arrived = HashMap::with_capacity(facts.len());
    let mut seen = before;
    wait::until("the deliveries", LAST, || {
        stage::runs(hub)?;
        for arrival in hook.since(seen) {
            seen += 1;
            if missing.remove(&arrival.id) {
                arrived.insert(arrival.id, arrival.at);
            }
        }
        Ok(if missing.is_empty() { Ok(()) } else { Err(format!("{} missing", missing.len())) })
    })?;
    Ok(arrived)
}
