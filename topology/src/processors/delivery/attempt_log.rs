//! The last attempts of each subscription, as they are served: a view of the end of
//! `<app>-attempts`, in a ring of 200 lines a subscription (contract section 8).
//!
//! The invariant: the log never drives a delivery. A line that cannot be written, restored or read
//! is left out, and nothing else asks for one.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::Deserialize;
use streaming_hub_model::delivery_calls::{AttemptLine, AttemptOutcome, AttemptsPage};
use streaming_hub_model::id::{JobId, SubscriptionId};
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::family::attempt_line;
use streaming_hub_state::{ExpiryRule, Family, State};

use crate::runtime::processor::{Error, Record, Step};

/// The most characters of a failure's words in a line.
pub(super) const DETAIL_MAX: usize = 1024;

/// The log of one task.
pub(super) struct AttemptLog {
    /// The next number of each subscription that had an attempt in this incarnation.
    next: HashMap<SubscriptionId, u64>,
    /// What started before is not shown, and may be removed; Unix milliseconds.
    bound: Arc<AtomicI64>,
}

/// What of a line is needed to restore it.
#[derive(Deserialize)]
struct Numbered {
    subscription: SubscriptionId,
    started_at: UnixMillis,
    number: u64,
}

impl AttemptLog {
    pub(super) fn new() -> Self {
        Self { next: HashMap::new(), bound: Arc::new(AtomicI64::new(i64::MIN)) }
    }

    /// The rule by which old lines go.
    pub(super) fn expiry(&self) -> ExpiryRule {
        ExpiryRule { family: Family::AttemptLine, bound: Arc::clone(&self.bound) }
    }

    /// Lines are kept for so long.
    pub(super) fn keep_from(&self, now: UnixMillis, kept_ms: u64) {
        let kept_ms = i64::try_from(kept_ms).unwrap_or(i64::MAX);
        self.bound.store(now.0.saturating_sub(kept_ms), Ordering::Relaxed);
    }

    /// Numbers a line, keeps it, and answers it as its topic takes it; `None` when it cannot be
    /// written.
    pub(super) fn add(
        &mut self,
        mut line: AttemptLine,
        step: &mut Step<'_>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let id = line.subscription;
        line.number = match self.next.get(&id) {
            Some(next) => *next,
            None => next_number(step.state, id)?,
        };
        self.next.insert(id, line.number.saturating_add(1));
        let Ok(value) = serde_json::to_vec(&line) else { return Ok(None) };
        let kept = attempt_line::value(line.started_at.0, line.number, &value);
        step.state.put(attempt_line::key(id.as_bytes(), line.number), kept);
        Ok(Some(value))
    }

    /// The numbers of the open transaction were not given.
    pub(super) fn aborted(&mut self) {
        self.next.clear();
    }

    /// A page of a subscription's attempts, newest first.
    pub(super) fn page(
        &self,
        state: &State,
        subscription: SubscriptionId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<AttemptsPage, Error> {
        let mut attempts = self.lines(state, subscription)?;
        attempts.retain(|line| before.is_none_or(|before| line.number < before));
        attempts.sort_unstable_by_key(|line| std::cmp::Reverse(line.number));
        let more = attempts.len() > limit;
        attempts.truncate(limit);
        let next = attempts.last().filter(|_| more).map(|line| line.number);
        Ok(AttemptsPage { attempts, next })
    }

    /// When the attempt started that delivered a job, if its line is still there.
    pub(super) fn delivered(
        &self,
        state: &State,
        subscription: SubscriptionId,
        job: JobId,
    ) -> Result<Option<UnixMillis>, Error> {
        let lines = self.lines(state, subscription)?;
        let is_it =
            |line: &&AttemptLine| line.job == job && line.outcome == AttemptOutcome::Delivered;
        Ok(lines.iter().find(is_it).map(|line| line.started_at))
    }

    /// All lines of a subscription that are to be shown.
    fn lines(
        &self,
        state: &State,
        subscription: SubscriptionId,
    ) -> Result<Vec<AttemptLine>, Error> {
        let (mut lines, bound) = (Vec::new(), self.bound.load(Ordering::Relaxed));
        let range = attempt_line::of_subscription(subscription.as_bytes());
        let _ = state.scan(&range, &mut |_, value| {
            if let Ok((started_ms, _, line)) = attempt_line::decode_value(value)
                && started_ms >= bound
                && let Ok(line) = serde_json::from_slice(line)
            {
                lines.push(line);
            }
            ControlFlow::Continue(())
        })?;
        Ok(lines)
    }
}

/// The number after the highest that a subscription has.
fn next_number(state: &State, subscription: SubscriptionId) -> Result<u64, Error> {
    let mut next = 0;
    let range = attempt_line::of_subscription(subscription.as_bytes());
    let _ = state.scan(&range, &mut |_, value| {
        if let Ok((_, number, _)) = attempt_line::decode_value(value) {
            next = next.max(number.saturating_add(1));
        }
        ControlFlow::Continue(())
    })?;
    Ok(next)
}

/// Takes a record of the topic into the store, unless a newer line has its slot.
pub(super) fn restore(record: &Record<'_>, state: &mut State) -> Result<(), Error> {
    let Some(value) = record.value else { return Ok(()) };
    let Ok(line) = serde_json::from_slice::<Numbered>(value) else { return Ok(()) };
    let key = attempt_line::key(line.subscription.as_bytes(), line.number);
    let newer = match state.get(&key)? {
        Some(old) => attempt_line::decode_value(&old)?.1 > line.number,
        None => false,
    };
    if !newer {
        state.put(key, attempt_line::value(line.started_at.0, line.number, value));
    }
    Ok(())
}
