//! What every request and every answer has in common: an id, a time limit, no caching, a problem's
//! body, one log line for a failure of ours, and numbers.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::problem::{Code, Problem};
use crate::pull::may_wait;
use crate::state::Operations;

/// The header that names the request, as does the log line of its failure.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// In a request's extensions: when its answer must be there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(pub(crate) Instant);

/// The largest target and headers together, bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 16 * 1024;
/// The most headers of a request.
pub(crate) const HEADERS_MAX: usize = 100;

/// How a request to no route is counted.
const UNMATCHED: &str = "unmatched";

/// Runs a request within its limits and finishes its answer.
pub(crate) async fn exchange(
    State(own): State<Arc<Operations>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let request_id = own.uuid();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
    let limit = own.request_timeout + may_wait(&method, route);
    request.extensions_mut().insert(Deadline(started + limit));
    // The error level, so that a quiet log still names the request of a failure.
    let span = tracing::error_span!(
        "request",
        %request_id,
        %method,
        route,
        token = tracing::field::Empty
    );
    let mut response = if has_room(&request) {
        let run = next.run(request).instrument(span.clone());
        timeout(limit, run).await.unwrap_or_else(|_| Problem::timeout().into_response())
    } else {
        Problem::headers_too_large(HEADER_BYTES_MAX, HEADERS_MAX).into_response()
    };
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        problem.write_into(&mut response, request_id);
        span.in_scope(|| log(&problem));
    }
    // Every UUID is a legal header value.
    if let Ok(value) = HeaderValue::from_str(&request_id.to_string()) {
        // An answer that came from another instance names the request as that one's log does.
        response.headers_mut().entry(REQUEST_ID).or_insert(value);
    }
    // An answer may hold a secret, and is out of date at once.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    own.metrics.observe(route, &method, response.status(), started.elapsed());
    response
}

/// Whether target and headers are within the limits.
fn has_room(request: &Request) -> bool {
    let headers = request.headers();
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let bytes =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    headers.len() <= HEADERS_MAX && target + bytes <= HEADER_BYTES_MAX
}

fn log(problem: &Problem) {
    let (code, status) = (problem.code(), problem.code().status().as_u16());
    let cause = problem.cause();
    if code == Code::Internal {
        tracing::error!(status, code = code.as_str(), cause, "request failed");
    } else if code == Code::NotReady {
        // Asked every few seconds while a process starts; the start logs its own progress.
        tracing::debug!(status, code = code.as_str(), "not ready");
    } else if code.status().is_server_error() {
        tracing::warn!(status, code = code.as_str(), cause, "request failed");
    }
}

#[cfg(test)]
mod tests;
