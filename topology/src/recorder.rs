//! Writes single records to internal topics for the API, outside of any task's transaction: changes
//! for the registry, an operator's holds. A record counts once every in-sync replica has it.

use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, ProducerContext};
use streaming_hub_model::ports::Unavailable;
use tokio::sync::oneshot;

use crate::shared::Shared;

/// How long a record waits to be written.
const RECORDED: Duration = Duration::from_secs(10);
/// How often a producer's reports are looked for while one is awaited.
const REPORT: Duration = Duration::from_millis(1);

/// Reports what became of a produced record.
struct Reports;

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<oneshot::Sender<bool>>;
    fn delivery(&self, result: &DeliveryResult<'_>, sender: Self::DeliveryOpaque) {
        let _ = sender.send(result.is_ok());
    }
}

/// A producer whose records are awaited one by one.
pub struct Recorder {
    producer: BaseProducer<Reports>,
}

impl Recorder {
    /// A recorder with a producer of its own; `purpose` is part of its client id.
    ///
    /// # Errors
    /// When the producer cannot be made.
    pub fn new(shared: &Shared, purpose: &str) -> rdkafka::error::KafkaResult<Self> {
        let client_id = format!("{}-{purpose}-{}", shared.application, shared.instance);
        let producer = shared.kafka.producer(&client_id).create_with_context(Reports)?;
        Ok(Self { producer })
    }

    /// Writes one record; without a value it is a tombstone.
    ///
    /// # Errors
    /// [`Unavailable::NotRecorded`] when it was surely not written, else
    /// [`Unavailable::Undecided`].
    pub(crate) async fn record(
        &self,
        (topic, partition): (&str, i32),
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), Unavailable> {
        let (sender, recorded) = oneshot::channel();
        let record = BaseRecord::<[u8], [u8], _>::with_opaque_to(topic, Box::new(sender));
        let mut record = record.partition(partition).key(key);
        record.payload = value;
        if let Err((error, _)) = self.producer.send(record) {
            tracing::warn!(topic, %error, "a record could not be produced");
            return Err(Unavailable::NotRecorded);
        }
        let reported = async {
            let mut recorded = std::pin::pin!(recorded);
            loop {
                // Serves the producer's reports; a thread of its own would spin for nothing.
                self.producer.poll(Duration::ZERO);
                if let Ok(report) = tokio::time::timeout(REPORT, &mut recorded).await {
                    return report;
                }
            }
        };
        match tokio::time::timeout(RECORDED, reported).await {
            Ok(Ok(true)) => Ok(()),
            // The client gave up on it for good: it was never written.
            Ok(Ok(false)) => Err(Unavailable::NotRecorded),
            Ok(Err(_)) | Err(_) => Err(Unavailable::Undecided),
        }
    }
}
