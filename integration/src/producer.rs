//! Writes facts to their topics and tells where each of them lies.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header as KafkaHeader, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use crate::facts::Fact;
use crate::{kcat, wait};

/// The largest record that is written, bytes.
const MESSAGE_BYTES_MAX: &str = "16000000";
/// How long all of it may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A fact that lies in its topic.
#[derive(Debug, Clone)]
pub struct Source {
    /// The fact.
    pub fact: Arc<Fact>,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, Unix milliseconds; `None` where its writer cannot tell.
    pub timestamp_ms: Option<i64>,
}

impl Source {
    /// Where it lies: `<topic>/<partition>/<offset>`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}/{}/{}", self.fact.topic, self.partition, self.offset)
    }
}

/// Partition and offset of a record, or why it was not written.
type Place = Result<(i32, i64), String>;

/// Where each record of a batch came to lie, by its number.
#[derive(Default)]
struct Reports {
    places: Mutex<Vec<(usize, Place)>>,
}

#[derive(Clone)]
struct Context(Arc<Reports>);

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<usize>) {
        let place = match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.to_string()),
        };
        let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.push((*number, place));
    }
}

/// Writes these facts in their order, with an idempotent producer.
///
/// # Errors
/// When any of them is not written.
pub fn produce(bootstrap: &str, facts: &[Fact]) -> Result<Vec<Source>> {
    let reports = Arc::new(Reports::default());
    let producer: BaseProducer<Context> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("message.max.bytes", MESSAGE_BYTES_MAX)
        .set("linger.ms", "2")
        .create_with_context(Context(Arc::clone(&reports)))?;
    let timestamp_ms = wait::unix_ms();
    for (number, fact) in facts.iter().enumerate() {
        // The client takes names of text only.
        if fact.headers.iter().all(|(name, _)| std::str::from_utf8(name).is_ok()) {
            send(&producer, number, fact, timestamp_ms)?;
        }
    }
    producer.flush(TIMEOUT)?;
    let reported = reports.places.lock().unwrap_or_else(PoisonError::into_inner).split_off(0);
    let mut places = vec![None; facts.len()];
    for (number, place) in reported {
        let (partition, offset) =
            place.map_err(|error| anyhow!("{} was not written: {error}", facts[number].name))?;
        places[number] = Some((partition, offset, Some(timestamp_ms)));
    }
    let written = facts.iter().zip(places).map(|(fact, place)| {
        let (partition, offset, timestamp_ms) = match place {
            Some(place) => place,
            None => (fact.partition, kcat::produce(bootstrap, fact)?, None),
        };
        Ok(Source { fact: Arc::new(fact.clone()), partition, offset, timestamp_ms })
    });
    written.collect()
}

fn send(
    producer: &BaseProducer<Context>,
    number: usize,
    fact: &Fact,
    timestamp_ms: i64,
) -> Result<()> {
    let mut headers = OwnedHeaders::new_with_capacity(fact.headers.len());
    for (name, value) in &fact.headers {
        let key = std::str::from_utf8(name).context("a header's name")?;
        headers = headers.insert(KafkaHeader { key, value: value.as_ref() });
    }
    let mut record: BaseRecord<'_, [u8], [u8], Box<usize>> =
        BaseRecord::with_opaque_to(&fact.topic, Box::new(number))
            .partition(fact.partition)
            .timestamp(timestamp_ms);
    if !fact.headers.is_empty() {
        record = record.headers(headers);
    }
    record.key = fact.key.as_deref();
    record.payload = fact.value.as_deref();
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                producer.poll(Duration::from_millis(10));
                record = back;
            }
            Err((error, _)) => return Err(error).with_context(|| fact.name.clone()),
        }
    }
}
