//! Why a job ended without delivery (contract section 4): the stable reasons of dead letters, as
//! they stand in the header `hub-reason`, in metrics and in answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::attempt::ErrorClass;

/// The most dead letters of one subscription (contract section 8); the oldest go first.
pub const PER_SUBSCRIPTION: u64 = 100_000;

/// Why a job ended without delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Its schedule is used up.
    Exhausted,
    /// It waited for longer than a job may.
    Expired,
    /// Its subscription has more waiting than it may; the oldest end first.
    BacklogFull,
    /// Its attempts never recorded an outcome, as often as a job may be reclaimed.
    Poison,
    /// Its subscription was deleted.
    SubscriptionDeleted,
    /// Its subscription was disabled.
    SubscriptionDisabled,
    /// The event itself can never be delivered there; the class says why.
    #[serde(untagged)]
    Terminal(ErrorClass),
}

impl EndReason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Exhausted,
        Self::Expired,
        Self::BacklogFull,
        Self::Poison,
        Self::SubscriptionDeleted,
        Self::SubscriptionDisabled,
        Self::Terminal(ErrorClass::TooLarge),
        Self::Terminal(ErrorClass::RoutingKeyTooLong),
    ];

    /// The stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Expired => "expired",
            Self::BacklogFull => "backlog_full",
            Self::Poison => "poison",
            Self::SubscriptionDeleted => "subscription_deleted",
            Self::SubscriptionDisabled => "subscription_disabled",
            Self::Terminal(class) => class.as_str(),
        }
    }

    /// The reason of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_the_same_name_in_json_and_in_text_and_is_found_by_it() {
        for reason in EndReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
            let json = serde_json::to_value(reason).unwrap();
            assert_eq!(serde_json::from_value::<EndReason>(json).unwrap(), reason);
            assert_eq!(EndReason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(EndReason::parse("Poison"), None);
    }
}
