//! Every error that the API answers: RFC 9457 problem details with a stable `code`. One exhaustive
//! table says each code's status and title; nothing else in the crate chooses a status for an
//! error. A problem travels as a response extension and gets its body where the request id is
//! known (`exchange`).

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use streaming_hub_model::change::Refusal;
use streaming_hub_model::id::SubscriptionId;
use uuid::Uuid;

use crate::fields::FieldError;

/// What can go wrong, as callers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    MalformedJson,
    InvalidQuery,
    Unauthenticated,
    Forbidden,
    NotFound,
    UnknownPath,
    MethodNotAllowed,
    DestinationChanged,
    PullSubscription,
    NotAPullSubscription,
    TooManySubscriptions,
    BodyTooLarge,
    UnsupportedMediaType,
    ValidationFailed,
    DestinationRefused,
    Internal,
    CannotProbe,
    NotReady,
    Timeout,
    Unavailable,
    Undecided,
}

impl Code {
    /// The table: status, stable code, title.
    const fn row(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::MalformedJson => (S::BAD_REQUEST, "malformed_json", "The body is not JSON"),
            Self::InvalidQuery => {
                (S::BAD_REQUEST, "invalid_query", "The query has invalid parameters")
            }
            Self::Unauthenticated => {
                (S::UNAUTHORIZED, "unauthenticated", "A valid bearer token is required")
            }
            Self::Forbidden => (S::FORBIDDEN, "forbidden", "This token may not do that"),
            Self::NotFound => (S::NOT_FOUND, "not_found", "There is no such resource"),
            Self::UnknownPath => (S::NOT_FOUND, "unknown_path", "There is nothing at this path"),
            Self::MethodNotAllowed => (
                S::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "The resource does not have this method",
            ),
            Self::DestinationChanged => (
                S::CONFLICT,
                "destination_changed",
                "The destination changed while it was verified",
            ),
            Self::PullSubscription => (
                S::CONFLICT,
                "pull_subscription",
                "The subscription is read, not delivered: it has no destination",
            ),
            Self::NotAPullSubscription => (
                S::CONFLICT,
                "not_a_pull_subscription",
                "The subscription is delivered to a destination and cannot be read",
            ),
            // Not 422: the body is right, and the same request succeeds after a deletion.
            Self::TooManySubscriptions => (
                S::CONFLICT,
                "too_many_subscriptions",
                "The tenant has as many subscriptions as it may",
            ),
            Self::BodyTooLarge => {
                (S::PAYLOAD_TOO_LARGE, "body_too_large", "The body is larger than allowed")
            }
            Self::UnsupportedMediaType => (
                S::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "The body must be application/json",
            ),
            Self::ValidationFailed => {
                (S::UNPROCESSABLE_ENTITY, "validation_failed", "The body has invalid fields")
            }
            Self::DestinationRefused => (
                S::UNPROCESSABLE_ENTITY,
                "destination_refused",
                "The hub does not deliver to this destination",
            ),
            Self::Internal => (S::INTERNAL_SERVER_ERROR, "internal", "The hub made an error"),
            Self::CannotProbe => {
                (S::SERVICE_UNAVAILABLE, "cannot_probe", "The hub could not probe the destination")
            }
            Self::NotReady => {
                (S::SERVICE_UNAVAILABLE, "not_ready", "This instance is not ready yet")
            }
            Self::Timeout => {
                (S::SERVICE_UNAVAILABLE, "timeout", "The request took longer than allowed")
            }
            Self::Unavailable => {
                (S::SERVICE_UNAVAILABLE, "unavailable", "The change could not be recorded")
            }
            Self::Undecided => {
                (S::SERVICE_UNAVAILABLE, "undecided", "The change is not decided yet")
            }
        }
    }

    /// The HTTP status.
    pub(crate) const fn status(self) -> StatusCode {
        self.row().0
    }

    /// The stable name.
    pub(crate) const fn as_str(self) -> &'static str {
        self.row().1
    }

    /// After how many seconds the same request is worth repeating, where that is known to be safe.
    const fn retry_after_s(self) -> Option<u64> {
        match self {
            Self::Unavailable => Some(5),
            // As with a delivery that the hub itself could not attempt (contract section 4).
            Self::CannotProbe => Some(30),
            _ => None,
        }
    }
}

/// One error on its way to the caller.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    code: Code,
    detail: Option<String>,
    errors: Vec<FieldError>,
    missing: Vec<String>,
    cause: Option<String>,
}

impl Problem {
    fn with_detail(code: Code, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::from(code) }
    }

    /// A body that is no JSON.
    pub(crate) fn malformed_json(detail: impl Into<String>) -> Self {
        Self::with_detail(Code::MalformedJson, detail)
    }

    /// A body of more than `bytes_max` bytes.
    pub(crate) fn body_too_large(bytes_max: usize) -> Self {
        Self::with_detail(Code::BodyTooLarge, format!("a body has at most {bytes_max} bytes"))
    }

    /// Every wrong field of a body, or every wrong parameter of a query.
    pub(crate) fn fields(code: Code, errors: Vec<FieldError>) -> Self {
        Self { errors, ..Self::from(code) }
    }

    /// A destination that the sink does not admit, and why in words for the tenant.
    pub(crate) fn destination_refused(error: FieldError) -> Self {
        let detail = error.message.clone();
        Self { errors: vec![error], ..Self::with_detail(Code::DestinationRefused, detail) }
    }

    /// What this instance still lacks.
    pub(crate) fn not_ready(missing: Vec<String>) -> Self {
        Self { missing, ..Self::from(Code::NotReady) }
    }

    /// The change is recorded and its decision is not known: it must not be repeated blindly.
    pub(crate) fn undecided(id: SubscriptionId, creates: bool) -> Self {
        let mut detail = format!(
            "The change was recorded and may still take effect; \
             GET /v1/subscriptions/{id} shows whether it did."
        );
        if creates {
            detail.push_str(
                " A signing secret that the hub made for it is not shown again: \
                 delete it and create another.",
            );
        }
        Self::with_detail(Code::Undecided, detail)
    }

    /// The request ran out of time.
    pub(crate) fn timeout() -> Self {
        let detail = "A write may still take effect: read the subscription before repeating it.";
        Self::with_detail(Code::Timeout, detail)
    }

    /// The hub could not try to reach the destination. The cause is for the log only.
    pub(crate) fn cannot_probe(cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..Self::from(Code::CannotProbe) }
    }

    /// An error of ours. The cause is for the log only.
    pub(crate) fn internal(cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..Self::from(Code::Internal) }
    }

    /// What kind it is.
    pub(crate) const fn code(&self) -> Code {
        self.code
    }

    /// What the log says beside the code.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Writes the problem's body into its response.
    pub(crate) fn write_into(&self, response: &mut Response, request_id: Uuid) {
        let (status, code, title) = self.code.row();
        let document = Document {
            kind: format!("urn:streaming-hub:problem:{code}"),
            title,
            status: status.as_u16(),
            code,
            detail: self.detail.as_deref(),
            errors: &self.errors,
            missing: &self.missing,
            request_id,
        };
        let body = serde_json::to_vec(&document).unwrap_or_default();
        *response.body_mut() = Body::from(body);
        let headers = response.headers_mut();
        // It was that of the empty body.
        headers.remove(CONTENT_LENGTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    }
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self { code, detail: None, errors: Vec::new(), missing: Vec::new(), cause: None }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Code::NotFound.into(),
            Refusal::TooMany => Code::TooManySubscriptions.into(),
            Refusal::DestinationChanged => Code::DestinationChanged.into(),
            // The hub draws the id, so a taken one is no fault of the caller.
            Refusal::Exists => Self::internal("the id of a new subscription is taken"),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.code.status().into_response();
        let headers = response.headers_mut();
        if self.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.code.retry_after_s() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// The body, RFC 9457 section 3, with the extension members of contract section 7.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'a str,
    status: u16,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    missing: &'a [String],
    request_id: Uuid,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const ALL: [Code; 21] = [
        Code::MalformedJson,
        Code::InvalidQuery,
        Code::Unauthenticated,
        Code::Forbidden,
        Code::NotFound,
        Code::UnknownPath,
        Code::MethodNotAllowed,
        Code::DestinationChanged,
        Code::PullSubscription,
        Code::NotAPullSubscription,
        Code::TooManySubscriptions,
        Code::BodyTooLarge,
        Code::UnsupportedMediaType,
        Code::ValidationFailed,
        Code::DestinationRefused,
        Code::Internal,
        Code::CannotProbe,
        Code::NotReady,
        Code::Timeout,
        Code::Unavailable,
        Code::Undecided,
    ];

    #[test]
    fn every_code_is_an_error_with_a_name_of_its_own() {
        let names: HashSet<_> = ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), ALL.len());
        for code in ALL {
            let status = code.status();
            assert!(status.is_client_error() || status.is_server_error(), "{code:?}");
        }
    }

    #[tokio::test]
    async fn the_cause_of_a_server_error_never_reaches_the_caller() {
        for problem in [Problem::internal("disk sda1"), Problem::cannot_probe("disk sda1")] {
            let mut response = problem.clone().into_response();
            problem.write_into(&mut response, Uuid::nil());
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(!body.contains("sda1"), "{body}");
            assert!(!body.contains("cause"), "{body}");
        }
    }

    #[test]
    fn only_what_is_safe_to_repeat_says_when() {
        for code in ALL {
            let says = Problem::from(code).into_response().headers().contains_key(RETRY_AFTER);
            assert_eq!(says, matches!(code, Code::Unavailable | Code::CannotProbe), "{code:?}");
        }
    }
}
