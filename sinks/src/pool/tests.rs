//! Pools of numbers instead of clients, under a clock turned by hand.

use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use super::*;

#[derive(Default)]
struct Hand(AtomicI64);

impl Clock for Hand {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }
}

const LIMITS: Limits = Limits {
    per_key: 2,
    per_host: 3,
    clients_per_host: usize::MAX,
    clients: 2,
    idle_ms: 1000,
    wait_ms: 20,
};

fn key(tenant: &str, generation: u64) -> Key {
    let tenant = TenantId::parse(tenant).unwrap();
    Key { tenant, destination: "https://a.example/".into(), generation }
}

struct Fixture {
    pools: Pools<usize>,
    clock: Arc<Hand>,
    made: AtomicUsize,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(Hand::default());
        Self { pools: Pools::new(LIMITS, clock.clone()), clock, made: AtomicUsize::new(0) }
    }

    async fn lease_to(&self, key: &Key, host: &str) -> Result<Lease<usize>, Error<Infallible>> {
        let make = || Ok(self.made.fetch_add(1, Ordering::SeqCst));
        self.pools.lease(key, (host.to_owned(), 443), make).await
    }

    async fn lease(&self, key: &Key) -> Result<Lease<usize>, Error<Infallible>> {
        self.lease_to(key, "a.example").await
    }

    fn at(&self, now: i64) {
        self.clock.0.store(now, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_client_serves_one_tenant_destination_and_generation_only() {
    let f = Fixture::new();
    let mut other_destination = key("a", 1);
    other_destination.destination.push('x');
    let keys = [key("a", 1), key("b", 1), key("a", 2), other_destination];
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(f.lease_to(key, "x").await.unwrap().client, n);
    }
    let again = f.lease_to(&keys[3], "x").await.unwrap();
    assert_eq!(again.client, 3);
}

#[tokio::test]
async fn a_key_has_no_more_than_its_attempts_at_once_and_a_dropped_lease_is_a_turn() {
    let f = Fixture::new();
    let (first, _second) = (f.lease(&key("a", 1)).await, f.lease(&key("a", 1)).await);
    assert!(matches!(f.lease(&key("a", 1)).await, Err(Error::Busy(20))));
    drop(first);
    assert!(f.lease(&key("a", 1)).await.is_ok());
}

#[tokio::test]
async fn all_tenants_together_have_no_more_than_a_host_takes() {
    let f = Fixture::new();
    let _a = (f.lease(&key("a", 1)).await.unwrap(), f.lease(&key("a", 1)).await.unwrap());
    let b = f.lease(&key("b", 1)).await.unwrap();
    assert!(matches!(f.lease(&key("b", 1)).await, Err(Error::Busy(_))));
    drop(b);
    assert!(f.lease(&key("b", 1)).await.is_ok());
    assert!(f.lease_to(&key("c", 1), "b.example").await.is_ok());
}

#[tokio::test]
async fn an_idle_client_is_forgotten_and_one_in_use_never() {
    let f = Fixture::new();
    let held = f.lease(&key("a", 1)).await.unwrap();
    drop(f.lease(&key("b", 1)).await.unwrap());
    f.at(999);
    assert_eq!(f.lease(&key("b", 1)).await.unwrap().client, 1);
    f.at(1998);
    assert_eq!(f.lease(&key("b", 1)).await.unwrap().client, 1);
    f.at(2998);
    assert_eq!(f.lease(&key("b", 1)).await.unwrap().client, 2);
    assert_eq!(f.lease(&key("a", 1)).await.unwrap().client, held.client);
}

#[tokio::test]
async fn the_longest_unused_client_makes_room() {
    let f = Fixture::new();
    for (now, tenant) in [(1, "a"), (2, "b"), (3, "a"), (4, "c")] {
        f.at(now);
        drop(f.lease(&key(tenant, 1)).await.unwrap());
    }
    assert_eq!(f.pools.len(), 2);
    assert_eq!(f.lease(&key("a", 1)).await.unwrap().client, 0);
    assert_eq!(f.lease(&key("b", 1)).await.unwrap().client, 3);
}

#[tokio::test]
async fn clients_in_use_may_exceed_the_bound() {
    let f = Fixture::new();
    let mut held = Vec::new();
    for tenant in ["a", "b", "c"] {
        held.push(f.lease(&key(tenant, 1)).await.unwrap());
    }
    assert_eq!(f.pools.len(), 3);
    drop(held);
    drop(f.lease(&key("d", 1)).await.unwrap());
    assert_eq!(f.pools.len(), 2);
}

#[tokio::test]
async fn what_cannot_be_made_is_not_kept() {
    let f = Fixture::new();
    let failed = f.pools.lease(&key("a", 1), ("h".into(), 1), || Err("broken")).await;
    assert!(matches!(failed, Err(Error::Make("broken"))));
    assert!(f.pools.is_empty());
}
