//! The API's way to the registry (design 17): a change is produced to
//! `<app>-subscription-changes`, its decision awaited in `<app>-subscription-replies`, and the
//! answer given only once this instance's table shows what was written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::consumer::BaseConsumer;
use streaming_hub_model::change::{Change, Decision, Reply};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::ports::{Changes, SubscriptionTable, Unavailable};
use streaming_hub_model::routing;
use streaming_hub_model::sink::SinkFuture;
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::tenant::TenantId;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::follower::View;
use crate::kafka::offsets;
use crate::recorder::Recorder;
use crate::shared::Shared;
use crate::table::Table;
use crate::topics::{Topic, TopicSettings};

/// How long a change waits to be recorded, decided and readable.
const DECIDED: Duration = Duration::from_secs(10);
/// How long a read that missed waits for the table (contract section 7, last paragraph).
const CATCH_UP: Duration = Duration::from_secs(1);

/// Those who wait for a decision.
#[derive(Default)]
pub struct Replies {
    waiting: Mutex<HashMap<Uuid, oneshot::Sender<Decision>>>,
    listening: AtomicBool,
}

impl Replies {
    /// Whether replies are being read: before that, a change's decision could be missed.
    pub(crate) fn listening(&self, listening: bool) {
        self.listening.store(listening, Ordering::Release);
    }

    fn expect(self: &Arc<Self>, change: Uuid) -> Expected {
        let (sender, receiver) = oneshot::channel();
        if let Ok(mut map) = self.waiting.lock() {
            map.insert(change, sender);
        }
        Expected { replies: Arc::clone(self), change, receiver }
    }
}

impl View for Replies {
    fn topic(&self) -> Topic {
        Topic::SubscriptionReplies
    }

    fn is_from_end(&self) -> bool {
        true
    }

    fn take(&self, _: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        let Some(Ok(reply)) = value.map(serde_json::from_slice::<Reply>) else { return false };
        let waiting = self.waiting.lock().ok().and_then(|mut map| map.remove(&reply.change));
        if let Some(waiting) = waiting {
            let _ = waiting.send(reply.verdict);
        }
        true
    }
}

/// One awaited decision; nothing stays behind when its caller is gone.
struct Expected {
    replies: Arc<Replies>,
    change: Uuid,
    receiver: oneshot::Receiver<Decision>,
}

impl Drop for Expected {
    fn drop(&mut self) {
        if let Ok(mut map) = self.replies.waiting.lock() {
            map.remove(&self.change);
        }
    }
}

/// The client of the registry.
pub struct ChangeClient {
    shared: Arc<Shared>,
    table: Arc<Table>,
    replies: Arc<Replies>,
    recorder: Recorder,
    topic: String,
}

impl ChangeClient {
    /// A client with a producer of its own.
    ///
    /// # Errors
    /// When the producer cannot be made.
    pub fn new(
        shared: Arc<Shared>,
        table: Arc<Table>,
        replies: Arc<Replies>,
    ) -> rdkafka::error::KafkaResult<Self> {
        let recorder = Recorder::new(&shared, "changes")?;
        let topic = Topic::SubscriptionChanges.name(&shared.application);
        Ok(Self { shared, table, replies, recorder, topic })
    }

    async fn decide(&self, mut change: Change) -> Result<Decision, Unavailable> {
        if !self.replies.listening.load(Ordering::Acquire) {
            return Err(Unavailable::NotRecorded);
        }
        change.reply_to.clone_from(&self.shared.instance);
        let (id, tenant) = (change.subscription, change.tenant.clone());
        let mut expected = self.replies.expect(change.id);
        self.record(&change, &tenant).await?;
        let decision = async {
            let decision = (&mut expected.receiver).await.map_err(|_| Unavailable::Undecided)?;
            self.table.wait_until(|table| is_readable(table, id, &decision)).await;
            Ok(decision)
        };
        tokio::time::timeout(DECIDED, decision).await.map_err(|_| Unavailable::Undecided)?
    }

    async fn record(&self, change: &Change, tenant: &TenantId) -> Result<(), Unavailable> {
        let value = serde_json::to_vec(change).map_err(|_| Unavailable::NotRecorded)?;
        let partitions = self.shared.topics.partitions.unsigned_abs();
        let partition = routing::partition_for_tenant(tenant.as_str(), partitions);
        let key = tenant.as_str().as_bytes();
        self.recorder.record((&self.topic, partition), key, Some(&value)).await
    }
}

/// Whether the table shows what was decided.
fn is_readable(table: &Table, id: SubscriptionId, decision: &Decision) -> bool {
    match decision {
        Decision::Written { version } => table.get(id).is_some_and(|row| row.version >= *version),
        Decision::Deleted => table.get(id).is_none(),
        Decision::Refused { .. }
        | Decision::Claimed { .. }
        | Decision::Noted
        | Decision::Repeated { .. } => true,
    }
}

impl Changes for ChangeClient {
    fn submit(&self, change: Change) -> SinkFuture<'_, Result<Decision, Unavailable>> {
        Box::pin(self.decide(change))
    }
}

/// The table as the API reads it.
pub struct TableReader {
    /// The table.
    pub table: Arc<Table>,
    /// Answers the topic's ends.
    pub watermarks: Arc<BaseConsumer>,
    /// Names the topic.
    pub topics: TopicSettings,
}

impl SubscriptionTable for TableReader {
    fn get(&self, id: SubscriptionId) -> Option<Arc<Subscription>> {
        self.table.get(id)
    }

    fn of_tenant(&self, tenant: &TenantId) -> Vec<Arc<Subscription>> {
        self.table.of_tenant(tenant)
    }

    fn all(&self) -> Vec<Arc<Subscription>> {
        self.table.all()
    }

    fn catch_up(&self) -> SinkFuture<'_, ()> {
        let (watermarks, topics) = (Arc::clone(&self.watermarks), self.topics.clone());
        let ends = tokio::task::spawn_blocking(move || {
            let name = Topic::Subscriptions.name(&topics.application);
            let asked: Vec<_> = (0..topics.partitions).map(|p| (name.as_str(), p)).collect();
            offsets::high_watermarks(&watermarks, &asked)
        });
        Box::pin(async move {
            let caught_up = async {
                if let Ok(Ok(ends)) = ends.await {
                    self.table.wait_until(|table| table.has_reached(&ends)).await;
                }
            };
            let _ = tokio::time::timeout(CATCH_UP, caught_up).await;
        })
    }
}
