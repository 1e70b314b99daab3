//! What an error of an AWS service means for the job: by the service's code where it names one,
//! else by the HTTP status. Texts hold the service's code and message, never a URL.

use std::error::Error as StdError;

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use streaming_hub_model::attempt::{ErrorClass, Outcome};

use super::identity::{NoOwnIdentity, NotAssumed};
use crate::guard::Refused;
use crate::http;
use crate::outcome::with_permission;

/// The longest message of a service that is kept, characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// Codes by which a service knows who calls, and refuses it.
const FORBIDDEN: [&str; 5] = [
    "AccessDenied",
    "AccessDeniedException",
    "NotAuthorized",
    "NotAuthorizedForSourceException",
    "UnauthorizedOperation",
];

/// A request, or an entry of one, that failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// What kind; none when the hub itself could not try.
    pub(crate) class: Option<ErrorClass>,
    /// In words.
    pub(crate) detail: String,
    /// The HTTP status, if there was one.
    pub(crate) status: Option<u16>,
    /// For how long the service asked to be left alone, milliseconds.
    pub(crate) retry_after_ms: Option<u64>,
    /// Whether a permission is missing: who calls is known.
    lacks_permission: bool,
}

impl Failure {
    /// One without an answer of the service.
    pub(crate) fn new(class: Option<ErrorClass>, detail: String) -> Self {
        Self { class, detail, status: None, retry_after_ms: None, lacks_permission: false }
    }

    /// An entry that the service refused inside of an answer that succeeded.
    pub(crate) fn entry(code: Option<&str>, message: Option<&str>, is_ours: bool) -> Self {
        let class = by_code(code, message);
        let otherwise = if is_ours { ErrorClass::Http4xx } else { ErrorClass::Http5xx };
        Self::new(Some(class.unwrap_or(otherwise)), detail(code, message))
    }

    /// Whether each entry of the request might fare better alone: nothing of it was taken, and what
    /// is wrong may be with one of them.
    pub(crate) fn is_of_the_request(&self) -> bool {
        matches!(self.class, Some(ErrorClass::Http4xx | ErrorClass::TooLarge))
    }

    /// The same as an outcome.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.class {
            Some(class) => Outcome {
                status: self.status,
                retry_after_ms: self.retry_after_ms,
                ..Outcome::failed(class, self.detail.clone())
            },
            None => Outcome::not_attempted(self.detail.clone()),
        }
    }

    /// The same for a question that takes this permission: where it is missing, it is named.
    pub(crate) fn outcome_of_asking(&self, permission: &str) -> Outcome {
        let outcome = self.outcome();
        if self.lacks_permission { with_permission(outcome, permission) } else { outcome }
    }
}

/// What went wrong with a request.
pub(crate) fn of<E>(error: &SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    if let SdkError::ServiceError(context) = error {
        let (code, message) = (context.err().code(), context.err().message());
        let status = context.raw().status().as_u16();
        let class = by_code(code, message).unwrap_or_else(|| by_status(status));
        let status_alone = || format!("the service answered {status} without a code");
        return Failure {
            class: Some(class),
            detail: code.map_or_else(status_alone, |_| detail(code, message)),
            status: Some(status),
            retry_after_ms: hint(context.raw()),
            // Without a code it may be that.
            lacks_permission: code.map_or(status == 403, |code| FORBIDDEN.contains(&code)),
        };
    }
    if let Some(failure) = by_cause(error) {
        return failure;
    }
    let class = match error {
        SdkError::TimeoutError(_) => ErrorClass::Timeout,
        _ => ErrorClass::Protocol,
    };
    let raw = error.raw_response().map(|raw| raw.status().as_u16());
    let class = raw.filter(|status| *status >= 300).map_or(class, by_status);
    let detail = match class {
        ErrorClass::Timeout => "no answer in time",
        _ => "no valid answer",
    };
    Failure { status: raw, ..Failure::new(Some(class), detail.to_owned()) }
}

/// When to come again, where the service says it: in milliseconds or in seconds.
fn hint(raw: &HttpResponse) -> Option<u64> {
    let number = |name| raw.headers().get(name)?.trim().parse::<u64>().ok();
    number("x-amz-retry-after").or_else(|| number("retry-after")?.checked_mul(1_000))
}

/// The innermost cause that says more than the SDK's own error.
fn by_cause(error: &(dyn StdError + 'static)) -> Option<Failure> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(NotAssumed(failure)) = cause.downcast_ref() {
            let detail = format!("the role cannot be assumed: {}", failure.detail);
            return Some(Failure { detail, ..failure.clone() });
        }
        if let Some(none) = cause.downcast_ref::<NoOwnIdentity>() {
            return Some(Failure::new(None, none.to_string()));
        }
        if let Some(refused) = cause.downcast_ref::<Refused>() {
            return Some(Failure::new(Some(ErrorClass::RefusedAddress), refused.to_string()));
        }
        if let Some(error) = cause.downcast_ref::<reqwest::Error>() {
            let (class, detail) = http::failure::class(error);
            return Some(Failure::new(class, detail));
        }
        next = cause.source();
    }
    None
}

fn detail(code: Option<&str>, message: Option<&str>) -> String {
    let code = code.unwrap_or("no code");
    let message = message.unwrap_or_default();
    let text = format!("the service answered {code}: {message}");
    text.trim_end_matches([':', ' ']).chars().take(MESSAGE_CHARS_MAX).collect()
}

fn by_code(code: Option<&str>, message: Option<&str>) -> Option<ErrorClass> {
    // The query protocol's codes have a prefix, `AWS.SimpleQueueService.NonExistentQueue`.
    let code = code?.rsplit('.').next()?;
    Some(match code {
        "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "RequestLimitExceeded"
        | "TooManyRequestsException"
        | "LimitExceededException"
        | "OverLimit"
        | "SlowDown"
        | "KmsThrottled" => ErrorClass::Throttled,
        "AccessDenied"
        | "AccessDeniedException"
        | "NotAuthorizedForSourceException"
        | "NotAuthorized"
        | "UnauthorizedOperation"
        | "InvalidClientTokenId"
        | "InvalidAccessKeyId"
        | "UnrecognizedClientException"
        | "UnrecognizedClient"
        | "SignatureDoesNotMatch"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "RequestExpired"
        | "AuthFailure"
        | "InvalidSecurity"
        | "InvalidToken"
        | "KmsAccessDenied"
        | "OptInRequired" => ErrorClass::AccessDenied,
        "QueueDoesNotExist"
        | "NonExistentQueue"
        | "QueueDeletedRecently"
        | "ResourceNotFoundException"
        | "ResourceNotFound" => ErrorClass::NotFound,
        "BatchRequestTooLong" | "RequestEntityTooLarge" | "RequestEntityTooLargeException" => {
            ErrorClass::TooLarge
        }
        "InvalidParameterValue" | "ValidationException" | "ValidationError"
            if message.is_some_and(speaks_of_size) =>
        {
            ErrorClass::TooLarge
        }
        "InternalFailure"
        | "InternalException"
        | "InternalError"
        | "ServiceUnavailable"
        | "ServiceUnavailableException" => ErrorClass::Http5xx,
        _ => return None,
    })
}

/// A queue may take less than the service does, and says so in words only.
fn speaks_of_size(message: &str) -> bool {
    ["must be shorter than", "Total size of the entries", "longer than"]
        .iter()
        .any(|words| message.contains(words))
}

fn by_status(status: u16) -> ErrorClass {
    match status {
        300..=399 => ErrorClass::Redirect,
        401 | 403 => ErrorClass::AccessDenied,
        413 => ErrorClass::TooLarge,
        429 => ErrorClass::Throttled,
        400..=499 => ErrorClass::Http4xx,
        500..=599 => ErrorClass::Http5xx,
        _ => ErrorClass::Protocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_services_code_decides_the_class() {
        for (code, message, class) in [
            ("AWS.SimpleQueueService.NonExistentQueue", "", ErrorClass::NotFound),
            ("ResourceNotFoundException", "", ErrorClass::NotFound),
            ("ThrottlingException", "", ErrorClass::Throttled),
            ("RequestThrottled", "", ErrorClass::Throttled),
            ("ExpiredTokenException", "", ErrorClass::AccessDenied),
            ("InvalidClientTokenId", "", ErrorClass::AccessDenied),
            ("SignatureDoesNotMatch", "", ErrorClass::AccessDenied),
            (
                "InvalidParameterValue",
                "Parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
                ErrorClass::TooLarge,
            ),
            ("InvalidParameterValue", "DelaySeconds", ErrorClass::Http4xx),
            ("InternalFailure", "", ErrorClass::Http5xx),
        ] {
            let failure = Failure::entry(Some(code), Some(message), true);
            assert_eq!(failure.class, Some(class), "{code}");
            assert!(failure.detail.contains(code));
        }
        let theirs = Failure::entry(Some("Unheard"), None, false);
        assert_eq!(theirs.class, Some(ErrorClass::Http5xx));
    }
}
