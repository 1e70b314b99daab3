//! What the API asks of the registry and what the registry answers (design 17): the records of
//! `<app>-subscription-changes` and `<app>-subscription-replies`, both JSON.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event_key::KeyPattern;
use crate::id::SubscriptionId;
use crate::idempotency::{self, Answer};
use crate::retry::RetrySchedule;
use crate::secret::Sealed;
use crate::subscription::{DisabledReason, Ordering, SinkConfig, Subscription};
use crate::tenant::TenantId;

/// A wish to change one subscription. The registry decides it against the current record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Names this wish; the reply carries it.
    pub id: Uuid,
    /// The instance that waits for the reply.
    pub reply_to: String,
    /// The tenant on whose behalf it is made; another tenant's subscription does not exist for it.
    pub tenant: TenantId,
    /// The subscription meant.
    pub subscription: SubscriptionId,
    /// What is wished.
    pub action: Action,
}

/// What a [`Change`] wishes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Make it. Version, times and verification state are the registry's to set.
    Create {
        /// The record as the API validated it.
        record: Box<Subscription>,
    },
    /// Set some of its fields, all or none.
    Patch {
        /// The version that it must have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<u64>,
        /// On whose account.
        by: By,
        /// The new values.
        set: Vec<Setting>,
    },
    /// End it.
    Delete {
        /// The version that it must have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<u64>,
    },
    /// Sign with a new secret. A second wish of the same id changes nothing.
    Rotate {
        /// The version that it must have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<u64>,
        /// The new secret.
        sealed: Sealed,
        /// How long the one before goes on signing beside it, milliseconds.
        overlap_ms: u64,
    },
    /// The same secrets, sealed anew. Those that are no longer there are left out.
    Resealed {
        /// Old seal and new one.
        pairs: Vec<(Sealed, Sealed)>,
    },
    /// Switch it off; one that is off already stays as it is.
    Disable {
        /// On whose account.
        reason: DisabledReason,
        /// The sink generation that it is about; with any other nothing is changed.
        sink_generation: u64,
    },
    /// A probe of the destination ended.
    Verified {
        /// The sink generation that was probed; a result for any other is discarded.
        sink_generation: u64,
        /// Why it failed; `None` when it succeeded.
        failure: Option<String>,
    },
    /// About an idempotency key. The change's `subscription` is the id that whatever the request
    /// makes is to have.
    Idempotency {
        /// The wish.
        wish: idempotency::Wish,
    },
}

/// On whose account a subscription is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Its owner.
    Tenant,
    /// An operator.
    Operator,
}

/// A field's new value, validated by the API as far as that needs no other field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "field", content = "value", rename_all = "snake_case")]
pub enum Setting {
    /// What its owner calls it.
    Name(String),
    /// Which event keys match.
    EventTypes(Vec<KeyPattern>),
    /// The only producing application that matches, or any.
    Origin(Option<String>),
    /// The schema major that matches.
    SchemaMajor(u16),
    /// Its own back-off curve, or the default.
    RetrySchedule(Option<RetrySchedule>),
    /// Attempts under way at once; 1 where the ordering is strict.
    MaxInFlight(u16),
    /// Whether a failing job holds up those behind it.
    Ordering(Ordering),
    /// Whether jobs wait without attempts.
    Paused(bool),
    /// Whether it matches at all.
    Enabled(bool),
    /// Where matches go.
    Sink(Box<NewSink>),
}

/// A sink that takes the place of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSink {
    /// The whole new sink.
    pub config: SinkConfig,
    /// The generation from which it was made; with any other nothing is changed.
    pub from_generation: u64,
    /// A probe of it succeeded.
    pub verified: bool,
}

/// The registry's answer to one [`Change`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The change that it answers.
    pub change: Uuid,
    /// What became of it.
    pub verdict: Decision,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// Written as this version.
    Written {
        /// The new version of the record.
        version: u64,
    },
    /// The record is gone.
    Deleted,
    /// The idempotency key is this request's.
    Claimed {
        /// The id that whatever the request makes has, also when an earlier attempt at the same
        /// request has made it already.
        seed: SubscriptionId,
    },
    /// The answer is kept, or the key is free again.
    Noted,
    /// The request was answered before.
    Repeated {
        /// What was answered.
        answer: Box<Answer>,
    },
    /// Nothing was written, and why.
    Refused {
        /// The reason.
        refusal: Refusal,
    },
}

/// Why the registry refused a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// No such subscription, or another tenant's.
    NotFound,
    /// The id is taken.
    Exists,
    /// The tenant has as many subscriptions as it may.
    TooMany,
    /// The destination changed while it was probed.
    DestinationChanged,
    /// It does not have the expected version.
    Stale,
    /// It is off because its destination failed: a verification enables it.
    VerificationRequired,
    /// An operator switched it off, and only an operator lifts that.
    DisabledByOperator,
    /// A strict order allows one attempt at once only.
    StrictNeedsOne,
    /// The sink's type never changes.
    SinkType,
    /// Another request with this idempotency key is being answered.
    InProgress,
    /// The idempotency key came with another body before.
    OtherBody,
}
