//! Since when a subscription's attempts have failed without a success between them, and when that
//! is reason enough to disable it (contract section 4, "Auto-disable").

use serde::{Deserialize, Serialize};

use crate::time::UnixMillis;

/// By how much a later failure must be later to be worth a record, milliseconds: a span is looked
/// at every ten minutes, and no finer does it have to be.
const WORTH_MS: u64 = 600_000;

/// A failure span, as it stands in `<app>-failures` (JSON).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureSpan {
    /// The first failure.
    pub first: UnixMillis,
    /// The last one, to within ten minutes.
    pub last: UnixMillis,
    /// The destination that fails: another one's span begins anew.
    pub sink_generation: u64,
}

/// When a span is reason enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoDisable {
    /// The kill switch: `false` disables nothing.
    pub enabled: bool,
    /// How long ago the first failure must be, milliseconds.
    pub sustained_ms: u64,
    /// How far apart first and last failure must be, milliseconds.
    pub spread_ms: u64,
}

impl Default for AutoDisable {
    fn default() -> Self {
        let hour_ms = 3_600_000;
        Self { enabled: true, sustained_ms: 120 * hour_ms, spread_ms: 12 * hour_ms }
    }
}

impl FailureSpan {
    /// The span after a failure; `None` when the one before says enough.
    #[must_use]
    pub fn after(before: Option<Self>, now: UnixMillis, sink_generation: u64) -> Option<Self> {
        let begun = Self { first: now, last: now, sink_generation };
        match before {
            Some(span) if span.sink_generation == sink_generation => {
                // A clock that was turned back does not make a span of the future.
                let first = span.first.min(now);
                let is_worth = first != span.first || now.since(span.last) >= WORTH_MS;
                is_worth.then_some(Self { first, ..begun })
            }
            _ => Some(begun),
        }
    }

    /// Whether it is sustained and spread at this moment.
    #[must_use]
    pub fn trips(&self, rule: AutoDisable, now: UnixMillis) -> bool {
        rule.enabled
            && now.since(self.first) >= rule.sustained_ms
            && self.last.since(self.first) >= rule.spread_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn span(first: i64, last: i64) -> FailureSpan {
        let (first, last) = (UnixMillis(first * HOUR), UnixMillis(last * HOUR));
        FailureSpan { first, last, sink_generation: 1 }
    }

    #[test]
    fn a_span_trips_only_when_it_is_both_sustained_and_spread() {
        let rule = AutoDisable::default();
        for (first, last, now, trips) in [
            (0, 12, 120, true),
            (0, 119, 119, false),
            (0, 11, 500, false),
            (0, 0, 500, false),
            (10, 22, 130, true),
            (10, 22, 129, false),
        ] {
            let now = UnixMillis(now * HOUR);
            assert_eq!(span(first, last).trips(rule, now), trips, "{first} {last} {now:?}");
            let off = AutoDisable { enabled: false, ..rule };
            assert!(!span(first, last).trips(off, now), "the kill switch");
        }
    }

    #[test]
    fn a_failure_begins_a_span_and_moves_its_end_every_ten_minutes() {
        let at = |minutes: i64| UnixMillis(minutes * 60_000);
        let begun = FailureSpan::after(None, at(100), 1).unwrap();
        assert_eq!((begun.first, begun.last), (at(100), at(100)));
        assert_eq!(FailureSpan::after(Some(begun), at(109), 1), None, "not worth a record");
        let moved = FailureSpan::after(Some(begun), at(110), 1).unwrap();
        assert_eq!((moved.first, moved.last), (at(100), at(110)));
        let other = FailureSpan::after(Some(moved), at(111), 2).unwrap();
        assert_eq!((other.first, other.sink_generation), (at(111), 2), "another destination");
        let back = FailureSpan::after(Some(moved), at(50), 1).unwrap();
        assert_eq!((back.first, back.last), (at(50), at(50)), "the clock was turned back");
    }
}
