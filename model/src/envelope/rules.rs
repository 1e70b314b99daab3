//! The rules of the contract's header table, one function each. Each takes raw bytes and answers
//! with the checked text or with the quarantine that says what is wrong.

use std::fmt::Write;

use super::pick::Picked;
use super::{
    CONTENT_TYPE_BYTES_MAX, DATASCHEMA_BYTES_MAX, DETAIL_BYTES_MAX, Quarantine, SOURCE_BYTES_MAX,
    SUBJECT_BYTES_MAX,
};
use crate::event_key::validate_segment;
use crate::follow::{Followed, is_source};
use crate::headers::{
    CE_DATACONTENTTYPE, CE_DATASCHEMA, CE_EVENTTYPE, CE_ID, CE_RESOURCETYPE, CE_SCHEMAVERSION,
    CE_SOURCE, CE_SPECVERSION, CE_SUBJECT, CE_TIME, CE_TYPE,
};
use crate::id::EventId;
use crate::reason::ReasonCode;
use crate::{rfc3339, schema_version};

/// What every `ce-type` begins with.
const TYPE_PREFIX: &str = "studio.lerian.";

/// How much of a header's value a detail quotes, bytes of escaped text.
const QUOTE_BYTES_MAX: usize = 120;

/// The values of the required headers, all present.
pub(super) struct Required<'a> {
    pub(super) id: &'a [u8],
    pub(super) source: &'a [u8],
    pub(super) event_type: &'a [u8],
    pub(super) time: &'a [u8],
    pub(super) schemaversion: &'a [u8],
    pub(super) resourcetype: &'a [u8],
    pub(super) eventtype: &'a [u8],
}

/// The values of the optional headers.
pub(super) struct Optional<'a> {
    pub(super) subject: Option<&'a str>,
    pub(super) content_type: Option<&'a str>,
    pub(super) dataschema: Option<&'a str>,
}

pub(super) fn fault(reason: ReasonCode, mut detail: String) -> Quarantine {
    detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
    Quarantine { reason, detail }
}

/// Presence of all required headers. The spec version is judged before the others are looked for:
/// another version has other attributes.
pub(super) fn required<'a>(picked: &Picked<'a>) -> Result<Required<'a>, Quarantine> {
    let specversion = present(CE_SPECVERSION, picked.specversion)?;
    if specversion != b"1.0" {
        let detail = format!("{CE_SPECVERSION} is {}, not \"1.0\"", quote(specversion));
        return Err(fault(ReasonCode::BadSpecversion, detail));
    }
    Ok(Required {
        id: present(CE_ID, picked.id)?,
        source: present(CE_SOURCE, picked.source)?,
        event_type: present(CE_TYPE, picked.event_type)?,
        time: present(CE_TIME, picked.time)?,
        schemaversion: present(CE_SCHEMAVERSION, picked.schemaversion)?,
        resourcetype: present(CE_RESOURCETYPE, picked.resourcetype)?,
        eventtype: present(CE_EVENTTYPE, picked.eventtype)?,
    })
}

pub(super) fn id(value: &[u8]) -> Result<EventId, Quarantine> {
    let text = text(CE_ID, value, ReasonCode::BadId)?;
    EventId::parse(text)
        .map_err(|error| fault(ReasonCode::BadId, format!("{CE_ID} is {}: {error}", quote(value))))
}

/// The source: a legal application name that the topic belongs to; under v1 any text.
pub(super) fn source<'a>(value: &'a [u8], topic: Followed<'_>) -> Result<&'a str, Quarantine> {
    let source = text(CE_SOURCE, value, ReasonCode::BadSource)?;
    let Followed::Fact { source: owner } = topic else { return Ok(source) };
    if !is_source(source) || source.len() > SOURCE_BYTES_MAX {
        let detail = format!(
            "{CE_SOURCE} is {}, not 1 to {SOURCE_BYTES_MAX} of a-z, 0-9, `_`, `-`, the first a \
             letter or digit",
            quote(value)
        );
        return Err(fault(ReasonCode::BadSource, detail));
    }
    if source != owner {
        let owner = quote(owner.as_bytes());
        let detail = format!("{CE_SOURCE} is {}, the topic is that of {owner}", quote(value));
        return Err(fault(ReasonCode::SourceMismatch, detail));
    }
    Ok(source)
}

/// Resource and event: one segment each; under v1 those of the topic's name.
pub(super) fn segments<'a>(
    resource: &'a [u8],
    event: &'a [u8],
    topic: Followed<'_>,
) -> Result<(&'a str, &'a str), Quarantine> {
    let resource = segment(CE_RESOURCETYPE, resource)?;
    let event = segment(CE_EVENTTYPE, event)?;
    if let Followed::FactV1 { resource: r, event: e, .. } = topic
        && (r, e) != (resource, event)
    {
        let (found, named) = (quote_key(resource, event), quote_key(r, e));
        let detail = format!("resource and event are {found}, the topic is that of {named}");
        return Err(fault(ReasonCode::TopicMismatch, detail));
    }
    Ok((resource, event))
}

/// The type: `studio.lerian.<source>.<resource>.<event>`, the other headers' values; under v1 also
/// without the source.
pub(super) fn event_type<'a>(
    value: &'a [u8],
    topic: Followed<'_>,
    [source, resource, event]: [&str; 3],
) -> Result<&'a str, Quarantine> {
    let event_type = text(CE_TYPE, value, ReasonCode::BadType)?;
    let mut parts = event_type.strip_prefix(TYPE_PREFIX).unwrap_or_default().split('.');
    let mut next = || parts.next();
    let agrees = match (topic, [next(), next(), next(), next()]) {
        (_, [Some(s), Some(r), Some(e), None]) if ![s, r, e].contains(&"") => {
            [s, r, e] == [source, resource, event]
        }
        (Followed::FactV1 { .. }, [Some(r), Some(e), None, None]) if ![r, e].contains(&"") => {
            [r, e] == [resource, event]
        }
        _ => {
            let detail = format!(
                "{CE_TYPE} is {}, not `{TYPE_PREFIX}<source>.<resource>.<event>`",
                quote(value)
            );
            return Err(fault(ReasonCode::BadType, detail));
        }
    };
    if agrees {
        return Ok(event_type);
    }
    let (source, key) = (quote(source.as_bytes()), quote_key(resource, event));
    let detail = format!("{CE_TYPE} is {}, the other headers say {source} and {key}", quote(value));
    Err(fault(ReasonCode::TypeMismatch, detail))
}

/// The time, as text and in milliseconds since the Unix epoch.
pub(super) fn time(value: &[u8]) -> Result<(&str, i64), Quarantine> {
    let text = text(CE_TIME, value, ReasonCode::BadTime)?;
    match rfc3339::parse_millis(text) {
        Ok(millis) => Ok((text, millis)),
        Err(error) => {
            Err(fault(ReasonCode::BadTime, format!("{CE_TIME} is {}: {error}", quote(value))))
        }
    }
}

/// The schema version, as text and its major; under v1 the one that the topic's name ends in, if
/// it names any.
pub(super) fn schema_version<'a>(
    value: &'a [u8],
    topic: Followed<'_>,
) -> Result<(&'a str, u16), Quarantine> {
    let text = text(CE_SCHEMAVERSION, value, ReasonCode::BadSchemaversion)?;
    let major = schema_version::major(text).map_err(|error| {
        let detail = format!("{CE_SCHEMAVERSION} is {}: {error}", quote(value));
        fault(ReasonCode::BadSchemaversion, detail)
    })?;
    match topic {
        Followed::FactV1 { major: Some(named), .. } if named != major => {
            let detail = format!(
                "{CE_SCHEMAVERSION} is {}, the topic is that of major {named}",
                quote(value)
            );
            Err(fault(ReasonCode::TopicMismatch, detail))
        }
        Followed::FactV1 { .. } | Followed::Fact { .. } | Followed::NotFollowed => {
            Ok((text, major))
        }
    }
}

pub(super) fn optional<'a>(picked: &Picked<'a>) -> Result<Optional<'a>, Quarantine> {
    Ok(Optional {
        subject: bounded(CE_SUBJECT, picked.subject, SUBJECT_BYTES_MAX)?,
        content_type: bounded(CE_DATACONTENTTYPE, picked.datacontenttype, CONTENT_TYPE_BYTES_MAX)?,
        dataschema: bounded(CE_DATASCHEMA, picked.dataschema, DATASCHEMA_BYTES_MAX)?,
    })
}

/// The value as UTF-8, or a quarantine with this reason.
pub(super) fn text<'a>(
    name: &str,
    value: &'a [u8],
    reason: ReasonCode,
) -> Result<&'a str, Quarantine> {
    str::from_utf8(value)
        .map_err(|_| fault(reason, format!("{name} is no UTF-8: {}", quote(value))))
}

fn present<'a>(name: &str, value: Option<&'a [u8]>) -> Result<&'a [u8], Quarantine> {
    let missing = || fault(ReasonCode::MissingHeader, format!("{name} is missing or empty"));
    value.ok_or_else(missing)
}

fn segment<'a>(name: &str, value: &'a [u8]) -> Result<&'a str, Quarantine> {
    let segment = text(name, value, ReasonCode::BadSegment)?;
    match validate_segment(segment) {
        Ok(()) => Ok(segment),
        Err(error) => {
            Err(fault(ReasonCode::BadSegment, format!("{name} is {}: {error}", quote(value))))
        }
    }
}

/// An optional header's text. Its value is not quoted: a subject may be personal data.
fn bounded<'a>(
    name: &str,
    value: Option<&'a [u8]>,
    bytes_max: usize,
) -> Result<Option<&'a str>, Quarantine> {
    let Some(value) = value else { return Ok(None) };
    let len = value.len();
    if len > bytes_max {
        let detail = format!("{name} has {len} bytes, the limit is {bytes_max}");
        return Err(fault(ReasonCode::BadHeader, detail));
    }
    let no_text = || fault(ReasonCode::BadHeader, format!("{name} is no UTF-8 ({len} bytes)"));
    str::from_utf8(value).map(Some).map_err(|_| no_text())
}

/// The beginning of a value, escaped to printable text and bounded.
fn quote(value: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for chunk in value.utf8_chunks() {
        let valid = chunk.valid().chars().map(|c| c.escape_debug().to_string());
        let invalid = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        for piece in valid.chain(invalid) {
            if quoted.len() + piece.len() > QUOTE_BYTES_MAX {
                let _ = write!(quoted, "…\" ({} bytes)", value.len());
                return quoted;
            }
            quoted.push_str(&piece);
        }
    }
    quoted.push('"');
    quoted
}

fn quote_key(resource: &str, event: &str) -> String {
    quote(format!("{resource}.{event}").as_bytes())
}
