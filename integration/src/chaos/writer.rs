//! The producer of the facts: idempotent, over all outages. What the broker acknowledged is kept
//! with its place; what became of the rest is for the topics to say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};

use crate::facts::Fact;

/// How long the last records may take.
const FLUSH: Duration = Duration::from_secs(150);

/// Where an acknowledged fact lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its id.
    pub id: String,
}

/// What is known of everything that was handed to the client.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// What the broker has.
    pub acknowledged: Vec<Acknowledged>,
    /// What it may not have, with the reason.
    pub failed: Vec<String>,
    /// How many records are under way, by topic.
    pub under_way: BTreeMap<String, i64>,
}

#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Outcomes>>);

impl Reports {
    fn held(&self) -> MutexGuard<'_, Outcomes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<String>;

    fn delivery(&self, result: &DeliveryResult<'_>, id: Box<String>) {
        let mut outcomes = self.held();
        let (message, error) = match result {
            Ok(message) => (message, None),
            Err((error, message)) => (message, Some(error)),
        };
        *outcomes.under_way.entry(message.topic().to_owned()).or_default() -= 1;
        match error {
            None => outcomes.acknowledged.push(Acknowledged {
                topic: message.topic().to_owned(),
                partition: message.partition(),
                offset: message.offset(),
                id: *id,
            }),
            Some(error) => outcomes.failed.push(format!("{id}: {error}")),
        }
    }
}

/// Writes facts.
pub struct Writer {
    bootstrap: String,
    producer: ThreadedProducer<Reports>,
    reports: Reports,
}

impl Writer {
    /// A writer to this cluster.
    ///
    /// # Errors
    /// The client's.
    pub fn new(bootstrap: &str) -> Result<Self> {
        let reports = Reports::default();
        let producer = producer(bootstrap, &reports)?;
        Ok(Self { bootstrap: bootstrap.to_owned(), producer, reports })
    }

    /// Hands a fact to the client. A partition that the client does not know of yet is a failure.
    ///
    /// # Errors
    /// When a header's name is no text, or no client can be made after a fatal error.
    pub fn send(&mut self, fact: &Fact) -> Result<()> {
        let mut headers = OwnedHeaders::new_with_capacity(fact.headers.len());
        for (name, value) in &fact.headers {
            let key = std::str::from_utf8(name).context("a header's name")?;
            headers = headers.insert(Header { key, value: value.as_ref() });
        }
        let mut record: BaseRecord<'_, [u8], [u8], Box<String>> =
            BaseRecord::with_opaque_to(&fact.topic, Box::new(fact.id()))
                .partition(fact.partition)
                .headers(headers);
        record.key = fact.key.as_deref();
        record.payload = fact.value.as_deref();
        *self.reports.held().under_way.entry(fact.topic.clone()).or_default() += 1;
        if let Err((error, _)) = self.producer.send(record) {
            let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
            let mut outcomes = self.reports.held();
            *outcomes.under_way.entry(fact.topic.clone()).or_default() -= 1;
            if error != full {
                outcomes.failed.push(format!("{}: {error}", fact.id()));
            }
            drop(outcomes);
            if self.producer.client().fatal_error().is_some() {
                self.producer = producer(&self.bootstrap, &self.reports)?;
            }
        }
        Ok(())
    }

    /// How many records of a topic are under way.
    #[must_use]
    pub fn under_way(&self, topic: &str) -> i64 {
        self.reports.held().under_way.get(topic).copied().unwrap_or(0)
    }

    /// Waits for the last records: what became of all.
    ///
    /// # Errors
    /// When some are still under way after minutes.
    pub fn finish(self) -> Result<Outcomes> {
        self.producer.flush(FLUSH).context("the last facts")?;
        let outcomes = std::mem::take(&mut *self.reports.held());
        Ok(outcomes)
    }
}

fn producer(bootstrap: &str, reports: &Reports) -> Result<ThreadedProducer<Reports>> {
    let producer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("message.timeout.ms", "120000")
        .set("linger.ms", "5")
        .set("topic.metadata.refresh.interval.ms", "1000")
        .set("reconnect.backoff.max.ms", "1000")
        .create_with_context(reports.clone())?;
    Ok(producer)
}
