//! What the tests of all processors begin with: ids, events, counters, a randomness that repeats.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use streaming_hub_model::id::EventId;
use streaming_hub_model::internal;
use streaming_hub_model::ports::Entropy;

use super::FACTS;
use super::logs::{Entry, Header};
use crate::metrics::Metrics;

/// When every test begins, Unix milliseconds.
pub(crate) const T0: i64 = 1_790_000_000_000;
/// Milliseconds of an hour.
pub(crate) const HOUR: i64 = 3_600_000;
/// Milliseconds of a day.
pub(crate) const DAY: i64 = 24 * HOUR;

/// The id of the `n`-th event.
pub(crate) fn event_id(n: u64) -> EventId {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&n.to_be_bytes());
    EventId::from_parts(T0, random)
}

pub(crate) fn header(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Header {
    (name.as_ref().to_vec(), Some(value.as_ref().to_vec()))
}

/// The headers of a well-formed event of the application `ledger`.
pub(crate) fn fact(id: EventId, tenant: &str) -> Vec<Header> {
    let id = id.to_string();
    [
        ("ce-specversion", "1.0"),
        ("ce-id", &id),
        ("ce-source", "ledger"),
        ("ce-type", "studio.lerian.ledger.account.created"),
        ("ce-time", "2026-09-21T14:13:20Z"),
        ("ce-schemaversion", "1.0.0"),
        ("ce-resourcetype", "account"),
        ("ce-eventtype", "created"),
        ("ce-tenantid", tenant),
    ]
    .map(|(name, value)| header(name, value))
    .to_vec()
}

/// A record of the facts topic.
pub(crate) fn fact_record(headers: Vec<Header>, value: Option<&[u8]>) -> Entry {
    Entry { headers, value: value.map(<[u8]>::to_vec), timestamp_ms: T0 - 5, ..Entry::default() }
}

/// An accepted event as ingest writes it.
pub(crate) fn accepted(id: EventId, tenant: &str, arrival_ms: i64) -> Entry {
    let mut headers = fact(id, tenant);
    let hubs = [
        (internal::TENANT, tenant.to_owned()),
        (internal::VERSION, internal::FORMAT.to_string()),
        (internal::ID, id.to_string()),
        (internal::MAJOR, "1".to_owned()),
        (internal::ARRIVAL, arrival_ms.to_string()),
        (internal::FROM, format!("{FACTS}/0/7")),
    ];
    headers.extend(hubs.iter().map(|(name, value)| header(name, value)));
    Entry {
        key: Some(tenant.as_bytes().to_vec()),
        headers,
        value: Some(format!("data of {id}").into_bytes()),
        ..Entry::default()
    }
}

/// Replaces the last header of this name, or the field of a packed one.
pub(crate) fn set(headers: &mut Vec<Header>, name: &str, value: &str) {
    match headers.iter_mut().rfind(|(own, _)| own == name.as_bytes()) {
        Some(found) => found.1 = Some(value.as_bytes().to_vec()),
        None => headers.push(header(name, value)),
    }
}

/// Counters of their own.
pub(crate) struct Counters {
    pub(crate) metrics: Arc<Metrics>,
    registry: prometheus::Registry,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let registry = prometheus::Registry::new();
        Self { metrics: Arc::new(Metrics::new(&registry).unwrap()), registry }
    }

    /// What `streaming_hub_<name>` counted, of this label's value (empty: of all).
    pub(crate) fn count(&self, name: &str, label: &str) -> u64 {
        let name = format!("streaming_hub_{name}");
        let families = self.registry.gather();
        let metrics = families.iter().filter(|family| family.name() == name);
        let wanted = metrics.flat_map(|family| family.get_metric()).filter(|metric| {
            label.is_empty() || metric.get_label().iter().any(|pair| pair.value() == label)
        });
        let sum: f64 = wanted.map(|metric| metric.get_counter().get_value()).sum();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let sum = sum as u64;
        sum
    }
}

impl Counters {
    /// What the gauge `streaming_hub_<name>` shows, all labels together.
    pub(crate) fn gauge(&self, name: &str) -> i64 {
        let name = format!("streaming_hub_{name}");
        let families = self.registry.gather();
        let metrics = families.iter().filter(|family| family.name() == name);
        let sum: f64 =
            metrics.flat_map(|f| f.get_metric()).map(|m| m.get_gauge().get_value()).sum();
        #[expect(clippy::cast_possible_truncation, reason = "a small number")]
        let sum = sum as i64;
        sum
    }
}

/// Randomness that repeats: all jitter is the same share of its step, no two ids are equal.
#[derive(Debug, Default)]
pub(crate) struct FixedEntropy {
    /// Jitter in 256ths.
    pub(crate) jitter: AtomicU8,
    ids: AtomicU32,
}

impl Entropy for FixedEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.jitter.load(Ordering::Relaxed));
        if bytes.len() > 4
            && let Some(tail) = bytes.last_chunk_mut()
        {
            *tail = self.ids.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        }
    }
}
