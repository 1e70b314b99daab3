//! The registry's rows: the subscriptions of its tenants, as they lie in the subscriptions topic.
//!
//! ```text
//! key    family | subscription id 16
//! value  the record's JSON
//! ```

use crate::{Family, Key};

/// The key of a subscription's row.
#[must_use]
pub fn key(subscription: &[u8; 16]) -> Key {
    Key::of(Family::Subscription).with(subscription)
}
