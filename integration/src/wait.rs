//! Waiting: a condition, polled until it holds or its time is over. The one place that sleeps.
#![expect(clippy::disallowed_methods, reason = "the clock and the pause of all waiting are here")]

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// What a probe found: the thing that was waited for, or how far it is, in words.
pub type Seen<T> = Result<T, String>;

/// The pause between two probes.
const PAUSE: Duration = Duration::from_millis(25);

/// Polls until `probe` finds what is waited for.
///
/// # Errors
/// The probe's own, at once; or that the time is over, with what the last probe saw.
pub fn until<T>(
    what: &str,
    within: Duration,
    mut probe: impl FnMut() -> Result<Seen<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        match probe()? {
            Ok(found) => return Ok(found),
            Err(state) if began.elapsed() > within => {
                bail!("waited {} s for {what}; at last: {state}", within.as_secs());
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Runs something that may hang on a thread of its own, which is left behind if it does.
///
/// # Errors
/// Its own; or that its time is over, or that it panicked.
pub fn ends(
    what: &str,
    within: Duration,
    work: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    spawn(move || {
        let _ = sender.send(work());
    });
    match receiver.recv_timeout(within) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => bail!("{what} hung for {} s", within.as_secs()),
        Err(RecvTimeoutError::Disconnected) => bail!("{what} panicked"),
    }
}

/// Runs a thread of the harness: receivers and their connections.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work);
}

/// A moment to measure from.
#[must_use]
pub fn instant() -> Instant {
    Instant::now()
}

/// The wall clock, milliseconds since the Unix epoch.
#[must_use]
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_never_holds_ends_with_its_last_state() {
        let error = until::<()>("luck", Duration::ZERO, || Ok(Err("none yet".into())));
        let text = error.unwrap_err().to_string();
        assert!(text.contains("luck") && text.contains("none yet"), "{text}");
    }

    #[test]
    fn what_hangs_is_an_error_and_what_ends_is_its_result() {
        let hangs = ends("it", Duration::from_millis(20), || {
            loop {
                std::thread::park();
            }
        });
        assert!(hangs.unwrap_err().to_string().contains("it hung"));
        assert!(ends("it", Duration::from_secs(20), || Ok(())).is_ok());
        assert!(ends("it", Duration::from_secs(20), || bail!("no")).is_err());
    }

    #[test]
    fn a_condition_is_polled_until_it_holds() {
        let mut left = 3;
        let found = until("three", Duration::from_secs(5), || {
            left -= 1;
            Ok(if left == 0 { Ok("there") } else { Err(format!("{left} left")) })
        });
        assert_eq!(found.unwrap(), "there");
    }
}
