//! Counters of what waits to be delivered: where, behind which gates, and for how long too long.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use streaming_hub_state::family::Place;

use super::Maker;

/// Typed access to them.
pub(crate) struct Waiting {
    sheds: IntCounterVec,
    breakers: IntGaugeVec,
    breaker_changes: IntCounterVec,
    jobs: IntGaugeVec,
    bytes: IntGauge,
    overdue: IntGauge,
    ages: Mutex<BTreeMap<i32, u64>>,
    found: IntCounter,
}

impl Waiting {
    pub(super) fn new(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            sheds: m.counters(
                "sheds_total",
                "Times that a due job was not attempted because its gate was closed",
                "gate",
            )?,
            breakers: m.gauges_by(
                "breakers_count",
                "Breakers that are not closed",
                &["state", "sink"],
            )?,
            breaker_changes: m.counters_by(
                "breaker_changes_total",
                "Breakers that opened or closed",
                &["to", "sink"],
            )?,
            jobs: m.gauges("waiting_jobs_count", "Jobs that wait, by place", "place")?,
            bytes: m.gauge("waiting_jobs_bytes", "Bytes of the jobs that wait")?,
            overdue: m.gauge(
                "overdue_age_ms",
                "How long the oldest due job waits that neither its gate nor its order explains",
            )?,
            ages: Mutex::default(),
            found: m.counter(
                "forgotten_jobs_total",
                "Due jobs that nothing would have woken, found by the walk over all of them",
            )?,
        })
    }

    pub(crate) fn shed(&self, gate: &str) {
        self.sheds.with_label_values(&[gate]).inc();
    }

    pub(crate) fn breakers(&self, state: &str, sink: &str, by: i64) {
        self.breakers.with_label_values(&[state, sink]).add(by);
    }

    pub(crate) fn breaker_changed(&self, opened: bool, sink: &str) {
        let to = if opened { "open" } else { "closed" };
        self.breaker_changes.with_label_values(&[to, sink]).inc();
    }

    /// Jobs in a place and their bytes, as a change of what a task last said.
    pub(crate) fn jobs(&self, place: Place, jobs: i64, bytes: i64) {
        self.jobs.with_label_values(&[&place.to_string()]).add(jobs);
        self.bytes.add(bytes);
    }

    /// How long a task's oldest overdue job waits; the oldest of all tasks is told. `None` when
    /// the task ends.
    pub(crate) fn overdue(&self, partition: i32, age_ms: Option<u64>) {
        let mut ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
        match age_ms {
            Some(age_ms) => ages.insert(partition, age_ms),
            None => ages.remove(&partition),
        };
        let oldest_ms = ages.values().copied().max().unwrap_or(0);
        self.overdue.set(i64::try_from(oldest_ms).unwrap_or(i64::MAX));
    }

    pub(crate) fn found(&self) {
        self.found.inc();
    }
}
