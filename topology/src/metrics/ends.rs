//! Counters of what becomes of jobs that were not delivered, and of their subscriptions.

use prometheus::IntCounterVec;

use super::{Maker, Metrics};

/// The counters.
pub(super) struct Ends {
    dead_letters_gone: IntCounterVec,
    auto_disabled: IntCounterVec,
    claims: IntCounterVec,
}

impl Ends {
    pub(super) fn new(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            dead_letters_gone: m.counters(
                "dead_letters_removed_total",
                "Dead letters that are gone: redelivered, forgotten, too old, or too many",
                "cause",
            )?,
            auto_disabled: m.counters(
                "auto_disabled_total",
                "Subscriptions that delivery asked to disable",
                "reason",
            )?,
            claims: m.counters(
                "durable_claims_total",
                "Claims of restored jobs that were written down, and those made in the lane",
                "kind",
            )?,
        })
    }
}

impl Metrics {
    pub(crate) fn dead_letter_gone(&self, cause: &str) {
        self.ends.dead_letters_gone.with_label_values(&[cause]).inc();
    }

    pub(crate) fn claimed(&self, kind: &str) {
        self.ends.claims.with_label_values(&[kind]).inc();
    }

    pub(crate) fn auto_disabled(&self, reason: &str) {
        self.ends.auto_disabled.with_label_values(&[reason]).inc();
    }
}
