//! This instance's copy of `<app>-subscriptions` (a global table), indexed for matching: the cost
//! of a match depends on the tenant's matching subscriptions, not on how many there are.
//!
//! It knows its position in every partition, so that nothing runs against a table older than it
//! needs (design 18).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use streaming_hub_model::event_key::KeyPattern;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::ports::Clock;
use streaming_hub_model::subscription::{Subscription, Wanted};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;
use tokio::sync::Notify;

use crate::follower::View;
use crate::recent::{Changes, Recent};
use crate::runtime::thread::Gate;
use crate::topics::{DELETE_RETENTION_MS, Topic};

/// How long the table may go without being confirmed current before tasks pause, milliseconds.
const CONFIRMED_MS: u64 = 10_000;

/// How long a table that was current may be cut off before it has to be built anew (design 13).
const CUT_OFF_MAX_MS: u64 = DELETE_RETENTION_MS.unsigned_abs() / 2;

/// The table.
pub struct Table {
    rows: RwLock<Rows>,
    /// Next offset of each partition.
    positions: Vec<AtomicI64>,
    /// When it was last known to have reached the topic's end; 0 before the first time.
    confirmed: AtomicI64,
    /// Whether it was cut off for too long, which only a new table mends.
    outdated: AtomicBool,
    clock: Arc<dyn Clock>,
    moved: Notify,
    recent: Recent<SubscriptionId>,
}

#[derive(Default)]
struct Rows {
    by_id: HashMap<SubscriptionId, Arc<Subscription>>,
    by_tenant: HashMap<TenantId, Tenant>,
}

#[derive(Default)]
struct Tenant {
    all: BTreeMap<SubscriptionId, Arc<Subscription>>,
    /// Subscriptions by a key that they list in full.
    exact: HashMap<String, Vec<Arc<Subscription>>>,
    /// Subscriptions that list a pattern.
    patterns: Vec<Arc<Subscription>>,
}

impl Table {
    /// An empty table over this many partitions.
    #[must_use]
    pub fn new(partitions: i32, clock: Arc<dyn Clock>) -> Self {
        Self {
            rows: RwLock::default(),
            positions: (0..partitions).map(|_| AtomicI64::new(0)).collect(),
            confirmed: AtomicI64::new(0),
            outdated: AtomicBool::new(false),
            clock,
            moved: Notify::new(),
            recent: Recent::default(),
        }
    }

    /// The subscription under an id.
    #[must_use]
    pub fn get(&self, id: SubscriptionId) -> Option<Arc<Subscription>> {
        self.read().by_id.get(&id).cloned()
    }

    /// A tenant's subscriptions by ascending id.
    #[must_use]
    pub fn of_tenant(&self, tenant: &TenantId) -> Vec<Arc<Subscription>> {
        let rows = self.read();
        rows.by_tenant.get(tenant).map(|t| t.all.values().cloned().collect()).unwrap_or_default()
    }

    /// Everyone's subscriptions by ascending id.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Subscription>> {
        let mut all: Vec<_> = self.read().by_id.values().cloned().collect();
        all.sort_unstable_by_key(|subscription| subscription.id);
        all
    }

    /// How many subscriptions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().by_id.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The admitted subscriptions of `tenant` that want this event, by ascending id (contract
    /// section 3).
    #[must_use]
    pub fn matching(&self, tenant: &str, wanted: &Wanted<'_>) -> Vec<Arc<Subscription>> {
        let rows = self.read();
        let Some(tenant) = rows.by_tenant.get(tenant) else { return Vec::new() };
        let key = format!("{}.{}", wanted.resource, wanted.event);
        let exact = tenant.exact.get(&key).map(Vec::as_slice).unwrap_or_default();
        let mut found: Vec<_> = exact
            .iter()
            .chain(&tenant.patterns)
            .filter(|subscription| subscription.is_admitted() && subscription.wants(wanted))
            .cloned()
            .collect();
        found.sort_unstable_by_key(|subscription| subscription.id);
        found.dedup_by_key(|subscription| subscription.id);
        found
    }

    /// The next offset that the table takes from a partition.
    #[must_use]
    pub fn position(&self, partition: i32) -> i64 {
        let slot = usize::try_from(partition).ok().and_then(|index| self.positions.get(index));
        slot.map_or(0, |position| position.load(Ordering::Acquire))
    }

    /// Whether every partition has reached `marks`.
    #[must_use]
    pub fn has_reached(&self, marks: &[i64]) -> bool {
        self.positions.iter().zip(marks).all(|(own, mark)| own.load(Ordering::Acquire) >= *mark)
    }

    /// Takes a record: a subscription, or its end. Answers whether it could be read.
    pub fn take(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        let id = key.and_then(|key| std::str::from_utf8(key).ok());
        let Some(id) = id.and_then(|text| SubscriptionId::parse(text).ok()) else { return false };
        let new = match value.map(serde_json::from_slice::<Subscription>) {
            None => None,
            Some(Ok(subscription)) if subscription.id == id => Some(Arc::new(subscription)),
            Some(_) => return false,
        };
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.replace(id, new);
        drop(rows);
        self.recent.push(id);
        true
    }

    /// Which subscriptions changed since this revision.
    pub fn since(&self, seen: &mut u64) -> Changes<SubscriptionId> {
        self.recent.since(seen)
    }

    /// Everything below `position` of a partition has been taken.
    pub fn advance(&self, partition: i32, position: i64) {
        let slot = usize::try_from(partition).ok().and_then(|index| self.positions.get(index));
        if let Some(slot) = slot {
            slot.fetch_max(position, Ordering::AcqRel);
        }
    }

    /// Tells those who wait that the table moved.
    pub fn announce(&self) {
        self.moved.notify_waiters();
    }

    /// The table had reached the topic's end as of `at`.
    pub fn confirm(&self, at: UnixMillis) {
        if !self.is_outdated() {
            self.confirmed.fetch_max(at.0, Ordering::AcqRel);
        }
    }

    /// Whether the table was current once and then cut off for so long that deletions which it did
    /// not see may be compacted away. It stays so, and its gate stays shut: the process has to end.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        let confirmed = UnixMillis(self.confirmed.load(Ordering::Acquire));
        if confirmed.0 > 0 && self.clock.now().since(confirmed) > CUT_OFF_MAX_MS {
            self.outdated.store(true, Ordering::Release);
        }
        self.outdated.load(Ordering::Acquire)
    }

    /// Waits until `reached` holds; the caller bounds the wait.
    pub(crate) async fn wait_until(&self, reached: impl Fn(&Self) -> bool) {
        loop {
            let moved = self.moved.notified();
            if reached(self) {
                return;
            }
            moved.await;
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Rows> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View for Table {
    fn topic(&self) -> Topic {
        Topic::Subscriptions
    }

    fn take(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> bool {
        self.take(key, value)
    }

    fn advance(&self, partition: i32, position: i64) {
        self.advance(partition, position);
    }
}

impl Gate for Table {
    fn is_open(&self) -> bool {
        let confirmed = UnixMillis(self.confirmed.load(Ordering::Acquire));
        let current = confirmed.0 > 0 && self.clock.now().since(confirmed) < CONFIRMED_MS;
        current && !self.is_outdated()
    }
}

impl Rows {
    fn replace(&mut self, id: SubscriptionId, new: Option<Arc<Subscription>>) {
        if let Some(old) = self.by_id.remove(&id)
            && let Some(tenant) = self.by_tenant.get_mut(&old.tenant)
        {
            tenant.remove(&old);
            if tenant.all.is_empty() {
                self.by_tenant.remove(&old.tenant);
            }
        }
        if let Some(new) = new {
            self.by_id.insert(id, Arc::clone(&new));
            self.by_tenant.entry(new.tenant.clone()).or_default().insert(new);
        }
    }
}

impl Tenant {
    fn insert(&mut self, subscription: Arc<Subscription>) {
        let mut listed = false;
        for pattern in &subscription.event_types {
            match pattern {
                KeyPattern::Exact(key) => {
                    let list = self.exact.entry(key.as_str().to_owned()).or_default();
                    list.push(Arc::clone(&subscription));
                }
                KeyPattern::Resource(_) | KeyPattern::Any if !listed => {
                    listed = true;
                    self.patterns.push(Arc::clone(&subscription));
                }
                KeyPattern::Resource(_) | KeyPattern::Any => {}
            }
        }
        self.all.insert(subscription.id, subscription);
    }

    fn remove(&mut self, old: &Subscription) {
        self.all.remove(&old.id);
        self.patterns.retain(|subscription| subscription.id != old.id);
        for pattern in &old.event_types {
            if let KeyPattern::Exact(key) = pattern
                && let Some(list) = self.exact.get_mut(key.as_str())
            {
                list.retain(|subscription| subscription.id != old.id);
                if list.is_empty() {
                    self.exact.remove(key.as_str());
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub(crate) struct FixedClock(pub(crate) AtomicI64);

    impl Clock for FixedClock {
        fn now(&self) -> UnixMillis {
            UnixMillis(self.0.load(Ordering::Relaxed))
        }
    }

    pub(crate) fn table_at(now: i64) -> Table {
        Table::new(2, Arc::new(FixedClock(AtomicI64::new(now))))
    }

    pub(crate) fn id(n: u8) -> SubscriptionId {
        SubscriptionId::from_parts(1_000, [n; 10])
    }

    pub(crate) fn subscription(n: u8, tenant: &str, keys: &[&str]) -> Value {
        json!({
            "id": id(n).to_string(), "tenant": tenant, "name": "s", "event_types": keys,
            "schema_major": 1, "sink_generation": 1, "enabled": true,
            "verification_state": "active", "created_at": 1, "updated_at": 1, "version": 1,
            "sink": {"type": "webhook", "url": "https://example.com/", "secrets": []},
        })
    }

    pub(crate) fn put(table: &Table, value: &Value) -> bool {
        let key = value["id"].as_str().unwrap();
        table.take(Some(key.as_bytes()), Some(value.to_string().as_bytes()))
    }

    fn matched(table: &Table, tenant: &str, resource: &str, event: &str) -> Vec<SubscriptionId> {
        let wanted = Wanted { origin: "ledger", resource, event, major: 1 };
        table.matching(tenant, &wanted).iter().map(|s| s.id).collect()
    }

    #[test]
    fn a_match_is_of_the_tenant_and_the_key_and_comes_once() {
        let table = table_at(1);
        assert!(put(&table, &subscription(1, "a", &["account.created", "account.*", "*"])));
        assert!(put(&table, &subscription(2, "a", &["account.deleted"])));
        assert!(put(&table, &subscription(3, "b", &["*"])));
        assert_eq!(matched(&table, "a", "account", "created"), [id(1)]);
        assert_eq!(matched(&table, "a", "account", "deleted"), [id(1), id(2)]);
        assert_eq!(matched(&table, "b", "account", "created"), [id(3)]);
        assert!(matched(&table, "c", "account", "created").is_empty());
    }

    #[test]
    fn a_changed_or_ended_subscription_leaves_nothing_behind() {
        let table = table_at(1);
        put(&table, &subscription(1, "a", &["account.created", "x.*"]));
        put(&table, &subscription(1, "a", &["account.deleted"]));
        assert!(matched(&table, "a", "account", "created").is_empty());
        assert!(matched(&table, "a", "x", "y").is_empty());
        assert!(table.take(Some(id(1).to_string().as_bytes()), None));
        assert!(matched(&table, "a", "account", "deleted").is_empty());
        assert!(table.is_empty() && table.of_tenant(&TenantId::parse("a").unwrap()).is_empty());
    }

    #[test]
    fn a_strangers_record_is_skipped() {
        let table = table_at(1);
        let good = subscription(1, "a", &["*"]);
        put(&table, &good);
        assert!(!table.take(None, Some(b"{}")));
        assert!(!table.take(Some(b"\xff"), Some(b"{}")));
        assert!(!table.take(Some(id(1).to_string().as_bytes()), Some(b"not json")));
        assert!(!table.take(Some(id(2).to_string().as_bytes()), Some(good.to_string().as_bytes())));
        assert_eq!(matched(&table, "a", "k", "l"), [id(1)]);
    }

    #[test]
    fn the_gate_is_open_while_the_table_was_confirmed_within_ten_seconds() {
        let clock = Arc::new(FixedClock(AtomicI64::new(20_000)));
        let table = Table::new(1, Arc::clone(&clock) as Arc<dyn Clock>);
        assert!(!table.is_open(), "never confirmed");
        table.confirm(UnixMillis(19_000));
        assert!(table.is_open());
        clock.0.store(29_001, Ordering::Relaxed);
        assert!(!table.is_open());
    }

    #[test]
    fn a_table_that_was_cut_off_for_half_of_the_retention_of_deletions_is_never_current_again() {
        let clock = Arc::new(FixedClock(AtomicI64::new(DELETE_RETENTION_MS)));
        let table = Table::new(1, Arc::clone(&clock) as Arc<dyn Clock>);
        assert!(!table.is_outdated(), "a new table reads everything");
        table.confirm(UnixMillis(DELETE_RETENTION_MS));
        clock.0.fetch_add(DELETE_RETENTION_MS / 2, Ordering::Relaxed);
        assert!(!table.is_outdated());
        clock.0.fetch_add(1, Ordering::Relaxed);
        table.confirm(clock.now());
        assert!(table.is_outdated() && !table.is_open());
        clock.0.store(DELETE_RETENTION_MS + 1, Ordering::Relaxed);
        assert!(table.is_outdated() && !table.is_open(), "a clock that is set back mends nothing");
    }

    /// A table of so many subscriptions, a hundred of each tenant, one of which wants each event.
    fn table_of(count: u32) -> Table {
        let table = table_at(1);
        let keys: Vec<String> = (0..100).map(|n| format!("account.event-{n}")).collect();
        for n in 0..count {
            let (tenant, key) = (format!("tenant-{}", n / 100), &keys[n as usize % 100]);
            let mut random = [0; 10];
            random[..4].copy_from_slice(&n.to_be_bytes());
            let mut value = subscription(1, &tenant, &[key]);
            value["id"] = SubscriptionId::from_parts(1_000, random).to_string().into();
            assert!(put(&table, &value));
        }
        table
    }

    /// What a match costs at the least, nanoseconds; the least, since other work only adds.
    #[expect(clippy::disallowed_methods, reason = "it measures")]
    fn match_ns(table: &Table) -> u128 {
        const MATCHES: u128 = 2_000;
        let round = || {
            let began = std::time::Instant::now();
            for n in 0..MATCHES {
                let found = matched(table, "tenant-0", "account", &format!("event-{}", n % 100));
                assert_eq!(found.len(), 1);
            }
            began.elapsed().as_nanos() / MATCHES
        };
        (0..20).map(|_| round()).min().unwrap()
    }

    #[test]
    fn a_match_costs_the_same_however_many_subscriptions_others_have() {
        let (few, many) = (match_ns(&table_of(100)), match_ns(&table_of(10_000)));
        assert!(many < few * 3, "{few} ns among 100, {many} ns among 10,000");
    }

    #[test]
    #[ignore = "a measurement: docs/performance.md"]
    #[expect(clippy::disallowed_methods, reason = "it measures")]
    fn measure_a_match_and_the_loading_of_the_table() {
        for count in [100, 10_000, 100_000] {
            let began = std::time::Instant::now();
            let table = table_of(count);
            let took = began.elapsed();
            eprintln!("{count}: {} ns a match, made and taken in {took:?}", match_ns(&table));
        }
    }
}
