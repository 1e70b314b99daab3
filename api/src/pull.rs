//! `GET /v1/events` (contract section 5, "Pull"): a page of a pull subscription, whose reading is
//! its acknowledgement. Answered by the instance that runs the subscription's task; any other sends
//! the request there.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawQuery, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::peer::CallError;
use streaming_hub_model::ports::PullAnswer;
use streaming_hub_model::pull::{Ask, LIMIT_DEFAULT, LIMIT_MAX, SEQ_LIMIT};
use streaming_hub_model::tenant::TenantId;

use crate::auth::TenantCaller;
use crate::fields::{Fault, FieldError, Place};
use crate::forward::{Inbound, owned};
use crate::gzip;
use crate::problem::{Code, Problem};
use crate::query::Parameters;
use crate::rate::Standing;
use crate::state::Api;

/// The route's path: its requests may wait this much longer than others.
pub(crate) const PATH: &str = "/v1/events";
/// The longest wait for entries, seconds.
pub(crate) const WAIT_S_MAX: u64 = 30;
/// What a wait leaves for the read behind it.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// What a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadQuery {
    subscription: SubscriptionId,
    ask: Ask,
    wait: Duration,
}

impl ReadQuery {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut own = Parameters::new(query);
        let subscription = own.take("subscription_id", "a subscription's id", |text| {
            SubscriptionId::parse(text).ok()
        });
        let after = own.integer("after", 0, SEQ_LIMIT - 1);
        let limit = own.integer("limit", 1, LIMIT_MAX as u64);
        let wait = own.integer("wait", 0, WAIT_S_MAX);
        let given = query.contains("subscription_id");
        own.finish(())?;
        let Some(subscription) = subscription.filter(|_| given) else {
            let place = Place::Parameter("subscription_id".to_owned());
            let message = "must be given".to_owned();
            let error = FieldError { place, code: Fault::Required, message };
            return Err(Problem::fields(Code::InvalidQuery, vec![error]));
        };
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(LIMIT_DEFAULT);
        let wait = Duration::from_secs(wait.unwrap_or(0));
        Ok(Self { subscription, ask: Ask { after, limit }, wait })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ReadQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Ok(RawQuery(query)) = RawQuery::from_request_parts(parts, state).await;
        Self::parse(query.as_deref().unwrap_or_default())
    }
}

/// What the owner of the subscription says.
enum Said {
    Limited(Standing),
    Answered(PullAnswer, Standing),
}

/// `GET /v1/events`. A disabled subscription can be read as before.
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    TenantCaller { tenant }: TenantCaller,
    query: ReadQuery,
    headers: HeaderMap,
    inbound: Inbound,
) -> Result<Response, Problem> {
    let subscription = api.find(&tenant, query.subscription).await?;
    if !subscription.sink.is_pull() {
        return Err(Code::NotAPullSubscription.into());
    }
    let inbound = inbound.acknowledging();
    let said = owned(&api, &inbound, || read_here(&api, &tenant, query, &inbound)).await;
    // What a request elsewhere, or a task here, did within the time is not known.
    let said = said.map_err(|problem| match problem.code() {
        Code::Timeout => Problem::from(Code::ReadUndecided),
        _ => problem,
    })?;
    let answer = gzip::answer(said.answer(show), gzip::is_taken(&headers)).await;
    // The owner has answered, so the page is acknowledged, and it got lost on its way here.
    answer.ok_or_else(|| Code::ReadUndecided.into())
}

async fn read_here(
    api: &Api,
    tenant: &TenantId,
    query: ReadQuery,
    inbound: &Inbound,
) -> Result<Said, CallError> {
    // Only the owner counts: it is its limit.
    api.pull.is_here(query.subscription)?;
    let standing = api.reads.take(tenant, api.operations.clock.now());
    if standing.retry_after_s.is_some() {
        return Ok(Said::Limited(standing));
    }
    let all = inbound.remaining();
    let wait = query.wait.min(all.saturating_sub(READ_WITHIN));
    let answer = api.pull.read(query.subscription, query.ask, (wait, all)).await?;
    Ok(Said::Answered(answer, standing))
}

fn show(said: Said) -> Response {
    let (mut response, standing) = match said {
        Said::Limited(standing) => return standing.refusal(),
        Said::Answered(PullAnswer::Page(body), standing) => {
            let mut response = Response::new(Body::from(body));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            (response, standing)
        }
        Said::Answered(PullAnswer::Failed, standing) => {
            (Problem::from(Code::ReadFailed).into_response(), standing)
        }
        Said::Answered(PullAnswer::Undecided, standing) => {
            (Problem::from(Code::ReadUndecided).into_response(), standing)
        }
    };
    standing.tell(response.headers_mut());
    response
}

/// `HEAD /v1/events`: a read that nobody sees would acknowledge all the same.
pub(crate) async fn refuse_head() -> Response {
    let mut response = Problem::from(Code::MethodNotAllowed).into_response();
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    response
}

/// By how much a request to this path may outlast others: for its wait.
pub(crate) fn may_wait(method: &Method, route: &str) -> Duration {
    match method == Method::GET && route == PATH {
        true => Duration::from_secs(WAIT_S_MAX),
        false => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
