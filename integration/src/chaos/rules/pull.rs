//! I2 and I6 at the consumers of pull subscriptions: each event that a subscription wants was
//! served exactly once to a consumer that passes what it has processed, `seq` ascends, and the
//! events of a tenant that is not salted come in inbox order.

use std::collections::{BTreeMap, BTreeSet};

use super::{Evidence, order};
use crate::chaos::consume::Consumed;

/// All of them.
pub(super) fn consumers(evidence: &Evidence, faults: &mut Vec<String>) {
    let expected = evidence.history.expected();
    for consumed in &evidence.consumed {
        let tenant = &consumed.wanted.tenant;
        let wanting = expected.events.iter().filter(|((own, _), copies)| {
            let text = |name| copies[0].fact.text(name).unwrap_or_default();
            let key = (text("ce-resourcetype"), text("ce-eventtype"));
            own == tenant && consumed.wanted.wants(text("ce-source"), key, copies[0].fact.major())
        });
        let wanted: BTreeSet<&str> = wanting.map(|((_, id), _)| id.as_str()).collect();
        served(consumed, &wanted, faults);
        if !evidence.salted.contains(tenant) {
            let ids = consumed.served.iter().map(|(_, id)| id.as_str());
            let places = order::places(evidence, tenant);
            order::ascending(("the consumer", &consumed.id), ids, (&places, faults));
        }
    }
}

fn served(consumed: &Consumed, wanted: &BTreeSet<&str>, faults: &mut Vec<String>) {
    let Consumed { id, served, .. } = consumed;
    for pair in served.windows(2).filter(|pair| pair[0].0 >= pair[1].0) {
        faults.push(format!("pull: {id} was served {:?} behind {:?}", pair[1], pair[0]));
    }
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, event) in served {
        *times.entry(event).or_default() += 1;
    }
    for (event, times) in
        times.iter().filter(|(event, times)| **times > 1 || !wanted.contains(**event))
    {
        let what = if wanted.contains(event) { "wanted once" } else { "not wanted" };
        faults.push(format!("pull: {id} was served {event} {times} times, {what}"));
    }
    for event in wanted.iter().filter(|event| !times.contains_key(**event)) {
        faults.push(format!("pull: {id} was never served {event}"));
    }
}
