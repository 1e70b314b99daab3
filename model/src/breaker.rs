//! The circuit breaker of one tenant's destination (contract section 4, "Circuit breaker"), as a
//! state machine without a clock: it opens after some failures in a row, or when too many of the
//! attempts in a window failed; after a while it lets a few probes through, and their outcomes
//! close it or open it for longer.
//!
//! Not here: which jobs are the probes, who waits behind it, and how others hear of it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::retry::share_of;
use crate::time::UnixMillis;

/// Into how many parts the window is divided: it forgets a part at a time.
const PARTS: u64 = 12;

/// The numbers of all breakers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BreakerSettings {
    /// So many failures in a row open it.
    pub failures_max: u32,
    /// Of at least so many attempts within the window …
    pub attempts_min: u32,
    /// … so many in a hundred that failed open it.
    pub failure_percent: u32,
    /// The window, milliseconds.
    pub window_ms: u64,
    /// How long it stays open the first time, milliseconds; each time in a row twice as long.
    pub open_ms: u64,
    /// How long at the most, milliseconds.
    pub open_ms_max: u64,
    /// How many probes are let through before it closes.
    pub probes: u32,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures_max: 5,
            attempts_min: 10,
            failure_percent: 50,
            window_ms: 120_000,
            open_ms: 30_000,
            open_ms_max: 600_000,
            probes: 3,
        }
    }
}

impl BreakerSettings {
    /// How long it stays open for the `openings`-th time in a row: with up to a tenth more (by
    /// `jitter` in `0.0..1.0`), so that those that opened together do not probe together.
    fn open_for_ms(&self, openings: u32, jitter: f64) -> u64 {
        let doublings = openings.saturating_sub(1).min(20);
        let base_ms = self.open_ms.saturating_mul(1 << doublings).min(self.open_ms_max);
        base_ms + share_of(base_ms / 10, jitter)
    }

    /// The longest that any opening lasts, milliseconds.
    #[must_use]
    pub fn longest_ms(&self) -> u64 {
        self.open_ms_max + self.open_ms_max / 10
    }
}

/// Whether an attempt may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// It may.
    Free,
    /// It may, as one of so many probes that are left.
    Probe(u32),
    /// Not before this moment.
    Until(UnixMillis),
    /// Not before a probe has returned.
    ProbesOut,
}

/// What an outcome changed, to be told to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is open now.
    Opened,
    /// It is closed now.
    Closed,
}

/// A breaker that is open, as others and later owners hear of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// When probes are let through, Unix milliseconds.
    pub until: UnixMillis,
    /// How many times in a row it has opened.
    pub openings: u32,
}

/// Its three states, for metrics and operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Attempts are made.
    Closed,
    /// None is.
    Open,
    /// Probes are.
    HalfOpen,
}

impl Phase {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open(UnixMillis),
    HalfOpen { under_way: u32, succeeded: u32 },
}

/// The attempts of a part of the window.
#[derive(Debug, Clone, Copy)]
struct Part {
    number: u64,
    attempts: u32,
    failures: u32,
}

/// A breaker.
#[derive(Debug, Clone)]
pub struct Breaker {
    state: State,
    /// Failures since the last success.
    in_a_row: u32,
    openings: u32,
    window: VecDeque<Part>,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed, in_a_row: 0, openings: 0, window: VecDeque::new() }
    }
}

impl Breaker {
    /// A breaker that somebody else opened, or a predecessor.
    #[must_use]
    pub fn opened(opening: Opening) -> Self {
        Self { state: State::Open(opening.until), openings: opening.openings, ..Self::default() }
    }

    /// What others have to know of it; nothing while it is closed. A half-open one is as good as
    /// one whose time is up.
    #[must_use]
    pub fn opening(&self, now: UnixMillis) -> Option<Opening> {
        let openings = self.openings;
        match self.state {
            State::Closed => None,
            State::Open(until) => Some(Opening { until, openings }),
            State::HalfOpen { .. } => Some(Opening { until: now, openings }),
        }
    }

    /// Its state at this moment.
    #[must_use]
    pub fn phase(&self, now: UnixMillis) -> Phase {
        match self.state {
            State::Closed => Phase::Closed,
            State::Open(until) if now < until => Phase::Open,
            State::Open(_) | State::HalfOpen { .. } => Phase::HalfOpen,
        }
    }

    /// Whether nothing is to be remembered of it.
    #[must_use]
    pub fn is_idle(&self, now: UnixMillis, settings: &BreakerSettings) -> bool {
        let this = part_number(now, settings);
        let recent = |part: &Part| part.number + PARTS > this;
        self.state == State::Closed && self.in_a_row == 0 && !self.window.iter().any(recent)
    }

    /// Whether an attempt may be made now.
    #[must_use]
    pub fn pass(&self, now: UnixMillis, settings: &BreakerSettings) -> Pass {
        match self.state {
            State::Closed => Pass::Free,
            State::Open(until) if now < until => Pass::Until(until),
            State::Open(_) => Pass::Probe(settings.probes.max(1)),
            State::HalfOpen { under_way, succeeded } => {
                match settings.probes.max(1).saturating_sub(under_way + succeeded) {
                    0 => Pass::ProbesOut,
                    left => Pass::Probe(left),
                }
            }
        }
    }

    /// The clock was turned back, or an opening was reckoned by another: it lasts no longer than
    /// the longest from now on.
    pub fn turned_back(&mut self, now: UnixMillis, settings: &BreakerSettings) {
        if let State::Open(until) = &mut self.state {
            *until = (*until).min(now.plus(settings.longest_ms()));
        }
    }

    /// An attempt starts that [`Self::pass`] called a probe.
    pub fn probe_started(&mut self) {
        match &mut self.state {
            State::HalfOpen { under_way, .. } => *under_way += 1,
            State::Open(_) => self.state = State::HalfOpen { under_way: 1, succeeded: 0 },
            State::Closed => {}
        }
    }

    /// A probe was no attempt after all: another may take its place.
    pub fn probe_withdrawn(&mut self) {
        if let State::HalfOpen { under_way, .. } = &mut self.state {
            *under_way = under_way.saturating_sub(1);
        }
    }

    /// A probe has returned. Answers what that changes.
    pub fn probed(
        &mut self,
        delivered: bool,
        (now, jitter): (UnixMillis, f64),
        settings: &BreakerSettings,
    ) -> Option<Change> {
        let State::HalfOpen { under_way, succeeded } = self.state else { return None };
        if !delivered {
            self.open(now, jitter, settings);
            return Some(Change::Opened);
        }
        let (under_way, succeeded) = (under_way.saturating_sub(1), succeeded + 1);
        if succeeded < settings.probes {
            self.state = State::HalfOpen { under_way, succeeded };
            return None;
        }
        *self = Self::default();
        Some(Change::Closed)
    }

    /// An attempt that was no probe has returned. Answers what that changes: one that comes back
    /// only after the breaker has opened changes nothing.
    pub fn attempted(
        &mut self,
        delivered: bool,
        (now, jitter): (UnixMillis, f64),
        settings: &BreakerSettings,
    ) -> Option<Change> {
        if self.state != State::Closed {
            return None;
        }
        self.in_a_row = if delivered { 0 } else { self.in_a_row + 1 };
        let (attempts, failures) = self.count(delivered, part_number(now, settings));
        let share = u64::from(failures) * 100 >= u64::from(attempts * settings.failure_percent);
        let too_many = attempts >= settings.attempts_min && share && !delivered;
        if self.in_a_row < settings.failures_max && !too_many {
            return None;
        }
        self.open(now, jitter, settings);
        Some(Change::Opened)
    }

    /// Counts an attempt; answers how many there were within the window, and failures among them.
    fn count(&mut self, delivered: bool, this: u64) -> (u32, u32) {
        if self.window.back().is_none_or(|part| part.number != this) {
            // After the clock was turned back the parts ahead of it are of no use.
            self.window.retain(|part| part.number < this && part.number + PARTS > this);
            self.window.push_back(Part { number: this, attempts: 0, failures: 0 });
        }
        if let Some(part) = self.window.back_mut() {
            part.attempts += 1;
            part.failures += u32::from(!delivered);
        }
        let parts = self.window.iter();
        parts.fold((0, 0), |(attempts, failures), part| {
            (attempts + part.attempts, failures + part.failures)
        })
    }

    fn open(&mut self, now: UnixMillis, jitter: f64, settings: &BreakerSettings) {
        let openings = self.openings.saturating_add(1);
        let until = now.plus(settings.open_for_ms(openings, jitter));
        *self = Self::opened(Opening { until, openings });
    }
}

fn part_number(now: UnixMillis, settings: &BreakerSettings) -> u64 {
    u64::try_from(now.0).unwrap_or(0) / (settings.window_ms / PARTS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T0: UnixMillis = UnixMillis(1_000_000_000);

    fn at(ms: u64) -> (UnixMillis, f64) {
        (T0.plus(ms), 0.0)
    }

    fn settings() -> BreakerSettings {
        BreakerSettings::default()
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for n in 0..5 {
            let change = breaker.attempted(false, at(0), &settings());
            assert_eq!(change, (n == 4).then_some(Change::Opened));
        }
        breaker
    }

    #[test]
    fn five_failures_in_a_row_open_it_for_thirty_seconds() {
        let breaker = opened();
        let pass = |ms| breaker.pass(T0.plus(ms), &settings());
        assert_eq!(pass(0), Pass::Until(T0.plus(30_000)));
        assert_eq!(pass(29_999), Pass::Until(T0.plus(30_000)));
        assert_eq!(pass(30_000), Pass::Probe(3));
    }

    #[test]
    fn a_success_in_between_starts_the_count_anew() {
        let mut breaker = Breaker::default();
        // Far enough apart that the window holds few of them.
        for n in 0..40u64 {
            let change = breaker.attempted(n % 5 == 4, at(n * 60_000), &settings());
            assert_eq!(change, None, "{n}");
        }
    }

    #[test]
    fn half_of_at_least_ten_attempts_in_two_minutes_open_it() {
        let alternating = |apart_ms: u64, count: u64| {
            let mut breaker = Breaker::default();
            (0..count).find_map(|n| {
                let change = breaker.attempted(n % 2 == 0, at(n * apart_ms), &settings());
                change.map(|_| n + 1)
            })
        };
        assert_eq!(alternating(10, 9), None, "nine are too few");
        assert_eq!(alternating(10, 20), Some(10));
        assert_eq!(alternating(15_000, 100), None, "never ten within two minutes");
    }

    #[test]
    fn fewer_than_half_failures_do_not_open_it() {
        let mut breaker = Breaker::default();
        for n in 0..300 {
            assert_eq!(breaker.attempted(n % 3 > 0, at(n), &settings()), None, "a third fails");
        }
    }

    #[test]
    fn three_probes_go_through_and_their_successes_close_it() {
        let mut breaker = opened();
        let now = T0.plus(30_000);
        for left in [3, 2, 1] {
            assert_eq!(breaker.pass(now, &settings()), Pass::Probe(left));
            breaker.probe_started();
        }
        assert_eq!(breaker.pass(now, &settings()), Pass::ProbesOut);
        assert_eq!(breaker.probed(true, at(30_010), &settings()), None);
        assert_eq!(breaker.pass(now, &settings()), Pass::ProbesOut, "three in all");
        assert_eq!(breaker.probed(true, at(30_010), &settings()), None);
        assert_eq!(breaker.probed(true, at(30_010), &settings()), Some(Change::Closed));
        assert_eq!(breaker.pass(now, &settings()), Pass::Free);
        assert_eq!(breaker.opening(now), None);
        assert!(breaker.is_idle(now, &settings()), "what failed before is forgotten");
    }

    #[test]
    fn a_probe_that_fails_opens_it_for_twice_as_long_up_to_ten_minutes() {
        let mut breaker = opened();
        let mut now_ms = 30_000;
        for open_ms in [60_000, 120_000, 240_000, 480_000, 600_000, 600_000] {
            breaker.probe_started();
            breaker.probe_started();
            assert_eq!(breaker.probed(false, at(now_ms), &settings()), Some(Change::Opened));
            assert_eq!(
                breaker.probed(true, at(now_ms), &settings()),
                None,
                "the other is too late"
            );
            let until = T0.plus(now_ms + open_ms);
            assert_eq!(breaker.pass(T0.plus(now_ms), &settings()), Pass::Until(until));
            now_ms += open_ms;
        }
    }

    #[test]
    fn a_probe_that_was_no_attempt_gives_its_place_back() {
        let mut breaker = opened();
        for _ in 0..3 {
            breaker.probe_started();
        }
        breaker.probe_withdrawn();
        assert_eq!(breaker.pass(T0.plus(30_000), &settings()), Pass::Probe(1));
    }

    #[test]
    fn attempts_that_return_after_it_opened_change_nothing() {
        let mut breaker = opened();
        for delivered in [true, false] {
            assert_eq!(breaker.attempted(delivered, at(5), &settings()), None);
        }
        assert_eq!(breaker.pass(T0, &settings()), Pass::Until(T0.plus(30_000)));
    }

    #[test]
    fn a_new_owner_goes_on_where_the_last_one_was() {
        let mut breaker = Breaker::opened(opened().opening(T0).unwrap());
        breaker.probe_started();
        breaker.probed(false, at(30_000), &settings());
        let until = T0.plus(90_000);
        assert_eq!(breaker.opening(T0), Some(Opening { until, openings: 2 }));
    }

    #[test]
    fn a_clock_that_is_turned_back_keeps_it_open_no_longer_than_the_longest_opening() {
        let mut breaker = opened();
        let earlier = UnixMillis(T0.0 - 86_400_000);
        breaker.turned_back(earlier, &settings());
        let latest = earlier.plus(660_000);
        assert_eq!(breaker.pass(earlier, &settings()), Pass::Until(latest));
    }

    #[test]
    fn jitter_adds_up_to_a_tenth() {
        let mut breaker = Breaker::default();
        for _ in 0..5 {
            breaker.attempted(false, (T0, 0.999_999), &settings());
        }
        assert_eq!(breaker.pass(T0, &settings()), Pass::Until(T0.plus(32_999)));
    }

    proptest! {
        #[test]
        fn never_more_probes_than_allowed_and_never_stuck(
            steps in prop::collection::vec((0u8..6, 0u64..40_000), 0..200),
        ) {
            let (settings, mut breaker) = (settings(), Breaker::default());
            let (mut now, mut probes) = (T0, 0u32);
            for (what, later_ms) in steps {
                now = now.plus(later_ms);
                match (what, breaker.pass(now, &settings)) {
                    (0 | 1, Pass::Probe(_)) => {
                        breaker.probe_started();
                        probes += 1;
                    }
                    (2 | 3, _) if probes > 0 => {
                        probes -= 1;
                        breaker.probed(what == 2, (now, 0.5), &settings);
                    }
                    (4, _) if probes > 0 => {
                        probes -= 1;
                        breaker.probe_withdrawn();
                    }
                    (_, Pass::Free) => {
                        breaker.attempted(what > 2, (now, 0.5), &settings);
                    }
                    _ => {}
                }
                match breaker.pass(now, &settings) {
                    Pass::Until(until) => {
                        prop_assert!(until.since(now) <= settings.longest_ms());
                        probes = 0;
                    }
                    Pass::ProbesOut => prop_assert!(probes > 0, "stuck"),
                    Pass::Free => probes = 0,
                    Pass::Probe(left) => prop_assert!(left <= settings.probes),
                }
            }
        }
    }
}
