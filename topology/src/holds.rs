//! This instance's copy of `<app>-holds`: what operators hold. Delivery asks it before each claim;
//! the API writes it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use streaming_hub_model::hold::{Hold, Scope};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::ports::{Holding, Unavailable};
use streaming_hub_model::sink::SinkFuture;
use streaming_hub_model::tenant::TenantId;

use crate::follower::View;
use crate::recorder::Recorder;
use crate::shared::Shared;
use crate::topics::Topic;

/// The copy.
#[derive(Debug, Default)]
pub struct Holds {
    by_scope: RwLock<BTreeMap<Scope, Arc<Hold>>>,
    /// Grows with every change, so that whoever waits behind a hold can tell that it should look.
    changes: AtomicU64,
}

impl Holds {
    /// The hold of this scope.
    #[must_use]
    pub fn get(&self, scope: &Scope) -> Option<Arc<Hold>> {
        self.by_scope.read().unwrap_or_else(PoisonError::into_inner).get(scope).cloned()
    }

    /// All of them, by scope.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Hold>> {
        let map = self.by_scope.read().unwrap_or_else(PoisonError::into_inner);
        map.values().cloned().collect()
    }

    /// The widest hold that a delivery waits behind.
    #[must_use]
    pub fn of(
        &self,
        tenant: &TenantId,
        destination: &str,
        subscription: SubscriptionId,
    ) -> Option<Arc<Hold>> {
        let map = self.by_scope.read().unwrap_or_else(PoisonError::into_inner);
        if map.is_empty() {
            return None;
        }
        let scopes = [
            Scope::Everything,
            Scope::Tenant { tenant: tenant.clone() },
            Scope::Destination { destination: destination.to_owned() },
            Scope::Subscription { subscription },
        ];
        scopes.iter().find_map(|scope| map.get(scope)).cloned()
    }

    /// How many changes there were: the same number means the same holds.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}

impl View for Holds {
    fn topic(&self) -> Topic {
        Topic::Holds
    }

    fn take(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        let Some(Ok(key)) = key.map(std::str::from_utf8) else { return false };
        let mut map = self.by_scope.write().unwrap_or_else(PoisonError::into_inner);
        match value.map(serde_json::from_slice::<Hold>) {
            None => map.retain(|scope, _| scope.key() != key),
            Some(Ok(hold)) if hold.scope.key() == key => {
                map.insert(hold.scope.clone(), Arc::new(hold));
            }
            // A stranger's.
            Some(_) => return false,
        }
        self.changes.fetch_add(1, Ordering::Release);
        true
    }
}

/// How long a write waits until this instance knows it.
const KNOWN: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(5);

/// Writes holds for the API.
pub struct HoldClient {
    holds: Arc<Holds>,
    recorder: Recorder,
    topic: String,
}

impl HoldClient {
    /// A client with a producer of its own.
    ///
    /// # Errors
    /// When the producer cannot be made.
    pub fn new(shared: &Shared, holds: Arc<Holds>) -> rdkafka::error::KafkaResult<Self> {
        let recorder = Recorder::new(shared, "holds")?;
        Ok(Self { holds, recorder, topic: Topic::Holds.name(&shared.application) })
    }

    async fn write(&self, scope: &Scope, hold: Option<&Hold>) -> Result<(), Unavailable> {
        let value = hold.map(serde_json::to_vec).transpose();
        let value = value.map_err(|_| Unavailable::NotRecorded)?;
        self.recorder.record((&self.topic, 0), scope.key().as_bytes(), value.as_deref()).await?;
        let known = async {
            while self.holds.get(scope).as_deref() != hold {
                tokio::time::sleep(LOOK).await;
            }
        };
        // Recorded it is; another operator may have changed it again before it was seen here.
        let _ = tokio::time::timeout(KNOWN, known).await;
        Ok(())
    }
}

impl Holding for HoldClient {
    fn all(&self) -> Vec<Arc<Hold>> {
        self.holds.all()
    }

    fn hold(&self, hold: Hold) -> SinkFuture<'_, Result<(), Unavailable>> {
        Box::pin(async move { self.write(&hold.scope, Some(&hold)).await })
    }

    fn lift(&self, scope: Scope) -> SinkFuture<'_, Result<(), Unavailable>> {
        Box::pin(async move { self.write(&scope, None).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(holds: &Holds, scope: &Scope) -> bool {
        let mut value = serde_json::to_value(scope).unwrap();
        value["since"] = json!(5);
        value["by"] = json!("ops");
        holds.take(Some(scope.key().as_bytes()), Some(value.to_string().as_bytes()))
    }

    #[test]
    fn a_delivery_waits_behind_every_hold_that_is_about_it_until_it_is_lifted() {
        let holds = Holds::default();
        let (acme, evil) = (TenantId::parse("acme").unwrap(), TenantId::parse("evil").unwrap());
        let (one, other) =
            (SubscriptionId::from_parts(1, [1; 10]), SubscriptionId::from_parts(1, [2; 10]));
        let held = |tenant, destination, id| holds.of(tenant, destination, id).is_some();
        assert!(!held(&acme, "d", one));
        let scopes = [
            (Scope::Subscription { subscription: one }, [true, false, false]),
            (Scope::Destination { destination: "d".into() }, [true, true, false]),
            (Scope::Tenant { tenant: acme.clone() }, [true, false, true]),
            (Scope::Everything, [true, true, true]),
        ];
        for (scope, expected) in scopes {
            let before = holds.changes();
            assert!(put(&holds, &scope));
            let found = [held(&acme, "d", one), held(&evil, "d", other), held(&acme, "e", other)];
            assert_eq!(found, expected, "{scope}");
            assert!(holds.take(Some(scope.key().as_bytes()), None));
            assert!(!held(&acme, "d", one));
            assert_eq!(holds.changes(), before + 2);
        }
    }

    #[test]
    fn a_strangers_record_holds_nothing() {
        let holds = Holds::default();
        let value = br#"{"scope":"everything","since":1,"by":"x"}"#;
        assert!(!holds.take(Some(b"tenant/a"), Some(value)));
        assert!(!holds.take(None, Some(value)));
        assert!(!holds.take(Some(b"everything"), Some(b"{}")));
        assert!(holds.all().is_empty());
    }
}
