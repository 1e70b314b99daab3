//! One transaction by itself: it carries a position of every task that it writes for (design 1),
//! since only what carries a position is fenced.

use std::collections::BTreeSet;

use streaming_hub_topology::topics::Topic;

use super::{Invariant, Violation, broken};

/// A record of a transaction: topic, partition, and whether it is a tombstone.
pub type Written = (Topic, i32, bool);

/// The source of the task that alone may write such a record; `None` when several may.
fn source_of((topic, partition, is_tombstone): Written) -> Option<(Topic, i32)> {
    let source = match topic {
        Topic::Inbox | Topic::Dedup => Topic::IngestRepartition,
        // Match puts, the owning task ends.
        Topic::Deliveries if is_tombstone => Topic::Deliveries,
        Topic::Retry(_)
        | Topic::Attempts
        | Topic::DeadLetters
        | Topic::Claims
        | Topic::Failures => Topic::Deliveries,
        // Match puts entries, the owning task ends them.
        Topic::Pull if is_tombstone => Topic::Pull,
        Topic::Cursors => Topic::Pull,
        Topic::Subscriptions => Topic::SubscriptionChanges,
        _ => return None,
    };
    Some((source, partition))
}

/// Judges the records of one transaction beside its positions.
///
/// # Errors
/// The first record whose task has no position there.
pub fn carries(
    records: impl IntoIterator<Item = Written>,
    positions: &BTreeSet<(Topic, i32)>,
) -> Result<(), Violation> {
    for record in records {
        if let Some((source, partition)) = source_of(record)
            && !positions.contains(&(source, partition))
        {
            let what = format!(
                "a transaction writes to {} {} without a position of {source} {partition}",
                record.0, record.1
            );
            return broken(Invariant::Carried, what);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_writes_needs_its_position() {
        let positions = BTreeSet::from([(Topic::Deliveries, 1)]);
        let judge = |record| carries([record], &positions).is_ok();
        assert!(judge((Topic::Retry(1), 1, false)));
        assert!(judge((Topic::Deliveries, 1, true)));
        assert!(judge((Topic::Deliveries, 2, false)), "match puts jobs anywhere");
        assert!(!judge((Topic::Deliveries, 2, true)));
        assert!(!judge((Topic::DeadLetters, 0, false)));
        assert!(!judge((Topic::Inbox, 1, false)));
        assert!(judge((Topic::Pull, 1, false)), "match puts entries anywhere");
        assert!(!judge((Topic::Pull, 1, true)));
        assert!(!judge((Topic::Cursors, 1, false)));
    }
}
