//! A tenant's subscriptions: create, list, read, delete. Writes are changes that the registry
//! decides; answers are what this instance's table holds afterwards.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use streaming_hub_model::change::{Action, Decision};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::idempotency::SecretPlace;
use streaming_hub_model::retry::RetrySchedule;
use streaming_hub_model::secret::Owner;
use streaming_hub_model::sink::NotAdmitted;
use streaming_hub_model::subscription::{
    DisabledReason, SigningSecret, SinkConfig, Subscription, VerificationState, WebhookConfig,
};
use streaming_hub_model::tenant::TenantId;

use crate::admin::attempts::delivery;
use crate::auth::{OperatorCaller, TenantCaller};
use crate::body::{IdInPath, JsonBody};
use crate::draft::{Draft, Purpose, Seal, SinkDraft};
use crate::fields::{Fault, FieldError, Place};
use crate::forward::{Inbound, owned};
use crate::idempotency::Seed;
use crate::if_match::IfMatch;
use crate::problem::{Code, Problem};
use crate::query::{List, OperatorList, TenantList};
use crate::secrets;
use crate::state::Api;
use crate::verify::probe;
use crate::view::{self, OwnedView, PageView, View};

/// `POST /v1/subscriptions`.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    Seed(seed): Seed,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let mut draft = Draft::parse(body, api.limits.event_types_max, Purpose::Create)
        .map_err(Problem::validation)?;
    let id = seed.unwrap_or_else(|| api.new_id());
    let made = make_secret(&api, &mut draft.sink);
    let verify = draft.verify;
    let mut record = record(&api, Owner { tenant: &tenant, subscription: id }, draft)?;
    admit(&api, &tenant, &record.sink).await?;

    let action = Action::Create { record: Box::new(record.clone()) };
    match api.submit(&tenant, id, action).await {
        Ok(Decision::Written { version }) => record.version = version,
        Ok(_) => {}
        // An earlier attempt at this same request has made it.
        Err(problem) if seed.is_some() && problem.code() == Code::IdTaken => {
            record = Subscription::clone(&*api.find(&tenant, id).await?);
        }
        Err(problem) => return Err(problem),
    }
    // Gone again already is still created: the caller's next read says so.
    let mut stored = api.own(&tenant, id).unwrap_or_else(|| Arc::new(record));
    if verify {
        // It exists whatever becomes of the probe, so a probe that could not be made or recorded
        // leaves it as it is, to be verified later.
        match probe(&api, Arc::clone(&stored)).await {
            Ok(probed) => stored = probed,
            Err(problem) => tracing::warn!(
                code = problem.code().as_str(),
                cause = problem.cause(),
                "a new subscription was not verified"
            ),
        }
    }
    let mut response = view::created(&stored);
    let newest = secrets::secrets(&stored.sink).last().and_then(|secret| secret.made_by);
    if let (true, Some(made_by)) = (made, newest) {
        response.extensions_mut().insert(SecretPlace { subscription: id, made_by });
    }
    // A UUID is always a legal header value.
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/subscriptions/{id}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// `GET /v1/subscriptions`.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    TenantList(list): TenantList,
) -> Response {
    page(&api.table.of_tenant(&tenant), &list)
}

/// `GET /admin/subscriptions`: a tenant's, or everyone's.
pub(crate) async fn list_all(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    OperatorList(list): OperatorList,
) -> Response {
    let records = match &list.tenant {
        Some(tenant) => api.table.of_tenant(tenant),
        None => api.table.all(),
    };
    let wanted = records.iter().filter(|record| list.wants(record));
    let (taken, next_cursor) = cut(wanted, list.limit);
    let subscriptions = taken.into_iter().map(|record| OwnedView::from(&**record)).collect();
    Json(PageView { subscriptions, next_cursor }).into_response()
}

/// `GET /admin/subscriptions/{id}`.
pub(crate) async fn read_any(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    IdInPath(id): IdInPath,
) -> Result<Response, Problem> {
    let record = api.find_any(id).await?;
    let delivery = delivery(&api, &inbound, id).await?;
    Ok(view::with_delivery(&record, OwnedView::from(&*record), delivery))
}

fn page(records: &[Arc<Subscription>], list: &List) -> Response {
    let (taken, next_cursor) = cut(records.iter().filter(|record| list.wants(record)), list.limit);
    let subscriptions = taken.into_iter().map(|record| View::from(&**record)).collect();
    Json(PageView { subscriptions, next_cursor }).into_response()
}

/// The first `limit` records, and where the next page begins if there is one.
fn cut<'a>(
    mut records: impl Iterator<Item = &'a Arc<Subscription>>,
    limit: usize,
) -> (Vec<&'a Arc<Subscription>>, Option<SubscriptionId>) {
    let taken: Vec<_> = records.by_ref().take(limit).collect();
    let next_cursor = records.next().and_then(|_| taken.last()).map(|last| last.id);
    (taken, next_cursor)
}

/// `GET /v1/subscriptions/{id}`. A pull subscription shows how far it was read, which its owner
/// knows; while it is between two owners it is shown without.
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    inbound: Inbound,
    IdInPath(id): IdInPath,
) -> Result<Response, Problem> {
    let record = api.find(&tenant, id).await?;
    if !record.sink.is_pull() {
        let delivery = delivery(&api, &inbound, id).await?;
        return Ok(view::with_delivery(&record, View::from(&*record), delivery));
    }
    match owned(&api, &inbound, || api.pull.standing(id)).await {
        Ok(owned) => Ok(owned.answer(|standing| view::pull_subscription(&record, standing))),
        Err(_) => Ok(view::subscription(&record)),
    }
}

/// `DELETE /v1/subscriptions/{id}`. Asks the registry without a look at the table, which may not
/// have the subscription yet.
pub(crate) async fn remove(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    IdInPath(id): IdInPath,
    condition: IfMatch,
) -> Result<StatusCode, Problem> {
    let seen = api.own(&tenant, id).map(|record| record.version);
    api.submit(&tenant, id, Action::Delete { expected: condition.expected(seen) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A signing secret for a sink that signs and has been given none. Whether it was made.
fn make_secret(api: &Api, sink: &mut SinkDraft) -> bool {
    let SinkDraft::Webhook { secret, .. } = sink else { return false };
    if secret.is_some() {
        return false;
    }
    *secret = Some(secrets::made(&*api.operations.entropy));
    true
}

/// The record that the registry is asked to write. Version, times and verification state are the
/// registry's to set.
fn record(api: &Api, owner: Owner<'_>, draft: Draft) -> Result<Subscription, Problem> {
    let now = api.operations.clock.now();
    Ok(Subscription {
        id: owner.subscription,
        tenant: owner.tenant.clone(),
        name: draft.name,
        event_types: draft.event_types,
        origin: draft.origin,
        schema_major: draft.schema_major,
        sink: sealed(api, owner, draft.sink, None)?,
        sink_generation: 1,
        enabled: draft.enabled,
        disabled_reason: (!draft.enabled).then_some(DisabledReason::Tenant),
        paused: draft.paused,
        verification_state: VerificationState::Pending,
        verification_failure: None,
        verified_at: None,
        retry_schedule: draft.retry_schedule.map(steps),
        max_in_flight: draft.max_in_flight,
        ordering: draft.ordering,
        created_at: now,
        updated_at: now,
        version: 1,
        unknown: Map::new(),
    })
}

fn steps(schedule: RetrySchedule) -> Value {
    Vec::from(schedule).into()
}

/// The sink as it may leave the process: its secrets sealed for their owner, and those that were
/// not given again taken from `current`.
pub(crate) fn sealed(
    api: &Api,
    owner: Owner<'_>,
    sink: SinkDraft,
    current: Option<&SinkConfig>,
) -> Result<SinkConfig, Problem> {
    let seal = Seal { api, owner };
    Ok(match sink {
        SinkDraft::Webhook { url, secret } => {
            let secrets = match &secret {
                Some(secret) => {
                    let (sealed, made_by) = (seal.secret(secret)?, Some(api.operations.uuid()));
                    vec![SigningSecret { sealed, valid_until: None, made_by }]
                }
                None => current.map(|sink| secrets::secrets(sink).to_vec()).unwrap_or_default(),
            };
            SinkConfig::Webhook(WebhookConfig { url, secrets })
        }
        SinkDraft::Pull => SinkConfig::Pull,
        SinkDraft::Sqs(sqs) => SinkConfig::Sqs(sqs.sealed(&seal)?),
        SinkDraft::EventBridge(bus) => SinkConfig::EventBridge(bus.sealed(&seal)?),
        SinkDraft::RabbitMq(rabbit) => SinkConfig::RabbitMq(rabbit.sealed(&seal)?),
    })
}

/// Whether the hub may deliver there at all; the refusal names the field.
pub(crate) async fn admit(api: &Api, tenant: &TenantId, sink: &SinkConfig) -> Result<(), Problem> {
    let refused = |NotAdmitted { field, message }| {
        let place = Place::Pointer(format!("/sink/{field}"));
        Problem::destination_refused(FieldError { place, code: Fault::DestinationRefused, message })
    };
    api.sink.admit(tenant, sink).await.map_err(refused)
}

#[cfg(test)]
mod tests;
