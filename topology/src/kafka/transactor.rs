//! The one place that touches transactions (design 1, 5): begins one with the first record, drains
//! before it commits or aborts, and never lets one go without a valid membership and offsets.

use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use rdkafka::{Statistics, TopicPartitionList};

use super::error::Error;
use super::membership::Membership;
use super::{ffi, statistics};
use crate::clock::Watch;
use crate::runtime::processor::{Output, Outputs};
use crate::topics::Topic;

/// How long `send_offsets` may take: below `transaction.timeout.ms` (design 5).
const SEND_OFFSETS: Duration = Duration::from_secs(5);
/// How long a full send queue may stay full.
const QUEUE_FULL: Duration = Duration::from_secs(30);
/// One slice of waiting for acknowledgements, after which failed deliveries are looked for.
const DRAIN_SLICE_MS: i32 = 50;
/// How long acknowledgements of a transaction may take before it is given up.
const DRAIN: Duration = Duration::from_secs(10);

/// Remembers the first record that could not be delivered.
#[derive(Default)]
pub(crate) struct Reports {
    failed: std::sync::Mutex<Option<String>>,
}

impl Reports {
    /// The first failed delivery since the last call.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

impl ClientContext for Reports {
    fn stats(&self, statistics: Statistics) {
        statistics::observe(&statistics);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &rdkafka::producer::DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result
            && let Ok(mut failed) = self.failed.lock()
        {
            failed.get_or_insert_with(|| error.to_string());
        }
    }
}

/// A stream thread's transactional producer.
pub(crate) struct Transactor {
    // Handles go before the producer that they belong to.
    topics: Vec<Option<ffi::TopicHandle>>,
    producer: BaseProducer<Reports>,
    application: String,
    open: bool,
    produced_bytes: usize,
    failure: Option<Error>,
}

impl Transactor {
    /// A producer that has ended its predecessor's transaction.
    pub(crate) fn new(config: &rdkafka::ClientConfig, application: &str) -> Result<Self, Error> {
        let producer: BaseProducer<Reports> = config
            .create_with_context(Reports::default())
            .map_err(|error| Error::Fatal(error.to_string()))?;
        producer.init_transactions(Duration::from_secs(30)).map_err(|e| Error::of(&e))?;
        Ok(Self {
            topics: Vec::new(),
            producer,
            application: application.to_owned(),
            open: false,
            produced_bytes: 0,
            failure: None,
        })
    }

    /// Whether a transaction is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Key and value bytes of the open transaction.
    pub(crate) fn produced_bytes(&self) -> usize {
        self.produced_bytes
    }

    /// The first error of what was emitted since the transaction began, if any.
    pub(crate) fn failure(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn begin(&mut self) -> Result<(), Error> {
        if !self.open {
            self.producer.begin_transaction().map_err(|error| Error::of(&error))?;
            self.open = true;
            self.produced_bytes = 0;
        }
        Ok(())
    }

    fn send(&mut self, output: &Output<'_>) -> Result<(), Error> {
        self.begin()?;
        let record = ffi::Produce {
            partition: output.partition,
            key: output.key,
            value: output.value,
            headers: output.headers,
        };
        let watch = Watch::start();
        loop {
            let client = self.producer.client().native_ptr();
            let sent = ffi::produce(client, self.handle(output.topic)?, &record);
            match sent {
                Ok(()) => break,
                Err(RDKafkaErrorCode::QueueFull) if watch.elapsed() < QUEUE_FULL => {
                    self.producer.poll(Duration::from_millis(1));
                }
                Err(code) => {
                    let text = format!("producing to {}: {code}", output.topic);
                    return Err(Error::of(&KafkaError::MessageProduction(code)).at(&text));
                }
            }
        }
        self.produced_bytes +=
            output.value.map_or(0, <[u8]>::len) + output.key.map_or(0, <[u8]>::len);
        Ok(())
    }

    fn handle(&mut self, topic: Topic) -> Result<&ffi::TopicHandle, Error> {
        let index = topic.index();
        if self.topics.len() <= index {
            self.topics.resize_with(index + 1, || None);
        }
        let slot = &mut self.topics[index];
        if slot.is_none() {
            let name = topic.name(&self.application);
            *slot = ffi::TopicHandle::new(self.producer.client().native_ptr(), &name);
        }
        slot.as_ref().ok_or_else(|| Error::Fatal(format!("no handle for the topic {topic}")))
    }

    /// Commits the open transaction (or one of offsets alone) with these positions.
    pub(crate) fn commit(
        &mut self,
        positions: &TopicPartitionList,
        consumer: &BaseConsumer<Membership>,
    ) -> Result<(), Error> {
        self.failure()?;
        self.begin()?;
        self.drain()?;
        // The broker takes an empty member id or a negative generation unfenced, and fresh metadata
        // of a membership regained for partitions of one that was lost: our own check is the fence.
        // The same membership before and after means that the metadata between is of it.
        let client = consumer.client().native_ptr();
        let before = ffi::membership(client);
        let metadata = consumer.group_metadata();
        let after = ffi::membership(client);
        let assigned = consumer.context().member_id();
        let is_ours = before == after && before.is_of(assigned.as_deref());
        let Some(metadata) = metadata.filter(|_| is_ours) else {
            return Err(Error::Abort("this member is not in its group as it was".into()));
        };
        if positions.count() == 0 {
            return Err(Error::Abort("a transaction without offsets is fenced by nobody".into()));
        }
        self.producer.send_offsets_to_transaction(positions, &metadata, SEND_OFFSETS).map_err(
            |error| match Error::of(&error) {
                Error::Retry(text) => Error::Abort(text),
                folded => folded,
            },
        )?;
        self.producer.commit_transaction(None).map_err(|error| Error::of_commit(&error))?;
        self.open = false;
        Ok(())
    }

    /// Commits what a tool wrote. It consumes nothing, so there are no positions to carry, and its
    /// own transactional id is the only fence.
    pub(crate) fn commit_without_positions(&mut self) -> Result<(), Error> {
        self.failure()?;
        self.drain()?;
        self.producer.commit_transaction(None).map_err(|error| Error::of_commit(&error))?;
        self.open = false;
        Ok(())
    }

    /// Aborts the open transaction, if there is one.
    pub(crate) fn abort(&mut self) -> Result<(), Error> {
        self.failure = None;
        if !self.open {
            return Ok(());
        }
        // Unpolled reports would make the abort wait for its whole time-out and fail.
        self.producer.purge(rdkafka::producer::PurgeConfig::default().queue());
        let _ = self.drain();
        self.producer.abort_transaction(Duration::from_secs(30)).map_err(
            |error| match Error::of(&error) {
                Error::Fatal(text) => Error::Fatal(text),
                other => Error::Rebuild(format!("the abort failed: {other}")),
            },
        )?;
        let _ = self.producer.context().take_failure();
        self.open = false;
        Ok(())
    }

    fn drain(&self) -> Result<(), Error> {
        let watch = Watch::start();
        while !ffi::flush(self.producer.client().native_ptr(), DRAIN_SLICE_MS) {
            if watch.elapsed() > DRAIN {
                return Err(Error::Abort("the broker acknowledges too slowly".into()));
            }
            self.producer.poll(Duration::ZERO);
        }
        self.producer.poll(Duration::ZERO);
        self.producer.context().take_failure().map_or(Ok(()), |text| Err(Error::Abort(text)))
    }

    /// Serves the producer's queue, so that its errors and reports are seen while it idles.
    pub(crate) fn serve(&self) {
        self.producer.poll(Duration::ZERO);
    }
}

impl Error {
    fn at(self, text: &str) -> Self {
        match self {
            Self::Retry(_) | Self::Abort(_) => Self::Abort(text.to_owned()),
            Self::Rebuild(_) => Self::Rebuild(text.to_owned()),
            Self::Fenced(_) => Self::Fenced(text.to_owned()),
            Self::Fatal(_) => Self::Fatal(text.to_owned()),
        }
    }
}

impl Outputs for Transactor {
    fn emit(&mut self, output: Output<'_>) {
        if self.failure.is_none()
            && let Err(error) = self.send(&output)
        {
            self.failure = Some(error);
        }
    }
}
