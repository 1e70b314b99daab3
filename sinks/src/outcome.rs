//! Outcomes that several sinks answer with.

use std::time::Duration;

use streaming_hub_model::attempt::{AttemptResult, ErrorClass, Outcome};

/// The destination has it.
pub(crate) fn delivered() -> Outcome {
    Outcome { result: AttemptResult::Delivered, ..Outcome::not_attempted(String::new()) }
}

/// An entry of a request that the answer does not mention.
pub(crate) fn unanswered() -> Outcome {
    Outcome::failed(ErrorClass::Protocol, "the answer does not mention the message")
}

/// The same outcome, with the permission that a look-up needs where it was denied.
pub(crate) fn with_permission(mut outcome: Outcome, permission: &str) -> Outcome {
    if let AttemptResult::Failed { class: ErrorClass::AccessDenied, detail } = &mut outcome.result {
        detail.push_str("; verifying needs the permission ");
        detail.push_str(permission);
        detail.push_str(", or \"verify_with\": \"event\"");
    }
    outcome
}

/// How long something took, milliseconds.
pub(crate) fn duration_ms(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
