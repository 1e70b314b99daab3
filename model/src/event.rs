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
    /// Its headers in order; names and values of a record that the hub accepted are UTF-8, other
    /// headers are left out.
    headers: Vec<(String, String)>,
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
            Some((name.to_owned(), std::str::from_utf8((*value)?).ok()?.to_owned()))
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
        Self { id, tenant, headers, payload }
    }

    /// The value of a header; of a repeated one the last.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// `<resource>.<event>`, the bare event type that receivers see.
    #[must_use]
    pub fn key(&self) -> String {
        let part = |name| self.header(name).unwrap_or_default();
        format!("{}.{}", part("ce-resourcetype"), part("ce-eventtype"))
    }
}
