//! Bounds how often one place of the code may warn: a broker that is away for an hour, or a
//! destination with a bad certificate, must not fill a disk with one sentence. Lines of other
//! levels are not bounded; what was left out is counted and said when the place may speak again.
#![expect(clippy::disallowed_methods, reason = "rates of log lines are of the wall clock")]

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// Lines of one place in one window.
const LINES: u32 = 100;
/// A window.
const WINDOW: Duration = Duration::from_secs(60);

/// How often a place spoke in its window.
struct Place {
    since: Instant,
    lines: u32,
    left_out: u64,
}

/// All places that spoke.
struct Places<K>(Mutex<HashMap<K, Place>>);

/// The filter.
pub(super) struct Bounded {
    is_json: bool,
    places: Places<Identifier>,
}

impl<K: Eq + Hash> Places<K> {
    /// Whether a place may speak at this moment, and how many lines of it were left out before.
    fn may(&self, place: K, now: Instant) -> (bool, u64) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Place { since: now, lines: 0, left_out: 0 };
        let own = places.entry(place).or_insert(fresh);
        let mut before = 0;
        if now.duration_since(own.since) >= WINDOW {
            before = own.left_out;
            *own = Place { since: now, lines: 0, left_out: 0 };
        }
        let may = own.lines < LINES;
        if may {
            own.lines += 1;
        } else {
            own.left_out += 1;
        }
        (may, before)
    }
}

impl Bounded {
    /// One that says in JSON, or for people, what was left out.
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_json, places: Places(Mutex::default()) }
    }

    /// Written past the log itself: this runs inside of it.
    fn say(&self, count: u64, metadata: &Metadata<'_>) {
        let place = (metadata.target(), metadata.line().unwrap_or(0));
        let text = format!("{count} lines like the next were left out ({}:{})", place.0, place.1);
        let mut out = std::io::stderr().lock();
        let _ = if self.is_json {
            writeln!(out, r#"{{"level":"WARN","left_out":{count},"message":"{text}"}}"#)
        } else {
            writeln!(out, " WARN {text}")
        };
    }
}

impl<S> Filter<S> for Bounded {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN {
            return true;
        }
        let (may, before) = self.places.may(metadata.callsite(), Instant::now());
        if before > 0 {
            self.say(before, metadata);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_repeats_itself_is_silenced_and_counted_until_its_window_ends() {
        let (places, start) = (Places(Mutex::default()), Instant::now());
        for _ in 0..LINES {
            assert_eq!(places.may("a", start), (true, 0));
        }
        for _ in 0..7 {
            assert_eq!(places.may("a", start), (false, 0));
        }
        assert_eq!(places.may("b", start), (true, 0));
        assert_eq!(places.may("a", start + WINDOW), (true, 7));
        assert_eq!(places.may("a", start + WINDOW), (true, 0));
    }
}
