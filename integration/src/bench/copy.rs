//! The floor of every throughput: a bare loop that reads a topic and writes each record to another,
//! headers and value as they are, in transactions with positions. One read and one write a record,
//! no state; the hub reads each fact twice and writes it three times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rdkafka::consumer::BaseConsumer;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::producer::BaseRecord;
use rdkafka::{Offset, TopicPartitionList};

use super::machine;
use super::transactions::Transactions;
use crate::wait;

/// The longest time between two commits, as in the hub.
const COMMIT: Duration = Duration::from_millis(100);
/// How long nothing may come.
const SILENCE: Duration = Duration::from_secs(30);

/// What a pass took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pass {
    /// From the first record to the last commit.
    pub took: Duration,
    /// Processor time of it, seconds.
    pub cpu_seconds: f64,
}

/// Copies so many records of `source` to `target`, which has as many partitions, from the
/// beginning: the group's name must be new.
///
/// # Errors
/// The broker's, or that records do not come.
pub fn run(
    bootstrap: &str,
    group: &str,
    (source, target): (&str, &str),
    records: usize,
) -> Result<Pass> {
    let transactions = Transactions::join(bootstrap, group, source)?;
    let mut positions = BTreeMap::new();
    let (mut began, mut committed) = (None, wait::instant());
    let mut cpu = 0.0;
    for done in 1..=records {
        let message = next(&transactions.consumer)?;
        if began.is_none() {
            (began, cpu) = (Some(wait::instant()), machine::own_cpu_seconds()?);
        }
        transactions.send(copied(&message, target))?;
        positions.insert(message.partition(), message.offset() + 1);
        if committed.elapsed() >= COMMIT || done == records {
            transactions.commit(&list(source, &positions)?)?;
            positions.clear();
            committed = wait::instant();
        }
    }
    let took = began.as_ref().map_or(Duration::ZERO, Instant::elapsed);
    Ok(Pass { took, cpu_seconds: machine::own_cpu_seconds()? - cpu })
}

fn next(consumer: &BaseConsumer) -> Result<BorrowedMessage<'_>> {
    let began = wait::instant();
    loop {
        // Answers nothing also where something else than a record came.
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            return Ok(message?);
        }
        ensure!(began.elapsed() < SILENCE, "no record came");
    }
}

fn copied<'a>(message: &'a BorrowedMessage<'_>, target: &'a str) -> BaseRecord<'a, [u8], [u8]> {
    let mut record = BaseRecord::to(target).partition(message.partition());
    if let Some(headers) = message.headers() {
        record = record.headers(headers.detach());
    }
    record.key = message.key();
    record.payload = message.payload();
    record
}

fn list(topic: &str, positions: &BTreeMap<i32, i64>) -> Result<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in positions {
        list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
    }
    Ok(list)
}
