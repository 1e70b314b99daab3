//! Judges a history after which everything has settled: every accepted event is in the inbox (I1),
//! jobs are the matches as of the table that was used (I2), every record has its verdict (I7), the
//! registry decided as its pure core decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use streaming_hub_model::change::{Change, Decision};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::registry::{Current, Limits, Write, decide};
use streaming_hub_model::routing;
use streaming_hub_model::subscription::{Subscription, Wanted};
use streaming_hub_model::time::UnixMillis;

use super::{Invariant, Violation, broken};
use crate::history::{EventKey, Fate, History, Marked, Place, Row, Taken, Wish};

/// Judges all of it.
///
/// # Errors
/// The first violation.
pub fn all(history: &History, partitions: u32, limits: Limits) -> Result<(), Violation> {
    verdicts(history)?;
    inbox(history)?;
    jobs(history, partitions)?;
    registry(history, limits)
}

/// I7: each record of a producer has exactly the verdict that it has to have.
///
/// # Errors
/// The first violation.
pub fn verdicts(history: &History) -> Result<(), Violation> {
    let mut found: HashMap<&str, (usize, usize)> = HashMap::new();
    for verdict in &history.verdicts {
        let (passed, quarantined) = found.entry(&verdict.from).or_default();
        *(if verdict.quarantined { quarantined } else { passed }) += 1;
    }
    for fact in &history.facts {
        let wanted = match fact.fate {
            Fate::Accept(_) => (1, 0),
            Fate::Quarantine => (0, 1),
            Fate::Drop => (0, 0),
        };
        let is = found.remove(fact.from.as_str()).unwrap_or_default();
        if is != wanted {
            let what = format!(
                "record {} was passed on {} times and quarantined {} times, wanted {:?}",
                fact.from, is.0, is.1, fact.fate
            );
            return broken(Invariant::I7, what);
        }
    }
    match found.keys().min() {
        Some(stranger) => broken(Invariant::I7, format!("a verdict on {stranger}, never written")),
        None => Ok(()),
    }
}

/// I1, its first half: every accepted event is in the inbox, and nothing else is.
///
/// # Errors
/// The first violation.
pub fn inbox(history: &History) -> Result<(), Violation> {
    let taken: BTreeSet<&EventKey> = history.inbox.iter().map(|taken| &taken.event).collect();
    let accepted = history.facts.iter().filter_map(|fact| match &fact.fate {
        Fate::Accept(event) => Some(event),
        Fate::Quarantine | Fate::Drop => None,
    });
    let accepted: BTreeSet<&EventKey> = accepted.collect();
    if let Some((tenant, id)) = accepted.difference(&taken).next() {
        return broken(Invariant::I1, format!("event {id} of {tenant} is not in the inbox"));
    }
    if let Some((tenant, id)) = taken.difference(&accepted).next() {
        return broken(Invariant::I1, format!("event {id} of {tenant} was never accepted"));
    }
    Ok(())
}

/// I2: the jobs and pull entries of an event are those of the subscriptions that wanted it, as of
/// the table's position at its match.
///
/// # Errors
/// The first violation.
pub fn jobs(history: &History, partitions: u32) -> Result<(), Violation> {
    // Which subscriptions, and whether as an entry of a pull log.
    let mut made: BTreeMap<&EventKey, Vec<(SubscriptionId, bool)>> = BTreeMap::new();
    for record in history.jobs.iter().filter(|record| record.place == Place::Ready) {
        let Some(put) = &record.put else { continue };
        made.entry(&put.event).or_default().push((put.facts.subscription, false));
    }
    for record in &history.entries {
        let Marked::Put { event, .. } = &record.marked else { continue };
        made.entry(event).or_default().push((record.subscription, true));
    }
    let mut times: HashMap<&EventKey, usize> = HashMap::new();
    for taken in &history.inbox {
        *times.entry(&taken.event).or_default() += 1;
    }
    // An event that came again beyond the horizon was matched twice.
    for taken in history.inbox.iter().filter(|taken| times.get(&taken.event) == Some(&1)) {
        let Some(table) = taken.table else { continue };
        let (tenant, id) = &taken.event;
        let home = routing::partition_for_tenant(tenant, partitions);
        let mut wanted = matching(&history.rows, (home, table), taken);
        let mut is = made.remove(&taken.event).unwrap_or_default();
        wanted.sort_unstable();
        is.sort_unstable();
        if is != wanted {
            let what = format!(
                "event {id} of {tenant}, matched with the table at {table}: jobs for {is:?}, \
                 wanted for {wanted:?}"
            );
            return broken(Invariant::I2, what);
        }
    }
    Ok(())
}

/// Which subscriptions wanted an event, as of a position of their partition.
fn matching(rows: &[Row], (home, table): (i32, i64), taken: &Taken) -> Vec<(SubscriptionId, bool)> {
    let (origin, resource, event, major) = &taken.wanted;
    let wanted = Wanted { origin, resource, event, major: *major };
    let then = rows_at(rows, home, table);
    let of_tenant = then.into_values().filter(|row| row.tenant.as_str() == taken.event.0);
    of_tenant
        .filter(|row| row.is_admitted() && row.wants(&wanted))
        .map(|row| (row.id, row.sink.is_pull()))
        .collect()
}

/// The rows of a partition as of a position.
fn rows_at(rows: &[Row], home: i32, table: i64) -> BTreeMap<SubscriptionId, &Subscription> {
    let mut then: BTreeMap<i64, &Row> = BTreeMap::new();
    then.extend(
        rows.iter().filter(|r| r.partition == home && r.offset < table).map(|r| (r.offset, r)),
    );
    let mut current = BTreeMap::new();
    for row in then.into_values() {
        match &row.row {
            Some(subscription) => current.insert(row.id, subscription),
            None => current.remove(&row.id),
        };
    }
    current
}

/// I7 of changes: each has one reply, and replies and rows are what deciding one after another
/// gives.
///
/// # Errors
/// The first violation.
pub fn registry(history: &History, limits: Limits) -> Result<(), Violation> {
    let mut rows: BTreeMap<SubscriptionId, Subscription> = BTreeMap::new();
    let mut changes: Vec<_> = history.changes.iter().collect();
    changes.sort_by_key(|wish| wish.place);
    for Wish { change, .. } in changes {
        let decision = decide_next(&mut rows, change, limits);
        let replies: Vec<_> =
            history.replies.iter().filter(|r| r.change == change.id).map(|r| &r.verdict).collect();
        if replies != [&decision] {
            let what = format!(
                "change {} of {}: replies {replies:?}, wanted {decision:?}",
                change.id, change.subscription
            );
            return broken(Invariant::I7, what);
        }
    }
    let mut last: BTreeMap<SubscriptionId, &Row> = BTreeMap::new();
    for row in &history.rows {
        let newer = last.get(&row.id).is_none_or(|known| known.offset < row.offset);
        if newer {
            last.insert(row.id, row);
        }
    }
    let versions = |row: &&Row| row.row.as_ref().map(|own| (own.id, own.version));
    let is: Vec<_> = last.values().filter_map(versions).collect();
    let wanted: Vec<_> = rows.values().map(|row| (row.id, row.version)).collect();
    if is != wanted {
        return broken(Invariant::I7, format!("subscriptions are {is:?}, wanted {wanted:?}"));
    }
    Ok(())
}

fn decide_next(
    rows: &mut BTreeMap<SubscriptionId, Subscription>,
    change: &Change,
    limits: Limits,
) -> Decision {
    let count = rows.values().filter(|row| row.tenant == change.tenant).count();
    let current = Current {
        record: rows.get(&change.subscription),
        tenant_subscriptions: u32::try_from(count).unwrap_or(u32::MAX),
    };
    // Times play no part in what is decided.
    let (write, decision) = decide(change.clone(), current, limits, UnixMillis(0));
    match write {
        Some(Write::Put(row)) => {
            rows.insert(change.subscription, *row);
        }
        Some(Write::Delete) => {
            rows.remove(&change.subscription);
        }
        None => {}
    }
    decision
}
