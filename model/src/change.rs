//! What the API asks of the registry and what the registry answers (design 17): the records of
//! `<app>-subscription-changes` and `<app>-subscription-replies`, both JSON.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::id::SubscriptionId;
use crate::subscription::{DisabledReason, Subscription};
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
    /// End it.
    Delete,
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
}
