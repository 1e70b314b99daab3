//! Internal topics: compared with the plan, made when they are missing, trimmed when they are
//! queues. A start against topics that differ from the plan ends with what differs and what to do.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_model::pull;
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;

use super::client::KafkaSettings;
use super::offsets;
use super::transactor::Reports;
use crate::clock::Watch;
use crate::instances::{LAYOUT_KEY, Layout, PULL_BASE_KEY, PullBase};
use crate::salting::SaltRecord;
use crate::topics::{Topic, TopicSettings};

/// How long one administrative request may take.
const REQUEST: Duration = Duration::from_secs(15);
/// How long new topics may take to be known everywhere.
const SETTLE: Duration = Duration::from_secs(30);

/// Why topics are not as the hub needs them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Kafka did not answer or refused.
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
    /// Topics are missing and are not to be made now.
    #[error(
        "these internal topics are missing: {}; make them with `streaming-hub topics create`, or \
         set topics.auto_create = true",
        .0.join(", ")
    )]
    Missing(Vec<String>),
    /// Topics are there but differ from the plan.
    #[error(
        "internal topics differ from the plan:\n  {}\nchange the topics with `kafka-configs`, or \
         the configuration so that it says what they are",
        .0.join("\n  ")
    )]
    Differ(Vec<String>),
    /// The recorded layout is another one.
    #[error(
        "the internal topics were made with {recorded} partitions and topics.partitions is now \
         {configured}: a rehash would tear orders and duplicates apart. Set topics.partitions = \
         {recorded}"
    )]
    Layout {
        /// What was recorded when the topics were made.
        recorded: i32,
        /// What the configuration says.
        configured: i32,
    },
    /// A published topic could not be read to its end.
    #[error("the topic {0} could not be read to its end within 30 s; are all brokers up?")]
    Unread(String),
    /// A record could not be written.
    #[error("writing to {topic}: {reason}")]
    Unwritten {
        /// The topic.
        topic: String,
        /// What Kafka said.
        reason: String,
    },
    /// The pull topic was made anew more often than there are numbers for.
    #[error("the pull topic was made anew too often: no seq is left below 2^53")]
    BasesUsedUp,
    /// A topic could not be made.
    #[error("making the topic {topic}: {reason}")]
    Create {
        /// Its name.
        topic: String,
        /// What Kafka said.
        reason: String,
    },
}

/// What the cluster has of the internal topics.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Topics that do not exist.
    pub missing: Vec<Topic>,
    /// Differences in words.
    pub differences: Vec<String>,
}

/// Administers the internal topics.
pub struct Administrator {
    client: AdminClient<DefaultClientContext>,
    reader: BaseConsumer,
    kafka: KafkaSettings,
    topics: TopicSettings,
}

impl Administrator {
    /// An administrator with clients of its own.
    ///
    /// # Errors
    /// When a client cannot be made of these settings.
    pub fn new(kafka: KafkaSettings, topics: TopicSettings) -> Result<Self, KafkaError> {
        let client_id = format!("{}-admin", topics.application);
        let client = kafka.admin(&client_id).create()?;
        let reader = kafka.assigned_reader(&client_id, &client_id).create()?;
        Ok(Self { client, reader, kafka, topics })
    }

    fn name(&self, topic: Topic) -> String {
        topic.name(&self.topics.application)
    }

    /// Makes sure that all topics are as planned; makes missing ones when `create` is set.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ensure(&self, create: bool) -> Result<(), Error> {
        let found = self.compare().await?;
        if !found.differences.is_empty() {
            return Err(Error::Differ(found.differences));
        }
        let all_new = found.missing.len() == Topic::all().count();
        if !all_new {
            self.check_layout(&found)?;
        }
        if !found.missing.is_empty() {
            if !create {
                let names = found.missing.iter().map(|topic| self.name(*topic)).collect();
                return Err(Error::Missing(names));
            }
            if found.missing.contains(&Topic::Pull) && !found.missing.contains(&Topic::Instances) {
                // First of all: a base that was raised in vain does no harm.
                self.raise_pull_base()?;
            }
            self.create(&found.missing).await?;
        }
        if all_new || self.layout()?.is_none() {
            self.record_layout()?;
        }
        if self.recorded_pull_base()?.is_none() {
            self.record_pull_base(pull::BASE_FIRST)?;
        }
        Ok(())
    }

    /// What is added to a log offset of the pull topic to give a `seq`.
    ///
    /// # Errors
    /// When Kafka does not answer.
    pub fn pull_base(&self) -> Result<u64, Error> {
        Ok(self.recorded_pull_base()?.unwrap_or(pull::BASE_FIRST))
    }

    fn recorded_pull_base(&self) -> Result<Option<u64>, Error> {
        let found = self.latest(Topic::Instances, PULL_BASE_KEY.as_bytes())?;
        let record = found.and_then(|value| serde_json::from_slice::<PullBase>(&value).ok());
        Ok(record.map(|record| record.base))
    }

    fn record_pull_base(&self, base: u64) -> Result<(), Error> {
        let value = serde_json::to_vec(&PullBase { base }).unwrap_or_default();
        self.write(Topic::Instances, PULL_BASE_KEY.as_bytes(), &value)
    }

    /// The pull topic is about to be made anew: what it will hold comes after everything that the
    /// last one held (design 16).
    fn raise_pull_base(&self) -> Result<(), Error> {
        let Some(base) = self.recorded_pull_base()? else { return Ok(()) };
        let next = pull::next_base(base).ok_or(Error::BasesUsedUp)?;
        tracing::warn!(base, next, "the pull topic is made anew; the base of its seq is raised");
        self.record_pull_base(next)
    }

    /// Compares the cluster's topics with the plan.
    ///
    /// # Errors
    /// When Kafka does not answer.
    pub async fn compare(&self) -> Result<Comparison, Error> {
        let mut comparison = Comparison::default();
        let metadata = self.reader.fetch_metadata(None, REQUEST)?;
        let mut present = Vec::new();
        for topic in Topic::all() {
            let name = self.name(topic);
            match metadata.topics().iter().find(|known| known.name() == name) {
                None => comparison.missing.push(topic),
                Some(known) => {
                    let (has, plan) = (known.partitions().len(), topic.partitions(&self.topics));
                    if i32::try_from(has) != Ok(plan) {
                        comparison.differences.push(format!(
                            "{name}: has {has} partitions, planned are {plan} (topics.partitions)"
                        ));
                    }
                    present.push((topic, name));
                }
            }
        }
        comparison.differences.extend(self.compare_configs(&present).await?);
        Ok(comparison)
    }

    async fn compare_configs(&self, topics: &[(Topic, String)]) -> Result<Vec<String>, Error> {
        let mut differences = Vec::new();
        if topics.is_empty() {
            return Ok(differences);
        }
        let asked: Vec<_> = topics.iter().map(|(_, name)| ResourceSpecifier::Topic(name)).collect();
        let options = AdminOptions::new().request_timeout(Some(REQUEST));
        let answers = self.client.describe_configs(&asked, &options).await?;
        for ((topic, name), answer) in topics.iter().zip(answers) {
            let resource = answer.map_err(KafkaError::AdminOp)?;
            for (key, planned) in topic.config(&self.topics) {
                let has = resource.get(key).and_then(|entry| entry.value.as_deref());
                if has != Some(&planned) && !same_number(has, &planned) {
                    let has = has.unwrap_or("nothing");
                    differences.push(format!("{name}: {key} is {has}, planned is {planned}"));
                }
            }
        }
        Ok(differences)
    }

    async fn create(&self, missing: &[Topic]) -> Result<(), Error> {
        let planned: Vec<_> = missing
            .iter()
            .map(|topic| (self.name(*topic), topic.partitions(&self.topics), *topic))
            .collect();
        let configs: Vec<Vec<(&str, String)>> =
            planned.iter().map(|(_, _, topic)| topic.config(&self.topics)).collect();
        let new: Vec<NewTopic<'_>> = planned
            .iter()
            .zip(&configs)
            .map(|((name, partitions, _), config)| {
                let replication = TopicReplication::Fixed(self.topics.replication);
                let topic = NewTopic::new(name, *partitions, replication);
                config.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
            })
            .collect();
        let options = AdminOptions::new().operation_timeout(Some(REQUEST));
        for result in self.client.create_topics(&new, &options).await? {
            match result {
                Ok(_) | Err((_, rdkafka::error::RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, code)) => {
                    return Err(Error::Create { topic, reason: code.to_string() });
                }
            }
        }
        tracing::info!(topics = new.len(), "internal topics made");
        self.wait_for(&planned.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>())
    }

    /// Waits until every partition of these topics has a leader.
    fn wait_for(&self, names: &[&str]) -> Result<(), Error> {
        let watch = Watch::start();
        loop {
            let metadata = self.reader.fetch_metadata(None, REQUEST)?;
            let led = |name: &&str| {
                let topic = metadata.topics().iter().find(|topic| topic.name() == *name);
                topic.is_some_and(|topic| {
                    !topic.partitions().is_empty()
                        && topic.partitions().iter().all(|p| p.error().is_none() && p.leader() >= 0)
                })
            };
            if names.iter().all(led) {
                return Ok(());
            }
            if watch.elapsed() > SETTLE {
                let topic = names.iter().find(|name| !led(name)).copied().unwrap_or_default();
                let reason = "its partitions have no leader after 30 s".to_owned();
                return Err(Error::Create { topic: topic.to_owned(), reason });
            }
            let _ = self.reader.poll(Duration::from_millis(50));
        }
    }

    fn check_layout(&self, found: &Comparison) -> Result<(), Error> {
        if found.missing.contains(&Topic::Instances) {
            return Ok(());
        }
        match self.layout()? {
            Some(layout) if layout.partitions != self.topics.partitions => Err(Error::Layout {
                recorded: layout.partitions,
                configured: self.topics.partitions,
            }),
            _ => Ok(()),
        }
    }

    /// The recorded layout.
    fn layout(&self) -> Result<Option<Layout>, Error> {
        let found = self.latest(Topic::Instances, LAYOUT_KEY.as_bytes())?;
        Ok(found.and_then(|value| serde_json::from_slice(&value).ok()))
    }

    /// The last value of a key in a small published topic of one partition.
    fn latest(&self, topic: Topic, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let name = self.name(topic);
        let asked = [(name.as_str(), 0)];
        let low = offsets::low_watermarks(&self.reader, &asked)?[0];
        // The stable end: what is looked for was written outside of transactions.
        let high = offsets::high_watermarks(&self.reader, &asked)?[0];
        let mut found = None;
        if low >= high {
            return Ok(None);
        }
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&name, 0, Offset::Offset(low))?;
        self.reader.assign(&list)?;
        let watch = Watch::start();
        let mut position = low;
        while position < high && watch.elapsed() < SETTLE {
            // An error here is a broker that is away for a moment: the deadline counts.
            if let Some(Ok(message)) = self.reader.poll(Duration::from_millis(20))
                && message.key() == Some(key)
            {
                found = message.payload().map(<[u8]>::to_vec);
            }
            let positions = self.reader.position()?;
            let element = positions.find_partition(&name, 0);
            if let Some(Offset::Offset(next)) = element.map(|element| element.offset()) {
                position = next;
            }
        }
        self.reader.unassign()?;
        // Not to have read to the end is no answer: what is missing may be what was asked for.
        if position < high { Err(Error::Unread(name)) } else { Ok(found) }
    }

    fn record_layout(&self) -> Result<(), Error> {
        let layout = Layout { partitions: self.topics.partitions };
        let value = serde_json::to_vec(&layout).unwrap_or_default();
        self.write(Topic::Instances, LAYOUT_KEY.as_bytes(), &value)
    }

    fn write(&self, topic: Topic, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let client_id = format!("{}-admin", self.topics.application);
        let config = self.kafka.producer(&client_id);
        let producer: BaseProducer<Reports> = config.create_with_context(Reports::default())?;
        let name = self.name(topic);
        let record = BaseRecord::to(&name).partition(0).key(key).payload(value);
        producer.send(record).map_err(|(error, _)| error)?;
        producer.flush(REQUEST)?;
        match producer.context().take_failure() {
            Some(reason) => Err(Error::Unwritten { topic: name, reason }),
            None => Ok(()),
        }
    }

    /// Since when a tenant is salted, if it is.
    ///
    /// # Errors
    /// When Kafka does not answer.
    pub fn salted(&self, tenant: &TenantId) -> Result<Option<UnixMillis>, Error> {
        let found = self.latest(Topic::Salts, tenant.as_str().as_bytes())?;
        let record = found.and_then(|value| serde_json::from_slice::<SaltRecord>(&value).ok());
        Ok(record.map(|record| record.since))
    }

    /// Records that a tenant is salted from a moment on, which must lie in the future by more than
    /// instances take to hear of it.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub fn salt(&self, tenant: &TenantId, since: UnixMillis) -> Result<(), Error> {
        let value = serde_json::to_vec(&SaltRecord { since }).unwrap_or_default();
        self.write(Topic::Salts, tenant.as_str().as_bytes(), &value)
    }

    /// Deletes what lies below these positions of queues (design 10).
    ///
    /// # Errors
    /// When Kafka refuses; nothing depends on it, it is tried again later.
    pub async fn trim(&self, positions: &[((String, i32), i64)]) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::new();
        for ((topic, partition), position) in positions {
            list.add_partition_offset(topic, *partition, Offset::Offset(*position))?;
        }
        if list.count() > 0 {
            let options = AdminOptions::new().request_timeout(Some(REQUEST));
            self.client.delete_records(&list, &options).await?;
        }
        Ok(())
    }
}

/// Whether both are the same number: brokers print `0.2` where `0.20` was given.
fn same_number(has: Option<&str>, planned: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    has.and_then(number).zip(number(planned)).is_some_and(|(a, b)| (a - b).abs() < f64::EPSILON)
}

/// Committed positions of queues, below which records may be deleted.
#[derive(Debug, Default)]
pub struct Consumed {
    positions: Mutex<HashMap<(String, i32), i64>>,
}

impl Consumed {
    /// A position was committed.
    pub(crate) fn note(&self, topic: &str, partition: i32, position: i64) {
        if let Ok(mut positions) = self.positions.lock() {
            positions.insert((topic.to_owned(), partition), position);
        }
    }

    /// What was committed since the last call.
    pub fn take(&self) -> Vec<((String, i32), i64)> {
        let positions = self.positions.lock().map(|mut p| std::mem::take(&mut *p));
        positions.unwrap_or_default().into_iter().collect()
    }
}
