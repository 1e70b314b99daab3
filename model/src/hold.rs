//! An operator's holds (contract section 4, "Pause and hold"): what waits behind one keeps
//! matching, and gets no attempt until the hold is lifted. One compacted record of `<app>-holds`
//! for each scope; lifting is a tombstone.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::SubscriptionId;
use crate::tenant::TenantId;
use crate::time::UnixMillis;

/// The longest name of a destination, characters.
const DESTINATION_CHARS_MAX: usize = 128;

/// What a hold is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case", deny_unknown_fields)]
pub enum Scope {
    /// Every delivery.
    Everything,
    /// A tenant's.
    Tenant {
        /// The tenant.
        tenant: TenantId,
    },
    /// A destination's, whoever's.
    Destination {
        /// The destination's keyed hash, as `/admin/destinations` shows it.
        destination: String,
    },
    /// One subscription's.
    Subscription {
        /// The subscription.
        subscription: SubscriptionId,
    },
}

impl Scope {
    /// The key of its record. A tenant's id may hold anything, so it comes last.
    #[must_use]
    pub fn key(&self) -> String {
        self.to_string()
    }

    /// Whether it can be written: a destination's name is short and plain.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        match self {
            Self::Destination { destination } => {
                (1..=DESTINATION_CHARS_MAX).contains(&destination.len())
                    && destination.bytes().all(|byte| byte.is_ascii_alphanumeric())
            }
            Self::Everything | Self::Tenant { .. } | Self::Subscription { .. } => true,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Tenant { tenant } => write!(f, "tenant/{tenant}"),
            Self::Destination { destination } => write!(f, "destination/{destination}"),
            Self::Subscription { subscription } => write!(f, "subscription/{subscription}"),
        }
    }
}

/// A hold: the value of its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// What it is about.
    #[serde(flatten)]
    pub scope: Scope,
    /// Why, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    pub since: UnixMillis,
    /// Name of the token that set it.
    pub by: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_records_of_holds_are_pinned() {
        let id = "0198f3a2-11aa-7c3e-9d21-5b8f0c4de001";
        let table = [
            (json!({"scope": "everything"}), "everything".to_owned()),
            (json!({"scope": "tenant", "tenant": "a/b"}), "tenant/a/b".to_owned()),
            (json!({"scope": "destination", "destination": "ab12"}), "destination/ab12".to_owned()),
            (json!({"scope": "subscription", "subscription": id}), format!("subscription/{id}")),
        ];
        for (mut value, key) in table {
            value["since"] = 5.into();
            value["by"] = "ops".into();
            let hold: Hold = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(hold.scope.key(), key);
            assert!(hold.scope.is_valid());
            assert_eq!(serde_json::to_value(&hold).unwrap(), value);
        }
    }

    #[test]
    fn a_destination_has_a_plain_name() {
        for destination in ["", "a/b", "ü", &"a".repeat(129)] {
            assert!(!Scope::Destination { destination: destination.to_owned() }.is_valid());
        }
    }
}
