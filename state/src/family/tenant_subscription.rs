//! Which subscriptions a tenant has: what a limit counts, without reading the rows.
//!
//! ```text
//! key    family | tenant | 0 | subscription id 16
//! value  empty
//! ```
//!
//! A tenant id holds no control character (contract section 1), so the zero ends it: no tenant's
//! range holds another's keys.

use crate::{Family, Key, KeyRange};

/// The key of one subscription of a tenant.
#[must_use]
pub fn key(tenant: &[u8], subscription: &[u8; 16]) -> Key {
    prefix(tenant).with(subscription)
}

/// All keys of a tenant.
#[must_use]
pub fn of_tenant(tenant: &[u8]) -> KeyRange {
    KeyRange::prefix(prefix(tenant))
}

fn prefix(tenant: &[u8]) -> Key {
    Key::of(Family::TenantSubscription).with(tenant).with(&[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryBase, State};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_tenants_range_holds_its_own_keys_and_no_others(
            a in "[ -~]{1,6}", b in "[ -~]{1,6}", id: [u8; 16],
        ) {
            let mut state = State::new(Box::new(MemoryBase::new()));
            state.put(key(a.as_bytes(), &id), Vec::new());
            let found = state.collect(&of_tenant(b.as_bytes()), 9).unwrap().len();
            prop_assert_eq!(found, usize::from(a == b));
        }
    }
}
