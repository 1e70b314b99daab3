//! A tenant's subscriptions: create, list, read, delete. Writes are changes that the registry
//! decides; answers are what this instance's table holds afterwards.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64_URL;
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use serde_json::{Map, Value};
use streaming_hub_model::change::{Action, Decision};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::ports::Entropy;
use streaming_hub_model::retry::RetrySchedule;
use streaming_hub_model::secret::Owner;
use streaming_hub_model::sink::NotAdmitted;
use streaming_hub_model::subscription::{
    DisabledReason, Ordering, SigningSecret, SinkConfig, Subscription, VerificationState,
    WebhookConfig,
};
use streaming_hub_model::tenant::TenantId;

use crate::auth::{OperatorCaller, TenantCaller};
use crate::body::{IdInPath, JsonBody};
use crate::draft::{Draft, Seal, SinkDraft};
use crate::fields::{Fault, FieldError, Place};
use crate::problem::{Code, Problem};
use crate::query::{List, OperatorList, TenantList};
use crate::state::Api;
use crate::verify::probe;
use crate::view::{self, OwnedView, PageView, View};

/// What scanners for leaked secrets recognise.
const SECRET_PREFIX: &str = "whsec_";

/// Random bytes of a signing secret: 256 bits.
const SECRET_BYTES: usize = 32;

/// `POST /v1/subscriptions`.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let mut draft = Draft::parse(body, api.limits.event_types_max)
        .map_err(|errors| Problem::fields(Code::ValidationFailed, errors))?;
    let id = SubscriptionId::from_parts(api.operations.clock.now().0, api.operations.entropy.ten());
    let owner = Owner { tenant: &tenant, subscription: id };
    let made = make_secret(&mut draft.sink, &*api.operations.entropy);
    let verify = draft.verify;
    let mut record = record(&api, owner, draft, made.as_ref())?;
    admit(&api, &tenant, &record.sink).await?;

    let action = Action::Create { record: Box::new(record.clone()) };
    if let Decision::Written { version } = api.submit(&tenant, id, action).await? {
        record.version = version;
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
    let mut response = view::created(&stored, made.as_ref());
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
    IdInPath(id): IdInPath,
) -> Result<Response, Problem> {
    if api.table.get(id).is_none() {
        api.table.catch_up().await;
    }
    let record = api.table.get(id).ok_or(Code::NotFound)?;
    Ok(view::tagged(&record, Json(OwnedView::from(&*record)).into_response()))
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

/// `GET /v1/subscriptions/{id}`.
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    IdInPath(id): IdInPath,
) -> Result<Response, Problem> {
    Ok(view::subscription(&*api.find(&tenant, id).await?))
}

/// `DELETE /v1/subscriptions/{id}`. Asks the registry without a look at the table, which may not
/// have the subscription yet.
pub(crate) async fn remove(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    IdInPath(id): IdInPath,
) -> Result<StatusCode, Problem> {
    api.submit(&tenant, id, Action::Delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A signing secret for a sink that signs and has been given none.
fn make_secret(sink: &mut SinkDraft, entropy: &dyn Entropy) -> Option<SecretString> {
    let SinkDraft::Webhook { secret: None, .. } = sink else { return None };
    let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
    entropy.fill(&mut *bytes);
    let mut text = String::with_capacity(SECRET_PREFIX.len() + BASE64_URL_CHARS);
    text.push_str(SECRET_PREFIX);
    BASE64_URL.encode_string(bytes.as_slice(), &mut text);
    Some(SecretString::from(text))
}

/// Characters of [`SECRET_BYTES`] in base64 without padding. The text is given its full length at
/// once, because growing it would leave a copy behind.
const BASE64_URL_CHARS: usize = (SECRET_BYTES * 4).div_ceil(3);

/// The record that the registry is asked to write. Version, times and verification state are the
/// registry's to set.
fn record(
    api: &Api,
    owner: Owner<'_>,
    draft: Draft,
    made: Option<&SecretString>,
) -> Result<Subscription, Problem> {
    let now = api.operations.clock.now();
    Ok(Subscription {
        id: owner.subscription,
        tenant: owner.tenant.clone(),
        name: draft.name,
        event_types: draft.event_types,
        origin: draft.origin,
        schema_major: draft.schema_major,
        sink: sealed(api, owner, draft.sink, made)?,
        sink_generation: 1,
        enabled: draft.enabled,
        disabled_reason: (!draft.enabled).then_some(DisabledReason::Tenant),
        paused: false,
        verification_state: VerificationState::Pending,
        verification_failure: None,
        retry_schedule: draft.retry_schedule.map(steps),
        max_in_flight: draft.max_in_flight,
        ordering: Ordering::default(),
        created_at: now,
        updated_at: now,
        version: 1,
        unknown: Map::new(),
    })
}

fn steps(schedule: RetrySchedule) -> Value {
    Vec::from(schedule).into()
}

/// The sink as it may leave the process: its signing secret, given or made, sealed for its owner.
fn sealed(
    api: &Api,
    owner: Owner<'_>,
    sink: SinkDraft,
    made: Option<&SecretString>,
) -> Result<SinkConfig, Problem> {
    let seal = Seal { keyring: &api.keyring, entropy: &*api.operations.entropy, owner };
    Ok(match sink {
        SinkDraft::Webhook { url, secret } => {
            let secret = secret.as_ref().or(made);
            let sealed = secret.map(|secret| seal.secret(secret)).transpose()?;
            let signing = |sealed| SigningSecret { sealed, valid_until: None };
            let secrets = sealed.into_iter().map(signing).collect();
            SinkConfig::Webhook(WebhookConfig { url, secrets })
        }
        SinkDraft::Sqs(sqs) => SinkConfig::Sqs(sqs.sealed(&seal)?),
        SinkDraft::EventBridge(bus) => SinkConfig::EventBridge(bus.sealed(&seal)?),
        SinkDraft::RabbitMq(rabbit) => SinkConfig::RabbitMq(rabbit.sealed(&seal)?),
    })
}

async fn admit(api: &Api, tenant: &TenantId, sink: &SinkConfig) -> Result<(), Problem> {
    let refused = |NotAdmitted { field, message }| {
        let place = Place::Pointer(format!("/sink/{field}"));
        Problem::destination_refused(FieldError { place, code: Fault::DestinationRefused, message })
    };
    api.sink.admit(tenant, sink).await.map_err(refused)
}

#[cfg(test)]
mod tests;
