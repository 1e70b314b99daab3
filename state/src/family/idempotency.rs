//! The registry's idempotency keys, as they lie in their topic, by the hash of their scope.
//!
//! ```text
//! key    family | hash 32
//! value  when the key was first seen, ms i64 | the entry's JSON
//! ```

use crate::{Family, Key};

/// The key of an entry.
#[must_use]
pub fn key(scope: &[u8]) -> Key {
    Key::of(Family::Idempotency).with(scope)
}

/// The value of an entry that was first seen at `at_ms`.
#[must_use]
pub fn value(at_ms: i64, entry: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(8 + entry.len());
    value.extend_from_slice(&at_ms.to_be_bytes());
    value.extend_from_slice(entry);
    value
}

/// The entry's JSON in a value; nothing in one that is too short to hold any.
#[must_use]
pub fn entry(value: &[u8]) -> &[u8] {
    value.get(8..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_pinned() {
        assert_eq!(&*key(&[7; 32]), [&[29][..], &[7; 32]].concat());
        let value = value(258, b"{}");
        assert_eq!(value, b"\0\0\0\0\0\0\x01\x02{}");
        assert_eq!(entry(&value), b"{}");
    }
}
