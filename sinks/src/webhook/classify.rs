//! What an answer, or none, means. The status decides: once a 2xx has arrived the event is
//! delivered, whatever becomes of the body. The body is read for two reasons only, an excerpt of a
//! failure and a connection that can be used again, so it gets at most [`BODY_BYTES_MAX`] and
//! [`BODY_TIME_MAX`], and never more than is left of the attempt's time; then the connection is
//! closed. An endless or a hanging body thus costs a connection, never an attempt.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use streaming_hub_model::attempt::{AttemptResult, EXCERPT_BYTES_MAX, ErrorClass, Outcome};
use streaming_hub_model::retry;
use streaming_hub_model::time::UnixMillis;
use tokio::time::Instant;

use crate::http::BODY_BYTES_MAX;

/// The longest that a body is waited for.
const BODY_TIME_MAX: Duration = Duration::from_secs(1);

/// The outcome of an attempt that was answered at `now`. Returns by `deadline`.
pub(super) async fn response(response: Response, now: UnixMillis, deadline: Instant) -> Outcome {
    let status = response.status();
    let retry_after_ms = retry_after(&response, now);
    let excerpt = read_body(response, deadline.min(Instant::now() + BODY_TIME_MAX)).await;
    let (result, excerpt) = match class_of(status) {
        None => (AttemptResult::Delivered, Vec::new()),
        Some(class) => {
            let detail = format!("the destination answered {}", status.as_u16());
            (AttemptResult::Failed { class, detail }, excerpt)
        }
    };
    Outcome { result, status: Some(status.as_u16()), excerpt, duration_ms: 0, retry_after_ms }
}

/// What a 429 or 503 says of when to come again. The last line of several counts.
fn retry_after(response: &Response, now: UnixMillis) -> Option<u64> {
    if !matches!(response.status().as_u16(), 429 | 503) {
        return None;
    }
    let value = response.headers().get_all("retry-after").iter().next_back()?;
    retry::retry_after_ms(value.to_str().ok()?, now)
}

/// The class of a status, none for success.
fn class_of(status: StatusCode) -> Option<ErrorClass> {
    match status.as_u16() {
        200..=299 => None,
        300..=399 => Some(ErrorClass::Redirect),
        410 => Some(ErrorClass::Gone),
        429 => Some(ErrorClass::Throttled),
        400..=499 => Some(ErrorClass::Http4xx),
        500..=599 => Some(ErrorClass::Http5xx),
        // An upgrade that nobody asked for, or a number that HTTP does not know.
        _ => Some(ErrorClass::Protocol),
    }
}

/// Reads the body within the limits and returns its start.
async fn read_body(mut response: Response, deadline: Instant) -> Vec<u8> {
    let mut excerpt = Vec::new();
    let mut left = BODY_BYTES_MAX as usize;
    while let Ok(Ok(Some(chunk))) = tokio::time::timeout_at(deadline, response.chunk()).await {
        let wanted = chunk.len().min(EXCERPT_BYTES_MAX - excerpt.len());
        excerpt.extend_from_slice(&chunk[..wanted]);
        left = left.saturating_sub(chunk.len());
        if left == 0 {
            break;
        }
    }
    excerpt
}
