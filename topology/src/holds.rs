//! This instance's copy of `<app>-holds`: what an operator wants not to be attempted. Delivery reads
//! it before each attempt and looks again at what waits when it changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use streaming_hub_model::destination::DestinationId;
use streaming_hub_model::hold::{Hold, HoldScope};
use streaming_hub_model::subscription::Subscription;

use crate::follower::View;
use crate::topics::Topic;

/// The copy.
#[derive(Debug, Default)]
pub struct Holds {
    holds: RwLock<BTreeMap<HoldScope, Hold>>,
    revision: AtomicU64,
}

impl Holds {
    /// Whether jobs of this subscription, which go to this destination, are held.
    #[must_use]
    pub fn holds(&self, subscription: &Subscription, destination: DestinationId) -> bool {
        let holds = self.holds.read().unwrap_or_else(PoisonError::into_inner);
        if holds.is_empty() {
            return false;
        }
        [
            HoldScope::All,
            HoldScope::Tenant(subscription.tenant.clone()),
            HoldScope::Destination(destination),
            HoldScope::Subscription(subscription.id),
        ]
        .iter()
        .any(|scope| holds.contains_key(scope))
    }

    /// All of them, by scope.
    #[must_use]
    pub fn all(&self) -> Vec<(HoldScope, Hold)> {
        let holds = self.holds.read().unwrap_or_else(PoisonError::into_inner);
        holds.iter().map(|(scope, hold)| (scope.clone(), hold.clone())).collect()
    }

    /// Grows with each change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }
}

impl View for Holds {
    fn topic(&self) -> Topic {
        Topic::Holds
    }

    fn take(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        let scope = key.and_then(|key| HoldScope::parse(std::str::from_utf8(key).ok()?));
        let Some(scope) = scope else { return false };
        let hold = match value.map(serde_json::from_slice::<Hold>) {
            None => None,
            Some(Ok(hold)) => Some(hold),
            Some(Err(_)) => return false,
        };
        let mut holds = self.holds.write().unwrap_or_else(PoisonError::into_inner);
        match hold {
            Some(hold) => holds.insert(scope, hold),
            None => holds.remove(&scope),
        };
        drop(holds);
        self.revision.fetch_add(1, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{id, subscription};

    #[test]
    fn a_hold_of_any_scope_holds_until_it_is_lifted() {
        let (holds, destination) = (Holds::default(), DestinationId::parse(&"0a".repeat(16)));
        let destination = destination.unwrap();
        let held: Subscription = serde_json::from_value(subscription(1, "a", &["*"])).unwrap();
        let other: Subscription = serde_json::from_value(subscription(2, "b", &["*"])).unwrap();
        let elsewhere = DestinationId::parse(&"0b".repeat(16)).unwrap();
        let scopes = [
            ("all".to_owned(), true),
            ("tenant/a".to_owned(), false),
            (format!("destination/{destination}"), false),
            (format!("subscription/{}", id(1)), false),
        ];
        for (key, everything) in scopes {
            let before = holds.revision();
            assert!(holds.take(Some(key.as_bytes()), Some(br#"{"at":1}"#)), "{key}");
            assert!(holds.holds(&held, destination), "{key}");
            assert_eq!(holds.holds(&other, elsewhere), everything, "{key}");
            assert!(holds.take(Some(key.as_bytes()), None));
            assert!(!holds.holds(&held, destination), "{key}");
            assert_eq!(holds.revision(), before + 2);
        }
        assert!(holds.all().is_empty());
    }

    #[test]
    fn a_strangers_record_is_skipped() {
        let holds = Holds::default();
        assert!(!holds.take(None, Some(br#"{"at":1}"#)));
        assert!(!holds.take(Some(b"everything"), Some(br#"{"at":1}"#)));
        assert!(!holds.take(Some(b"all"), Some(b"yes")));
        assert!(holds.all().is_empty());
    }
}
