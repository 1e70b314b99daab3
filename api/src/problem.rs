//! Every error that the API answers: RFC 9457 problem details with a stable `code`. One exhaustive
//! table says each code's status and title; nothing else in the crate chooses a status for an
//! error. A problem travels as a response extension and gets its body where the request id is
//! known (`exchange`).

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use streaming_hub_model::change::Refusal;
use streaming_hub_model::id::SubscriptionId;
use uuid::Uuid;

use crate::draft::STRICT_NEEDS_ONE;
use crate::fields::{Fault, FieldError, Place};

/// Declares every code once: its name here, its status, the stable name, the title, and what a
/// caller can do about it (`docs/errors.md` is made of these).
macro_rules! codes {
    ($($name:ident $status:ident $code:literal $title:literal $remedy:literal)+) => {
        /// What can go wrong, as callers see it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Code {
            $(#[doc = $title] $name,)+
        }

        impl Code {
            /// Every code, in the order of the table.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)+];

            /// The table: status, stable code, title, remedy.
            const fn row(self) -> (StatusCode, &'static str, &'static str, &'static str) {
                match self {
                    $(Self::$name => (StatusCode::$status, $code, $title, $remedy),)+
                }
            }
        }
    };
}

codes! {
    MalformedJson BAD_REQUEST "malformed_json"
        "The body is not JSON"
        "Send one JSON value; `detail` names line and column where reading ended."
    InvalidQuery BAD_REQUEST "invalid_query"
        "The query has invalid parameters"
        "Correct the parameters that `errors` names."
    InvalidHeader BAD_REQUEST "invalid_header"
        "A header is invalid"
        "`detail` names the header and what it must be."
    Unauthenticated UNAUTHORIZED "unauthenticated"
        "A valid bearer token is required"
        "Send `Authorization: Bearer <token>`, once. Why a token is refused is not said."
    Forbidden FORBIDDEN "forbidden"
        "This token may not do that"
        "`/v1` takes a tenant's token, `/admin` an operator's."
    NotFound NOT_FOUND "not_found"
        "There is no such resource"
        "Check the id. A resource of another tenant is answered the same way."
    UnknownPath NOT_FOUND "unknown_path"
        "There is nothing at this path"
        "`/openapi.json` lists every path."
    MethodNotAllowed METHOD_NOT_ALLOWED "method_not_allowed"
        "The resource does not have this method"
        "The header `Allow` lists those that it has."
    DestinationChanged CONFLICT "destination_changed"
        "The destination changed while it was verified"
        "Read the subscription and verify again; the result did not count."
    PullSubscription CONFLICT "pull_subscription"
        "The subscription is read, not delivered: it has no destination"
        "Read it with `GET /v1/events`."
    NotAPullSubscription CONFLICT "not_a_pull_subscription"
        "The subscription is delivered to a destination and cannot be read"
        "Read a subscription whose sink is of the type `pull`."
    TooManySubscriptions CONFLICT "too_many_subscriptions"
        "The tenant has as many subscriptions as it may"
        "Delete one that is not needed, or ask the operator for a higher limit."
    IdTaken CONFLICT "id_taken"
        "The id that the hub drew is taken"
        "Send the request again."
    VerificationRequired CONFLICT "verification_required"
        "The subscription is off because its destination failed"
        "`POST /v1/subscriptions/{id}/verify`: a success enables it again."
    DisabledByOperator CONFLICT "disabled_by_operator"
        "An operator switched the subscription off"
        "Only an operator can enable it again."
    SinkTypeImmutable CONFLICT "sink_type_immutable"
        "The type of a sink never changes"
        "Create another subscription with the other type."
    IdempotencyInProgress CONFLICT "idempotency_in_progress"
        "A request with this Idempotency-Key is being answered"
        "Repeat it after `Retry-After` to get its answer."
    PreconditionFailed PRECONDITION_FAILED "precondition_failed"
        "The subscription does not have this version"
        "Read it again, look at what changed, and send the new ETag in `If-Match`."
    ReplayRunning CONFLICT "replay_running"
        "A replay of this subscription runs"
        "Wait for its end; `GET …/replay` shows how far it is."
    NotEnabled CONFLICT "not_enabled"
        "The subscription takes no jobs"
        "Enable it first, or replay to another one. A pull subscription is read, not replayed."
    BodyTooLarge PAYLOAD_TOO_LARGE "body_too_large"
        "The body is larger than allowed"
        "`detail` says how large a body may be."
    HeadersTooLarge REQUEST_HEADER_FIELDS_TOO_LARGE "headers_too_large"
        "The request's headers are larger, or more, than allowed"
        "`detail` says how large and how many they may be."
    UnsupportedMediaType UNSUPPORTED_MEDIA_TYPE "unsupported_media_type"
        "The body must be application/json"
        "Send `Content-Type: application/json`."
    ValidationFailed UNPROCESSABLE_ENTITY "validation_failed"
        "The body has invalid fields"
        "Correct the fields that `errors` names; all of them are listed at once."
    VerificationFailed UNPROCESSABLE_ENTITY "verification_failed"
        "The new destination did not accept the test event"
        "Nothing was changed. `detail` says what it answered."
    IdempotencyMismatch UNPROCESSABLE_ENTITY "idempotency_mismatch"
        "This Idempotency-Key came with another request"
        "Use a new key for a request with another body or query."
    DestinationRefused UNPROCESSABLE_ENTITY "destination_refused"
        "The hub does not deliver to this destination"
        "`detail` says why. Private, loopback and other special addresses are refused."
    Internal INTERNAL_SERVER_ERROR "internal"
        "The hub made an error"
        "Tell the operator the `request_id`; the hub's log carries it."
    CannotProbe SERVICE_UNAVAILABLE "cannot_probe"
        "The hub could not probe the destination"
        "Try again after `Retry-After`; the destination is not at fault."
    NotReady SERVICE_UNAVAILABLE "not_ready"
        "This instance is not ready yet"
        "Wait until what `missing` lists is there; other instances may be ready."
    Unreadable SERVICE_UNAVAILABLE "unreadable"
        "The log could not be read"
        "Repeat it after `Retry-After`: Kafka is away, or too many are reading at once."
    RateLimited TOO_MANY_REQUESTS "rate_limited"
        "Too many requests"
        "Nothing was done. Repeat it after `Retry-After`; larger pages need fewer reads."
    ReadFailed SERVICE_UNAVAILABLE "read_failed"
        "The read could not be committed"
        "Nothing moved. Repeat it after `Retry-After`."
    ReadUndecided SERVICE_UNAVAILABLE "read_undecided"
        "Whether the read was committed is not known"
        "Repeat it with `after` set to the last `seq` that you have processed."
    NoOwner SERVICE_UNAVAILABLE "no_owner"
        "The part of the hub that has this is moving between instances"
        "Nothing happened. Repeat it after `Retry-After`; it may take as long as a session."
    Timeout SERVICE_UNAVAILABLE "timeout"
        "The request took longer than allowed"
        "A write may still take effect: read before repeating it."
    Unavailable SERVICE_UNAVAILABLE "unavailable"
        "The change could not be recorded"
        "Nothing was changed. Repeat it after `Retry-After`."
    Undecided SERVICE_UNAVAILABLE "undecided"
        "The change is not decided yet"
        "It was recorded and may still take effect: read before repeating it."
}

impl Code {
    /// The HTTP status.
    pub(crate) const fn status(self) -> StatusCode {
        self.row().0
    }

    /// The stable name.
    pub(crate) const fn as_str(self) -> &'static str {
        self.row().1
    }

    /// What it means in a line.
    pub(crate) const fn title(self) -> &'static str {
        self.row().2
    }

    /// After how many seconds the same request is worth repeating, where that is known to be safe.
    pub(crate) const fn retry_after_s(self) -> Option<u64> {
        match self {
            Self::Unavailable => Some(5),
            Self::ReadFailed => Some(1),
            Self::NoOwner | Self::Unreadable => Some(2),
            Self::IdempotencyInProgress => Some(1),
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

    /// Headers of more than these bytes, or more of them than this.
    pub(crate) fn headers_too_large(bytes_max: usize, count_max: usize) -> Self {
        let detail =
            format!("there are at most {count_max} headers, of {bytes_max} bytes together");
        Self::with_detail(Code::HeadersTooLarge, detail)
    }

    /// Every wrong field of a body, or every wrong parameter of a query.
    pub(crate) fn fields(code: Code, errors: Vec<FieldError>) -> Self {
        Self { errors, ..Self::from(code) }
    }

    /// What is wrong with the fields of a body.
    pub(crate) fn validation(errors: Vec<FieldError>) -> Self {
        Self::fields(Code::ValidationFailed, errors)
    }

    /// A strict order beside more than one attempt at once, which a concurrent change made of it.
    fn strict_needs_one() -> Self {
        let place = Place::Pointer("/max_in_flight".to_owned());
        let message = STRICT_NEEDS_ONE.to_owned();
        let error = FieldError { place, code: Fault::NotAllowed, message };
        Self::validation(vec![error])
    }

    /// A header that cannot be used.
    pub(crate) fn invalid_header(detail: impl Into<String>) -> Self {
        Self::with_detail(Code::InvalidHeader, detail)
    }

    /// A new destination that failed its probe, and why.
    pub(crate) fn verification_failed(reason: impl Into<String>) -> Self {
        Self::with_detail(Code::VerificationFailed, reason)
    }

    /// As it is kept under an idempotency key.
    pub(crate) fn kept(&self) -> Option<String> {
        let kept = Kept {
            code: self.code.as_str().to_owned(),
            detail: self.detail.clone(),
            errors: self.errors.clone(),
            missing: self.missing.clone(),
        };
        serde_json::to_string(&kept).ok()
    }

    /// One that was kept. A code that this release does not have is an error of ours.
    pub(crate) fn from_kept(text: &str) -> Self {
        let kept = serde_json::from_str::<Kept>(text).ok();
        let code = |name: &str| Code::ALL.iter().copied().find(|code| code.as_str() == name);
        match kept.and_then(|kept| Some((code(&kept.code)?, kept))) {
            Some((code, Kept { detail, errors, missing, .. })) => {
                Self { code, detail, errors, missing, cause: None }
            }
            None => Self::internal("a kept problem is of an unknown kind"),
        }
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

    /// What is asked for is another instance's to answer.
    pub(crate) fn without_role(role: &str) -> Self {
        let detail = format!("this instance does not have the role `{role}`");
        Self::with_detail(Code::NotFound, detail)
    }

    /// The change is recorded and its decision is not known: it must not be repeated blindly.
    pub(crate) fn undecided(id: SubscriptionId, creates: bool) -> Self {
        let mut detail = format!(
            "The change was recorded and may still take effect; \
             GET /v1/subscriptions/{id} shows whether it did. With an Idempotency-Key it can be \
             repeated under the same key."
        );
        if creates {
            detail.push_str(
                " A signing secret that the hub made for it is not shown again: \
                 delete it and create another.",
            );
        }
        Self::with_detail(Code::Undecided, detail)
    }

    /// Nobody runs the task that was asked; the call had no effect. The cause is for the log only.
    pub(crate) fn no_owner(cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..Self::from(Code::NoOwner) }
    }

    /// The same with what the log says beside it.
    #[must_use]
    pub(crate) fn because(self, cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..self }
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
        let (status, code, title, _) = self.code.row();
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
            Refusal::Stale => Code::PreconditionFailed.into(),
            Refusal::VerificationRequired => Code::VerificationRequired.into(),
            Refusal::DisabledByOperator => Code::DisabledByOperator.into(),
            Refusal::SinkType => Code::SinkTypeImmutable.into(),
            Refusal::InProgress => Code::IdempotencyInProgress.into(),
            Refusal::OtherBody => Code::IdempotencyMismatch.into(),
            Refusal::StrictNeedsOne => Self::strict_needs_one(),
            Refusal::Exists => Code::IdTaken.into(),
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

/// `docs/errors.md`: every problem, by status.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Errors\n\n<!-- Made from the code: `streaming-hub api problems > docs/errors.md` -->\n\n\
         Every error of the HTTP interface is an RFC 9457 problem (`application/problem+json`). \
         `code` is\nstable and what a program should look at; `title` and `detail` are for people. \
         `errors` lists every\nwrong field (`pointer`, a JSON pointer into the body) or parameter \
         (`parameter`) at once. 5xx answers\nsay nothing about the inside; their `request_id` is \
         in the hub's log.\n\n\
         | status | code | meaning | what to do | `Retry-After` |\n|---|---|---|---|---|\n",
    );
    let mut codes = Code::ALL.to_vec();
    codes.sort_by_key(|code| code.status());
    for code in codes {
        let (status, name, title, remedy) = code.row();
        let after = code.retry_after_s().map(|seconds| format!("{seconds} s")).unwrap_or_default();
        let status = status.as_u16();
        let _ = writeln!(text, "| {status} | `{name}` | {title} | {remedy} | {after} |");
    }
    text
}

/// A problem as it is kept under an idempotency key.
#[derive(Serialize, Deserialize)]
struct Kept {
    code: String,
    detail: Option<String>,
    errors: Vec<FieldError>,
    missing: Vec<String>,
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

    #[test]
    fn every_code_is_an_error_with_a_name_of_its_own() {
        let names: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
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
        for &code in Code::ALL {
            let says = Problem::from(code).into_response().headers().contains_key(RETRY_AFTER);
            let safe = [
                Code::Unavailable,
                Code::Unreadable,
                Code::NoOwner,
                Code::CannotProbe,
                Code::IdempotencyInProgress,
                Code::ReadFailed,
            ];
            assert_eq!(says, safe.contains(&code), "{code:?}");
        }
    }
}
