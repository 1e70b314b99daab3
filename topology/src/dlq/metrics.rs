//! The observer's counters. Labels are bounded: topics up to a number, causes from a known few.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Typed access to them.
pub struct Metrics {
    entries: IntCounterVec,
    indexed: IntGauge,
    lag: IntGauge,
    failures: IntCounter,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// When a name is taken in this registry.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let entries = IntCounterVec::new(
            Opts::new(
                "streaming_hub_producer_dlq_entries_total",
                "Entries of producers' dead-letter topics taken into the index since the start",
            ),
            &["topic", "cause"],
        )?;
        let indexed = IntGauge::new(
            "streaming_hub_producer_dlq_indexed_count",
            "Entries in the index of producers' dead letters",
        )?;
        let lag = IntGauge::new(
            "streaming_hub_producer_dlq_lag_records",
            "Records of producers' dead-letter topics not indexed yet",
        )?;
        let failures = IntCounter::new(
            "streaming_hub_producer_dlq_failures_total",
            "Times that the observer of dead-letter topics had to begin anew",
        )?;
        registry.register(Box::new(entries.clone()))?;
        registry.register(Box::new(indexed.clone()))?;
        registry.register(Box::new(lag.clone()))?;
        registry.register(Box::new(failures.clone()))?;
        Ok(Self { entries, indexed, lag, failures })
    }

    pub(super) fn entry(&self, topic: &str, cause: &str) {
        self.entries.with_label_values(&[topic, cause]).inc();
    }

    pub(super) fn stands(&self, indexed: usize, lag: i64) {
        self.indexed.set(i64::try_from(indexed).unwrap_or(i64::MAX));
        self.lag.set(lag);
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }
}
