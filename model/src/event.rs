//! An accepted event in memory, on its way to a destination: its headers as they were and its
//! payload, byte-exact. The payload is opaque; nothing here parses it.

use bytes::Bytes;

use crate::headers::{HeaderRef, Headers};
use crate::id::EventId;
use crate::internal::{self, Error};
use crate::tenant::TenantId;

/// An accepted event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its headers in order, of those whose name and value are UTF-8.
    headers: Vec<(String, Option<String>)>,
    /// Its data; empty for an event without.
    pub payload: Bytes,
}

impl Event {
    /// Reads it from an internal record.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(headers: &[HeaderRef<'_>], payload: Bytes) -> Result<Self, Error> {
        let view = Headers::new(headers);
        internal::check_version(view)?;
        let id = internal::text(view, internal::ID)?;
        let tenant = internal::text(view, internal::TENANT)?;
        let texts = headers.iter().filter_map(|(name, value)| {
            let name = std::str::from_utf8(name).ok()?;
            let value = value.map(std::str::from_utf8).transpose().ok()?;
            Some((name.to_owned(), value.map(str::to_owned)))
        });
        Ok(Self {
            id: EventId::parse(id).map_err(|_| Error::Header(internal::ID))?,
            tenant: TenantId::parse(tenant).map_err(|_| Error::Header(internal::TENANT))?,
            headers: texts.collect(),
            payload,
        })
    }

    /// An event that the hub makes itself (a probe), of these headers.
    #[must_use]
    pub fn made(
        id: EventId,
        tenant: TenantId,
        headers: Vec<(String, String)>,
        payload: Bytes,
    ) -> Self {
        let headers = headers.into_iter().map(|(name, value)| (name, Some(value))).collect();
        Self { id, tenant, headers, payload }
    }

    /// The value of a header; of a repeated one the last. As at ingest
    /// ([`Headers::last`]), one without a value, or with an empty one, is missing.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().rev().find(|(own, _)| own == name)?;
        value.as_deref().filter(|value| !value.is_empty())
    }

    /// The CloudEvents attributes: each name without its `ce-` once, in order, with the value that
    /// [`Event::header`] finds.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().enumerate().filter_map(|(at, (name, value))| {
            let attribute = name.strip_prefix("ce-").filter(|attribute| !attribute.is_empty())?;
            let value = value.as_deref().filter(|value| !value.is_empty())?;
            let again = self.headers[at + 1..].iter().any(|(later, _)| later == name);
            (!again).then_some((attribute, value))
        })
    }

    /// `<resource>.<event>`, the bare event type that receivers see.
    #[must_use]
    pub fn key(&self) -> String {
        let part = |name| self.header(name).unwrap_or_default();
        format!("{}.{}", part("ce-resourcetype"), part("ce-eventtype"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(headers: &[HeaderRef<'_>]) -> Event {
        let id = b"01a0c450-6d12-7c2b-8128-9b05b624f924";
        let mut all: Vec<HeaderRef<'_>> =
            vec![(b"hub-v", Some(b"1")), (b"hub-id", Some(id)), (b"hub-tenant", Some(b"acme"))];
        all.extend_from_slice(headers);
        Event::read(&all, Bytes::new()).unwrap()
    }

    #[test]
    fn a_header_without_a_value_in_its_last_occurrence_is_missing() {
        let null = event(&[(b"ce-subject", Some(b"1")), (b"ce-subject", None)]);
        assert_eq!(null.header("ce-subject"), None);
        let empty = event(&[(b"ce-subject", Some(b"1")), (b"ce-subject", Some(b""))]);
        assert_eq!(empty.header("ce-subject"), None);
        let last = event(&[(b"ce-subject", Some(b"1")), (b"ce-subject", Some(b"2"))]);
        assert_eq!(last.header("ce-subject"), Some("2"));
    }

    #[test]
    fn an_attribute_is_listed_once_with_its_last_value() {
        let event = event(&[
            (b"ce-subject", Some(b"1")),
            (b"ce-sig", Some(b"x")),
            (b"ce-subject", Some(b"2")),
            (b"ce-time", Some(b"t")),
            (b"ce-time", None),
            (b"ce-", Some(b"no name")),
        ]);
        let attributes: Vec<_> = event.attributes().collect();
        assert_eq!(attributes, [("sig", "x"), ("subject", "2")]);
    }

    #[test]
    fn the_key_is_resource_and_event() {
        let event = event(&[
            (b"ce-resourcetype", Some(b"fee-charge")),
            (b"ce-eventtype", Some(b"applied")),
        ]);
        assert_eq!(event.key(), "fee-charge.applied");
    }
}
