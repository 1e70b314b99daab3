//! The verdict on one source record: accept, drop or quarantine (contract section 1). Headers only;
//! the payload is looked at for its size and for nothing else.
//!
//! One pass over the headers picks the known ones, then the rules are checked in a fixed order, so
//! a record with several faults always gets the same reason: system event, required headers,
//! optional headers, payload, tenant. An accepted record costs no allocation. Invariant: every
//! record of a followed topic gets a verdict, whatever bytes it holds, and headers that are not in
//! the contract's table never change it.

use crate::follow::{FollowSet, Followed};
use crate::headers::HeaderRef;
use crate::id::EventId;
use crate::reason::ReasonCode;
use crate::tenant::{self, TenantId};

mod pick;
mod rules;

use pick::Picked;
use rules::fault;

/// The longest `ce-source` of a fact topic, bytes: with it, `.commands` still fits a topic name.
pub const SOURCE_BYTES_MAX: usize = 223;
/// The longest `ce-subject`, bytes.
pub const SUBJECT_BYTES_MAX: usize = 1024;
/// The longest `ce-datacontenttype`, bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// The longest `ce-dataschema`, bytes.
pub const DATASCHEMA_BYTES_MAX: usize = 2048;
/// The largest payload unless configured, bytes (1 MiB).
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The content type of an event that names none.
pub const DEFAULT_CONTENT_TYPE: &str = "application/json";
/// The longest [`Quarantine::detail`], bytes.
pub const DETAIL_BYTES_MAX: usize = 512;

/// A record as the source topic holds it.
#[derive(Debug, Clone, Copy)]
pub struct RawRecord<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// All headers, in their order.
    pub headers: &'a [HeaderRef<'a>],
    /// The payload; `None` for a null value.
    pub value: Option<&'a [u8]>,
}

/// What the configuration says about ingest.
#[derive(Debug, Clone)]
pub struct IngestPolicy {
    /// Whose events those without a tenant are (single-tenant deployments).
    pub default_tenant: Option<TenantId>,
    /// The largest payload that is accepted, bytes.
    pub payload_bytes_max: usize,
    /// Which topics hold facts.
    pub follow: FollowSet,
}

impl Default for IngestPolicy {
    fn default() -> Self {
        Self {
            default_tenant: None,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            follow: FollowSet::default(),
        }
    }
}

/// What becomes of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// A well-formed event of a tenant.
    Accept(Envelope<'a>),
    /// A system event: counted and skipped.
    Drop,
    /// Malformed, or nobody's: kept as a poison record.
    Quarantine(Quarantine),
    /// The topic holds no facts; such a record is nobody's business and none of the verdicts.
    NotFollowed,
}

/// Why a record is quarantined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The stable code.
    pub reason: ReasonCode,
    /// Which header, and what is wrong with it: at most [`DETAIL_BYTES_MAX`] bytes of printable
    /// text. It may quote the beginning of a header's value, so it is for operators and the
    /// stored record, not for logs. Never the payload.
    pub detail: String,
}

/// An accepted event: the CloudEvents attributes that the hub works with, borrowed from the
/// record's headers (the tenant from the policy, if it is the default one).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `ce-id`, normalised.
    pub id: EventId,
    /// `ce-tenantid`, or the default tenant.
    pub tenant: &'a str,
    /// `ce-source`.
    pub source: &'a str,
    /// `ce-resourcetype`.
    pub resource: &'a str,
    /// `ce-eventtype`.
    pub event: &'a str,
    /// `ce-type`.
    pub event_type: &'a str,
    /// `ce-time` as it was written.
    pub time: &'a str,
    /// `ce-time`, milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// `ce-schemaversion` as it was written.
    pub schema_version: &'a str,
    /// The major of `ce-schemaversion`.
    pub major: u16,
    /// `ce-subject`.
    pub subject: Option<&'a str>,
    /// `ce-datacontenttype`, or [`DEFAULT_CONTENT_TYPE`].
    pub content_type: &'a str,
    /// `ce-dataschema`.
    pub dataschema: Option<&'a str>,
}

/// The verdict on one record.
#[must_use]
pub fn classify<'a>(record: &RawRecord<'a>, policy: &'a IngestPolicy) -> Verdict<'a> {
    let topic = policy.follow.classify(record.topic);
    if topic == Followed::NotFollowed {
        return Verdict::NotFollowed;
    }
    let picked = Picked::new(record.headers);
    if picked.systemevent == Some(b"true") {
        return Verdict::Drop;
    }
    match accept(record, &picked, topic, policy) {
        Ok(envelope) => Verdict::Accept(envelope),
        Err(quarantine) => Verdict::Quarantine(quarantine),
    }
}

fn accept<'a>(
    record: &RawRecord<'a>,
    picked: &Picked<'a>,
    topic: Followed<'a>,
    policy: &'a IngestPolicy,
) -> Result<Envelope<'a>, Quarantine> {
    let raw = rules::required(picked)?;
    let id = rules::id(raw.id)?;
    let source = rules::source(raw.source, topic)?;
    let (resource, event) = rules::segments(raw.resourcetype, raw.eventtype, topic)?;
    let event_type = rules::event_type(raw.event_type, topic, [source, resource, event])?;
    let (time, time_ms) = rules::time(raw.time)?;
    let (schema_version, major) = rules::schema_version(raw.schemaversion, topic)?;
    let optional = rules::optional(picked)?;
    payload(record.value, policy.payload_bytes_max)?;
    Ok(Envelope {
        id,
        tenant: tenant_of(picked, policy)?,
        source,
        resource,
        event,
        event_type,
        time,
        time_ms,
        schema_version,
        major,
        subject: optional.subject,
        content_type: optional.content_type.unwrap_or(DEFAULT_CONTENT_TYPE),
        dataschema: optional.dataschema,
    })
}

fn payload(value: Option<&[u8]>, max: usize) -> Result<(), Quarantine> {
    let len = value.map_or(0, <[u8]>::len);
    if len <= max {
        return Ok(());
    }
    let detail = format!("the payload has {len} bytes, the limit is {max}");
    Err(fault(ReasonCode::PayloadTooLarge, detail))
}

/// The tenant comes last: when it alone is missing, `default_tenant` is what would have helped. It
/// stands in for a missing tenant only, never for an illegal one.
fn tenant_of<'a>(picked: &Picked<'a>, policy: &'a IngestPolicy) -> Result<&'a str, Quarantine> {
    let Some(value) = picked.tenantid else {
        let default = policy.default_tenant.as_ref().map(TenantId::as_str);
        return default.ok_or_else(|| {
            let detail = "ce-tenantid is missing or empty, and no default_tenant is configured";
            fault(ReasonCode::MissingTenant, detail.to_owned())
        });
    };
    let tenant = rules::text(crate::headers::CE_TENANTID, value, ReasonCode::BadTenant)?;
    match tenant::validate(tenant) {
        Ok(()) => Ok(tenant),
        Err(error) => Err(fault(ReasonCode::BadTenant, format!("ce-tenantid: {error}"))),
    }
}

#[cfg(test)]
mod tests;
