//! A subscription as callers see it. Built field by field from the record, so that what is not
//! named here (sealed secrets, the owner, a newer release's fields) is never shown.

mod sink;

use axum::Json;
use axum::http::header::ETAG;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::Value;
use streaming_hub_model::event_key::KeyPattern;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::subscription::{Subscription, VerificationState};
use streaming_hub_model::tenant::TenantId;

use sink::SinkView;

/// The representation of a subscription (contract section 7).
#[derive(Serialize)]
pub(crate) struct View<'a> {
    id: SubscriptionId,
    name: &'a str,
    event_types: &'a [KeyPattern],
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'a str>,
    schema_major: u16,
    sink: SinkView<'a>,
    enabled: bool,
    verification_state: VerificationState,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification_failure: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_schedule: Option<&'a Value>,
    max_in_flight: u16,
    created_at: String,
    updated_at: String,
    version: u64,
}

impl<'a> From<&'a Subscription> for View<'a> {
    fn from(record: &'a Subscription) -> Self {
        Self {
            id: record.id,
            name: &record.name,
            event_types: &record.event_types,
            origin: record.origin.as_deref(),
            schema_major: record.schema_major,
            sink: (&record.sink).into(),
            enabled: record.enabled,
            verification_state: record.verification_state,
            verification_failure: record.verification_failure.as_deref(),
            retry_schedule: record.retry_schedule.as_ref(),
            max_in_flight: record.max_in_flight,
            created_at: record.created_at.to_rfc3339(),
            updated_at: record.updated_at.to_rfc3339(),
            version: record.version,
        }
    }
}

/// The same for an operator, who sees everyone's.
#[derive(Serialize)]
pub(crate) struct OwnedView<'a> {
    tenant: &'a TenantId,
    #[serde(flatten)]
    subscription: View<'a>,
}

impl<'a> From<&'a Subscription> for OwnedView<'a> {
    fn from(record: &'a Subscription) -> Self {
        Self { tenant: &record.tenant, subscription: record.into() }
    }
}

/// One page of a list.
#[derive(Serialize)]
pub(crate) struct PageView<V> {
    pub(crate) subscriptions: Vec<V>,
    /// Where the next page begins; `null` on the last.
    pub(crate) next_cursor: Option<SubscriptionId>,
}

/// The one answer that shows a signing secret: that of the creation that made it.
#[derive(Serialize)]
struct CreatedView<'a> {
    #[serde(flatten)]
    subscription: View<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signing_secret: Option<&'a str>,
}

/// Answers with a subscription and its ETag.
pub(crate) fn subscription(record: &Subscription) -> Response {
    tagged(record, Json(View::from(record)).into_response())
}

/// Answers a creation. `made` is the signing secret that the hub made, if it did.
pub(crate) fn created(record: &Subscription, made: Option<&SecretString>) -> Response {
    let signing_secret = made.map(ExposeSecret::expose_secret);
    let body = CreatedView { subscription: record.into(), signing_secret };
    tagged(record, (StatusCode::CREATED, Json(body)).into_response())
}

/// Adds the ETag.
pub(crate) fn tagged(record: &Subscription, mut response: Response) -> Response {
    // A quoted number is always a legal header value.
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{}\"", record.version)) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}
