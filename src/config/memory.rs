//! One budget of memory: what the stores, the uncommitted writes and the Kafka clients of a process
//! may use together, shared out among the settings that no layer sets by itself.
//!
//! Not for what has a bound of its own: attempts in flight, the index of dead letters, requests.
//! The invariant: the shares fit into the budget, or the configuration is refused.

use figment::Figment;
use figment::value::{Dict, Value};

use super::layers::Layer;
use super::load::DEFAULT_ORIGIN;
use super::problem::Problem;
use super::{Config, Role};

/// The setting, and the origin of the shares.
pub(super) const KEY: &str = "runtime.memory_bytes";

const KIB: u64 = 1_024;
/// Below a block of memory for each store, every write is a flush.
const STORE_BYTES: u64 = 64 * KIB;

/// A setting that takes a share.
struct Share {
    name: &'static str,
    /// Its part of the budget, in hundredths.
    percent: u64,
    /// In how many bytes the setting counts.
    unit: u64,
    /// Whether each stream thread takes it.
    each_thread: bool,
}

const SHARES: [Share; 5] = [
    Share { name: "block_cache_bytes", percent: 25, unit: 1, each_thread: false },
    Share { name: "memtable_bytes", percent: 20, unit: 1, each_thread: false },
    Share { name: "fetch_queue_kbytes", percent: 15, unit: KIB, each_thread: true },
    Share { name: "producer_queue_kbytes", percent: 30, unit: KIB, each_thread: true },
    Share { name: "uncommitted_bytes_max", percent: 10, unit: 1, each_thread: true },
];

impl Share {
    fn takers(&self, threads: u64) -> u64 {
        if self.each_thread { threads } else { 1 }
    }
}

/// The shares of the settings that only the defaults name; nothing where the budget is no number.
pub(super) fn shares(figment: &Figment) -> Layer {
    let number = |key: &str| figment.find_value(key).ok().and_then(|value| whole(&value));
    let threads = threads(figment);
    let budget = number(KEY).unwrap_or_default();
    let own = |share: &&Share| {
        let value = figment.find_value(&format!("runtime.{}", share.name)).ok();
        let origin = value.and_then(|value| figment.get_metadata(value.tag()));
        origin.is_some_and(|origin| origin.name != DEFAULT_ORIGIN)
    };
    let (own, open): (Vec<_>, Vec<_>) = SHARES.iter().partition(own);
    let taken = own.iter().map(|share| {
        let value = number(&format!("runtime.{}", share.name)).unwrap_or_default();
        value.saturating_mul(share.unit).saturating_mul(share.takers(threads))
    });
    let rest = budget.saturating_sub(taken.fold(0, u64::saturating_add));
    let hundred = open.iter().map(|share| share.percent).sum::<u64>().max(1);
    // A step that is read must fit: what comes of less is refused with the budget's name.
    let payload = number("ingest.payload_bytes_max").unwrap_or_default();
    let least = |name: &str| match name {
        "uncommitted_bytes_max" => number("runtime.commit_bytes").unwrap_or_default().max(KIB),
        "producer_queue_kbytes" => (payload.saturating_mul(2)).div_ceil(KIB).max(64),
        "fetch_queue_kbytes" => 64,
        _ => KIB * KIB,
    };
    let value = |share: &&Share| {
        let bytes = u128::from(rest) * u128::from(share.percent) / u128::from(hundred);
        let each = bytes / u128::from(share.takers(threads) * share.unit);
        let value = u64::try_from(each).unwrap_or(u64::MAX).max(least(share.name));
        (share.name.to_owned(), Value::from(value))
    };
    let runtime = open.iter().map(value).collect::<Dict>();
    Layer::new(KEY, Dict::from([("runtime".to_owned(), runtime.into())]))
}

/// A stream thread for each of these roles.
const THREADS: [Role; 5] = [Role::Ingest, Role::Match, Role::Delivery, Role::Pull, Role::Registry];

/// Of them, those with a store for each partition.
const STORES: [Role; 4] = [Role::Match, Role::Delivery, Role::Pull, Role::Registry];

/// How many stream threads the roles need; all where they are not readable.
fn threads(figment: &Figment) -> u64 {
    let roles = figment.extract_inner::<super::Roles>("roles");
    let count = roles
        .map_or(THREADS.len(), |roles| THREADS.iter().filter(|role| roles.has(**role)).count());
    count.max(1) as u64
}

fn whole(value: &Value) -> Option<u64> {
    value
        .to_num()
        .and_then(|number| number.to_u128_lossy())
        .and_then(|number| u64::try_from(number).ok())
}

/// What is wrong with the budget: too small for its parts, or for that many stores.
pub(super) fn validate(config: &Config) -> Vec<Problem> {
    let runtime = &config.runtime;
    let roles = &config.roles;
    let threads = THREADS.iter().filter(|role| roles.has(**role)).count().max(1) as u64;
    let each = runtime.uncommitted_bytes_max as u64
        + (u64::from(runtime.fetch_queue_kbytes) + u64::from(runtime.producer_queue_kbytes)) * KIB;
    let together = (runtime.block_cache_bytes as u64)
        .saturating_add(runtime.memtable_bytes as u64)
        .saturating_add(each.saturating_mul(threads));
    let mut problems = Vec::new();
    // What division leaves over is nobody's.
    if together > runtime.memory_bytes {
        let wrong = format!(
            "is too small: the block cache, the memtables and the buffers of {threads} stream \
             threads take at least {together}"
        );
        let remedy = format!("Give at least {together}, or lower the parts or roles");
        problems.push(Problem::new(KEY, wrong, remedy));
    }
    let kinds = STORES.iter().filter(|role| roles.has(**role)).count() as u64;
    let stores = kinds * u64::from(config.topics.partitions.unsigned_abs());
    if stores * STORE_BYTES > runtime.memtable_bytes as u64 {
        let wrong = format!(
            "leaves runtime.memtable_bytes = {}, too little for the {stores} stores of {} \
             partitions: each write would be a flush",
            runtime.memtable_bytes, config.topics.partitions
        );
        let least = stores * STORE_BYTES;
        let remedy = format!("Raise it until the memtables have {least}, or set them to that");
        problems.push(Problem::new(KEY, wrong, remedy));
    }
    problems
}
