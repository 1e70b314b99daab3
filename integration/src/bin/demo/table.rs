//! What was produced beside what came of it. The left column follows from the produced records
//! alone; the right one is counted in Kafka, at the receiver, and in the hub's own metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use anyhow::Result;
use streaming_hub_integration::check::History;
use streaming_hub_integration::world::World;

/// How long the hub's counters may lag behind its topics.
const COUNTED: Duration = Duration::from_secs(5);

struct Row {
    name: String,
    wanted: usize,
    found: usize,
    /// Where it was counted.
    place: &'static str,
}

/// The table.
pub(crate) struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// Counts everything; waits a moment for the hub's counters, which follow its commits.
    pub(crate) fn settled(world: &World, history: &History) -> Result<Self> {
        let mut last = Self::of(world, history)?;
        let _ = world.hub.wait_metrics(COUNTED, |_| {
            if let Ok(table) = Self::of(world, history) {
                last = table;
            }
            if last.agrees() { Ok(()) } else { Err("they differ".to_owned()) }
        });
        Ok(last)
    }

    fn of(world: &World, history: &History) -> Result<Self> {
        const METRICS: &str = "hub's metrics";
        const RECEIVER: &str = "receiver";
        let wanted = history.counts();
        let metrics = world.hub.metrics()?;
        let metric = |name: &str, label: &str, value: &str| {
            let name = format!("streaming_hub_{name}_total");
            let count = match label {
                "" => metrics.count(&name),
                label => metrics.count_with(&name, label, value),
            };
            usize::try_from(count).unwrap_or(usize::MAX)
        };
        let mut table = Self { rows: Vec::new() };
        table.row("records produced", wanted.produced, written(world, history)?, "Kafka");
        let verdict = |verdict| metric("verdicts", "verdict", verdict);
        let followed = metric("verdicts", "", "");
        let elsewhere = wanted.produced.saturating_sub(followed);
        table.row("in topics that hold no facts", wanted.not_followed, elsewhere, METRICS);
        table.row("accepted", wanted.accepted, verdict("accept"), METRICS);
        table.row("dropped, system events", wanted.dropped, verdict("drop"), METRICS);
        let kept = by_reason(history);
        let reasons: BTreeSet<&String> = wanted.quarantined.keys().chain(kept.keys()).collect();
        for reason in reasons {
            let of = |counts: &BTreeMap<String, usize>| counts.get(reason).copied().unwrap_or(0);
            let name = format!("quarantined, {reason}");
            table.row(&name, of(&wanted.quarantined), of(&kept), "quarantine topic");
        }
        table.row("duplicates", wanted.duplicates, metric("duplicates", "", ""), METRICS);
        table.row("events in the inbox", wanted.events, history.inbox.len(), "inbox topic");
        let jobs = history.deliveries.iter().filter(|record| record.value.is_some()).count();
        table.row("delivery jobs", wanted.jobs, jobs, "deliveries topic");
        table.row("delivered", wanted.jobs, world.receiver.delivered(), RECEIVER);
        table.row("signatures verified", wanted.jobs, verified(history), RECEIVER);
        Ok(table)
    }

    fn row(&mut self, name: &str, wanted: usize, found: usize, place: &'static str) {
        self.rows.push(Row { name: name.to_owned(), wanted, found, place });
    }

    /// Whether both columns are the same.
    pub(crate) fn agrees(&self) -> bool {
        self.rows.iter().all(|row| row.wanted == row.found)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32} {:>9} {:>9}   counted in", "", "expected", "found")?;
        for Row { name, wanted, found, place } in &self.rows {
            let mark = if wanted == found { ' ' } else { '!' };
            writeln!(f, "{name:<32} {wanted:>9} {found:>9} {mark} {place}")?;
        }
        Ok(())
    }
}

/// The records that lie in the topics that were produced to.
fn written(world: &World, history: &History) -> Result<usize> {
    let topics: BTreeSet<&str> =
        history.sources.iter().map(|source| source.fact.topic.as_str()).collect();
    let read = topics.into_iter().map(|topic| Ok(world.internal.topic(topic)?.len()));
    read.sum()
}

fn by_reason(history: &History) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for record in &history.quarantine {
        let reason = record.text("hub-reason").unwrap_or("none").to_owned();
        *counts.entry(reason).or_default() += 1;
    }
    counts
}

/// Deliveries whose signature is that of their subscription's secret.
fn verified(history: &History) -> usize {
    let deliveries = history.requests.iter().filter(|request| !request.is_probe());
    let valid = deliveries.filter(|request| {
        let own = history.subscribers.iter().find(|own| own.path == request.target);
        own.is_some_and(|own| request.verify(&[&own.secret]).is_ok())
    });
    valid.count()
}
