//! The counters of pull subscriptions, summed over all of an instance's.

use prometheus::{IntCounter, IntGauge, Registry};

use super::Maker;

/// Typed access to the counters.
pub struct PullMetrics {
    pages: IntCounter,
    served: IntCounter,
    failed: IntCounter,
    removed: IntCounter,
    unread_removed: IntCounter,
    backlog: IntGauge,
    unread_subscriptions: IntGauge,
}

impl PullMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let make = Maker(registry);
        Ok(Self {
            pages: make.counter("pull_pages_total", "Pages served to pull consumers")?,
            served: make.counter("pull_served_entries_total", "Entries in served pages")?,
            failed: make.counter("pull_failed_reads_total", "Reads whose commit failed")?,
            removed: make.counter(
                "pull_removed_entries_total",
                "Entries removed: read long enough ago, unread too long, or of a deleted one",
            )?,
            unread_removed: make.counter(
                "pull_expired_entries_total",
                "Entries removed although they were never read: nobody read them for too long",
            )?,
            backlog: make.gauge(
                "pull_backlog_count",
                "Unread entries of the tasks here, as of the last sweep",
            )?,
            unread_subscriptions: make.gauge(
                "pull_unread_subscriptions_count",
                "Pull subscriptions of the tasks here with unread entries, as of the last sweep",
            )?,
        })
    }

    pub(crate) fn page(&self, entries: usize) {
        self.pages.inc();
        self.served.inc_by(entries as u64);
    }

    pub(crate) fn failed(&self) {
        self.failed.inc();
    }

    pub(crate) fn removed(&self, entries: u64, unread: u64) {
        self.removed.inc_by(entries);
        self.unread_removed.inc_by(unread);
    }

    /// What one task's sweep found, in place of what it found before.
    pub(crate) fn backlog(&self, now: (u64, u64), before: (u64, u64)) {
        self.backlog.add(now.0.cast_signed() - before.0.cast_signed());
        self.unread_subscriptions.add(now.1.cast_signed() - before.1.cast_signed());
    }
}
