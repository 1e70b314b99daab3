//! This instance's copy of `<app>-salts` (design 15): which tenants are spread over all partitions,
//! and from which moment on. Ingest has read it before it runs.

use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use streaming_hub_model::routing::{Error, SaltedSince, Salts};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;

use crate::follower::View;
use crate::topics::Topic;

/// The value of a record of `<app>-salts`; its key is the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaltRecord {
    /// Ids whose own time lies at or after this moment are spread, Unix milliseconds.
    pub since: UnixMillis,
}

/// The copy.
#[derive(Debug, Default)]
pub struct Salting {
    salts: RwLock<Salts>,
}

impl Salting {
    /// Since when this tenant is salted.
    #[must_use]
    pub fn since(&self, tenant: &str) -> Option<SaltedSince> {
        self.salts.read().unwrap_or_else(PoisonError::into_inner).since(tenant)
    }

    /// Takes in a recorded fact.
    ///
    /// # Errors
    /// When another start stands for this tenant.
    pub fn record(&self, tenant: TenantId, since: SaltedSince) -> Result<(), Error> {
        self.salts.write().unwrap_or_else(PoisonError::into_inner).record(tenant, since)
    }
}

impl View for Salting {
    fn topic(&self) -> Topic {
        Topic::Salts
    }

    fn take(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        let Some((tenant, since)) = key.zip(value).and_then(|(key, value)| parse(key, value))
        else {
            return false;
        };
        if let Err(error) = self.record(tenant, since) {
            tracing::error!(%error, "a second start of a salting is ignored");
        }
        true
    }
}

fn parse(key: &[u8], value: &[u8]) -> Option<(TenantId, SaltedSince)> {
    let tenant = TenantId::parse(std::str::from_utf8(key).ok()?).ok()?;
    let record: SaltRecord = serde_json::from_slice(value).ok()?;
    Some((tenant, SaltedSince(record.since)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_start_stands_whatever_comes_later() {
        let salting = Salting::default();
        assert!(salting.take(Some(b"acme"), Some(br#"{"since":5}"#)));
        assert!(salting.take(Some(b"acme"), Some(br#"{"since":9}"#)));
        assert!(!salting.take(Some(b"acme"), None), "salting does not end");
        assert!(!salting.take(Some(b"acme"), Some(b"soon")));
        assert_eq!(salting.since("acme"), Some(SaltedSince(UnixMillis(5))));
        assert_eq!(salting.since("other"), None);
    }
}
