//! Retention (contract section 8): entries that were read long enough ago, that nobody read for too
//! long, or whose subscription is gone are removed, a bounded number in one transaction. On its way
//! the sweep counts what is unread.

use std::ops::ControlFlow;

use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::State;
use streaming_hub_state::family::pull_entry::{self, Entry};
use streaming_hub_state::family::pull_head::{self, Head};

use super::{Pull, PullSettings, cursors, entries};
use crate::runtime::processor::{Error, Step};

/// The most entries removed in one step.
const REMOVED_MAX: usize = 512;
/// The most subscriptions looked at in one step.
const LOOKED_AT_MAX: usize = 1_000;
/// The longest time between two sweeps, milliseconds.
const INTERVAL_MS_MAX: u64 = 60_000;
/// The shortest, milliseconds.
const INTERVAL_MS_MIN: u64 = 500;

/// Where a sweep stands.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// When the next one begins.
    pub(super) next: Option<UnixMillis>,
    /// Whether one is under way.
    pub(super) runs: bool,
    /// The last subscription that it has finished with.
    after: Option<[u8; 16]>,
    /// Unread entries and subscriptions with any, so far.
    counted: (u64, u64),
    /// The same as of the last whole sweep.
    pub(super) told: (u64, u64),
    /// What the open transaction removes, and how much of it was unread.
    pub(super) removed: (u64, u64),
}

impl Sweep {
    /// A whole one begins now, also in the midst of one.
    pub(super) fn at_once(&mut self) {
        (self.runs, self.after, self.counted) = (true, None, (0, 0));
    }

    /// What the sweep removed was not removed: it begins anew.
    pub(super) fn rewind(&mut self) {
        (self.after, self.counted, self.removed) = (None, (0, 0), (0, 0));
    }
}

/// How often a sweep begins under these retentions, milliseconds.
pub(super) fn interval_ms(settings: &PullSettings) -> u64 {
    let shortest = settings.read_ms.min(settings.unread_ms);
    (shortest / 16).clamp(INTERVAL_MS_MIN, INTERVAL_MS_MAX)
}

/// An entry that is looked at for removal.
struct Found {
    seq: u64,
    entry: Entry,
}

impl Pull {
    /// Goes on with a sweep.
    pub(super) fn sweep_on(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        let mut room = REMOVED_MAX;
        for _ in 0..LOOKED_AT_MAX {
            let next = pull_head::next_subscription(step.state, self.sweep.after.as_ref())?;
            let Some(bytes) = next else {
                self.finish_sweep(step.now);
                return Ok(());
            };
            if let Ok(id) = SubscriptionId::from_bytes(bytes)
                && !self.sweep_one(id, &mut room, step)?
            {
                return Ok(());
            }
            self.sweep.after = Some(bytes);
        }
        Ok(())
    }

    fn finish_sweep(&mut self, now: UnixMillis) {
        let sweep = &mut self.sweep;
        self.settings.metrics.pull.backlog(sweep.counted, sweep.told);
        sweep.told = std::mem::take(&mut sweep.counted);
        (sweep.runs, sweep.after) = (false, None);
        sweep.next = Some(now.plus(interval_ms(&self.settings)));
    }

    /// Removes what may go of one subscription; answers whether that was all of it.
    fn sweep_one(
        &mut self,
        id: SubscriptionId,
        room: &mut usize,
        step: &mut Step<'_>,
    ) -> Result<bool, Error> {
        let head = entries::head(step.state, id)?;
        let cursor = cursors::get(step.state, id)?;
        let gone = self.is_deleted(id, &head);
        let settled = cursor.settled(step.now, self.settings.read_ms);
        let (now, unread_ms) = (step.now, self.settings.unread_ms);
        let may_go = |found: &Found| {
            let matched = UnixMillis(i64::try_from(found.entry.matched_ms).unwrap_or(i64::MAX));
            gone || found.seq <= settled || now.since(matched) >= unread_ms
        };
        let found = oldest(step.state, id, *room, may_go)?;
        *room -= found.len();
        for Found { seq, entry } in &found {
            entries::remove(id, *seq, entry, step);
            self.sweep.removed.0 += 1;
            self.sweep.removed.1 += u64::from(!gone && *seq > cursor.cursor);
        }
        if *room == 0 {
            return Ok(false);
        }
        if gone {
            step.state.delete(pull_head::key(id.as_bytes()));
            cursors::set(id, None, step);
            return Ok(true);
        }
        let unread = unread(step.state, id, cursor.cursor, &head)?;
        self.sweep.counted.0 += unread;
        self.sweep.counted.1 += u64::from(unread > 0);
        Ok(true)
    }

    /// Whether the subscription is gone, for which the table must be as new as its last match
    /// (design 18).
    fn is_deleted(&self, id: SubscriptionId, head: &Head) -> bool {
        let table = &self.settings.table;
        // The position before the row: the row may be newer, never older than it says.
        let position = table.position(i32::try_from(head.home).unwrap_or(0));
        table.get(id).is_none() && u64::try_from(position).is_ok_and(|at| at >= head.table)
    }
}

/// The oldest entries of a subscription for as long as they may go, at most so many.
fn oldest(
    state: &State,
    id: SubscriptionId,
    at_most: usize,
    may_go: impl Fn(&Found) -> bool,
) -> Result<Vec<Found>, Error> {
    let (mut found, mut failed) = (Vec::new(), None);
    if at_most == 0 {
        return Ok(found);
    }
    let all = pull_entry::of_subscription(id.as_bytes());
    let _ = state.scan(&all, &mut |key, value| {
        let decoded = pull_entry::decode_key(key)
            .and_then(|(_, seq)| Ok(Found { seq, entry: pull_entry::decode_value(value)?.0 }));
        match decoded {
            Ok(entry) if may_go(&entry) => {
                found.push(entry);
                if found.len() < at_most {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            }
            Ok(_) => ControlFlow::Break(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(found), |error| Err(error.into()))
}

/// How many entries lie behind the cursor.
fn unread(state: &State, id: SubscriptionId, cursor: u64, head: &Head) -> Result<u64, Error> {
    let mut first = Ok(None);
    let _ = state.scan(&pull_entry::behind(id.as_bytes(), cursor), &mut |_, value| {
        first = pull_entry::decode_value(value).map(|(entry, _)| Some(entry.ordinal));
        ControlFlow::Break(())
    })?;
    Ok(first?.map_or(0, |ordinal| (head.total + 1).saturating_sub(ordinal)))
}
