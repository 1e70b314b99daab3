//! Reads everything that the rules look at: the source topics, the hub's topics, the groups'
//! positions, what the receiver and the pull consumers got. Nobody but Kafka is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;

use super::consume::Consumed;
use super::load::Written;
use super::stage::Stage;
use super::writer::Acknowledged;
use crate::check::{Delivered, History};
use crate::facts::{Fact, Verdict};
use crate::internal::{Internal, Position, RETRY_TIERS};
use crate::producer::Source;
use crate::reader::Record;

/// A source topic that is gone, as it was when all of it had been read.
#[derive(Debug, Clone)]
pub struct Deleted {
    /// Its records.
    pub records: Vec<Record>,
}

/// Everything that happened, from outside.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// What every checker looks at. Its sources are the records of the source topics.
    pub history: History,
    /// What the brokers acknowledged to the producer.
    pub acknowledged: Vec<Acknowledged>,
    /// Tiers and their records, tombstones included.
    pub tiers: BTreeMap<u8, Vec<Record>>,
    /// Dead letters.
    pub dead_letters: Vec<Record>,
    /// The log of attempts.
    pub attempts: Vec<Record>,
    /// What the pull consumers were served.
    pub consumed: Vec<Consumed>,
    /// Where ingest stands on the source topics.
    pub positions: Vec<Position>,
    /// Tenants whose events are spread over partitions.
    pub salted: Vec<String>,
    /// Attempts of a job, at most.
    pub attempts_max: usize,
    /// When it was read, Unix milliseconds.
    pub read_ms: i64,
}

/// Reads all of it.
///
/// # Errors
/// When a topic cannot be read.
pub fn gather(
    stage: &Stage,
    written: Written,
    deleted: Vec<Deleted>,
    consumed: Vec<Consumed>,
) -> Result<Evidence> {
    let internal = stage.internal()?;
    let mut records = deleted.into_iter().flat_map(|topic| topic.records).collect::<Vec<_>>();
    let mut positions = Vec::new();
    for topic in &written.topics {
        records.extend(internal.topic(topic)?);
        positions.extend(internal.positions("ingest", topic)?);
    }
    let tiers = (1..=RETRY_TIERS).map(|tier| Ok((tier, internal.retries(tier)?)));
    Ok(Evidence {
        history: history(stage, &internal, records)?,
        acknowledged: written.outcomes.acknowledged,
        tiers: tiers.collect::<Result<_>>()?,
        dead_letters: internal.dead_letters()?,
        attempts: internal.read("attempts")?,
        consumed,
        positions,
        salted: vec![super::stage::SALTED.to_owned()],
        attempts_max: super::stage::CURVE_MS.len(),
        read_ms: crate::wait::unix_ms(),
    })
}

fn history(stage: &Stage, internal: &Internal, records: Vec<Record>) -> Result<History> {
    Ok(History {
        sources: records.into_iter().map(source).collect(),
        subscribers: stage.subscribers.clone(),
        default_tenant: None,
        inbox: internal.inbox()?,
        deliveries: internal.deliveries()?,
        quarantine: internal.quarantine()?,
        requests: stage.receiver.requests(),
        delivered: Delivered::AtLeastOnce,
    })
}

/// A record of a source topic with the verdict that it must get. The load makes three kinds.
#[must_use]
pub fn source(record: Record) -> Source {
    let mut fact = Fact {
        name: record.text("ce-type").unwrap_or_default().to_owned(),
        topic: record.topic,
        partition: record.partition,
        key: record.key,
        headers: record.headers,
        value: record.value,
        verdict: Verdict::Accept,
    };
    if fact.text("ce-systemevent") == Some("true") {
        fact.verdict = Verdict::Drop;
    } else if fact.text("ce-time").is_none() {
        fact = fact.quarantined("missing_header");
    }
    Source {
        partition: record.partition,
        offset: record.offset,
        timestamp_ms: Some(record.timestamp_ms),
        fact: Arc::new(fact),
    }
}
