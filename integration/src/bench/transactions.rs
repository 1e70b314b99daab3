//! A bare consumer and transactional producer, set up as a careful application does, without
//! anything of the hub: what commits cost on this broker, whoever makes them.
//!
//! Two settings matter most. Acknowledgements are polled for before the commit, because the
//! client's own flush waits in steps of 100 ms; and retries come after 1 to 5 ms, because each
//! transaction meets the markers of the last one.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};

use crate::wait;

/// How long one call may take.
const CALL: Duration = Duration::from_secs(30);
/// One slice of waiting for acknowledgements.
const DRAIN_SLICE: Duration = Duration::from_micros(500);
/// How long joining the group may take.
const JOIN: Duration = Duration::from_secs(30);

/// A member of a group that copies within transactions.
pub struct Transactions {
    /// Reads the source, committed records only.
    pub consumer: BaseConsumer,
    producer: BaseProducer,
    open: Cell<bool>,
}

impl Transactions {
    /// Joins the group of this name, which reads this topic from its beginning.
    ///
    /// # Errors
    /// The client's.
    pub fn join(bootstrap: &str, group: &str, source: &str) -> Result<Self> {
        let producer: BaseProducer = writer(bootstrap, group).create()?;
        producer.init_transactions(CALL)?;
        let consumer: BaseConsumer = reader(bootstrap, group).create()?;
        consumer.subscribe(&[source])?;
        Ok(Self { consumer, producer, open: Cell::new(false) })
    }

    /// Waits until the group has given it partitions; a record that came meanwhile is let go.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn wait_joined(&self) -> Result<()> {
        wait::until("a place in the group", JOIN, || {
            let _ = self.consumer.poll(Duration::ZERO);
            let count = self.consumer.assignment()?.count();
            Ok(if count > 0 { Ok(()) } else { Err("no partition yet".to_owned()) })
        })
    }

    /// Whether there is something to commit.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Sends a record in the open transaction, or in a new one.
    ///
    /// # Errors
    /// The client's.
    pub fn send(&self, record: BaseRecord<'_, [u8], [u8]>) -> Result<()> {
        if !self.open.get() {
            self.producer.begin_transaction()?;
            self.open.set(true);
        }
        let mut record = record;
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    self.producer.poll(Duration::from_millis(1));
                    record = back;
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
    }

    /// Commits it with these positions.
    ///
    /// # Errors
    /// The client's, or that the member is in no group.
    pub fn commit(&self, positions: &TopicPartitionList) -> Result<()> {
        while self.producer.in_flight_count() > 0 {
            self.producer.poll(DRAIN_SLICE);
        }
        let metadata = self.consumer.group_metadata();
        ensure!(metadata.is_some(), "this member is in no group");
        if let Some(metadata) = metadata {
            self.producer.send_offsets_to_transaction(positions, &metadata, CALL)?;
        }
        self.producer.commit_transaction(CALL)?;
        self.open.set(false);
        Ok(())
    }
}

/// One position as [`Transactions::commit`] takes it.
///
/// # Errors
/// The client's.
pub fn position(topic: &str, partition: i32, offset: i64) -> Result<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
    Ok(list)
}

fn writer(bootstrap: &str, id: &str) -> ClientConfig {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", id)
        .set("linger.ms", "0")
        .set("batch.num.messages", "10000")
        .set("queue.buffering.max.kbytes", "65536")
        .set("queue.buffering.max.messages", "1000000")
        .set("delivery.report.only.error", "true")
        .set("retry.backoff.ms", "1")
        .set("retry.backoff.max.ms", "5")
        .clone()
}

fn reader(bootstrap: &str, group: &str) -> ClientConfig {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        .set("queued.min.messages", "10000")
        .set("queued.max.messages.kbytes", "8192")
        .set("fetch.queue.backoff.ms", "5")
        .set("fetch.wait.max.ms", "100")
        .clone()
}
