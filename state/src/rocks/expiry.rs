//! Removal of entries that are older than a horizon, by the way of compaction.
//!
//! Not what hides them: look-ups must ignore an expired entry themselves, because compaction comes
//! when it comes. The invariant: only entries of the rule's family whose value says that they
//! arrived before the bound are removed; everything else stays.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};

use crate::Family;

/// Entries of `family` whose value starts with an arrival time (big-endian i64 milliseconds) below
/// `bound` may be removed.
///
/// The owner raises the bound after a commit and never beyond what a look-up ignores by then: a
/// removal is for good, also when the transaction under way aborts.
#[derive(Debug, Clone)]
pub struct ExpiryRule {
    /// The family whose entries expire.
    pub family: Family,
    /// Arrival time in milliseconds since the Unix epoch, shared with the owner. At `i64::MIN`
    /// nothing expires.
    pub bound: Arc<AtomicI64>,
}

impl ExpiryRule {
    fn removes(&self, key: &[u8], value: &[u8]) -> bool {
        let ours = key.first() == Some(&(self.family as u8));
        let Some(arrival) = value.first_chunk() else {
            return false;
        };
        // Alone in its word and read without order: a bound seen late removes less.
        ours && i64::from_be_bytes(*arrival) < self.bound.load(Ordering::Relaxed)
    }
}

/// RocksDB asks for a filter per compaction, so that filters need not be shared between threads.
pub(super) struct Expiry(pub(super) Vec<ExpiryRule>);

impl CompactionFilterFactory for Expiry {
    type Filter = Filter;

    fn create(&mut self, _context: CompactionFilterContext) -> Filter {
        Filter(self.0.clone())
    }

    fn name(&self) -> &CStr {
        c"streaming-hub-expiry"
    }
}

pub(super) struct Filter(Vec<ExpiryRule>);

impl CompactionFilter for Filter {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        if self.0.iter().any(|rule| rule.removes(key, value)) {
            CompactionDecision::Remove
        } else {
            CompactionDecision::Keep
        }
    }

    fn name(&self) -> &CStr {
        c"streaming-hub-expiry"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::{dedup, ready};

    #[test]
    fn only_what_arrived_before_the_bound_expires() {
        let bound = Arc::new(AtomicI64::new(100));
        let rule = ExpiryRule { family: Family::Dedup, bound: Arc::clone(&bound) };
        let key = dedup::key(&[1; 16], b"acme");
        assert!(rule.removes(&key, &dedup::value(99)));
        assert!(!rule.removes(&key, &dedup::value(100)));
        assert!(!rule.removes(&key, b"short"));
        assert!(!rule.removes(&ready::key(&[1; 16], 1), &ready::value(&[0; 16])));
        assert!(!rule.removes(b"", &dedup::value(0)));
        bound.store(i64::MIN, Ordering::Relaxed);
        assert!(!rule.removes(&key, &dedup::value(i64::MIN)));
    }
}
