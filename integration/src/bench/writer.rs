//! Writes facts without keeping them: many at once for a backlog, or one at its time for a latency.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use crate::facts::Fact;

/// How long the last records may take.
const FLUSH: Duration = Duration::from_secs(120);

/// Keeps the first record that was not written.
#[derive(Default)]
struct Reports(Mutex<Option<String>>);

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| error.to_string());
        }
    }
}

/// An idempotent producer of facts.
pub struct Writer(BaseProducer<Reports>);

impl Writer {
    /// For one fact after the other: each leaves at once.
    ///
    /// # Errors
    /// The client's.
    pub fn prompt(bootstrap: &str) -> Result<Self> {
        Self::new(bootstrap, "0")
    }

    /// For many facts: they leave in large batches.
    ///
    /// # Errors
    /// The client's.
    pub fn bulk(bootstrap: &str) -> Result<Self> {
        Self::new(bootstrap, "20")
    }

    fn new(bootstrap: &str, linger_ms: &str) -> Result<Self> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("enable.idempotence", "true")
            .set("linger.ms", linger_ms)
            .set("queue.buffering.max.kbytes", "65536")
            .create_with_context(Reports::default())?;
        Ok(Self(producer))
    }

    /// Hands a fact to the client, which writes it by itself.
    ///
    /// # Errors
    /// The client's.
    pub fn send(&self, fact: &Fact) -> Result<()> {
        let mut headers = OwnedHeaders::new_with_capacity(fact.headers.len());
        for (name, value) in &fact.headers {
            let key = std::str::from_utf8(name).context("a header's name")?;
            headers = headers.insert(Header { key, value: value.as_ref() });
        }
        let mut record: BaseRecord<'_, [u8], [u8]> =
            BaseRecord::to(&fact.topic).partition(fact.partition).headers(headers);
        record.key = fact.key.as_deref();
        record.payload = fact.value.as_deref();
        self.0.poll(Duration::ZERO);
        loop {
            match self.0.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    self.0.poll(Duration::from_millis(5));
                    record = back;
                }
                Err((error, _)) => return Err(error).context(fact.name.clone()),
            }
        }
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// When something is not.
    pub fn finish(&self) -> Result<()> {
        self.0.flush(FLUSH)?;
        let failed = self.0.context().0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match failed {
            Some(error) => bail!("a fact was not written: {error}"),
            None => Ok(()),
        }
    }
}
