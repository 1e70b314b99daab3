//! Looks at a cluster from the outside: does it answer, do transactions work, what time is it
//! there, are the replicas of the internal topics there. By real requests, on a small topic of its
//! own (`<app>-doctor`), each bounded in time.

use std::sync::Mutex;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

use super::Error;
use crate::clock::Watch;
use crate::kafka::client::KafkaSettings;
use crate::topics::{Topic, TopicSettings};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(3);

/// The topic of the probe: one partition, records stamped by the broker, gone after an hour.
#[must_use]
pub fn topic(application: &str) -> String {
    format!("{application}-doctor")
}

/// What a transaction told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transaction {
    /// How long it took in all, milliseconds.
    pub took_ms: u64,
    /// The broker's clock when it took the record, Unix milliseconds.
    pub broker_ms: Option<i64>,
    /// How long the record was under way, milliseconds: what the clocks cannot be compared below.
    pub record_ms: u64,
}

/// How an internal topic is replicated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicated {
    /// Its name.
    pub topic: String,
    /// The fewest replicas of a partition.
    pub replicas: usize,
    /// The fewest that are in sync.
    pub in_sync: usize,
    /// Partitions without a leader.
    pub leaderless: usize,
    /// `min.insync.replicas`, where the broker says it.
    pub min_in_sync: Option<usize>,
}

/// Remembers the time that the broker gave the record.
#[derive(Default)]
struct Stamps {
    last: Mutex<Option<KafkaResult<Option<i64>>>>,
}

impl ClientContext for Stamps {}

impl ProducerContext for Stamps {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let stamp = match result {
            Ok(message) => Ok(message.timestamp().to_millis()),
            Err((error, _)) => Err(error.clone()),
        };
        if let Ok(mut last) = self.last.lock() {
            *last = Some(stamp);
        }
    }
}

/// How many brokers there are.
///
/// # Errors
/// When none answers within 3 s.
pub fn brokers(settings: &KafkaSettings, application: &str) -> Result<usize, Error> {
    let name = format!("{application}-doctor");
    let reader: BaseConsumer = settings.watermark_reader(&name).create()?;
    Ok(reader.fetch_metadata(None, REQUEST)?.brokers().len())
}

/// Makes the probe's topic, unless it is there.
///
/// # Errors
/// When it cannot be made.
pub async fn ensure_topic(
    settings: &KafkaSettings,
    application: &str,
    replication: i32,
) -> Result<(), Error> {
    let name = topic(application);
    let admin: AdminClient<DefaultClientContext> = settings.admin(&name).create()?;
    let new = NewTopic::new(&name, 1, TopicReplication::Fixed(replication))
        .set("message.timestamp.type", "LogAppendTime")
        .set("retention.ms", "3600000")
        .set("cleanup.policy", "delete");
    let options = AdminOptions::new().operation_timeout(Some(REQUEST));
    for result in admin.create_topics([&new], &options).await? {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => return Err(Error::Topic { topic, reason: code.to_string() }),
        }
    }
    Ok(())
}

/// Commits one transaction of one record.
///
/// # Errors
/// The first step that did not work.
pub fn transaction(settings: &KafkaSettings, application: &str) -> Result<Transaction, Error> {
    let name = topic(application);
    let whole = Watch::start();
    let mut config = settings.transactional(&name);
    config.set("linger.ms", "0");
    // Here also success is of interest.
    config.set("delivery.report.only.error", "false");
    let producer: BaseProducer<Stamps> = config.create_with_context(Stamps::default())?;
    producer.init_transactions(REQUEST)?;
    producer.begin_transaction()?;
    let sent = Watch::start();
    producer
        .send(BaseRecord::to(&name).partition(0).key("probe").payload("probe"))
        .map_err(|(error, _)| error)?;
    let stamp = loop {
        producer.poll(Duration::from_millis(5));
        if let Some(stamp) = producer.context().last.lock().ok().and_then(|mut last| last.take()) {
            break stamp?;
        }
        if sent.elapsed() > REQUEST {
            return Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut).into());
        }
    };
    let record_ms = millis(sent.elapsed());
    producer.commit_transaction(REQUEST)?;
    Ok(Transaction { took_ms: millis(whole.elapsed()), broker_ms: stamp, record_ms })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How the internal topics that exist are replicated.
///
/// # Errors
/// When Kafka does not answer.
pub async fn replication(
    settings: &KafkaSettings,
    topics: &TopicSettings,
) -> Result<Vec<Replicated>, Error> {
    let name = format!("{}-doctor", topics.application);
    let reader: BaseConsumer = settings.watermark_reader(&name).create()?;
    let metadata = reader.fetch_metadata(None, REQUEST)?;
    let names: Vec<_> = Topic::all().map(|topic| topic.name(&topics.application)).collect();
    let mut found: Vec<Replicated> = Vec::new();
    for topic in metadata.topics().iter().filter(|topic| names.iter().any(|n| n == topic.name())) {
        let partitions = topic.partitions();
        found.push(Replicated {
            topic: topic.name().to_owned(),
            replicas: partitions.iter().map(|p| p.replicas().len()).min().unwrap_or(0),
            in_sync: partitions.iter().map(|p| p.isr().len()).min().unwrap_or(0),
            leaderless: partitions.iter().filter(|p| p.leader() < 0).count(),
            min_in_sync: None,
        });
    }
    let admin: AdminClient<DefaultClientContext> = settings.admin(&name).create()?;
    let asked: Vec<_> = found.iter().map(|own| ResourceSpecifier::Topic(&own.topic)).collect();
    if asked.is_empty() {
        return Ok(found);
    }
    let options = AdminOptions::new().request_timeout(Some(REQUEST));
    let answers = admin.describe_configs(&asked, &options).await?;
    let read = |answer: Result<rdkafka::admin::ConfigResource, RDKafkaErrorCode>| {
        answer.ok()?.get("min.insync.replicas")?.value.as_deref()?.parse().ok()
    };
    let values: Vec<Option<usize>> = answers.into_iter().map(read).collect();
    for (own, value) in found.iter_mut().zip(values) {
        own.min_in_sync = value;
    }
    Ok(found)
}
