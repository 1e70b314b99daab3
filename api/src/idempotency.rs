//! `Idempotency-Key` (contract section 7): the same request under the same key is answered once.
//! The registry decides whose turn it is and keeps the answer, so that it holds on any instance
//! and over restarts; here a request is turned into wishes, and a kept answer into a response.
//!
//! Invariant: what is kept holds no secret. A handler's answer holds none yet; it says where one
//! lies ([`SecretPlace`]), and that is kept.

use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequestParts, Request};
use axum::http::header::{CONTENT_TYPE, ETAG, LOCATION, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use streaming_hub_model::change::{Action, Decision};
use streaming_hub_model::hex;
use streaming_hub_model::id::SubscriptionId;
use streaming_hub_model::idempotency::{Answer, SecretPlace, Wish};
use streaming_hub_model::tenant::TenantId;

use crate::forward::Principal;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// The header.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The longest key, characters.
const KEY_CHARS_MAX: usize = 255;
/// How much longer than the longest request a claim holds, milliseconds: for the change that a
/// request which ran out of time has left on its way.
const LEASE_MARGIN_MS: u64 = 5_000;
/// When a request that had no answer is repeated, seconds.
const RETRY_AFTER_S: u64 = 5;
/// The largest body of an answer, bytes; ours are far smaller.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// The headers of an answer that are kept.
const KEPT: [HeaderName; 3] = [CONTENT_TYPE, ETAG, LOCATION];

/// The key of a request, if it has one.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = || {
        let text = format!("Idempotency-Key must be 1 to {KEY_CHARS_MAX} visible ASCII characters");
        Problem::invalid_header(text)
    };
    if values.next().is_some() {
        return Err(Problem::invalid_header("Idempotency-Key must be given once"));
    }
    let text = value.to_str().map_err(|_| wrong())?.trim();
    let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let legal = (1..=KEY_CHARS_MAX).contains(&bare.len());
    match legal && bare.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(Some(bare.to_owned())),
        false => Err(wrong()),
    }
}

/// What a request under a key makes has this id, also when an earlier attempt at the same request
/// has made it already; without a key the handler draws one.
pub(crate) struct Seed(pub(crate) Option<SubscriptionId>);

impl<S: Send + Sync> FromRequestParts<S> for Seed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(parts.extensions.get().copied()))
    }
}

/// Answers a request under its key: as before, or by running it and keeping its answer.
pub(crate) async fn answered(
    api: &Arc<Api>,
    (caller, key): (&Principal, &str),
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let bytes_max = api.limits.body_bytes_max;
    let bytes = to_bytes(body, bytes_max).await.map_err(|_| Problem::body_too_large(bytes_max))?;
    let turn = Turn { api, tenant: tenant(caller)?, scope: scope((caller, key), &parts) };
    let seed = match turn.claim(fingerprint(&parts, &bytes)).await {
        Ok(Claim::Ours(seed)) => seed,
        Ok(Claim::Answered(answer)) => return Ok(again(*answer)),
        Err(problem) => return Ok(repeatable(problem.into_response())),
    };
    let mut request = Request::from_parts(parts, Body::from(bytes));
    request.extensions_mut().insert(seed);
    let response = next.run(request).await;
    if !is_kept(response.status()) {
        turn.wish(Wish::Release { scope: turn.scope.clone() }).await;
        return Ok(repeatable(response));
    }
    let (response, answer) = recorded(response).await?;
    if let Some(answer) = answer {
        let answer = Box::new(answer);
        turn.wish(Wish::Keep { scope: turn.scope.clone(), answer }).await;
    }
    Ok(response)
}

/// Under a key every request is safe to repeat, also one whose effect is not known: 503 says when.
fn repeatable(mut response: Response) -> Response {
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().entry(RETRY_AFTER).or_insert(HeaderValue::from(RETRY_AFTER_S));
    }
    response
}

/// Contract section 7: 401, 429 and 5xx are not kept.
fn is_kept(status: StatusCode) -> bool {
    !status.is_server_error()
        && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS)
}

/// By whom a key is decided: tenants by their own registry task, operators by one of them.
fn tenant(caller: &Principal) -> Result<TenantId, Problem> {
    match &caller.tenant {
        Some(tenant) => Ok(tenant.clone()),
        None => TenantId::parse("operator").map_err(|error| Problem::internal(error.to_string())),
    }
}

/// Hash over what a key is scoped to. Each part is preceded by its length, so that two scopes
/// never run into each other.
fn scope((caller, key): (&Principal, &str), parts: &Parts) -> String {
    let (role, tenant) = match &caller.tenant {
        Some(tenant) => ("tenant", tenant.as_str()),
        None => ("operator", ""),
    };
    hash(&[role, tenant, parts.method.as_str(), parts.uri.path(), key].map(str::as_bytes))
}

/// Hash over what makes a request another one under the same key.
fn fingerprint(parts: &Parts, body: &Bytes) -> String {
    hash(&[parts.uri.query().unwrap_or_default().as_bytes(), body])
}

fn hash(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize())
}

/// One request's dealings with the registry about its key.
struct Turn<'a> {
    api: &'a Api,
    tenant: TenantId,
    scope: String,
}

enum Claim {
    Ours(SubscriptionId),
    Answered(Box<Answer>),
}

impl Turn<'_> {
    async fn claim(&self, body: String) -> Result<Claim, Problem> {
        let timeout_ms = self.api.operations.request_timeout.as_millis();
        let lease_ms =
            u64::try_from(timeout_ms).unwrap_or(u64::MAX).saturating_add(LEASE_MARGIN_MS);
        let wish = Wish::Claim { scope: self.scope.clone(), body, lease_ms };
        match self.submit(wish).await? {
            Decision::Claimed { seed } => Ok(Claim::Ours(seed)),
            Decision::Repeated { answer } => Ok(Claim::Answered(answer)),
            _ => Err(Problem::internal("the registry answered a claim with something else")),
        }
    }

    /// Tells the registry how it ended. When that fails, the claim lapses, and a repetition finds
    /// what this request has made.
    async fn wish(&self, wish: Wish) {
        if let Err(problem) = self.submit(wish).await {
            let code = problem.code().as_str();
            tracing::warn!(code, "an idempotency key's answer was not kept");
        }
    }

    async fn submit(&self, wish: Wish) -> Result<Decision, Problem> {
        let seed = self.api.new_id();
        self.api.submit(&self.tenant, seed, Action::Idempotency { wish }).await
    }
}

/// The response, and as it is kept.
async fn recorded(response: Response) -> Result<(Response, Option<Answer>), Problem> {
    let status = response.status().as_u16();
    if let Some(problem) = response.extensions().get::<Problem>() {
        let body = problem.kept();
        let answer = body.map(|body| Answer { status, headers: Vec::new(), body, secret: None });
        return Ok((response, answer));
    }
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, ANSWER_BYTES_MAX)
        .await
        .map_err(|_| Problem::internal("an answer could not be read to be kept"))?;
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).ok();
    let headers = KEPT
        .iter()
        .filter_map(|name| Some((name.to_string(), text(parts.headers.get(name)?)?)))
        .collect();
    let body = String::from_utf8(bytes.to_vec()).ok();
    let secret = parts.extensions.get::<SecretPlace>().cloned();
    let answer = body.map(|body| Answer { status, headers, body, secret });
    Ok((Response::from_parts(parts, Body::from(bytes)), answer))
}

/// A kept answer as a response.
fn again(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let mut response = if status.is_success() {
        let mut response = (status, answer.body).into_response();
        response.headers_mut().remove(CONTENT_TYPE);
        for (name, value) in answer.headers {
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value))
            {
                response.headers_mut().insert(name, value);
            }
        }
        if let Some(place) = answer.secret {
            response.extensions_mut().insert(place);
        }
        response
    } else {
        Problem::from_kept(&answer.body).into_response()
    };
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// The code that a repetition gets while the first request is under way, for the document.
pub(crate) const CODES: [Code; 5] = [
    Code::InvalidHeader,
    Code::IdempotencyInProgress,
    Code::IdempotencyMismatch,
    Code::Unavailable,
    Code::Undecided,
];

#[cfg(test)]
mod tests;
