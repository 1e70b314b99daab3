//! The checker of chaos. What each run must keep is in [`crate::check`]: each accepted event once
//! in the inbox, each malformed record once in the quarantine, each match once as a job, byte for
//! byte, each job at its receiver. Here is what shows only under faults: where ingest stands, where
//! each job ended, which attempts were recorded, in which order subscriptions were served, and what
//! pull consumers read.
//!
//! Its truth are the source topics as they lie in Kafka, not what the producer meant to write.

mod ends;
mod order;
mod pull;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::gather::Evidence;
use crate::facts::Verdict;
use crate::reader::Record;

/// An attempt as its owner recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attempt {
    job: String,
    delivery_id: String,
    subscription: String,
    event_id: String,
    number: u64,
    delivered: bool,
}

/// Every broken rule, one line each.
#[must_use]
pub fn faults(evidence: &Evidence) -> Vec<String> {
    let mut faults = evidence.history.faults();
    acknowledged(evidence, &mut faults);
    positions(evidence, &mut faults);
    routes(evidence, &mut faults);
    pull::consumers(evidence, &mut faults);
    match attempts(&evidence.attempts) {
        Ok(attempts) => {
            ends::ends(evidence, &attempts, &mut faults);
            ends::numbers(evidence, &attempts, &mut faults);
            order::first_attempts(evidence, &attempts, &mut faults);
        }
        Err(error) => faults.push(format!("attempts: {error:#}")),
    }
    faults
}

/// The log of attempts, by partition in its order.
fn attempts(records: &[Record]) -> Result<Vec<Attempt>> {
    let parse = |record: &Record| -> Result<Attempt> {
        let value: Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
        let text = |name: &str| -> Result<String> {
            Ok(value[name].as_str().with_context(|| name.to_owned())?.to_owned())
        };
        Ok(Attempt {
            job: text("job")?,
            delivery_id: text("delivery_id")?,
            subscription: text("subscription")?,
            event_id: text("event_id")?,
            number: value["attempt"].as_u64().context("attempt")?,
            delivered: text("outcome")? == "delivered",
        })
    };
    records.iter().map(|record| parse(record).with_context(|| record.place())).collect()
}

/// What a broker acknowledged lies where it said. Otherwise nothing else that is found means much.
fn acknowledged(evidence: &Evidence, faults: &mut Vec<String>) {
    let mut ids = BTreeMap::new();
    for source in &evidence.history.sources {
        let id = source.fact.id();
        ids.insert((source.fact.topic.as_str(), source.partition, source.offset), id);
    }
    for own in &evidence.acknowledged {
        let found = ids.get(&(own.topic.as_str(), own.partition, own.offset));
        if found != Some(&own.id) {
            faults.push(format!("sources: {own:?} was acknowledged, {found:?} is there"));
        }
    }
}

/// Ingest has committed each source partition to its end. Facts have no transactions, so no mark of
/// one lies behind the last.
fn positions(evidence: &Evidence, faults: &mut Vec<String>) {
    for place in &evidence.positions {
        if place.committed.unwrap_or(0) != place.end {
            faults.push(format!("positions: {place:?}"));
        }
    }
}

/// All events of a tenant that is not salted lie in one partition.
fn routes(evidence: &Evidence, faults: &mut Vec<String>) {
    let mut homes: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for record in &evidence.history.inbox {
        let tenant = record.text("hub-tenant").unwrap_or_default();
        homes.entry(tenant).or_default().insert(record.partition);
    }
    for (tenant, homes) in homes {
        if homes.len() > 1 && !evidence.salted.iter().any(|salted| salted == tenant) {
            faults.push(format!("routes: {tenant} is in the partitions {homes:?}"));
        }
    }
}

/// How many accepted records there are, and how many of them are of their own.
#[must_use]
pub fn accepted(evidence: &Evidence) -> (usize, usize) {
    let sources = evidence.history.sources.iter();
    let accepted = sources.filter(|source| source.fact.verdict == Verdict::Accept);
    let identity = |source: &crate::producer::Source| {
        (source.fact.text("ce-tenantid").unwrap_or_default().to_owned(), source.fact.id())
    };
    let own: BTreeSet<_> = accepted.clone().map(identity).collect();
    (accepted.count(), own.len())
}

#[cfg(test)]
mod tests;
