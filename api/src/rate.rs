//! How often a tenant may read on this instance (contract section 5, "Pull"): a token bucket for
//! each tenant, and the `RateLimit` and `RateLimit-Policy` fields that tell it
//! (draft-ietf-httpapi-ratelimit-headers-10). Pure but for its lock: the caller brings the clock.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;

/// `RateLimit` of the draft.
pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// `RateLimit-Policy` of the draft.
pub(crate) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// What the policy is called in the fields.
const NAME: &str = "pull";
/// Buckets beyond which full ones are forgotten.
const BUCKETS_MAX: usize = 10_000;
/// A read's price in a bucket, so that whole numbers hold parts of one.
const READ: u64 = 1_000;

/// How often a tenant may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRate {
    /// Reads in a second.
    pub per_second: u32,
    /// Reads at once.
    pub burst: u32,
}

impl Default for ReadRate {
    fn default() -> Self {
        Self { per_second: 100, burst: 200 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u64,
    at: UnixMillis,
}

/// The buckets of all tenants.
#[derive(Debug)]
pub struct Buckets {
    rate: ReadRate,
    of: Mutex<HashMap<TenantId, Bucket>>,
}

/// What became of a wish to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether it may read now; if not, after how many seconds.
    pub(crate) retry_after_s: Option<u64>,
    remaining: u64,
    /// After how many seconds the bucket is full again.
    full_s: u64,
    rate: ReadRate,
}

impl Buckets {
    /// Full buckets.
    #[must_use]
    pub fn new(rate: ReadRate) -> Self {
        Self { rate, of: Mutex::default() }
    }

    /// Takes a read out of a tenant's bucket, if there is one left.
    pub(crate) fn take(&self, tenant: &TenantId, now: UnixMillis) -> Standing {
        let mut all = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= BUCKETS_MAX {
            all.retain(|_, bucket| self.filled(*bucket, now) < self.capacity());
        }
        let full = Bucket { left: self.capacity(), at: now };
        let bucket = all.entry(tenant.clone()).or_insert(full);
        let left = self.filled(*bucket, now);
        let taken = left.checked_sub(READ);
        *bucket = Bucket { left: taken.unwrap_or(left), at: now };
        let refill = u64::from(self.rate.per_second).max(1) * READ;
        Standing {
            retry_after_s: taken.is_none().then(|| (READ - left).div_ceil(refill).max(1)),
            remaining: bucket.left / READ,
            full_s: (self.capacity() - bucket.left).div_ceil(refill),
            rate: self.rate,
        }
    }

    fn capacity(&self) -> u64 {
        u64::from(self.rate.burst) * READ
    }

    /// What a bucket holds by now: a thousandth of a read for each per mille of a second.
    fn filled(&self, bucket: Bucket, now: UnixMillis) -> u64 {
        let grown = now.since(bucket.at).saturating_mul(u64::from(self.rate.per_second));
        bucket.left.saturating_add(grown).min(self.capacity())
    }
}

impl Standing {
    /// Says it in the answer's headers.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let window_s = self.rate.burst.div_ceil(self.rate.per_second.max(1)).max(1);
        let policy = format!("\"{NAME}\";q={};w={window_s}", self.rate.burst);
        let limit = format!("\"{NAME}\";r={};t={}", self.remaining, self.full_s);
        for (name, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, limit)] {
            // Digits and quotes are always a legal value.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    #[test]
    fn a_burst_is_followed_by_the_rate_and_tenants_do_not_share() {
        let buckets = Buckets::new(ReadRate { per_second: 10, burst: 3 });
        let at = |ms: i64| buckets.take(&tenant("acme"), UnixMillis(ms)).retry_after_s;
        assert_eq!([at(0), at(0), at(0), at(0)], [None, None, None, Some(1)]);
        assert_eq!(buckets.take(&tenant("evil"), UnixMillis(0)).retry_after_s, None);
        assert_eq!([at(99), at(100), at(101)], [Some(1), None, Some(1)]);
        // Never more than the burst, however long nobody reads.
        let later: Vec<_> = (0..4).map(|_| at(1_000_000)).collect();
        assert_eq!(later, [None, None, None, Some(1)]);
        // A clock that goes back gives nothing.
        assert_eq!(at(0), Some(1));
    }

    #[test]
    fn the_fields_are_those_of_the_draft() {
        let buckets = Buckets::new(ReadRate::default());
        let mut headers = HeaderMap::new();
        buckets.take(&tenant("acme"), UnixMillis(0)).tell(&mut headers);
        assert_eq!(headers["ratelimit-policy"], "\"pull\";q=200;w=2");
        assert_eq!(headers["ratelimit"], "\"pull\";r=199;t=1");
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let buckets = Buckets::new(ReadRate { per_second: 1, burst: 1 });
        for n in 0..BUCKETS_MAX {
            buckets.take(&tenant(&format!("t{n}")), UnixMillis(0));
        }
        buckets.take(&tenant("one more"), UnixMillis(10_000));
        assert_eq!(buckets.of.lock().unwrap().len(), 1);
    }
}
