//! Format 2 of the hub's own headers: one header for what ingest derived of an event, one for the
//! facts of a job, each a line of fields with spaces between them, the format first. Every header
//! is read and written once a hop, some thirty times an event: this is what made it worth a format.
//!
//! ```text
//! hub-event: 2 <hub-id> <hub-major> <hub-arrival> <hub-from> <hub-tenant>
//! hub-job:   2 <hub-subscription> <hub-matched> <hub-table> <hub-attempts> <hub-due>
//! ```
//!
//! Readers need not care: [`Headers::last`](crate::headers::Headers::last) finds a field by its
//! name of format 1. A header of that name wins over the field.

use crate::internal;

/// What ingest derived of an event.
pub const EVENT: &str = "hub-event";
/// The facts of a job.
pub const JOB: &str = "hub-job";

/// The format of a packed header.
const FORMAT: &str = "2";
/// The fields of [`EVENT`] behind the format. A tenant may hold spaces, so it is the rest.
const EVENT_FIELDS: [&str; 5] =
    [internal::ID, internal::MAJOR, internal::ARRIVAL, internal::FROM, internal::TENANT];
/// Those of [`JOB`].
const JOB_FIELDS: [&str; 5] =
    [internal::SUBSCRIPTION, internal::MATCHED, internal::TABLE, internal::ATTEMPTS, internal::DUE];

/// A packed header's value: the texts of its fields in their order. Only the last may hold spaces.
#[must_use]
pub fn pack(fields: [&str; 5]) -> String {
    let mut packed =
        String::with_capacity(6 + fields.iter().map(|field| field.len()).sum::<usize>());
    packed.push_str(FORMAT);
    for field in fields {
        packed.push(' ');
        packed.push_str(field);
    }
    packed
}

/// The field of this name in a packed header; `header` answers the value of one by its name. The
/// format is a field, too.
pub(crate) fn field<'a>(
    name: &str,
    header: impl Fn(&'static str) -> Option<&'a [u8]>,
) -> Option<&'a [u8]> {
    if name == internal::VERSION {
        return split(header(EVENT).or_else(|| header(JOB))?).next();
    }
    let place = |fields: [&str; 5]| fields.iter().position(|own| *own == name);
    let (packed, place) = match (place(EVENT_FIELDS), place(JOB_FIELDS)) {
        (Some(place), _) => (EVENT, place),
        (_, Some(place)) => (JOB, place),
        _ => return None,
    };
    let mut fields = split(header(packed)?);
    (fields.next()? == FORMAT.as_bytes()).then(|| fields.nth(place)).flatten()
}

fn split(packed: &[u8]) -> impl Iterator<Item = &[u8]> {
    packed.splitn(6, |byte| *byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{HeaderRef, Headers};

    const EVENT_VALUE: &str = "2 01a0c450 3 17 lerian.streaming.a/4/9 acme  & sons";

    #[test]
    fn the_layout_is_a_format() {
        let fields = ["01a0c450", "3", "17", "lerian.streaming.a/4/9", "acme  & sons"];
        assert_eq!(pack(fields), EVENT_VALUE);
    }

    #[test]
    fn every_field_is_found_by_its_name_of_format_1() {
        let all: [HeaderRef<'_>; 2] = [
            (EVENT.as_bytes(), Some(EVENT_VALUE.as_bytes())),
            (JOB.as_bytes(), Some(b"2 s 5 42 1 6")),
        ];
        let view = Headers::new(&all);
        let expected = [
            ("hub-v", "2"),
            ("hub-id", "01a0c450"),
            ("hub-major", "3"),
            ("hub-arrival", "17"),
            ("hub-from", "lerian.streaming.a/4/9"),
            ("hub-tenant", "acme  & sons"),
            ("hub-subscription", "s"),
            ("hub-matched", "5"),
            ("hub-table", "42"),
            ("hub-attempts", "1"),
            ("hub-due", "6"),
        ];
        for (name, value) in expected {
            assert_eq!(view.last_text(name), Some(value), "{name}");
        }
        assert_eq!(view.last("hub-reason"), None);
        assert_eq!(Headers::new(&all[..1]).last("hub-due"), None);
    }

    #[test]
    fn a_header_of_its_own_wins_over_the_field_also_without_a_value() {
        let event = (EVENT.as_bytes(), Some(EVENT_VALUE.as_bytes()));
        let all: [HeaderRef<'_>; 3] =
            [(b"hub-tenant", Some(b"other")), (b"hub-id", Some(b"")), event];
        assert_eq!(Headers::new(&all).last_text("hub-tenant"), Some("other"));
        assert_eq!(Headers::new(&all).last("hub-id"), None);
    }

    #[test]
    fn what_is_missing_or_of_another_format_is_no_field() {
        for value in ["", "2", "2 ", "2 a", "3 a b c d e"] {
            let all: [HeaderRef<'_>; 1] = [(EVENT.as_bytes(), Some(value.as_bytes()))];
            assert_eq!(Headers::new(&all).last("hub-tenant"), None, "{value:?}");
        }
        let newer: [HeaderRef<'_>; 1] = [(EVENT.as_bytes(), Some(b"3 a"))];
        let found = internal::check_version(Headers::new(&newer));
        assert_eq!(found, Err(internal::Error::Newer { found: 3 }));
    }
}
