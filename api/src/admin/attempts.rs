//! A subscription's last attempts (contract section 8: 200 are served), for its tenant and for an
//! operator, from the state of the task that owns it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use streaming_hub_model::delivery_calls::{Answer, PAGE_MAX, Question};
use streaming_hub_model::id::SubscriptionId;

use super::Query;
use crate::ask::{ask, home, misfit, shown};
use crate::auth::{OperatorCaller, TenantCaller};
use crate::body::IdInPath;
use crate::forward::Inbound;
use crate::problem::{Code, Problem};
use crate::query::Parameters;
use crate::state::Api;

/// Entries of a page when the caller does not say.
const LIMIT_DEFAULT: u64 = 50;

/// `GET /v1/subscriptions/{id}/attempts`.
pub(crate) async fn of_tenant(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    inbound: Inbound,
    IdInPath(id): IdInPath,
    Query(query): Query,
) -> Result<Response, Problem> {
    api.find(&tenant, id).await?;
    page(&api, &inbound, id, query).await
}

/// `GET /admin/subscriptions/{id}/attempts`. A deleted subscription still has some.
pub(crate) async fn of_anyone(
    State(api): State<Arc<Api>>,
    _: OperatorCaller,
    inbound: Inbound,
    IdInPath(id): IdInPath,
    Query(query): Query,
) -> Result<Response, Problem> {
    page(&api, &inbound, id, query).await
}

async fn page(
    api: &Api,
    inbound: &Inbound,
    subscription: SubscriptionId,
    mut query: Parameters,
) -> Result<Response, Problem> {
    let limit = query.integer("limit", 1, PAGE_MAX.into()).unwrap_or(LIMIT_DEFAULT);
    let cursor = "a `next_cursor` of this list";
    let before = query.take("cursor", cursor, |text| text.parse().ok());
    query.finish(())?;
    let limit = u16::try_from(limit).unwrap_or(PAGE_MAX);
    let question = Question::Attempts { subscription, before, limit };
    let Answer::Attempts(page) = ask(api, inbound, home(api, subscription), question).await? else {
        return Err(misfit());
    };
    let mut attempts = shown(page.attempts);
    for attempt in attempts.as_array_mut().into_iter().flatten() {
        // The order is enough; the number begins anew when the log is gone.
        attempt.as_object_mut().map(|members| members.remove("number"));
    }
    let next = page.next.map(|number| number.to_string());
    Ok(Json(json!({"attempts": attempts, "next_cursor": next})).into_response())
}

/// What waits for a subscription, `null` when its owner cannot say now: a subscription is shown
/// without it rather than not at all.
pub(crate) async fn delivery(
    api: &Api,
    inbound: &Inbound,
    subscription: SubscriptionId,
) -> Result<serde_json::Value, Problem> {
    let hasty = inbound.hasty();
    let question = Question::Stats { subscription };
    match ask(api, &hasty, home(api, subscription), question).await {
        Ok(Answer::Stats(stats)) => Ok(shown(stats)),
        Ok(_) => Err(misfit()),
        Err(problem) if matches!(problem.code(), Code::NoOwner | Code::Timeout) => {
            Ok(serde_json::Value::Null)
        }
        Err(problem) => Err(problem),
    }
}
