//! Verification (contract section 7): the sink is asked with a signed test event, which it delivers
//! or whose destination it looks up, then a change says what came of it. The change names the sink
//! generation that was probed, so a result never counts for another destination.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use serde_json::json;
use streaming_hub_model::attempt::{Attempt, AttemptResult};
use streaming_hub_model::change::Action;
use streaming_hub_model::event::Event;
use streaming_hub_model::id::{EventId, JobId};
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::time::UnixMillis;

use crate::auth::TenantCaller;
use crate::body::IdInPath;
use crate::problem::{Code, Problem};
use crate::state::Api;
use crate::view;

/// The application that a test event comes from.
const SOURCE: &str = "streaming-hub";
/// What a test event is about, and what happened to it: `subscription.verification`.
const RESOURCE: &str = "subscription";
const EVENT: &str = "verification";
/// The version of a test event's body.
const SCHEMA_VERSION: &str = "1.0.0";

/// What tells a probe's job id from a delivery's.
const PROBE_NONCE: &[u8] = b"verification";

/// The longest reason of a failure that is kept, characters.
const FAILURE_CHARS_MAX: usize = 300;

/// `POST /v1/subscriptions/{id}/verify`.
pub(crate) async fn verify(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    IdInPath(id): IdInPath,
) -> Result<Response, Problem> {
    let subscription = api.find(&tenant, id).await?;
    if subscription.sink.is_pull() {
        return Err(Code::PullSubscription.into());
    }
    Ok(view::subscription(&*probe(&api, subscription).await?))
}

/// Probes the destination once and records what came of it. The subscription as it stands
/// afterwards; a destination that failed the probe is no error.
pub(crate) async fn probe(
    api: &Api,
    subscription: Arc<Subscription>,
) -> Result<Arc<Subscription>, Problem> {
    let failure = test(api, Arc::clone(&subscription)).await?;
    let action = Action::Verified { sink_generation: subscription.sink_generation, failure };
    api.submit(&subscription.tenant, subscription.id, action).await?;
    // Deleted between its verification and this read.
    api.own(&subscription.tenant, subscription.id).ok_or_else(|| Code::NotFound.into())
}

/// Probes a destination once, and changes nothing. Why it failed, if it did.
pub(crate) async fn test(
    api: &Api,
    subscription: Arc<Subscription>,
) -> Result<Option<String>, Problem> {
    let at = api.operations.clock.now();
    let event_id = EventId::from_parts(at.0, api.operations.entropy.ten());
    let event = test_event(&subscription, event_id, at);
    let attempt = Attempt {
        job: JobId::derive(subscription.tenant.as_str(), event_id, subscription.id, PROBE_NONCE),
        delivery_id: api.operations.uuid(),
        subscription,
        event: Arc::new(event),
        at,
    };
    match api.sink.verify(attempt).await.result {
        AttemptResult::Delivered => Ok(None),
        AttemptResult::Failed { class, detail } => {
            let reason = format!("{class}: {detail}");
            Ok(Some(reason.chars().take(FAILURE_CHARS_MAX).collect()))
        }
        AttemptResult::NotAttempted { detail } => Err(Problem::cannot_probe(detail)),
    }
}

/// The event that a probe sends: well-formed in every header that a receiver may look at, and no
/// fact of anybody.
fn test_event(subscription: &Subscription, id: EventId, at: UnixMillis) -> Event {
    let time = at.to_rfc3339();
    let body = json!({
        "message": "A test event: this destination is being verified.",
        "subscription_id": subscription.id,
        "sent_at": time,
    });
    let headers = [
        ("ce-specversion", "1.0".to_owned()),
        ("ce-id", id.to_string()),
        ("ce-source", SOURCE.to_owned()),
        ("ce-type", format!("studio.lerian.{SOURCE}.{RESOURCE}.{EVENT}")),
        ("ce-time", time),
        ("ce-schemaversion", SCHEMA_VERSION.to_owned()),
        ("ce-resourcetype", RESOURCE.to_owned()),
        ("ce-eventtype", EVENT.to_owned()),
        ("ce-tenantid", subscription.tenant.to_string()),
        ("ce-datacontenttype", "application/json".to_owned()),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
    Event::made(id, subscription.tenant.clone(), headers, Bytes::from(body.to_string()))
}

#[cfg(test)]
mod tests;
