//! A subscription as callers see it. Built field by field from the record, so that what is not
//! named here (sealed secrets, the owner, a newer release's fields) is never shown.

mod sink;

use axum::Json;
use axum::http::header::ETAG;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use streaming_hub_model::event_key::KeyPattern;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::ports::PullStanding;
use streaming_hub_model::subscription::{
    DisabledReason, Ordering, Subscription, VerificationState,
};
use streaming_hub_model::tenant::TenantId;
use streaming_hub_model::time::UnixMillis;

pub(crate) use sink::SinkView;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled_reason: Option<DisabledReason>,
    paused: bool,
    verification_state: VerificationState,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification_failure: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_schedule: Option<&'a Value>,
    max_in_flight: u16,
    ordering: Ordering,
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
            sink: SinkView::from(&record.sink),
            enabled: record.enabled,
            disabled_reason: record.disabled_reason,
            paused: record.paused,
            verification_state: record.verification_state,
            verification_failure: record.verification_failure.as_deref(),
            retry_schedule: record.retry_schedule.as_ref(),
            max_in_flight: record.max_in_flight,
            ordering: record.ordering,
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

/// Answers an operator with anyone's subscription and its ETag.
pub(crate) fn owned(record: &Subscription) -> Response {
    tagged(record, Json(OwnedView::from(record)).into_response())
}

/// One page of a list.
#[derive(Serialize)]
pub(crate) struct PageView<V> {
    pub(crate) subscriptions: Vec<V>,
    /// Where the next page begins; `null` on the last.
    pub(crate) next_cursor: Option<SubscriptionId>,
}

/// A pull subscription and how far it was read.
#[derive(Serialize)]
struct PullView<'a> {
    #[serde(flatten)]
    subscription: View<'a>,
    pull: StandingView,
}

#[derive(Serialize)]
struct StandingView {
    cursor: u64,
    high_watermark: u64,
    backlog: u64,
    oldest_unread_at: Option<String>,
}

/// Answers with a pull subscription, where it stands, and its ETag.
pub(crate) fn pull_subscription(record: &Subscription, standing: PullStanding) -> Response {
    let PullStanding { cursor, high_watermark, backlog, oldest_unread_at } = standing;
    let oldest_unread_at = oldest_unread_at.map(UnixMillis::to_rfc3339);
    let pull = StandingView { cursor, high_watermark, backlog, oldest_unread_at };
    tagged(record, Json(PullView { subscription: record.into(), pull }).into_response())
}

/// Answers with a subscription and its ETag.
pub(crate) fn subscription(record: &Subscription) -> Response {
    tagged(record, Json(View::from(record)).into_response())
}

/// The same with what waits for it, which only its owner knows.
#[derive(Serialize)]
struct Detailed<V> {
    #[serde(flatten)]
    subscription: V,
    delivery: Value,
}

/// Answers with a subscription, what waits for it, and its ETag. `null` says that it is not known
/// now.
pub(crate) fn with_delivery(
    record: &Subscription,
    subscription: impl Serialize,
    delivery: Value,
) -> Response {
    tagged(record, Json(Detailed { subscription, delivery }).into_response())
}

/// Answers a creation.
pub(crate) fn created(record: &Subscription) -> Response {
    tagged(record, (StatusCode::CREATED, Json(View::from(record))).into_response())
}

/// Adds the ETag.
fn tagged(record: &Subscription, mut response: Response) -> Response {
    // A quoted number is always a legal header value.
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{}\"", record.version)) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}
