//! A tenant's subscription as it lies in `<app>-subscriptions` (JSON, contract section 7), and the
//! two questions that matching asks of it. Fields of a newer release survive a rewrite.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::event_key::KeyPattern;
use crate::id::SubscriptionId;
use crate::retry::RetrySchedule;
use crate::secret::Sealed;
use crate::sink_config::{EventBridgeConfig, RabbitMqConfig, SqsConfig};
use crate::tenant::TenantId;
use crate::time::UnixMillis;

/// A subscription of one tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// Its id, a UUIDv7.
    pub id: SubscriptionId,
    /// Its owner.
    pub tenant: TenantId,
    /// What its owner calls it.
    pub name: String,
    /// Which event keys match.
    pub event_types: Vec<KeyPattern>,
    /// The only producing application that matches; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The schema major that matches.
    pub schema_major: u16,
    /// Where matches go.
    pub sink: SinkConfig,
    /// Counts the changes of the sink, so that a verification names what it probed (design 17).
    pub sink_generation: u64,
    /// Whether it matches at all.
    pub enabled: bool,
    /// Why it does not, while it is not `enabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<DisabledReason>,
    /// Paused by its owner: it matches, and its jobs wait in order without attempts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// What the last probe of the destination found.
    pub verification_state: VerificationState,
    /// Why the last probe failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_failure: Option<String>,
    /// When a probe last succeeded. Failures before that are forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<UnixMillis>,
    /// Its own back-off curve. Kept as written: one that is malformed falls back to the default
    /// (contract section 4, "Back-off").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_schedule: Option<Value>,
    /// How many attempts may be under way at once, 1 to 64.
    #[serde(default = "one")]
    pub max_in_flight: u16,
    /// Whether a failing job holds up those behind it.
    #[serde(default, skip_serializing_if = "Ordering::is_arrival")]
    pub ordering: Ordering,
    /// When it was created.
    pub created_at: UnixMillis,
    /// When it last changed.
    pub updated_at: UnixMillis,
    /// Grows by one with each change; the ETag.
    pub version: u64,
    /// What a newer release wrote here.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

const fn one() -> u16 {
    1
}

/// The most attempts that one subscription may have under way.
pub const MAX_IN_FLIGHT_MAX: u16 = 64;

impl Subscription {
    /// Whether matching admits it at all: `enabled` and `verification_state = active`, two
    /// independent conditions (contract section 3).
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.enabled && self.verification_state == VerificationState::Active
    }

    /// Whether it wants an event of this origin, key and schema major. Admission is a question of
    /// its own.
    #[must_use]
    pub fn wants(&self, wanted: &Wanted<'_>) -> bool {
        self.schema_major == wanted.major
            && self.origin.as_deref().is_none_or(|origin| origin == wanted.origin)
            && self.event_types.iter().any(|key| key.matches(wanted.resource, wanted.event))
    }

    /// The curve in force: its own if it has a well-formed one, else `default`.
    #[must_use]
    pub fn retry_schedule_or<'a>(
        &self,
        default: &'a RetrySchedule,
    ) -> std::borrow::Cow<'a, RetrySchedule> {
        self.retry_schedule
            .as_ref()
            .and_then(|own| RetrySchedule::deserialize(own).ok())
            .map_or(std::borrow::Cow::Borrowed(default), std::borrow::Cow::Owned)
    }
}

/// In which order a subscription's jobs are attempted (contract section 4, "Order").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ordering {
    /// First attempts in arrival order; retries may be overtaken.
    #[default]
    Arrival,
    /// Nothing behind a failing job is attempted until it succeeded or is dead-lettered.
    /// Requires `max_in_flight` 1.
    Strict,
}

impl Ordering {
    fn is_arrival(&self) -> bool {
        *self == Self::Arrival
    }
}

/// Why a subscription is not `enabled` (contract section 4, "Disabled").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledReason {
    /// Its owner switched it off.
    Tenant,
    /// An operator did; only an operator lifts it.
    Operator,
    /// Its destination answered 410.
    Gone,
    /// Its destination failed for too long.
    Failing,
}

/// What an event offers to matching (contract section 3).
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The producing application, `ce-source`.
    pub origin: &'a str,
    /// `ce-resourcetype`.
    pub resource: &'a str,
    /// `ce-eventtype`.
    pub event: &'a str,
    /// Major of `ce-schemaversion`.
    pub major: u16,
}

/// What the probe of a destination found (contract section 7, "Verification").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerificationState {
    /// Not probed yet.
    Pending,
    /// Answered a probe.
    Active,
    /// The last probe failed.
    Failed,
}

/// Where a subscription's events go. The type never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SinkConfig {
    /// An HTTP endpoint of the tenant.
    Webhook(WebhookConfig),
    /// A queue of Amazon SQS.
    Sqs(SqsConfig),
    /// An event bus of Amazon EventBridge.
    #[serde(rename = "eventbridge")]
    EventBridge(EventBridgeConfig),
    /// An exchange of a RabbitMQ.
    #[serde(rename = "rabbitmq")]
    RabbitMq(RabbitMqConfig),
    /// A log that the tenant reads.
    Pull,
}

impl SinkConfig {
    /// The sink type's name: a metric label and part of every answer.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Sqs(_) => "sqs",
            Self::EventBridge(_) => "eventbridge",
            Self::RabbitMq(_) => "rabbitmq",
            Self::Pull => "pull",
        }
    }

    /// Whether events are kept to be read instead of being sent.
    #[must_use]
    pub fn is_pull(&self) -> bool {
        *self == Self::Pull
    }
}

/// A webhook destination and the secrets that sign for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookConfig {
    /// The canonical target.
    pub url: String,
    /// Signing secrets, newest first.
    pub secrets: Vec<SigningSecret>,
}

/// A sealed signing secret and how long it signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningSecret {
    /// The secret at rest.
    pub sealed: Sealed,
    /// When it stops signing; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<UnixMillis>,
    /// What made it: the change that rotated to it, or a name drawn with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<Uuid>,
}

impl SigningSecret {
    /// Whether it signs at this moment.
    #[must_use]
    pub fn is_valid_at(&self, now: UnixMillis) -> bool {
        self.valid_until.is_none_or(|until| now < until)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn subscription() -> Subscription {
        serde_json::from_value(json!({
            "id": "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001",
            "tenant": "acme",
            "name": "accounts",
            "event_types": ["account.created"],
            "schema_major": 1,
            "sink": {"type": "webhook", "url": "https://example.com/", "secrets": []},
            "sink_generation": 1,
            "enabled": true,
            "verification_state": "active",
            "created_at": 1, "updated_at": 1, "version": 1,
        }))
        .unwrap()
    }

    fn wanted() -> Wanted<'static> {
        Wanted { origin: "ledger", resource: "account", event: "created", major: 1 }
    }

    #[test]
    fn matching_wants_enabled_and_active_both() {
        let mut s = subscription();
        assert!(s.is_admitted());
        s.enabled = false;
        assert!(!s.is_admitted());
        s.enabled = true;
        for state in [VerificationState::Pending, VerificationState::Failed] {
            s.verification_state = state;
            assert!(!s.is_admitted());
        }
    }

    #[test]
    fn matching_is_exact_on_origin_key_and_major() {
        let mut s = subscription();
        assert!(s.wants(&wanted()));
        assert!(!s.wants(&Wanted { major: 2, ..wanted() }));
        assert!(!s.wants(&Wanted { event: "deleted", ..wanted() }));
        assert!(!s.wants(&Wanted { resource: "accounts", ..wanted() }));
        s.origin = Some("lender".into());
        assert!(!s.wants(&wanted()));
        s.origin = Some("ledger".into());
        assert!(s.wants(&wanted()));
    }

    #[test]
    fn fields_of_a_newer_release_survive_a_rewrite() {
        let mut value = serde_json::to_value(subscription()).unwrap();
        value["colour"] = json!({"deep": [1]});
        let read: Subscription = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), value);
    }

    #[test]
    fn a_malformed_schedule_falls_back_to_the_default_curve() {
        let (mut s, default) = (subscription(), RetrySchedule::default());
        for bad in [json!([]), json!([36_000_001]), json!("soon"), json!([1.5])] {
            s.retry_schedule = Some(bad);
            assert_eq!(s.retry_schedule_or(&default).as_ref(), &default);
        }
        s.retry_schedule = Some(json!([0, 10]));
        assert_eq!(s.retry_schedule_or(&default).attempts_max(), 2);
    }
}
