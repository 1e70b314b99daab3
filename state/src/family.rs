//! Key families: what kinds of entries a store holds.
//!
//! All families of a task share one RocksDB column family, told apart by the first byte of the key:
//! so one write batch, one memtable and one flush cover them all, and they cannot drift apart.
//!
//! Each family has its file with the layout of key and value, its encoding and its decoding side
//! by side. Numbers in keys are big-endian and unsigned, since scans rely on byte order.

pub mod attempt_line;
pub mod backlog;
pub mod claim;
pub mod dead_letter;
pub mod dedup;
pub mod due;
pub mod failure_span;
pub mod idempotency;
pub mod job;
pub mod pull_cursor;
pub mod pull_entry;
pub mod pull_head;
pub mod ready;
pub mod subscription;
pub mod tenant_subscription;

pub use job::Place;

use std::ops::ControlFlow;

use crate::{Error, KeyRange, State};

/// The first byte of a key. A number is never given to another family later, even when its family
/// is gone: an old store must not be misread. `0xff` stays free, as the end of the last family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// The store's own checkpoint.
    Checkpoint = 0,
    /// [`dedup`]: events seen.
    Dedup = 1,
    /// [`job`]: delivery jobs, wherever they lie.
    Job = 2,
    /// [`ready`]: jobs of the deliveries log by subscription, in order of arrival.
    Ready = 3,
    /// [`due`]: jobs of the retry tiers by subscription, by the time at which they are due.
    Due = 4,
    /// [`subscription`]: the registry's rows.
    Subscription = 5,
    /// [`tenant_subscription`]: which subscriptions a tenant has.
    TenantSubscription = 6,
    /// [`dead_letter`]: jobs that ended without delivery.
    DeadLetter = 7,
    /// [`dead_letter`]: the same by subscription and time.
    DeadLetterListed = 8,
    /// [`dead_letter`]: how many each subscription has.
    DeadLetterCount = 9,
    /// [`attempt_line`]: the last attempts of each subscription.
    AttemptLine = 10,
    /// [`claim`]: durable claims of restored jobs.
    Claim = 11,
    /// [`backlog`]: how much waits for each subscription.
    Backlog = 12,
    /// [`failure_span`]: since when a subscription's attempts fail.
    FailureSpan = 13,
    /// [`pull_entry`]: entries of pull subscriptions, by subscription and `seq`.
    PullEntry = 20,
    /// [`pull_head`]: how far each pull subscription's log goes.
    PullHead = 21,
    /// [`pull_cursor`]: how far each pull subscription was read.
    PullCursor = 22,
    /// [`idempotency`]: the registry's idempotency keys.
    Idempotency = 29,
}

/// What `decode` makes of the first key of a range; `None` for an empty one. One seek.
fn first<T>(
    state: &State,
    range: &KeyRange,
    decode: impl Fn(&[u8]) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let mut found = Ok(None);
    let _ = state.scan(range, &mut |key, _| {
        found = decode(key).map(Some);
        ControlFlow::Break(())
    })?;
    found
}

#[cfg(test)]
mod tests {
    use super::Family;

    #[test]
    fn discriminants_are_pinned() {
        let pinned = [
            (Family::Checkpoint, 0),
            (Family::Dedup, 1),
            (Family::Job, 2),
            (Family::Ready, 3),
            (Family::Due, 4),
            (Family::Subscription, 5),
            (Family::TenantSubscription, 6),
            (Family::DeadLetter, 7),
            (Family::DeadLetterListed, 8),
            (Family::DeadLetterCount, 9),
            (Family::AttemptLine, 10),
            (Family::Claim, 11),
            (Family::Backlog, 12),
            (Family::FailureSpan, 13),
            (Family::PullEntry, 20),
            (Family::PullHead, 21),
            (Family::PullCursor, 22),
            (Family::Idempotency, 29),
        ];
        for (family, number) in pinned {
            assert_eq!(family as u8, number, "{family:?} was renumbered: old stores are misread");
        }
    }
}
