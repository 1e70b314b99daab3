//! The back-off curve, contract section 4: `0 · 5s · 5m · 30m · 2h · 5h · 10h · 10h`, full jitter.
//! Pure: randomness comes in as a number in `0.0..1.0`.

use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::time::UnixMillis;

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
        Some(share_of(step, jitter))
    }

    /// As [`Self::next_delay_ms`], when the destination asked to be left alone for a while:
    /// max(jittered step, what it asked for, capped at [`STEP_MS_MAX`]) and up to a tenth of that
    /// more (by `spread` in `0.0..1.0`), so that those that were turned away together do not come
    /// back together.
    #[must_use]
    pub fn next_delay_after_ms(
        &self,
        attempts: u32,
        (jitter, spread): (f64, f64),
        retry_after_ms: Option<u64>,
    ) -> Option<u64> {
        let step_ms = self.next_delay_ms(attempts, jitter)?;
        let Some(asked_ms) = retry_after_ms else { return Some(step_ms) };
        let delay_ms = step_ms.max(asked_ms.min(STEP_MS_MAX));
        Some(delay_ms + share_of(delay_ms / 10, spread))
    }

    /// How many attempts a job has in all.
    #[must_use]
    pub fn attempts_max(&self) -> usize {
        self.0.len()
    }
}

/// This share (`0.0..1.0`) of a time, milliseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a delay is at most 36,000,000 and a share lies in 0..1"
)]
#[must_use]
pub fn share_of(ms: u64, share: f64) -> u64 {
    (ms as f64 * share.clamp(0.0, 1.0)) as u64
}

/// What a `Retry-After` (RFC 9110, section 10.2.3) asks for, milliseconds from `now`: seconds, or
/// a date in any of HTTP's three forms. `None` for a date that is past and for what is neither.
#[must_use]
pub fn retry_after_ms(value: &str, now: UnixMillis) -> Option<u64> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Beyond 64 bits it is still a wish to wait, for longer than any cap.
        let seconds = value.parse::<u64>().unwrap_or(u64::MAX);
        return Some(seconds.saturating_mul(1_000)).filter(|ms| *ms > 0);
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let at_ms = date.duration_since(UNIX_EPOCH).ok()?.as_millis();
    let at = UnixMillis(i64::try_from(at_ms).ok()?);
    Some(at.since(now)).filter(|ms| *ms > 0)
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

    #[test]
    fn retry_after_is_read_in_seconds_and_in_every_form_of_date() {
        // 1994-11-06 08:49:37 UTC.
        let then = UnixMillis(784_111_777_000);
        let table = [
            ("120", then, Some(120_000)),
            (" 5 ", then, Some(5_000)),
            ("0", then, None),
            ("99999999999999999999999", then, Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", UnixMillis(then.0 - 2_500), Some(2_500)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", UnixMillis(then.0 - 1_000), Some(1_000)),
            ("Sun Nov  6 08:49:37 1994", UnixMillis(then.0 - 1_000), Some(1_000)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", then, None),
            ("Sun, 06 Nov 1994 08:49:37 GMT", UnixMillis(then.0 + 1), None),
            ("-5", then, None),
            ("1.5", then, None),
            ("soon", then, None),
            ("", then, None),
        ];
        for (value, now, expected) in table {
            assert_eq!(retry_after_ms(value, now), expected, "{value:?}");
        }
    }

    #[test]
    fn a_wish_to_wait_counts_from_the_outcome_is_capped_and_spread_by_a_tenth() {
        let curve = RetrySchedule::new(vec![0, 10_000]).unwrap();
        let delay = |jitter, spread, asked| curve.next_delay_after_ms(1, (jitter, spread), asked);
        assert_eq!(delay(0.5, 0.9, None), Some(5_000));
        assert_eq!(delay(0.5, 0.0, Some(2_000)), Some(5_000), "the longer of the two");
        assert_eq!(delay(0.5, 0.5, Some(60_000)), Some(63_000));
        assert_eq!(delay(0.5, 0.0, Some(u64::MAX)), Some(STEP_MS_MAX));
        let used_up = curve.next_delay_after_ms(2, (0.5, 0.0), Some(1));
        assert_eq!(used_up, None, "a wish to wait adds no attempt");
    }

    #[test]
    fn full_jitter_is_uniform_over_the_step() {
        let curve = RetrySchedule::new(vec![0, 1_000]).unwrap();
        let mut tenths = [0; 10];
        for n in 0..1_000u32 {
            let delay_ms = curve.next_delay_ms(1, f64::from(n) / 1_000.0).unwrap();
            tenths[usize::try_from(delay_ms / 100).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (99..=101).contains(count)), "{tenths:?}");
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
