//! `PATCH /v1/subscriptions/{id}`: a JSON merge patch (RFC 7396). What it names is merged with what
//! is there and read by the rules of a creation; only what it names is set, so that two writers of
//! different fields both succeed. The registry decides.
//!
//! A new destination or secret of an active subscription is probed first, and set only by a
//! success: the answer to a failure is that nothing changed.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use streaming_hub_model::change::{Action, By, NewSink, Setting};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::secret::Owner;
use streaming_hub_model::subscription::{Subscription, VerificationState};
use streaming_hub_model::tenant::TenantId;

use crate::auth::{OperatorCaller, TenantCaller};
use crate::body::{IdInPath, JsonBody};
use crate::draft::{Draft, Purpose, SinkDraft};
use crate::fields;
use crate::if_match::IfMatch;
use crate::problem::{Code, Problem};
use crate::state::Api;
use crate::subscriptions::{admit, sealed};
use crate::verify::test;
use crate::view::{self, SinkView};

/// `PATCH /v1/subscriptions/{id}`.
pub(crate) async fn update(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    IdInPath(id): IdInPath,
    condition: IfMatch,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let record = api.find(&tenant, id).await?;
    let expected = condition.expected(Some(record.version));
    let (draft, named) = merged(&record, body, api.limits.event_types_max)?;
    // Before a destination hears of a change that is refused anyway.
    if expected.is_some_and(|expected| expected < record.version) {
        return Err(Code::PreconditionFailed.into());
    }
    let mut set = settings(&draft, &named);
    if named.contains_key("sink")
        && let Some(sink) = redirected(&api, &record, draft.sink).await?
    {
        set.push(Setting::Sink(Box::new(sink)));
    }
    let action = Action::Patch { expected, by: By::Tenant, set };
    written(&api, &tenant, id, action).await.map(|record| view::subscription(&record))
}

/// `PATCH /admin/subscriptions/{id}`: an operator switches it off and on.
pub(crate) async fn switch(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    IdInPath(id): IdInPath,
    condition: IfMatch,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let enabled = fields::read(body, |mut fields| {
        let enabled = fields.required("enabled", |value, at| at.boolean(&value));
        fields.finish();
        enabled
    });
    let enabled = enabled.map_err(Problem::validation)?;
    let record = api.find_any(id).await?;
    let action = Action::Patch {
        expected: condition.expected(Some(record.version)),
        by: By::Operator,
        set: vec![Setting::Enabled(enabled)],
    };
    written(&api, &record.tenant, id, action).await.map(|record| view::owned(&record))
}

async fn written(
    api: &Api,
    tenant: &TenantId,
    id: SubscriptionId,
    action: Action,
) -> Result<Arc<Subscription>, Problem> {
    api.submit(tenant, id, action).await?;
    api.own(tenant, id).ok_or_else(|| Code::NotFound.into())
}

/// The patch over what is there, and the fields that it names. Fields that it does not name are
/// stood in for by what surely passes: they are not set.
fn merged(
    record: &Subscription,
    body: Value,
    event_types_max: usize,
) -> Result<(Draft, Map<String, Value>), Problem> {
    let Value::Object(named) = body else {
        return fields::read(body, |_| None).map_err(Problem::validation);
    };
    let sink = serde_json::to_value(SinkView::from(&record.sink));
    let sink = sink.map_err(|error| Problem::internal(error.to_string()))?;
    let changes_type = |new: &Value| new != &sink["type"] && new.is_string();
    if named.get("sink").and_then(|new| new.get("type")).is_some_and(changes_type) {
        return Err(Code::SinkTypeImmutable.into());
    }
    let mut whole = json!({
        "name": "-",
        "event_types": ["a.b"],
        "sink": sink,
        "max_in_flight": record.max_in_flight,
        "ordering": record.ordering,
    });
    merge(&mut whole, Value::Object(named.clone()));
    let draft = Draft::parse(whole, event_types_max, Purpose::Patch(&record.sink))
        .map_err(Problem::validation)?;
    Ok((draft, named))
}

/// RFC 7396 section 2, except that a member of the top level that is removed stays as `null`: it
/// means the default there, and an error where there is none.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        match value {
            Value::Object(_) => merge(&mut target[name], value),
            value => target[name] = value,
        }
    }
}

/// What the patch sets beside the sink.
fn settings(draft: &Draft, named: &Map<String, Value>) -> Vec<Setting> {
    let all = [
        ("name", Setting::Name(draft.name.clone())),
        ("event_types", Setting::EventTypes(draft.event_types.clone())),
        ("origin", Setting::Origin(draft.origin.clone())),
        ("schema_major", Setting::SchemaMajor(draft.schema_major)),
        ("retry_schedule", Setting::RetrySchedule(draft.retry_schedule.clone())),
        ("max_in_flight", Setting::MaxInFlight(draft.max_in_flight)),
        ("ordering", Setting::Ordering(draft.ordering)),
        ("paused", Setting::Paused(draft.paused)),
        ("enabled", Setting::Enabled(draft.enabled)),
    ];
    all.into_iter().filter(|(name, _)| named.contains_key(*name)).map(|(_, new)| new).collect()
}

/// The sink that takes the place of the record's; `None` when it is the same. Admitted, and probed
/// where the subscription is active.
async fn redirected(
    api: &Api,
    record: &Arc<Subscription>,
    draft: SinkDraft,
) -> Result<Option<NewSink>, Problem> {
    let owner = Owner { tenant: &record.tenant, subscription: record.id };
    let config = sealed(api, owner, draft, Some(&record.sink))?;
    if config.kind() != record.sink.kind() {
        return Err(Code::SinkTypeImmutable.into());
    }
    if config == record.sink {
        return Ok(None);
    }
    admit(api, &record.tenant, &config).await?;
    let from_generation = record.sink_generation;
    let verified = record.verification_state == VerificationState::Active;
    if verified {
        let mut probed = Subscription::clone(record);
        probed.sink = config.clone();
        // Its connections and credentials are not those of the sink that it may replace.
        probed.sink_generation += 1;
        if let Some(reason) = test(api, Arc::new(probed)).await? {
            return Err(Problem::verification_failed(reason));
        }
    }
    Ok(Some(NewSink { config, from_generation, verified }))
}

#[cfg(test)]
mod tests;
