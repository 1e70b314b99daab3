//! The back-off curve, contract section 4: `0 · 5s · 5m · 30m · 2h · 5h · 10h · 10h`, full jitter.
//! Pure: randomness comes in as a number in `0.0..1.0`.

use serde::{Deserialize, Serialize};

/// The longest step, milliseconds (10 h).
pub const STEP_MS_MAX: u64 = 10 * 3_600_000;
/// The most steps of a schedule.
pub const STEPS_MAX: usize = 12;

/// Why a schedule is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No step, or more than twelve.
    #[error("a retry schedule has 1 to {STEPS_MAX} steps, this one has {0}")]
    Steps(usize),
    /// A step above ten hours.
    #[error("a retry step is at most {STEP_MS_MAX} ms (10 h), step {step} is {delay_ms} ms")]
    TooLong {
        /// Index of the step, from 0.
        step: usize,
        /// Its delay, milliseconds.
        delay_ms: u64,
    },
}

/// The delays before each attempt of a job, milliseconds: step *n* precedes attempt *n + 1*.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct RetrySchedule(Vec<u64>);

impl RetrySchedule {
    /// A schedule of these steps, milliseconds.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(steps_ms: Vec<u64>) -> Result<Self, Error> {
        if steps_ms.is_empty() || steps_ms.len() > STEPS_MAX {
            return Err(Error::Steps(steps_ms.len()));
        }
        match steps_ms.iter().position(|delay_ms| *delay_ms > STEP_MS_MAX) {
            Some(step) => Err(Error::TooLong { step, delay_ms: steps_ms[step] }),
            None => Ok(Self(steps_ms)),
        }
    }

    /// The first step: a plain delay from the match, milliseconds.
    #[must_use]
    pub fn first_delay_ms(&self) -> u64 {
        self.0.first().copied().unwrap_or(0)
    }

    /// What follows a failed attempt, when `attempts` outcomes are recorded, this one included:
    /// the delay before the next (uniform in 0…step, by `jitter` in `0.0..1.0`), or `None` when
    /// the schedule is used up and the job is a dead letter.
    #[must_use]
    pub fn next_delay_ms(&self, attempts: u32, jitter: f64) -> Option<u64> {
        let step = *self.0.get(usize::try_from(attempts).unwrap_or(usize::MAX))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a step is at most 36,000,000 and jitter lies in 0..1"
        )]
        let delay_ms = (step as f64 * jitter.clamp(0.0, 1.0)) as u64;
        Some(delay_ms)
    }

    /// How many attempts a job has in all.
    #[must_use]
    pub fn attempts_max(&self) -> usize {
        self.0.len()
    }
}

impl Default for RetrySchedule {
    fn default() -> Self {
        let (second, minute, hour) = (1_000, 60_000, 3_600_000);
        Self(vec![0, 5 * second, 5 * minute, 30 * minute, 2 * hour, 5 * hour, 10 * hour, 10 * hour])
    }
}

impl TryFrom<Vec<u64>> for RetrySchedule {
    type Error = Error;
    fn try_from(steps_ms: Vec<u64>) -> Result<Self, Error> {
        Self::new(steps_ms)
    }
}

impl From<RetrySchedule> for Vec<u64> {
    fn from(schedule: RetrySchedule) -> Self {
        schedule.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_curve_has_eight_attempts_over_about_28_hours() {
        let curve = RetrySchedule::default();
        assert_eq!(curve.attempts_max(), 8);
        assert_eq!(curve.first_delay_ms(), 0);
        let span: u64 = (1..8).filter_map(|n| curve.next_delay_ms(n, 1.0)).sum();
        assert_eq!(span / 3_600_000, 27);
        assert_eq!(curve.next_delay_ms(8, 0.5), None);
    }

    #[test]
    fn a_schedule_has_one_to_twelve_steps_of_at_most_ten_hours() {
        assert_eq!(RetrySchedule::new(vec![]), Err(Error::Steps(0)));
        assert_eq!(RetrySchedule::new(vec![1; 13]), Err(Error::Steps(13)));
        assert!(RetrySchedule::new(vec![STEP_MS_MAX; 12]).is_ok());
        let long = RetrySchedule::new(vec![0, STEP_MS_MAX + 1]);
        assert_eq!(long, Err(Error::TooLong { step: 1, delay_ms: STEP_MS_MAX + 1 }));
    }

    proptest! {
        #[test]
        fn a_delay_lies_between_zero_and_its_step(
            steps in prop::collection::vec(0..=STEP_MS_MAX, 1..=12),
            attempts in 0u32..14,
            jitter in 0.0f64..1.0,
        ) {
            let schedule = RetrySchedule::new(steps.clone()).unwrap();
            match schedule.next_delay_ms(attempts, jitter) {
                Some(delay_ms) => prop_assert!(delay_ms <= steps[attempts as usize]),
                None => prop_assert!(attempts as usize >= steps.len()),
            }
        }
    }
}
