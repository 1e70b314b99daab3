//! One pass over a record's headers: the last value of each that the contract names. It judges no
//! value; the rules do.

use crate::headers::{self, HeaderRef};

/// The last value of each known header; `None` where it is missing, null or empty
/// (see [`headers::Headers::last`] for why an empty one is missing).
#[derive(Debug, Default)]
pub(super) struct Picked<'a> {
    pub(super) specversion: Option<&'a [u8]>,
    pub(super) id: Option<&'a [u8]>,
    pub(super) source: Option<&'a [u8]>,
    pub(super) event_type: Option<&'a [u8]>,
    pub(super) time: Option<&'a [u8]>,
    pub(super) schemaversion: Option<&'a [u8]>,
    pub(super) resourcetype: Option<&'a [u8]>,
    pub(super) eventtype: Option<&'a [u8]>,
    pub(super) tenantid: Option<&'a [u8]>,
    pub(super) subject: Option<&'a [u8]>,
    pub(super) datacontenttype: Option<&'a [u8]>,
    pub(super) dataschema: Option<&'a [u8]>,
    pub(super) systemevent: Option<&'a [u8]>,
}

impl<'a> Picked<'a> {
    /// Picks the known headers; a later one replaces an earlier one, also when it has no value.
    pub(super) fn new(all: &[HeaderRef<'a>]) -> Self {
        let mut picked = Self::default();
        for (name, value) in all {
            // Most headers that are not known are known not to be by their first three bytes.
            let Some(Ok(name)) = name.starts_with(b"ce-").then(|| str::from_utf8(name)) else {
                continue;
            };
            let slot = match name {
                headers::CE_SPECVERSION => &mut picked.specversion,
                headers::CE_ID => &mut picked.id,
                headers::CE_SOURCE => &mut picked.source,
                headers::CE_TYPE => &mut picked.event_type,
                headers::CE_TIME => &mut picked.time,
                headers::CE_SCHEMAVERSION => &mut picked.schemaversion,
                headers::CE_RESOURCETYPE => &mut picked.resourcetype,
                headers::CE_EVENTTYPE => &mut picked.eventtype,
                headers::CE_TENANTID => &mut picked.tenantid,
                headers::CE_SUBJECT => &mut picked.subject,
                headers::CE_DATACONTENTTYPE => &mut picked.datacontenttype,
                headers::CE_DATASCHEMA => &mut picked.dataschema,
                headers::CE_SYSTEMEVENT => &mut picked.systemevent,
                _ => continue,
            };
            *slot = value.filter(|value| !value.is_empty());
        }
        picked
    }
}
