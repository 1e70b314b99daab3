//! What a request brings besides its caller: a JSON body and the id in its path, each refused by a
//! problem of ours instead of the framework's plain text.

use std::sync::Arc;

use axum::body::HttpBody as _;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use serde_json::{Value, json};
use streaming_hub_model::id::SubscriptionId;

use crate::problem::{Code, Problem};
use crate::state::Api;

/// A JSON body of any shape. Its Debug output would show a secret, so it has none.
pub(crate) struct JsonBody(pub(crate) Value);

impl FromRequest<Arc<Api>> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Code::UnsupportedMediaType.into());
        }
        let bytes = Bytes::from_request(request, api).await.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Problem::body_too_large(api.limits.body_bytes_max)
            } else {
                Problem::malformed_json("the body could not be read to its end")
            }
        })?;
        parse(&bytes).map(Self)
    }
}

/// The same, where a request without a body means an empty object.
pub(crate) struct OptionalJsonBody(pub(crate) Value);

impl FromRequest<Arc<Api>> for OptionalJsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        let has_type = request.headers().contains_key(CONTENT_TYPE);
        if !has_type && request.body().is_end_stream() {
            return Ok(Self(json!({})));
        }
        JsonBody::from_request(request, api).await.map(|JsonBody(value)| Self(value))
    }
}

fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        // Line and column only: the parser's own words may one day quote the input.
        let (line, column) = (error.line(), error.column());
        Problem::malformed_json(format!("not JSON at line {line}, column {column}"))
    })
}

/// `application/json` or, which is the same to a reader, a merge patch; whatever its parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    ["application/json", "application/merge-patch+json"]
        .iter()
        .any(|name| essence.eq_ignore_ascii_case(name))
}

/// The `{id}` of a path. What is no id names no subscription, so it is not found.
pub(crate) struct IdInPath(pub(crate) SubscriptionId);

impl<S: Send + Sync> FromRequestParts<S> for IdInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| SubscriptionId::parse(&text).ok());
        id.map(Self).ok_or_else(|| Code::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_is_json() {
        let table = [
            (Some("application/json"), true),
            (Some("Application/JSON ; charset=utf-8"), true),
            (Some("application/merge-patch+json"), true),
            (Some("application/jsonp"), false),
            (Some("text/plain"), false),
            (Some(""), false),
            (None, false),
        ];
        for (value, json) in table {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(CONTENT_TYPE, value.parse().unwrap());
            }
            assert_eq!(is_json(&headers), json, "{value:?}");
        }
    }
}
