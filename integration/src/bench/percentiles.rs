//! Percentiles of measured durations.

use std::time::Duration;

/// Durations, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Percentiles(Vec<Duration>);

impl Percentiles {
    /// Of these durations.
    #[must_use]
    pub fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    /// The smallest duration that so many in a thousand do not exceed (nearest rank),
    /// milliseconds; none of none.
    #[must_use]
    pub fn per_mille_ms(&self, per_mille: usize) -> f64 {
        let rank = (self.0.len() * per_mille).div_ceil(1_000).max(1);
        self.0.get(rank - 1).map_or(f64::NAN, |duration| duration.as_secs_f64() * 1_000.0)
    }

    /// The median, milliseconds.
    #[must_use]
    pub fn p50_ms(&self) -> f64 {
        self.per_mille_ms(500)
    }

    /// The largest, milliseconds.
    #[must_use]
    pub fn max_ms(&self) -> f64 {
        self.per_mille_ms(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let all = Percentiles::of((1..=200).rev().map(Duration::from_millis).collect());
        let found = [500, 990, 999, 1_000].map(|n| all.per_mille_ms(n));
        for (found, wanted) in found.into_iter().zip([100.0, 198.0, 200.0, 200.0]) {
            assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
        }
        let one = Percentiles::of(vec![Duration::from_millis(3)]);
        assert!((one.p50_ms() - 3.0).abs() < 1e-9 && (one.max_ms() - 3.0).abs() < 1e-9);
        assert!(Percentiles::of(Vec::new()).p50_ms().is_nan());
    }
}
