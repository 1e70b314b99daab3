//! Deliveries a second: a backlog of facts, each for one webhook, many tenants, a receiver that
//! answers at once.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::hook::Arrival;
use super::report::Report;
use super::stage::{self, READY, Stage};
use crate::hub::Hub;
use crate::{say, wait};

/// How long all deliveries may take.
const ALL: Duration = Duration::from_secs(600);

/// Stops the hub, writes the backlog, starts the hub, and measures its deliveries.
///
/// # Errors
/// When they do not all arrive.
pub fn run(stage: &mut Stage, hub: &mut Hub, count: usize, report: &mut Report) -> Result<()> {
    hub.terminate(READY)?;
    let mut events = HashSet::new();
    stage.preload(count, |fact| {
        events.insert(fact.id());
    })?;
    let (tenants, events) = (stage.tenants.len(), events.len());
    say!("deliveries: {events} events for {tenants} tenants, each with one subscription");
    let before = stage.hook.count();
    hub.restart()?;
    wait::until("all deliveries", ALL, || {
        stage::runs(hub)?;
        let count = stage.hook.count() - before;
        Ok(if count >= events { Ok(()) } else { Err(format!("{count} of {events}")) })
    })?;
    let cpu = hub.cpu_seconds()?;
    let (_, peak) = hub.rss_bytes()?;
    let arrivals = stage.hook.since(before);
    let (all, middle) = (per_second(&arrivals), per_second(middle(&arrivals)));
    report.add("deliveries.rate", "deliveries a second, first to last", all, "/s");
    report.add("deliveries.middle_rate", "the same, the middle 80 %", middle, "/s");
    let per_million = cpu / as_f64(events) * 1e6;
    let what = "CPU of the hub for a million deliveries, ingest and start included";
    report.add("deliveries.cpu_per_million_s", what, per_million, "s");
    report.add("deliveries.peak_mib", "peak memory of the hub", mib(peak), "MiB");
    Ok(())
}

/// Without the first tenth, in which clients connect, and the last, in which few tenants are left.
pub(super) fn middle(arrivals: &[Arrival]) -> &[Arrival] {
    let tenth = arrivals.len() / 10;
    &arrivals[tenth..arrivals.len() - tenth]
}

/// The rate from the first to the last.
pub(super) fn per_second(arrivals: &[Arrival]) -> f64 {
    let time = |arrival: Option<&Arrival>| arrival.map(|arrival| arrival.at);
    let (first, last) = (time(arrivals.first()), time(arrivals.last()));
    let took = first
        .zip(last)
        .map_or(0.0, |(first, last): (Instant, Instant)| last.duration_since(first).as_secs_f64());
    as_f64(arrivals.len().saturating_sub(1)) / took
}

/// A count as a number to divide.
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
pub(super) fn as_f64(count: usize) -> f64 {
    count as f64
}

/// Bytes as MiB.
#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
