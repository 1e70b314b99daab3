//! A group member's events, taken down in the rebalance callback and handled by the stream thread
//! as soon as its poll returns: the callback itself assigns and unassigns nothing (design 4).

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientConfig, Statistics, TopicPartitionList};

use super::{ffi, statistics};
use crate::runtime::clients::GroupEvent;
use crate::runtime::mailbox::TaskId;

/// The consumer context of a stream thread.
#[derive(Default)]
pub(crate) struct Membership {
    events: Mutex<VecDeque<GroupEvent>>,
    /// The member id under which partitions were assigned. One that was thrown out of its group
    /// joins again under another; what it still holds then is somebody else's, whatever
    /// `assignment_lost` says by that time (any assign or unassign resets it).
    member_id: Mutex<Option<String>>,
    closing: AtomicBool,
}

impl Membership {
    /// The oldest event that was not handled yet.
    pub(crate) fn next(&self) -> Option<GroupEvent> {
        self.events.lock().ok()?.pop_front()
    }

    /// The member id under which partitions were assigned.
    pub(crate) fn member_id(&self) -> Option<String> {
        self.member_id.lock().ok()?.clone()
    }

    /// Whether an event waits to be handled.
    pub(crate) fn has_event(&self) -> bool {
        self.events.lock().is_ok_and(|events| !events.is_empty())
    }

    /// From now on partitions are let go at once: the thread handles nothing any more.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }
}

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "consumer");
    }

    fn stats(&self, statistics: Statistics) {
        statistics::observe(&statistics);
    }
}

impl ConsumerContext for Membership {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        error: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        if self.closing.load(Ordering::Relaxed) {
            let assigned = consumer.assignment().unwrap_or_default();
            if let Err(error) = consumer.incremental_unassign(&assigned) {
                tracing::debug!(%error, "letting partitions go");
            }
            return;
        }
        let elements = partitions.elements();
        let tasks = elements.iter().map(|element| TaskId {
            topic: element.topic().into(),
            partition: element.partition(),
        });
        let list = tasks.collect();
        let now = ffi::membership(consumer.client().native_ptr());
        let event = match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                if let Ok(mut member_id) = self.member_id.lock() {
                    *member_id = now.member_id;
                }
                GroupEvent::Assigned(list)
            }
            _ if consumer.assignment_lost() || !now.is_of(self.member_id().as_deref()) => {
                GroupEvent::Lost(list)
            }
            _ => GroupEvent::Revoked(list),
        };
        if let Ok(mut events) = self.events.lock() {
            events.push_back(event);
        }
    }
}

/// A static member of `group` whose `wake` is called when its queue fills.
pub(crate) fn join(
    config: &ClientConfig,
    wake: impl Fn() + Send + Sync + 'static,
) -> Result<BaseConsumer<Membership>, KafkaError> {
    let mut consumer: BaseConsumer<Membership> =
        config.create_with_context(Membership::default())?;
    consumer.set_nonempty_callback(wake);
    Ok(consumer)
}

/// librdkafka's log lines in ours, two levels quieter than it thinks: what matters comes back as
/// an error of a call.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "kafka client: {text}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            tracing::info!(facility, "kafka client: {text}");
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(facility, "kafka client: {text}");
        }
    }
}
