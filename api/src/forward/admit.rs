//! Requests that another instance makes for its caller: the internal token is checked before
//! anything of the request is looked at, and its caller is taken for this request's. Every failure
//! is the same 401 as that of any token, and says nothing more.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderName;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::Inbound;
use super::token::Bound;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// Carries the internal token.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-streaming-hub-internal");

/// In a request's extensions: another instance made it, so it is not forwarded again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Internal;

/// A request that another instance made for one of its own needs. Nobody else gets past this door:
/// to them there is nothing here.
pub(crate) struct InternalCaller(pub(crate) Inbound);

impl FromRequestParts<Arc<Api>> for InternalCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        if parts.extensions.get::<Internal>().is_none() {
            return Err(Code::UnknownPath.into());
        }
        Inbound::from_request_parts(parts, api).await.map(Self)
    }
}

/// Lets a request without an internal token pass as it is, and one with a good token as its caller.
pub(crate) async fn admit(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    if !request.headers().contains_key(&TOKEN) {
        return next.run(request).await;
    }
    let Some((request, within)) = check(&api, request).await else {
        return Problem::from(Code::Unauthenticated).into_response();
    };
    let answer = timeout(within, next.run(request)).await;
    answer.unwrap_or_else(|_| Problem::timeout().into_response())
}

async fn check(api: &Api, request: Request) -> Option<(Request, Duration)> {
    let cluster = api.cluster.as_ref()?;
    let (mut parts, body) = request.into_parts();
    let mut tokens = parts.headers.get_all(&TOKEN).iter();
    let (token, None) = (tokens.next()?, tokens.next()) else { return None };
    if parts.headers.contains_key(AUTHORIZATION) {
        return None;
    }
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let bound = Bound { method: &parts.method, target, headers: &parts.headers };
    let now = api.operations.clock.now();
    let claims = cluster.key.check(token.as_bytes(), &cluster.instance, &bound, now)?;
    // Read only now: the body of a stranger is not.
    let body = to_bytes(body, api.limits.body_bytes_max).await.ok()?;
    if !claims.is_of(&body) || !cluster.accept(&claims, now) {
        return None;
    }
    parts.extensions.insert(Internal);
    parts.extensions.insert(claims.principal);
    let within = Duration::from_millis(claims.within_ms);
    Some((Request::from_parts(parts, Body::from(body)), within))
}
