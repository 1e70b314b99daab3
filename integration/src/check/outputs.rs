//! What must lie in the hub's topics: each event once in the inbox, each match once as a job, each
//! malformed record once in the quarantine, all of them byte for byte as they were produced.

use std::collections::BTreeMap;

use super::{EventId, Expected, History};
use crate::facts::Header;
use crate::producer::Source;
use crate::reader::{Record, UNREADABLE_NAME};
use crate::signature::hex;
use sha2::{Digest as _, Sha256};

/// Exactly one inbox record for each event, a faithful copy of one of its sources.
pub(super) fn inbox(history: &History, expected: &Expected<'_>, faults: &mut Vec<String>) {
    let mut found: BTreeMap<EventId, usize> = BTreeMap::new();
    for record in &history.inbox {
        let place = record.place();
        let id = identity(record);
        *found.entry(id.clone()).or_default() += 1;
        let Some(copies) = expected.events.get(&id) else {
            faults.push(format!("inbox: {place} holds {id:?}, which nobody produced"));
            continue;
        };
        if record.key_text() != id.1 {
            faults.push(format!("inbox: {place} has the key {:?}, not its id", record.key_text()));
        }
        if let Some(source) = copy_of(record, copies, faults) {
            faithful(record, source, source.fact.value.as_deref(), faults);
        }
    }
    for (id, copies) in &expected.events {
        let times = found.get(id).copied().unwrap_or(0);
        if times != 1 {
            faults.push(format!("inbox: {times} times {id:?} ({})", copies[0].fact.name));
        }
    }
}

/// Exactly one job for each match, a faithful copy of its event.
pub(super) fn jobs(history: &History, expected: &Expected<'_>, faults: &mut Vec<String>) {
    let mut found: BTreeMap<(EventId, usize), Vec<&str>> = BTreeMap::new();
    for record in history.deliveries.iter().filter(|record| record.value.is_some()) {
        let place = record.place();
        let id = identity(record);
        let owner = record.text("hub-subscription").unwrap_or_default();
        let number = history.subscribers.iter().position(|subscriber| subscriber.id == owner);
        let known = number.map(|number| (id.clone(), number));
        let Some(job) = known.filter(|job| expected.jobs.contains(job)) else {
            faults.push(format!("jobs: {place} delivers {id:?} to {owner}, which is no match"));
            continue;
        };
        found.entry(job).or_default().push(record.key_text());
        if let Some(source) = copy_of(record, &expected.events[&id], faults) {
            // A null value would end the job.
            faithful(
                record,
                source,
                Some(source.fact.value.as_deref().unwrap_or_default()),
                faults,
            );
        }
    }
    for (id, number) in &expected.jobs {
        let times = found.get(&(id.clone(), *number)).map_or(0, Vec::len);
        if times != 1 {
            let name = &history.subscribers[*number].wanted.name;
            faults.push(format!("jobs: {times} times {id:?} for {name}"));
        }
    }
    let mut keys: Vec<&str> = found.into_values().flatten().collect();
    keys.sort_unstable();
    if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        faults.push(format!("jobs: two of them have the id {}", pair[0]));
    }
}

/// Exactly one quarantine record for each malformed one, byte for byte, with its reason.
pub(super) fn quarantine(history: &History, expected: &Expected<'_>, faults: &mut Vec<String>) {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &history.quarantine {
        let from = record.text("hub-from").unwrap_or_default();
        *found.entry(from).or_default() += 1;
        match expected.quarantined.get(from) {
            Some((source, reason)) => quarantined(record, source, reason, faults),
            None => {
                let reason = record.text("hub-reason").unwrap_or_default();
                let detail = record.text("hub-detail").unwrap_or_default();
                faults.push(format!("quarantine: {from} should not be there ({reason}: {detail})"));
            }
        }
    }
    for (place, (source, _)) in &expected.quarantined {
        let times = found.get(place.as_str()).copied().unwrap_or(0);
        if times != 1 {
            faults.push(format!("quarantine: {times} times {place} ({})", source.fact.name));
        }
    }
}

fn quarantined(record: &Record, source: &Source, reason: &str, faults: &mut Vec<String>) {
    let fact = &source.fact;
    let mut fault = |what: String| {
        faults.push(format!("quarantine: {} ({}): {what}", record.place(), fact.name));
    };
    let said = record.text("hub-reason").unwrap_or_default();
    if said != reason {
        let detail = record.text("hub-detail").unwrap_or_default();
        fault(format!("the reason is {said} ({detail}), not {reason}"));
    }
    let timestamp = record.text("hub-timestamp").and_then(|text| text.parse().ok());
    if source.timestamp_ms.is_some() && timestamp != source.timestamp_ms {
        fault(format!("the timestamp is {timestamp:?}, not {:?}", source.timestamp_ms));
    }
    let key = record.headers.iter().rev().find(|(name, _)| name == b"hub-key");
    if key.map(|(_, key)| key) != Some(&fact.key) {
        fault("the key is another".to_owned());
    }
    if let Some(bytes) = record.text("hub-value-bytes") {
        // Too large to keep: size and hash stand for the value.
        let value = fact.value.as_deref().unwrap_or_default();
        let hash = hex(&Sha256::digest(value));
        if bytes != value.len().to_string() || record.text("hub-value-sha256") != Some(&hash) {
            fault("size or hash of the value is another".to_owned());
        }
        if record.value.is_some() {
            fault("size and hash stand beside a value".to_owned());
        }
    } else if record.value != fact.value {
        fault("the value is another".to_owned());
    }
    let (own, hubs) = record.headers.split_at(fact.headers.len().min(record.headers.len()));
    if !same_headers(own, &fact.headers) {
        fault("the headers are others".to_owned());
    }
    if !hubs.iter().all(|(name, _)| name.starts_with(b"hub-")) {
        fault("there are more headers than the record had".to_owned());
    }
}

/// Where a name cannot be read by this client, only its place is compared; a test of its own looks
/// at the bytes.
fn same_headers(found: &[Header], wanted: &[Header]) -> bool {
    found.len() == wanted.len()
        && found.iter().zip(wanted).all(|(found, wanted)| {
            let unreadable = std::str::from_utf8(&wanted.0).is_err();
            found == wanted || unreadable && found.0 == UNREADABLE_NAME
        })
}

fn identity(record: &Record) -> EventId {
    let text = |name| record.text(name).unwrap_or_default().to_owned();
    (text("hub-tenant"), text("hub-id"))
}

/// The source that a record says it was made from.
fn copy_of<'a>(
    record: &Record,
    copies: &[&'a Source],
    faults: &mut Vec<String>,
) -> Option<&'a Source> {
    let from = record.text("hub-from").unwrap_or_default();
    let copy = copies.iter().find(|copy| copy.place() == from).copied();
    if copy.is_none() {
        faults.push(format!("{} says that it is from {from:?}", record.place()));
    }
    copy
}

/// Value and headers are the source's.
fn faithful(record: &Record, source: &Source, value: Option<&[u8]>, faults: &mut Vec<String>) {
    let fact = &source.fact;
    let mut fault = |what: &str| {
        faults.push(format!("{} ({}): {what}", record.place(), fact.name));
    };
    if record.value.as_deref() != value {
        fault("the value is another");
    }
    if record.text("hub-major") != Some(&fact.major().to_string()) {
        fault("the schema major is another");
    }
    let own = record.headers.iter().filter(|(name, _)| !name.starts_with(b"hub-"));
    if !own.eq(fact.travelling().iter()) {
        fault("the headers are others");
    }
}
