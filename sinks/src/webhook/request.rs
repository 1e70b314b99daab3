//! What a webhook request says: the payload's bytes as they are, the signatures and the event's
//! attributes. Nothing here decides whether or where it is sent.
//!
//! No producer's name leaves the hub (`ce-source`), and neither does `baggage`, which may name a
//! tenant. Values go as their UTF-8 bytes: the envelope's rules leave no control character in them.

use reqwest::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use reqwest::{Method, Request};
use secrecy::{ExposeSecret, SecretString};
use streaming_hub_model::attempt::Attempt;
use streaming_hub_model::event::Event;
use streaming_hub_model::signing::signature;

use crate::guard::Target;
use crate::trace_context::{is_traceparent, is_tracestate};

const SIGNATURE: HeaderName = HeaderName::from_static("x-webhook-signature");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-webhook-timestamp");
const EVENT_ID: HeaderName = HeaderName::from_static("x-lerian-event-id");
const EVENT_TYPE: HeaderName = HeaderName::from_static("x-lerian-event-type");
const TENANT_ID: HeaderName = HeaderName::from_static("x-lerian-tenant-id");
const DELIVERY_ID: HeaderName = HeaderName::from_static("x-lerian-delivery-id");
const SCHEMA_VERSION: HeaderName = HeaderName::from_static("x-lerian-schema-version");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("streaming-hub/", env!("CARGO_PKG_VERSION")));

/// CloudEvents 1.0: data without a content type is JSON.
const DEFAULT_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");
const OPAQUE_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A value that no HTTP header can hold. No accepted event has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the value of {0} cannot be sent as a header")]
pub(super) struct Unsendable(HeaderName);

/// The request of this attempt, signed with each of these secrets in their order.
pub(super) fn build(
    attempt: &Attempt,
    target: &Target,
    secrets: &[SecretString],
) -> Result<Request, Unsendable> {
    let event = &*attempt.event;
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(USER_AGENT, AGENT);
    headers.insert(CONTENT_TYPE, content_type(event.header("ce-datacontenttype")));
    // Left to itself the client omits it for an empty body, and servers then answer 411.
    headers.insert(CONTENT_LENGTH, event.payload.len().into());
    put(&mut headers, TIMESTAMP, &attempt.at.seconds().to_string())?;
    for secret in secrets {
        let value = signature(secret.expose_secret(), attempt.at, &event.payload);
        put(&mut headers, SIGNATURE, &value)?;
    }
    put(&mut headers, EVENT_ID, &event.id.to_string())?;
    put(&mut headers, EVENT_TYPE, &event.key())?;
    put(&mut headers, TENANT_ID, event.tenant.as_str())?;
    put(&mut headers, DELIVERY_ID, &attempt.delivery_id.as_hyphenated().to_string())?;
    if let Some(version) = event.header("ce-schemaversion") {
        put(&mut headers, SCHEMA_VERSION, version)?;
    }
    put_trace_context(&mut headers, event)?;
    let mut request = Request::new(Method::POST, target.url().clone());
    *request.headers_mut() = headers;
    *request.body_mut() = Some(event.payload.clone().into());
    Ok(request)
}

/// Adds a header line; a name that is there already gets a second one.
fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) -> Result<(), Unsendable> {
    let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else {
        return Err(Unsendable(name));
    };
    headers.append(name, value);
    Ok(())
}

/// Whatever the producer named, media type or not, if a header can hold it. CloudEvents knows no
/// empty attribute, so an empty one counts as missing.
fn content_type(attribute: Option<&str>) -> HeaderValue {
    let text = match attribute {
        None | Some("") => return DEFAULT_CONTENT_TYPE,
        Some(text) => text,
    };
    // RFC 9110 section 5.5: white space at the ends is not part of a field value.
    if text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']) {
        return OPAQUE_CONTENT_TYPE;
    }
    HeaderValue::from_bytes(text.as_bytes()).unwrap_or(OPAQUE_CONTENT_TYPE)
}

fn put_trace_context(headers: &mut HeaderMap, event: &Event) -> Result<(), Unsendable> {
    let Some(parent) = event.header("traceparent").filter(|text| is_traceparent(text)) else {
        return Ok(());
    };
    put(headers, TRACEPARENT, parent)?;
    match event.header("tracestate").filter(|text| is_tracestate(text)) {
        Some(state) => put(headers, TRACESTATE, state),
        None => Ok(()),
    }
}
