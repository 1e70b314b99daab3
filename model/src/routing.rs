//! Where a record goes: one pure function of (tenant, id), computed by the hub and never by the
//! Kafka client's partitioner (design 15). Both copies of an event must meet in one task for as
//! long as the hub exists, so the hash is written out here and **may never change**: not with a
//! dependency, not with a release, not for speed. The tests pin it.

use std::collections::BTreeMap;

use crate::id::{EventId, SubscriptionId};
use crate::tenant::TenantId;
use crate::time::UnixMillis;

/// FNV-1a, 64 bits (RFC 9923), with the parameters of its authors.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Stands between a tenant and an event id: no byte of UTF-8 text has this value.
const SEPARATOR: u8 = 0xff;

/// The partition of an unsalted tenant's records, of `partitions`: all of them in one, which is
/// what makes a tenant's events first in, first out.
#[must_use]
pub fn partition_for_tenant(tenant: &str, partitions: u32) -> i32 {
    place(fnv1a(FNV_OFFSET, tenant.as_bytes()), partitions)
}

/// The partition of one event of a salted tenant, of `partitions`: spread by event id, the same
/// for every copy of the event.
#[must_use]
pub fn partition_for_event(tenant: &str, id: EventId, partitions: u32) -> i32 {
    let hash = fnv1a(FNV_OFFSET, tenant.as_bytes());
    let hash = fnv1a(hash, &[SEPARATOR]);
    place(fnv1a(hash, id.as_bytes()), partitions)
}

/// The partition of a subscription's jobs and pull entries, of `partitions` (design 19).
#[must_use]
pub fn partition_for_subscription(id: SubscriptionId, partitions: u32) -> i32 {
    place(fnv1a(FNV_OFFSET, id.as_bytes()), partitions)
}

/// The partition of an event, of `partitions`. `salted` is what [`Salts::since`] says of its
/// tenant: an id made at or after that time (by the id's own UUIDv7 time) is spread, an older one
/// stays where its first copy went, however late the second arrives.
#[must_use]
pub fn route(tenant: &str, id: EventId, salted: Option<SaltedSince>, partitions: u32) -> i32 {
    match salted {
        Some(SaltedSince(start)) if id.unix_millis() >= start.0 => {
            partition_for_event(tenant, id, partitions)
        }
        Some(_) | None => partition_for_tenant(tenant, partitions),
    }
}

/// When a tenant's salting begins. It lay in the future when it was recorded, so that every
/// instance knows of it before the first id that it applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaltedSince(pub UnixMillis);

/// Why a salting is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The tenant is salted from another time on.
    #[error("the tenant is salted since {}, which cannot be changed", .since.0.to_rfc3339())]
    AlreadySalted {
        /// The time that stands.
        since: SaltedSince,
    },
}

/// Which tenants are salted, and since when: a view of `<app>-salts`. It only grows, since moving
/// or removing a start would route copies of one event to two tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salts(BTreeMap<TenantId, SaltedSince>);

impl Salts {
    /// Takes in a recorded fact; the same fact again changes nothing.
    ///
    /// # Errors
    /// [`Error::AlreadySalted`] when another start stands; it keeps standing.
    pub fn record(&mut self, tenant: TenantId, since: SaltedSince) -> Result<(), Error> {
        let standing = *self.0.entry(tenant).or_insert(since);
        if standing == since { Ok(()) } else { Err(Error::AlreadySalted { since: standing }) }
    }

    /// Since when this tenant is salted.
    #[must_use]
    pub fn since(&self, tenant: &str) -> Option<SaltedSince> {
        self.0.get(tenant).copied()
    }
}

fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// Finishes a hash and reduces it. FNV-1a alone mixes its last bytes badly, and a UUIDv7's are the
/// random ones; the finaliser is that of `MurmurHash3`. No partitions at all count as one, so the
/// function is total. With a remainder, twice the partitions split each in two (`scale`).
fn place(hash: u64, partitions: u32) -> i32 {
    let mut hash = hash ^ (hash >> 33);
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    let partition = hash % u64::from(partitions.max(1));
    // Kafka counts partitions in an i32, so a legal count never reaches the fallback.
    i32::try_from(partition).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(n: u8) -> EventId {
        EventId::from_parts(1_790_000_000_000, [n; 10])
    }

    #[test]
    fn the_hash_is_fnv_1a_as_published() {
        assert_eq!(fnv1a(FNV_OFFSET, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(FNV_OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn routing_is_pinned_for_all_time() {
        let tenants = [
            ("", 38),
            ("acme", 6),
            ("acme-payments", 0),
            ("0198f3a2-11aa-7c3e-9d21-5b8f0c4de001", 53),
            ("São João", 13),
        ];
        for (tenant, partition) in tenants {
            assert_eq!(partition_for_tenant(tenant, 64), partition, "{tenant}");
        }
        let events =
            [("acme", 1, 6), ("acme", 2, 35), ("0198f3a2-11aa-7c3e-9d21-5b8f0c4de001", 1, 38)];
        for (tenant, n, partition) in events {
            assert_eq!(partition_for_event(tenant, id(n), 64), partition, "{tenant} {n}");
        }
        let subscriptions = [(1, 12), (2, 62), (3, 52)];
        for (n, partition) in subscriptions {
            let id = SubscriptionId::from_parts(1_790_000_000_000, [n; 10]);
            assert_eq!(partition_for_subscription(id, 64), partition, "{n}");
        }
        assert_eq!(partition_for_tenant("acme-payments", 12), 0);
        assert_eq!(partition_for_tenant("0198f3a2-11aa-7c3e-9d21-5b8f0c4de001", 12), 9);
    }

    #[test]
    fn a_salted_tenants_events_are_spread_from_the_start_time_of_their_ids_on() {
        let (tenant, at) = ("acme", 1_790_000_000_000);
        let spread: Vec<i32> = (0..9).map(|n| partition_for_event(tenant, id(n), 64)).collect();
        let route_from = |start: i64| -> Vec<i32> {
            let salt = Some(SaltedSince(UnixMillis(start)));
            (0..9).map(|n| route(tenant, id(n), salt, 64)).collect()
        };
        assert_eq!(route_from(at), spread);
        assert_eq!(route_from(at + 1), [partition_for_tenant(tenant, 64); 9]);
        assert_eq!(route(tenant, id(1), None, 64), partition_for_tenant(tenant, 64));
    }

    #[test]
    fn the_start_of_a_salting_never_moves() {
        let (mut salts, acme) = (Salts::default(), TenantId::parse("acme").unwrap());
        let (since, other) = (SaltedSince(UnixMillis(5)), SaltedSince(UnixMillis(6)));
        assert_eq!(salts.record(acme.clone(), since), Ok(()));
        assert_eq!(salts.record(acme.clone(), since), Ok(()));
        assert_eq!(salts.record(acme, other), Err(Error::AlreadySalted { since }));
        assert_eq!(salts.since("acme"), Some(since));
        assert_eq!(salts.since("other"), None);
    }

    #[test]
    fn tenants_and_events_spread_evenly() {
        let even = |partitions: Vec<i32>| {
            let mut counts = [0; 16];
            partitions.into_iter().for_each(|p| counts[usize::try_from(p).unwrap()] += 1);
            counts.into_iter().all(|count| (800..1200).contains(&count))
        };
        assert!(even((0..16_000).map(|n| partition_for_tenant(&format!("t{n}"), 16)).collect()));
        let event = |n: u64| {
            let mut random = [0; 10];
            random[2..].copy_from_slice(&n.to_be_bytes());
            partition_for_event("acme", EventId::from_parts(7, random), 16)
        };
        assert!(even((0..16_000).map(event).collect()));
    }

    proptest! {
        #[test]
        fn a_partition_lies_within_the_count(tenant in ".{0,30}", partitions in 0u32..10_000) {
            for partition in [
                partition_for_tenant(&tenant, partitions),
                partition_for_event(&tenant, id(3), partitions),
            ] {
                prop_assert!(partition >= 0);
                prop_assert!(u32::try_from(partition).unwrap() < partitions.max(1));
            }
        }

        #[test]
        fn twice_the_partitions_split_each_in_two(tenant in ".{0,30}", partitions in 1i32..500) {
            let (small, large) = (partitions.unsigned_abs(), partitions.unsigned_abs() * 2);
            let (before, after) =
                (partition_for_tenant(&tenant, small), partition_for_tenant(&tenant, large));
            prop_assert!(after == before || after == before + partitions);
        }
    }
}
