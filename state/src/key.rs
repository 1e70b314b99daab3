//! Keys of the store and half-open ranges of them.
//!
//! A key is its family's discriminant byte and then whatever the family's file says. Keys are made
//! by the family modules only, so a key of the store always belongs to a known family. Keys up to
//! 62 bytes live on the stack: every key that this hub writes does, as long as a tenant's id has at
//! most 45 bytes.
//!
//! The invariant: keys compare as their bytes do, which is RocksDB's order.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

use crate::Family;

const INLINE_BYTES: usize = 62;

/// One key: family discriminant, then the family's own bytes. Read it as a byte slice.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Vec<u8>),
}

impl Key {
    /// The empty key of a family: no key of that family is smaller.
    pub(crate) fn of(family: Family) -> Self {
        Self::from_bytes(&[family as u8])
    }

    pub(crate) fn from_bytes(source: &[u8]) -> Self {
        let empty = Self(Repr::Inline { len: 0, bytes: [0; INLINE_BYTES] });
        empty.with(source)
    }

    /// The key with `more` appended.
    #[must_use]
    pub(crate) fn with(mut self, more: &[u8]) -> Self {
        match &mut self.0 {
            Repr::Inline { len, bytes } => {
                let end = usize::from(*len) + more.len();
                if end <= INLINE_BYTES {
                    bytes[usize::from(*len)..end].copy_from_slice(more);
                    // At most INLINE_BYTES, which fits a byte.
                    *len = end as u8;
                } else {
                    let mut heap = Vec::with_capacity(end);
                    heap.extend_from_slice(&bytes[..usize::from(*len)]);
                    heap.extend_from_slice(more);
                    self.0 = Repr::Heap(heap);
                }
            }
            Repr::Heap(heap) => heap.extend_from_slice(more),
        }
        self
    }

    /// The key's bytes, discriminant first.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(heap) => heap,
        }
    }

    /// The smallest key above every key that starts with this one.
    fn prefix_end(&self) -> Self {
        let bytes = self.as_slice();
        let kept = bytes.iter().rposition(|&byte| byte != u8::MAX);
        // A family's discriminant is never 0xff, so some byte can always be raised.
        let Some(last) = kept else {
            return Self::from_bytes(&[u8::MAX]);
        };
        Self::from_bytes(&bytes[..last]).with(&[bytes[last] + 1])
    }

    /// The smallest key above this one.
    pub(crate) fn successor(&self) -> Self {
        self.clone().with(&[0])
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Keys from `from` (included) to `to` (excluded). Empty when `from` is not below `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    from: Key,
    to: Key,
}

impl KeyRange {
    /// Every key of a family.
    #[must_use]
    pub fn family(family: Family) -> Self {
        Self::prefix(Key::of(family))
    }

    /// Every key of the families above this one.
    #[must_use]
    pub(crate) fn above(family: Family) -> Self {
        Self { from: Key::of(family).prefix_end(), to: Key::from_bytes(&[u8::MAX]) }
    }

    /// Every key that starts with `prefix`.
    #[must_use]
    pub fn prefix(prefix: Key) -> Self {
        let to = prefix.prefix_end();
        Self { from: prefix, to }
    }

    /// Only what is at or above `key`.
    #[must_use]
    pub fn starting_at(mut self, key: Key) -> Self {
        self.from = self.from.max(key);
        self
    }

    /// Only what is above `key`: where a scan goes on that ended with `key`.
    #[must_use]
    pub fn starting_after(self, key: &Key) -> Self {
        let next = key.successor();
        self.starting_at(next)
    }

    /// Only what is below `key`.
    #[must_use]
    pub fn ending_before(mut self, key: Key) -> Self {
        self.to = self.to.min(key);
        self
    }

    /// The smallest key that may be in the range.
    #[must_use]
    pub fn from(&self) -> &[u8] {
        self.from.as_slice()
    }

    /// The smallest key above the range.
    #[must_use]
    pub fn to(&self) -> &[u8] {
        self.to.as_slice()
    }

    /// Whether no key can be in the range. Ordered maps panic on such bounds, so ask first.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from >= self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edge_byte() -> impl Strategy<Value = u8> {
        prop::sample::select(vec![0, 1, 0xfe, 0xff])
    }

    proptest! {
        #[test]
        fn keys_hold_and_order_like_their_bytes_at_any_length(
            a in prop::collection::vec(any::<u8>(), 0..140),
            b in prop::collection::vec(any::<u8>(), 0..140),
            cut in 0usize..140,
        ) {
            let cut = cut.min(a.len());
            let key = Key::from_bytes(&a[..cut]).with(&a[cut..]);
            prop_assert_eq!(key.as_slice(), a.as_slice());
            prop_assert_eq!(key.cmp(&Key::from_bytes(&b)), a.cmp(&b));
            prop_assert!(key.successor() > key);
        }

        #[test]
        fn a_prefix_range_holds_exactly_the_keys_with_that_prefix(
            tail in prop::collection::vec(edge_byte(), 0..5),
            other in prop::collection::vec(edge_byte(), 0..7),
        ) {
            let range = KeyRange::prefix(Key::of(Family::Ready).with(&tail));
            let key = Key::of(Family::Ready).with(&other);
            let inside = range.from() <= key.as_slice() && key.as_slice() < range.to();
            prop_assert_eq!(inside, other.starts_with(&tail));
        }
    }

    #[test]
    fn a_range_turned_around_is_empty() {
        let high = Key::of(Family::Ready).with(&[9]);
        let low = Key::of(Family::Ready).with(&[1]);
        assert!(!KeyRange::family(Family::Ready).is_empty());
        assert!(KeyRange::family(Family::Ready).starting_at(high).ending_before(low).is_empty());
    }
}
