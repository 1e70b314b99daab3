//! Instants and spans in milliseconds. Deciding code receives them; only the shell reads a clock.

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the Unix epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// This instant `delay_ms` later; saturates instead of overflowing.
    #[must_use]
    pub fn plus(self, delay_ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX)))
    }

    /// Milliseconds from `earlier` to this instant, 0 when `earlier` lies after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// Whole Unix seconds, rounded down (the webhook timestamp, contract section 5).
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// RFC 3339 in UTC with milliseconds, for people and JSON answers.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        jiff::Timestamp::from_millisecond(self.0)
            .map_or_else(|_| self.0.to_string(), |at| format!("{at:.3}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_shown_in_utc_with_milliseconds() {
        assert_eq!(UnixMillis(1_790_000_000_123).to_rfc3339(), "2026-09-21T14:13:20.123Z");
    }

    #[test]
    fn spans_never_go_below_zero() {
        assert_eq!(UnixMillis(5).since(UnixMillis(9)), 0);
        assert_eq!(UnixMillis(9).since(UnixMillis(5)), 4);
    }
}
