//! One delivery attempt: what a sink is given and what it answers. A failed delivery is an
//! [`Outcome`], never an error (style: "Words").

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::Event;
use crate::id::JobId;
use crate::subscription::Subscription;
use crate::time::UnixMillis;

/// The most bytes of a response that the attempt log keeps.
pub const EXCERPT_BYTES_MAX: usize = 1024;

/// One attempt to deliver one event to one subscription.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The job that it is made for: the same for each of its attempts, so that a service that
    /// recognises repetitions by an id may have this one.
    pub job: JobId,
    /// New for every attempt.
    pub delivery_id: Uuid,
    /// The subscription as it stands now: the destination is resolved at the time of the attempt.
    pub subscription: Arc<Subscription>,
    /// What is delivered.
    pub event: Arc<Event>,
    /// When the attempt starts, by the hub's clock.
    pub at: UnixMillis,
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Success, failure, or no attempt at all.
    pub result: AttemptResult,
    /// The status that the destination answered, if it did.
    pub status: Option<u16>,
    /// The start of a failure's response, at most [`EXCERPT_BYTES_MAX`].
    pub excerpt: Vec<u8>,
    /// How long it took, milliseconds.
    pub duration_ms: u64,
    /// For how long the destination asked to be left alone, milliseconds from the outcome; only
    /// from a 429 or 503 (contract section 4, "Back-off").
    pub retry_after_ms: Option<u64>,
}

/// The three ends of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    /// The destination has it.
    Delivered,
    /// The destination does not have it; the curve decides what follows.
    Failed {
        /// What kind of failure.
        class: ErrorClass,
        /// In words, for the attempt log.
        detail: String,
    },
    /// The hub itself could not try: no step is used (contract section 4, "Back-off").
    NotAttempted {
        /// Why, for the log.
        detail: String,
    },
}

impl Outcome {
    /// A failure without a response.
    #[must_use]
    pub fn failed(class: ErrorClass, detail: impl Into<String>) -> Self {
        let result = AttemptResult::Failed { class, detail: detail.into() };
        Self { result, status: None, excerpt: Vec::new(), duration_ms: 0, retry_after_ms: None }
    }

    /// The hub could not try.
    #[must_use]
    pub fn not_attempted(detail: impl Into<String>) -> Self {
        let result = AttemptResult::NotAttempted { detail: detail.into() };
        Self { result, status: None, excerpt: Vec::new(), duration_ms: 0, retry_after_ms: None }
    }
}

/// Kinds of failed attempts, used in the attempt log, dead letters and metrics alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The host name did not resolve.
    Dns,
    /// No connection.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// No complete answer within the time.
    Timeout,
    /// The destination answered 3xx; redirects are failures.
    Redirect,
    /// The destination answered 410: it wants nothing any more.
    Gone,
    /// The destination answered another 4xx.
    #[serde(rename = "http_4xx")]
    Http4xx,
    /// The destination answered 5xx.
    #[serde(rename = "http_5xx")]
    Http5xx,
    /// The destination answered 429 or its service's equal.
    Throttled,
    /// The payload is above what the destination takes.
    TooLarge,
    /// The address is not one that the hub may call.
    RefusedAddress,
    /// The answer made no sense, or the connection broke in the middle of it.
    Protocol,
    /// The service does not know the credentials, or does not let them do this.
    AccessDenied,
    /// The queue, bus or exchange is not there.
    NotFound,
    /// The broker gave the message back: no queue is bound for it.
    Unroutable,
    /// The broker refused to take the message.
    Rejected,
    /// The rendered routing key is longer than the protocol can say.
    RoutingKeyTooLong,
    /// The sink's own code failed.
    Panic,
}

impl ErrorClass {
    /// Whether no later attempt can end otherwise, since what failed is the event itself: the job
    /// is dead-lettered at once, with the class as the reason (contract section 5). The destination
    /// was not called, so this says nothing about its health.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::TooLarge | Self::RoutingKeyTooLong)
    }

    /// Whether a failure of this class says something about the destination's health: not where the
    /// event itself or the hub's own code is at fault.
    #[must_use]
    pub fn tells_of_destination(self) -> bool {
        !self.is_terminal() && self != Self::Panic
    }

    /// The stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Redirect => "redirect",
            Self::Gone => "gone",
            Self::Http4xx => "http_4xx",
            Self::Http5xx => "http_5xx",
            Self::Throttled => "throttled",
            Self::TooLarge => "too_large",
            Self::RefusedAddress => "refused_address",
            Self::Protocol => "protocol",
            Self::AccessDenied => "access_denied",
            Self::NotFound => "not_found",
            Self::Unroutable => "unroutable",
            Self::Rejected => "rejected",
            Self::RoutingKeyTooLong => "routing_key_too_long",
            Self::Panic => "panic",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_class_has_the_same_name_in_json_and_in_text() {
        let all = [
            ErrorClass::Dns,
            ErrorClass::Connect,
            ErrorClass::Tls,
            ErrorClass::Timeout,
            ErrorClass::Redirect,
            ErrorClass::Gone,
            ErrorClass::Http4xx,
            ErrorClass::Http5xx,
            ErrorClass::Throttled,
            ErrorClass::TooLarge,
            ErrorClass::RefusedAddress,
            ErrorClass::Protocol,
            ErrorClass::AccessDenied,
            ErrorClass::NotFound,
            ErrorClass::Unroutable,
            ErrorClass::Rejected,
            ErrorClass::RoutingKeyTooLong,
            ErrorClass::Panic,
        ];
        for class in all {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
        }
    }
}
