//! How often a tenant may ask this instance, of all its requests and of reads (contract section 5,
//! "Pull"): a token bucket for each tenant, and the `RateLimit` and `RateLimit-Policy` fields that
//! tell it (draft-ietf-httpapi-ratelimit-headers-10). Pure but for its lock: the caller brings the
//! clock.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;

use crate::problem::{Code, Problem};

/// `RateLimit` of the draft.
pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// `RateLimit-Policy` of the draft.
pub(crate) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// What the policies are called in the fields.
const READS: &str = "pull";
const REQUESTS: &str = "requests";
/// Buckets beyond which full ones are forgotten.
const BUCKETS_MAX: usize = 10_000;
/// A request's price in a bucket, so that whole numbers hold parts of one.
const PRICE: u64 = 1_000;

/// How often a tenant may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests in a second.
    pub per_second: u32,
    /// Requests at once.
    pub burst: u32,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u64,
    at: UnixMillis,
}

/// The buckets of all tenants.
#[derive(Debug)]
pub struct Buckets {
    name: &'static str,
    rate: Rate,
    of: Mutex<HashMap<TenantId, Bucket>>,
}

/// What became of a wish to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether it may ask now; if not, after how many seconds.
    pub(crate) retry_after_s: Option<u64>,
    remaining: u64,
    /// After how many seconds the bucket is full again.
    full_s: u64,
    name: &'static str,
    rate: Rate,
}

impl Buckets {
    /// Full buckets for reads of pull subscriptions.
    #[must_use]
    pub fn reads(rate: Rate) -> Self {
        Self { name: READS, rate, of: Mutex::default() }
    }

    /// Full buckets for requests of every kind.
    #[must_use]
    pub fn requests(rate: Rate) -> Self {
        Self { name: REQUESTS, rate, of: Mutex::default() }
    }

    /// Takes a request out of a tenant's bucket, if there is one left.
    pub(crate) fn take(&self, tenant: &TenantId, now: UnixMillis) -> Standing {
        let mut all = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= BUCKETS_MAX {
            all.retain(|_, bucket| self.filled(*bucket, now) < self.capacity());
        }
        let full = Bucket { left: self.capacity(), at: now };
        let bucket = all.entry(tenant.clone()).or_insert(full);
        let left = self.filled(*bucket, now);
        let taken = left.checked_sub(PRICE);
        *bucket = Bucket { left: taken.unwrap_or(left), at: now };
        let refill = u64::from(self.rate.per_second).max(1) * PRICE;
        Standing {
            retry_after_s: taken.is_none().then(|| (PRICE - left).div_ceil(refill).max(1)),
            remaining: bucket.left / PRICE,
            full_s: (self.capacity() - bucket.left).div_ceil(refill),
            name: self.name,
            rate: self.rate,
        }
    }

    fn capacity(&self) -> u64 {
        u64::from(self.rate.burst) * PRICE
    }

    /// What a bucket holds by now: a thousandth of a request for each per mille of a second.
    fn filled(&self, bucket: Bucket, now: UnixMillis) -> u64 {
        let grown = now.since(bucket.at).saturating_mul(u64::from(self.rate.per_second));
        bucket.left.saturating_add(grown).min(self.capacity())
    }
}

impl Standing {
    /// The answer to a request that came too early.
    pub(crate) fn refusal(&self) -> Response {
        let mut response = Problem::from(Code::RateLimited).into_response();
        let seconds = HeaderValue::from(self.retry_after_s.unwrap_or_default());
        response.headers_mut().insert(RETRY_AFTER, seconds);
        self.tell(response.headers_mut());
        response
    }

    /// Says it in the answer's headers, beside what another policy says there.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let name = self.name;
        let window_s = self.rate.burst.div_ceil(self.rate.per_second.max(1)).max(1);
        let policy = format!("\"{name}\";q={};w={window_s}", self.rate.burst);
        let limit = format!("\"{name}\";r={};t={}", self.remaining, self.full_s);
        for (field, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, limit)] {
            // Digits and quotes are always a legal value.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.append(field, value);
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
        let buckets = Buckets::reads(Rate { per_second: 10, burst: 3 });
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
        let buckets = Buckets::reads(Rate { per_second: 100, burst: 200 });
        let mut headers = HeaderMap::new();
        buckets.take(&tenant("acme"), UnixMillis(0)).tell(&mut headers);
        assert_eq!(headers["ratelimit-policy"], "\"pull\";q=200;w=2");
        assert_eq!(headers["ratelimit"], "\"pull\";r=199;t=1");
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let buckets = Buckets::reads(Rate { per_second: 1, burst: 1 });
        for n in 0..BUCKETS_MAX {
            buckets.take(&tenant(&format!("t{n}")), UnixMillis(0));
        }
        buckets.take(&tenant("one more"), UnixMillis(10_000));
        assert_eq!(buckets.of.lock().unwrap().len(), 1);
    }
}
