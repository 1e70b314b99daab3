//! I9: jobs of one subscription are first attempted in inbox order. Where one attempt at a time is
//! made, the receiver and the log of attempts show it; a salted tenant has no order.
//!
//! Crashes and moves repeat attempts, so first occurrences are compared. A job whose recorded first
//! attempt never reached the receiver has none there; one whose first arrival was never recorded
//! has none in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Attempt, Evidence};
use crate::receiver::Request;

/// Both views of the order.
pub(super) fn first_attempts(evidence: &Evidence, attempts: &[Attempt], faults: &mut Vec<String>) {
    let requests = &evidence.history.requests;
    let arrived = requests.iter().filter_map(|request| request.text("X-Lerian-Delivery-Id"));
    let arrived: BTreeSet<&str> = arrived.collect();
    for subscriber in &evidence.history.subscribers {
        let wanted = &subscriber.wanted;
        if wanted.max_in_flight != Some(1) || evidence.salted.contains(&wanted.tenant) {
            continue;
        }
        let places = places(evidence, &wanted.tenant);
        let firsts = attempts
            .iter()
            .filter(|attempt| attempt.subscription == subscriber.id && attempt.number == 1);
        let own = requests.iter().filter(|r| r.target == subscriber.path && !r.is_probe());
        let unrecorded = first_unrecorded(own.clone(), attempts);
        let recorded = firsts.clone().map(|attempt| attempt.event_id.as_str());
        let recorded = recorded.filter(|id| !unrecorded.contains(id));
        ascending(("the log of attempts", &subscriber.path), recorded, (&places, faults));
        let lost = firsts.filter(|attempt| !arrived.contains(attempt.delivery_id.as_str()));
        let lost: BTreeSet<&str> = lost.map(|attempt| attempt.event_id.as_str()).collect();
        let seen = own.filter_map(|request| request.text("X-Lerian-Event-Id"));
        ascending(
            ("the receiver", &subscriber.path),
            seen.filter(|id| !lost.contains(id)),
            (&places, faults),
        );
    }
}

/// Events whose first arrival is of no recorded attempt: its owner died before it was written down.
fn first_unrecorded<'a>(
    arrived: impl Iterator<Item = &'a Arc<Request>>,
    attempts: &[Attempt],
) -> BTreeSet<&'a str> {
    let recorded: BTreeSet<_> = attempts.iter().map(|own| own.delivery_id.as_str()).collect();
    let mut seen = BTreeSet::new();
    let pairs = arrived.filter_map(|request| {
        Some((request.text("X-Lerian-Event-Id")?, request.text("X-Lerian-Delivery-Id")?))
    });
    let firsts = pairs.filter(|(event, _)| seen.insert(*event));
    firsts.filter(|(_, delivery)| !recorded.contains(delivery)).map(|(event, _)| event).collect()
}

/// Where a tenant's events lie in the inbox.
pub(super) fn places<'a>(evidence: &'a Evidence, tenant: &str) -> BTreeMap<&'a str, (i32, i64)> {
    let inbox = evidence.history.inbox.iter();
    let own = inbox.filter(|record| record.text("hub-tenant") == Some(tenant));
    own.filter_map(|r| Some((r.text("hub-id")?, (r.partition, r.offset)))).collect()
}

/// First occurrences come in the order of the inbox.
pub(super) fn ascending<'a>(
    (whose, of): (&str, &str),
    ids: impl Iterator<Item = &'a str>,
    (places, faults): (&BTreeMap<&str, (i32, i64)>, &mut Vec<String>),
) {
    let mut seen = BTreeSet::new();
    let mut last: Option<(&str, (i32, i64))> = None;
    for id in ids.filter(|id| seen.insert(*id)) {
        // One that is not in the inbox is a fault of another rule.
        let Some(place) = places.get(id).copied() else { continue };
        if let Some((before, higher)) = last.filter(|(_, higher)| *higher > place) {
            faults.push(format!(
                "order: {whose} has {id} ({place:?}) behind {before} ({higher:?}) for {of}"
            ));
        } else {
            last = Some((id, place));
        }
    }
}
