//! The counters of this crate. Labels are bounded: a sub-topology, a verdict, a reason, an error
//! class; never a tenant, a URL or an id.

mod ends;
mod pull;
mod waiting;

use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use self::ends::Ends;
pub use self::pull::PullMetrics;
use self::waiting::Waiting;

/// Typed access to the counters.
pub struct Metrics {
    /// Those of pull subscriptions.
    pub pull: PullMetrics,
    verdicts: IntCounterVec,
    quarantined: IntCounterVec,
    duplicates: IntCounter,
    inbox: IntCounter,
    unmatched: IntCounter,
    jobs: IntCounter,
    attempts: IntCounterVec,
    attempt_seconds: HistogramVec,
    first_attempt_seconds: HistogramVec,
    delivered: IntCounter,
    dead_letters: IntCounterVec,
    ends: Ends,
    in_flight: IntGauge,
    /// What waits to be delivered, and why.
    pub(crate) waiting: Waiting,
    commits: HistogramVec,
    produced_bytes: IntCounterVec,
    aborts: IntCounterVec,
    rebuilds: IntCounterVec,
    stale_messages: IntCounterVec,
    restored: IntCounterVec,
    lost: IntCounterVec,
    unreadable: IntCounterVec,
    changes: IntCounterVec,
    table_subscriptions: IntGauge,
    lag: IntGaugeVec,
    stalled: IntGaugeVec,
    standby_copies: IntGaugeVec,
    standby_lag: IntGaugeVec,
}

/// Upper bounds of latency buckets, seconds.
const LATENCY: [f64; 12] =
    [0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 5.0, 15.0];

struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        let metric = IntCounter::with_opts(Opts::new(format!("streaming_hub_{name}"), help))?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        let metric = IntGauge::with_opts(Opts::new(format!("streaming_hub_{name}"), help))?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counters(&self, name: &str, help: &str, label: &str) -> prometheus::Result<IntCounterVec> {
        let opts = Opts::new(format!("streaming_hub_{name}"), help);
        let metric = IntCounterVec::new(opts, &[label])?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauges(&self, name: &str, help: &str, label: &str) -> prometheus::Result<IntGaugeVec> {
        let opts = Opts::new(format!("streaming_hub_{name}"), help);
        let metric = IntGaugeVec::new(opts, &[label])?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counters_by(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        let opts = Opts::new(format!("streaming_hub_{name}"), help);
        let metric = IntCounterVec::new(opts, labels)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauges_by(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntGaugeVec> {
        let opts = Opts::new(format!("streaming_hub_{name}"), help);
        let metric = IntGaugeVec::new(opts, labels)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn latency(&self, name: &str, help: &str, label: &str) -> prometheus::Result<HistogramVec> {
        let opts =
            HistogramOpts::new(format!("streaming_hub_{name}"), help).buckets(LATENCY.to_vec());
        let metric = HistogramVec::new(opts, &[label])?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// When a name is taken in this registry.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let m = Maker(registry);
        Ok(Self {
            pull: PullMetrics::new(registry)?,
            verdicts: m.counters("verdicts_total", "Records classified at ingest", "verdict")?,
            quarantined: m.counters("quarantined_total", "Records quarantined", "reason")?,
            duplicates: m.counter("duplicates_total", "Events dropped as duplicates")?,
            inbox: m.counter("inbox_events_total", "Events taken into the inbox")?,
            unmatched: m.counter("unmatched_events_total", "Events that no subscription wants")?,
            jobs: m.counter("jobs_total", "Delivery jobs made")?,
            attempts: m.counters("attempts_total", "Delivery attempts by outcome", "outcome")?,
            attempt_seconds: m.latency("attempt_seconds", "Duration of attempts", "sink")?,
            first_attempt_seconds: m.latency(
                "match_to_first_attempt_seconds",
                "From the match to the first attempt",
                "sink",
            )?,
            delivered: m.counter("deliveries_total", "Jobs delivered")?,
            dead_letters: m.counters("dead_letters_total", "Jobs dead-lettered", "reason")?,
            ends: Ends::new(&m)?,
            in_flight: m.gauge("attempts_in_flight_count", "Attempts under way")?,
            waiting: Waiting::new(&m)?,
            commits: m.latency("commit_seconds", "Duration of commits", "sub_topology")?,
            produced_bytes: m.counters(
                "produced_bytes_total",
                "Key and value bytes committed",
                "sub_topology",
            )?,
            aborts: m.counters("aborts_total", "Aborted transactions", "sub_topology")?,
            rebuilds: m.counters("client_rebuilds_total", "Clients rebuilt", "sub_topology")?,
            stale_messages: m.counters(
                "stale_messages_total",
                "Messages for a past incarnation of a task",
                "sub_topology",
            )?,
            restored: m.counters("restored_records_total", "Records restored", "sub_topology")?,
            lost: m.counters(
                "lost_records_total",
                "Records deleted before they were read",
                "sub_topology",
            )?,
            unreadable: m.counters(
                "unreadable_records_total",
                "Internal records skipped because they do not parse",
                "sub_topology",
            )?,
            changes: m.counters("changes_total", "Subscription changes decided", "decision")?,
            table_subscriptions: m.gauge("subscriptions_count", "Subscriptions in the table")?,
            lag: m.gauges("lag_records", "Records not read yet", "sub_topology")?,
            standby_copies: m.gauges(
                "standby_copies_count",
                "Warm copies of stores of tasks that run elsewhere",
                "sub_topology",
            )?,
            standby_lag: m.gauges(
                "standby_lag_records",
                "Records that warm copies have not read yet",
                "sub_topology",
            )?,
            stalled: m.gauges(
                "stalled_tasks_count",
                "Tasks whose log grows while their position stands",
                "sub_topology",
            )?,
        })
    }

    pub(crate) fn verdict(&self, verdict: &str) {
        self.verdicts.with_label_values(&[verdict]).inc();
    }

    pub(crate) fn quarantined(&self, reason: &str) {
        self.quarantined.with_label_values(&[reason]).inc();
    }

    pub(crate) fn duplicate(&self) {
        self.duplicates.inc();
    }

    pub(crate) fn inbox_event(&self, jobs: u64) {
        self.inbox.inc();
        self.jobs.inc_by(jobs);
        if jobs == 0 {
            self.unmatched.inc();
        }
    }

    pub(crate) fn attempt_started(&self, sink: &str, waited_ms: Option<u64>) {
        self.in_flight.inc();
        if let Some(ms) = waited_ms {
            self.first_attempt_seconds.with_label_values(&[sink]).observe(seconds(ms));
        }
    }

    pub(crate) fn attempt_ended(&self, sink: &str, outcome: &str, duration_ms: u64) {
        self.in_flight.dec();
        self.attempts.with_label_values(&[outcome]).inc();
        self.attempt_seconds.with_label_values(&[sink]).observe(seconds(duration_ms));
    }

    pub(crate) fn delivered(&self) {
        self.delivered.inc();
    }

    pub(crate) fn dead_letter(&self, reason: &str) {
        self.dead_letters.with_label_values(&[reason]).inc();
    }

    pub(crate) fn committed(&self, sub_topology: &str, took_ms: u64, bytes: usize) {
        self.commits.with_label_values(&[sub_topology]).observe(seconds(took_ms));
        self.produced_bytes.with_label_values(&[sub_topology]).inc_by(bytes as u64);
    }

    pub(crate) fn aborted(&self, sub_topology: &str) {
        self.aborts.with_label_values(&[sub_topology]).inc();
    }

    pub(crate) fn rebuilt(&self, sub_topology: &str) {
        self.rebuilds.with_label_values(&[sub_topology]).inc();
    }

    pub(crate) fn stale_message(&self, sub_topology: &str) {
        self.stale_messages.with_label_values(&[sub_topology]).inc();
    }

    pub(crate) fn restored_records(&self, sub_topology: &str, count: u64) {
        self.restored.with_label_values(&[sub_topology]).inc_by(count);
    }

    pub(crate) fn lost_records(&self, sub_topology: &str, count: i64) {
        self.lost.with_label_values(&[sub_topology]).inc_by(u64::try_from(count).unwrap_or(0));
    }

    pub(crate) fn unreadable(&self, sub_topology: &str) {
        self.unreadable.with_label_values(&[sub_topology]).inc();
    }

    pub(crate) fn change(&self, decision: &str) {
        self.changes.with_label_values(&[decision]).inc();
    }

    pub(crate) fn lag(&self, sub_topology: &str, records: i64, stalled: i64) {
        self.lag.with_label_values(&[sub_topology]).set(records);
        self.stalled.with_label_values(&[sub_topology]).set(stalled);
    }

    pub(crate) fn standby(&self, sub_topology: &str, copies: usize, lag: i64) {
        let copies = i64::try_from(copies).unwrap_or(i64::MAX);
        self.standby_copies.with_label_values(&[sub_topology]).set(copies);
        self.standby_lag.with_label_values(&[sub_topology]).set(lag);
    }

    pub(crate) fn table(&self, subscriptions: usize) {
        self.table_subscriptions.set(i64::try_from(subscriptions).unwrap_or(i64::MAX));
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a delivery are far below 2^52")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
