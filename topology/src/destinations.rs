//! This instance's copy of `<app>-destinations`: whose breakers are open, as the tasks that opened
//! them said. Other tasks honour it, and a new owner goes on with it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use streaming_hub_model::destination::{DestinationId, DestinationKey, DestinationRecord};
use streaming_hub_model::ports::KnownDestinations;
use streaming_hub_model::subscription::SinkConfig;
use streaming_hub_model::tenant::TenantId;

use crate::follower::View;
use crate::recent::{Changes, Recent};
use crate::topics::Topic;

/// A tenant's destination.
pub type DestinationOf = (TenantId, DestinationId);

/// The copy.
#[derive(Debug, Default)]
pub struct Destinations {
    open: RwLock<HashMap<DestinationOf, DestinationRecord>>,
    recent: Recent<DestinationOf>,
}

impl Destinations {
    /// What is known of a tenant's destination; nothing when its breaker is closed.
    #[must_use]
    pub fn get(&self, of: &DestinationOf) -> Option<DestinationRecord> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(of).cloned()
    }

    /// All that are open, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<DestinationRecord> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// What changed since this revision.
    pub fn since(&self, seen: &mut u64) -> Changes<DestinationOf> {
        self.recent.since(seen)
    }
}

impl View for Destinations {
    fn topic(&self) -> Topic {
        Topic::Destinations
    }

    fn take(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        let of = key.and_then(|key| DestinationRecord::parse_key(std::str::from_utf8(key).ok()?));
        let Some(of) = of else { return false };
        let record = match value.map(serde_json::from_slice::<DestinationRecord>) {
            None => None,
            Some(Ok(record)) if (&record.tenant, record.destination) == (&of.0, of.1) => {
                Some(record)
            }
            Some(_) => return false,
        };
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        match record {
            Some(record) => open.insert(of.clone(), record),
            None => open.remove(&of),
        };
        drop(open);
        self.recent.push(of);
        true
    }
}

/// What the API asks about destinations.
pub struct NamedDestinations {
    /// Names them.
    pub key: DestinationKey,
    /// The copy.
    pub known: Arc<Destinations>,
}

impl KnownDestinations for NamedDestinations {
    fn name(&self, sink: &SinkConfig) -> DestinationId {
        self.key.id(sink)
    }

    fn open(&self) -> Vec<DestinationRecord> {
        self.known.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_is_known_until_its_tombstone_and_a_strangers_record_is_skipped() {
        let (destinations, mut seen) = (Destinations::default(), 0);
        let id = DestinationId::parse(&"0a".repeat(16)).unwrap();
        let of = (TenantId::parse("acme").unwrap(), id);
        let key = DestinationRecord::key(&of.0, id);
        let value = format!(
            r#"{{"tenant":"acme","destination":"{id}","sink":"webhook","host":"h","until":9,
            "openings":1,"partition":0,"at":1}}"#
        );
        assert!(destinations.take(Some(key.as_bytes()), Some(value.as_bytes())));
        assert_eq!(destinations.get(&of).map(|record| record.opening.until.0), Some(9));
        assert_eq!(destinations.since(&mut seen), Changes::Some(vec![of.clone()]));
        let other = DestinationRecord::key(&TenantId::parse("b").unwrap(), id);
        assert!(!destinations.take(Some(other.as_bytes()), Some(value.as_bytes())));
        assert!(!destinations.take(Some(b"x"), Some(value.as_bytes())));
        assert!(!destinations.take(Some(key.as_bytes()), Some(b"{}")));
        assert!(destinations.take(Some(key.as_bytes()), None));
        assert!(destinations.all().is_empty());
    }
}
