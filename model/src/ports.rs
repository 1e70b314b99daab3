//! What the API, the delivery engine and the tests ask of the rest of the hub, each as narrow as
//! its user needs it. The shell implements them; nothing here does.

use std::sync::Arc;
use std::time::Duration;

use crate::change::{Change, Decision};
use crate::delivery_calls::{Answer, Question};
use crate::destination::{DestinationId, DestinationRecord};
use crate::dlq::{Entry, Filter, Page, Place};
use crate::hold::{Hold, Scope};
use crate::id::SubscriptionId;
use crate::peer::CallError;
use crate::pull::Ask;
use crate::sink::SinkFuture;
use crate::subscription::{SinkConfig, Subscription};
use crate::tenant::TenantId;
use crate::time::UnixMillis;

/// The wall clock.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> UnixMillis;
}

/// A cryptographic source of randomness.
pub trait Entropy: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);

    /// Ten random bytes, what a UUIDv7 takes beside its time.
    fn ten(&self) -> [u8; 10] {
        let mut bytes = [0; 10];
        self.fill(&mut bytes);
        bytes
    }
}

/// This instance's copy of `<app>-subscriptions`.
pub trait SubscriptionTable: Send + Sync {
    /// The subscription under this id, whoever owns it.
    fn get(&self, id: SubscriptionId) -> Option<Arc<Subscription>>;

    /// All subscriptions of a tenant, oldest id first.
    fn of_tenant(&self, tenant: &TenantId) -> Vec<Arc<Subscription>>;

    /// Everyone's subscriptions, oldest id first.
    fn all(&self) -> Vec<Arc<Subscription>>;

    /// Waits until the copy has reached the topic's end as of this call, at most a second
    /// (contract section 7, last paragraph).
    fn catch_up(&self) -> SinkFuture<'_, ()>;
}

/// Why a change has no decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Kafka did not take the change: nothing was changed.
    #[error("the change could not be recorded; nothing was changed")]
    NotRecorded,
    /// The change was recorded but its decision did not arrive in time.
    #[error("the change was recorded but is not decided yet; it may still take effect")]
    Undecided,
}

/// The way to the registry, the one writer of subscriptions (design 17).
pub trait Changes: Send + Sync {
    /// Submits a change and waits for its decision, and until this instance can read back what was
    /// written. `reply_to` of the change is filled in here.
    fn submit(&self, change: Change) -> SinkFuture<'_, Result<Decision, Unavailable>>;
}

/// What became of a read of a pull subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullAnswer {
    /// The whole answer, JSON; the cursor has moved durably.
    Page(Vec<u8>),
    /// Its transaction was aborted: nothing moved.
    Failed,
    /// Whether the cursor moved is not known.
    Undecided,
}

/// Where a pull subscription stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullStanding {
    /// Everything up to this `seq` is acknowledged.
    pub cursor: u64,
    /// The highest `seq`.
    pub high_watermark: u64,
    /// How many entries are unread.
    pub backlog: u64,
    /// When the oldest unread entry was matched.
    pub oldest_unread_at: Option<UnixMillis>,
}

/// The logs of pull subscriptions whose tasks run in this instance.
pub trait PullLogs: Send + Sync {
    /// Whether the subscription's task runs in this instance.
    ///
    /// # Errors
    /// Where it runs instead.
    fn is_here(&self, subscription: SubscriptionId) -> Result<(), CallError>;

    /// Reads a page, which acknowledges it (contract section 5, "Pull"); first waits for entries.
    /// The two times are the wait and all of it together.
    fn read(
        &self,
        subscription: SubscriptionId,
        ask: Ask,
        wait_and_all: (Duration, Duration),
    ) -> SinkFuture<'_, Result<PullAnswer, CallError>>;

    /// Where a subscription stands.
    fn standing(
        &self,
        subscription: SubscriptionId,
    ) -> SinkFuture<'_, Result<PullStanding, CallError>>;

    /// How many deleted subscriptions still have something in the log of a partition whose task
    /// runs in this instance: those that its table does not have, and those named here.
    fn leftover(
        &self,
        partition: i32,
        deleted: Vec<SubscriptionId>,
    ) -> SinkFuture<'_, Result<u64, CallError>>;
}

/// The way to the delivery tasks, each of which owns the subscriptions of one partition.
pub trait Deliveries: Send + Sync {
    /// How many partitions there are.
    fn partitions(&self) -> u32;

    /// Asks the task of a partition; `routing::partition_for_subscription` says which one has a
    /// subscription.
    fn ask(&self, partition: i32, question: Question) -> SinkFuture<'_, Result<Answer, CallError>>;
}

/// Destinations, as this instance knows them.
pub trait KnownDestinations: Send + Sync {
    /// The name of a sink's destination.
    fn name(&self, sink: &SinkConfig) -> DestinationId;

    /// Those whose breakers are open, here and elsewhere, as the tasks said that opened them; in no
    /// order.
    fn open(&self) -> Vec<DestinationRecord>;
}

/// An operator's holds, as this instance knows them and as it writes them.
pub trait Holding: Send + Sync {
    /// All of them, by scope.
    fn all(&self) -> Vec<Arc<Hold>>;

    /// Sets a hold, or another one in its place; waits until this instance knows it.
    fn hold(&self, hold: Hold) -> SinkFuture<'_, Result<(), Unavailable>>;

    /// Lifts the hold of a scope; one that is not there is lifted already.
    fn lift(&self, scope: Scope) -> SinkFuture<'_, Result<(), Unavailable>>;
}

/// Why an entry of a producers' dead-letter topic cannot be shown just now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the entry could not be read: {0}")]
pub struct Unread(pub String);

/// What this instance knows of the producers' dead-letter topics (contract section 6).
pub trait ProducerDeadLetters: Send + Sync {
    /// A page of what the filter admits, newest first, that begins behind `cursor`; `None` when
    /// that is no cursor of this list.
    fn page(
        &self,
        filter: Filter,
        cursor: Option<String>,
        limit: usize,
    ) -> SinkFuture<'_, Option<Page>>;

    /// One entry, read from its topic; `None` when there is none any more.
    fn entry(&self, place: Place) -> SinkFuture<'_, Result<Option<Entry>, Unread>>;
}

/// Whether this instance can do its work.
pub trait Readiness: Send + Sync {
    /// What is still missing; empty when ready.
    fn missing(&self) -> Vec<String>;
}
