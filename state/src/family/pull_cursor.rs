//! How far each pull subscription was read.
//!
//! ```text
//! key    [family 0x16][subscription id 16]
//! value  the JSON of its record in `<app>-cursors`
//! ```

use crate::{Family, Key, KeyRange};

/// The key of `subscription`.
#[must_use]
pub fn key(subscription: &[u8; 16]) -> Key {
    Key::of(Family::PullCursor).with(subscription)
}

/// All cursors.
#[must_use]
pub fn all() -> KeyRange {
    KeyRange::family(Family::PullCursor)
}
