//! A record's headers as they came: names and values are bytes, a value may be absent, and the
//! same name may repeat. This view reads them in place, without copying, and says which of them
//! travel on internal topics (contract section 1, design 14). It judges no value.

use crate::packed;

/// One header of a record: its name and its value, `None` when the record holds a null.
///
/// Bytes, because Kafka promises no more: a foreign producer's name may be empty or no UTF-8.
pub type HeaderRef<'a> = (&'a [u8], Option<&'a [u8]>);

/// `ce-specversion`.
pub const CE_SPECVERSION: &str = "ce-specversion";
/// `ce-id`.
pub const CE_ID: &str = "ce-id";
/// `ce-source`.
pub const CE_SOURCE: &str = "ce-source";
/// `ce-type`.
pub const CE_TYPE: &str = "ce-type";
/// `ce-time`.
pub const CE_TIME: &str = "ce-time";
/// `ce-schemaversion`.
pub const CE_SCHEMAVERSION: &str = "ce-schemaversion";
/// `ce-resourcetype`.
pub const CE_RESOURCETYPE: &str = "ce-resourcetype";
/// `ce-eventtype`.
pub const CE_EVENTTYPE: &str = "ce-eventtype";
/// `ce-tenantid`.
pub const CE_TENANTID: &str = "ce-tenantid";
/// `ce-subject`.
pub const CE_SUBJECT: &str = "ce-subject";
/// `ce-datacontenttype`.
pub const CE_DATACONTENTTYPE: &str = "ce-datacontenttype";
/// `ce-dataschema`.
pub const CE_DATASCHEMA: &str = "ce-dataschema";
/// `ce-systemevent`.
pub const CE_SYSTEMEVENT: &str = "ce-systemevent";
/// `traceparent` (W3C trace context).
pub const TRACEPARENT: &str = "traceparent";
/// `tracestate` (W3C trace context).
pub const TRACESTATE: &str = "tracestate";
/// `baggage` (W3C baggage): travels inside the hub, never to a receiver.
pub const BAGGAGE: &str = "baggage";

/// How the names of the hub's own headers begin.
const OWN: &str = "hub-";

/// A view of a record's headers, in their order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Headers<'a> {
    all: &'a [HeaderRef<'a>],
}

impl<'a> Headers<'a> {
    /// A view of these headers.
    #[must_use]
    pub const fn new(all: &'a [HeaderRef<'a>]) -> Self {
        Self { all }
    }

    /// The value of the last header of exactly this name (lower-case ASCII, no folding of case).
    ///
    /// A last occurrence without a value, or with an empty one, counts as missing, and an earlier
    /// occurrence does not stand in for it: the producers' own parser reads both as the empty
    /// text, and CloudEvents 1.0 (section 3.1) has no attribute with an empty value.
    ///
    /// A name of the hub's own that has no header is looked for among the packed ones
    /// ([`packed`]).
    #[must_use]
    pub fn last(&self, name: &str) -> Option<&'a [u8]> {
        let value = match self.last_of(name) {
            Some(value) => value,
            None if name.starts_with(OWN) => packed::field(name, |packed| self.last_of(packed)?),
            None => None,
        };
        value.filter(|value| !value.is_empty())
    }

    fn last_of(&self, name: &str) -> Option<Option<&'a [u8]>> {
        let last = self.all.iter().rev().find(|(own, _)| *own == name.as_bytes());
        last.map(|(_, value)| *value)
    }

    /// [`Self::last`] as text; `None` too when the value is no UTF-8. For headers that the hub
    /// passes through and does not judge.
    #[must_use]
    pub fn last_text(&self, name: &str) -> Option<&'a str> {
        str::from_utf8(self.last(name)?).ok()
    }

    /// The headers that travel on internal topics: every `ce-*` whose name is UTF-8, and the trace
    /// context with its baggage, values byte-exact and in their original order, repeated and null
    /// ones included. (A name that is no UTF-8 cannot be written again by the Kafka client, and no
    /// signature of a producer covers it.)
    pub fn travelling(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        self.all.iter().filter_map(|(name, value)| {
            bytes_travel(name)
                .then(|| str::from_utf8(name).ok())
                .flatten()
                .map(|name| (name, *value))
        })
    }
}

/// Whether a header of this name travels on internal topics: see [`Headers::travelling`].
#[must_use]
pub fn travels(name: &str) -> bool {
    bytes_travel(name.as_bytes())
}

/// [`travels`] of a name that is UTF-8 already.
pub(crate) fn bytes_travel(name: &[u8]) -> bool {
    name.starts_with(b"ce-")
        || [TRACEPARENT, TRACESTATE, BAGGAGE].iter().any(|own| own.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_compare_as_exact_lower_case_ascii() {
        let all: [HeaderRef; 2] = [(b"CE-ID", Some(b"1")), (b"ce-id ", Some(b"2"))];
        assert_eq!(Headers::new(&all).last(CE_ID), None);
    }

    #[test]
    fn a_header_whose_last_occurrence_has_no_value_is_missing() {
        let null: [HeaderRef; 2] = [(b"ce-id", Some(b"1")), (b"ce-id", None)];
        assert_eq!(Headers::new(&null).last(CE_ID), None);
        let empty: [HeaderRef; 2] = [(b"ce-id", Some(b"1")), (b"ce-id", Some(b""))];
        assert_eq!(Headers::new(&empty).last(CE_ID), None);
        let late: [HeaderRef; 2] = [(b"ce-id", None), (b"ce-id", Some(b"1"))];
        assert_eq!(Headers::new(&late).last(CE_ID), Some(&b"1"[..]));
    }

    #[test]
    fn a_value_that_is_no_utf_8_is_no_text() {
        let all: [HeaderRef; 1] = [(b"traceparent", Some(b"\xff"))];
        assert_eq!(Headers::new(&all).last_text(TRACEPARENT), None);
        assert_eq!(Headers::new(&all).last(TRACEPARENT), Some(&b"\xff"[..]));
    }

    #[test]
    fn what_travels_keeps_its_bytes_its_order_and_its_repetitions() {
        let all: [HeaderRef; 10] = [
            (b"ce-sig", Some(b"\xff\x00")),
            (b"x-foreign", Some(b"no")),
            (b"ce-id", Some(b"1")),
            (b"", Some(b"no")),
            (b"ce-\xff", Some(b"no")),
            (b"baggage", Some(b"tenant.id=a")),
            (b"ce-id", None),
            (b"tracestate", Some(b"")),
            (b"CE-ID", Some(b"no")),
            (b"traceparent", Some(b"00-")),
        ];
        let travelling: Vec<_> = Headers::new(&all).travelling().collect();
        let expected: Vec<(&str, Option<&[u8]>)> = vec![
            ("ce-sig", Some(b"\xff\x00")),
            ("ce-id", Some(b"1")),
            ("baggage", Some(b"tenant.id=a")),
            ("ce-id", None),
            ("tracestate", Some(b"")),
            ("traceparent", Some(b"00-")),
        ];
        assert_eq!(travelling, expected);
    }

    proptest! {
        #[test]
        fn the_last_header_of_a_name_wins(
            values in prop::collection::vec(prop::option::of(any::<Vec<u8>>()), 1..6),
        ) {
            let all: Vec<HeaderRef> = values
                .iter()
                .flat_map(|v| [(&b"ce-id"[..], v.as_deref()), (b"ce-idx", Some(b"other"))])
                .collect();
            let last = values.last().and_then(|v| v.as_deref()).filter(|v| !v.is_empty());
            prop_assert_eq!(Headers::new(&all).last(CE_ID), last);
        }
    }
}
