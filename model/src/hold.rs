//! An operator's hold (contract section 4, "Pause and hold"): jobs of a subscription, a destination,
//! a tenant or of everything wait in order, without attempts, until it is lifted. One record of the
//! compacted `<app>-holds` each; its tombstone lifts it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::destination::DestinationId;
use crate::id::SubscriptionId;
use crate::tenant::TenantId;
use crate::time::UnixMillis;

/// What is held. Its text is the key of the hold's record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldScope {
    /// Everything: `all`.
    All,
    /// A tenant's: `tenant/<tenant>`.
    Tenant(TenantId),
    /// What goes to a destination, of whatever tenant: `destination/<id>`.
    Destination(DestinationId),
    /// A subscription's: `subscription/<id>`.
    Subscription(SubscriptionId),
}

impl HoldScope {
    /// Reads the key of a record.
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        if key == "all" {
            return Some(Self::All);
        }
        match key.split_once('/')? {
            ("tenant", tenant) => TenantId::parse(tenant).ok().map(Self::Tenant),
            ("destination", id) => DestinationId::parse(id).map(Self::Destination),
            ("subscription", id) => SubscriptionId::parse(id).ok().map(Self::Subscription),
            _ => None,
        }
    }
}

impl fmt::Display for HoldScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Tenant(tenant) => write!(f, "tenant/{}", tenant.as_str()),
            Self::Destination(id) => write!(f, "destination/{id}"),
            Self::Subscription(id) => write!(f, "subscription/{id}"),
        }
    }
}

/// The value of a hold's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Why, in the operator's words.
    #[serde(default)]
    pub reason: String,
    /// Who: the name of the token, or the subject of the JWT.
    #[serde(default)]
    pub by: String,
    /// Since when, Unix milliseconds.
    pub at: UnixMillis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_reads_back_from_its_key_and_nothing_else_is_one() {
        let scopes = [
            HoldScope::All,
            HoldScope::Tenant(TenantId::parse("a/b c").unwrap()),
            HoldScope::Destination(DestinationId::parse(&"0f".repeat(16)).unwrap()),
            HoldScope::Subscription(SubscriptionId::from_parts(1, [2; 10])),
        ];
        for scope in scopes {
            assert_eq!(HoldScope::parse(&scope.to_string()), Some(scope));
        }
        for bad in ["", "All", "tenant/", "tenant", "destination/xx", "subscription/1", "host/a"] {
            assert_eq!(HoldScope::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_value_of_a_hold_is_pinned() {
        let text = r#"{"reason":"incident","by":"ops","at":5}"#;
        let hold: Hold = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&hold).unwrap(), text);
        assert!(serde_json::from_str::<Hold>(r#"{"at":5}"#).is_ok());
    }
}
