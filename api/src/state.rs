//! What the handlers share: the ports to the rest of the hub, and the few steps that every handler
//! of a subscription takes (find it, submit a change about it).

use std::sync::Arc;
use std::time::Duration;

use streaming_hub_model::change::{Action, Change, Decision};
use streaming_hub_model::id::{SubscriptionId, uuid_v7};
use streaming_hub_model::overview::Overview;
use streaming_hub_model::ports::{
    Changes, Clock, Deliveries, Entropy, Holding, KnownDestinations, ProducerDeadLetters, PullLogs,
    Readiness, SubscriptionTable, Unavailable,
};
use streaming_hub_model::secret::Keyring;
use streaming_hub_model::sink::Sink;
use streaming_hub_model::stored::StoredLogs;
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::tenant::TenantId;
use uuid::Uuid;

use crate::auth::Tokens;
use crate::forward::Cluster;
use crate::jwt::Jwt;
use crate::log_filter::LogFilter;
use crate::metrics::Metrics;
use crate::problem::{Code, Problem};
use crate::rate::Buckets;
use crate::replay::Replays;

/// What answers on every instance, whatever its roles: its health, its numbers, and the exchange
/// around each request.
pub struct Operations {
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness for ids, secrets and nonces.
    pub entropy: Arc<dyn Entropy>,
    /// What `/readyz` reports.
    pub readiness: Arc<dyn Readiness>,
    /// What `/metrics` shows, this crate's own numbers included.
    pub metrics: Metrics,
    /// How long a request may take in all, the reading of its body included. Longer than an
    /// attempt and two changes together, so that a verification is not cut off.
    pub request_timeout: Duration,
}

impl Operations {
    /// A fresh id for a request or a change.
    pub(crate) fn uuid(&self) -> Uuid {
        uuid_v7(self.clock.now().0, self.entropy.ten())
    }
}

/// Everything that the API works with.
pub struct Api {
    /// What it shares with an instance that has no API.
    pub operations: Arc<Operations>,
    /// This instance's copy of the subscriptions.
    pub table: Arc<dyn SubscriptionTable>,
    /// The way to the registry.
    pub changes: Arc<dyn Changes>,
    /// The way to the delivery tasks.
    pub deliveries: Arc<dyn Deliveries>,
    /// Admits destinations and probes them.
    pub sink: Arc<dyn Sink>,
    /// Seals signing secrets.
    pub keyring: Arc<Keyring>,
    /// What only operators ask for.
    pub operator: OperatorPorts,
    /// Who may call.
    pub tokens: Tokens,
    /// What destinations are called, and whose breakers are open.
    pub destinations: Arc<dyn KnownDestinations>,
    /// An operator's holds.
    pub holds: Arc<dyn Holding>,
    /// Reads the inbox and the quarantine.
    pub stored: Arc<dyn StoredLogs>,
    /// What runs where.
    pub overview: Arc<dyn Overview>,
    /// Replays that run here.
    pub replays: Replays,
    /// After how many hours the last copy of an event is gone from every log.
    pub retention_hours: u64,
    /// What verifies JSON web tokens, where they are accepted.
    pub jwt: Option<Arc<Jwt>>,
    /// The way to other instances; `None` where no cluster key is configured.
    pub cluster: Option<Cluster>,
    /// The logs of pull subscriptions whose tasks run here.
    pub pull: Arc<dyn PullLogs>,
    /// How often tenants may read pull subscriptions here.
    pub reads: Buckets,
    /// How often tenants may ask anything here.
    pub requests: Buckets,
    /// How much a caller may ask for.
    pub limits: Limits,
}

/// What only operators ask for; what an instance does not have is absent.
#[derive(Clone, Default)]
pub struct OperatorPorts {
    /// The producers' dead letters.
    pub producer_dlq: Option<Arc<dyn ProducerDeadLetters>>,
    /// The log of this process.
    pub log: Option<Arc<dyn LogFilter>>,
}

/// Bounds of one request. What a tenant may own in all is the registry's to count.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest body, bytes.
    pub body_bytes_max: usize,
    /// The most event types of one subscription.
    pub event_types_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_bytes_max: 256 * 1024, event_types_max: 50 }
    }
}

impl Api {
    /// The tenant's subscription of this id. One that this instance has not seen yet may have been
    /// written through another, so a miss first lets the table catch up.
    pub(crate) async fn find(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<Arc<Subscription>, Problem> {
        if let Some(found) = self.own(tenant, id) {
            return Ok(found);
        }
        self.table.catch_up().await;
        self.own(tenant, id).ok_or_else(|| Code::NotFound.into())
    }

    /// Anyone's subscription of this id, for an operator.
    pub(crate) async fn find_any(&self, id: SubscriptionId) -> Result<Arc<Subscription>, Problem> {
        if let Some(found) = self.table.get(id) {
            return Ok(found);
        }
        self.table.catch_up().await;
        self.table.get(id).ok_or_else(|| Code::NotFound.into())
    }

    /// An id for something new.
    pub(crate) fn new_id(&self) -> SubscriptionId {
        SubscriptionId::from_parts(self.operations.clock.now().0, self.operations.entropy.ten())
    }

    /// The tenant's subscription as this instance's table has it now.
    pub(crate) fn own(&self, tenant: &TenantId, id: SubscriptionId) -> Option<Arc<Subscription>> {
        self.table.get(id).filter(|found| found.tenant == *tenant)
    }

    /// Has the registry decide a change; a refusal is a problem.
    pub(crate) async fn submit(
        &self,
        tenant: &TenantId,
        subscription: SubscriptionId,
        action: Action,
    ) -> Result<Decision, Problem> {
        let (id, reply_to) = (self.operations.uuid(), String::new());
        let tenant = tenant.clone();
        self.decided(Change { id, reply_to, tenant, subscription, action }).await
    }

    /// The same for a change that is made already.
    pub(crate) async fn decided(&self, change: Change) -> Result<Decision, Problem> {
        let creates = matches!(change.action, Action::Create { .. });
        let subscription = change.subscription;
        match self.changes.submit(change).await {
            Ok(Decision::Refused { refusal }) => Err(refusal.into()),
            Ok(decision) => Ok(decision),
            Err(Unavailable::NotRecorded) => Err(Code::Unavailable.into()),
            Err(Unavailable::Undecided) => Err(Problem::undecided(subscription, creates)),
        }
    }
}
