//! What an answer, or none, means. The status decides: once a 2xx has arrived the event is
//! delivered, whatever becomes of the body. The body is read for two reasons only, an excerpt of a
//! failure and a connection that can be used again, so it gets at most [`BODY_BYTES_MAX`] and
//! [`BODY_TIME_MAX`], and never more than is left of the attempt's time; then the connection is
//! closed. An endless or a hanging body thus costs a connection, never an attempt.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use reqwest::{Response, StatusCode};
use streaming_hub_model::attempt::{AttemptResult, EXCERPT_BYTES_MAX, ErrorClass, Outcome};
use streaming_hub_model::retry;
use streaming_hub_model::time::UnixMillis;
use tokio::time::Instant;

use crate::resolver;

/// The most bytes of a response's body that are taken, and the window that HTTP/2 offers for it.
pub(super) const BODY_BYTES_MAX: u32 = 64 * 1024;

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

/// The outcome of an attempt that got no answer. Its text names neither the URL, which may be a
/// secret, nor an address.
pub(super) fn error(error: &reqwest::Error) -> Outcome {
    let chain = chain_of(error);
    let resolution = chain.iter().find_map(|cause| cause.downcast_ref::<resolver::Error>());
    if let Some(cause) = resolution {
        let class = match cause {
            resolver::Error::Unavailable(_) => return Outcome::not_attempted(cause.to_string()),
            resolver::Error::Refused(_) => ErrorClass::RefusedAddress,
            resolver::Error::Failed(_) | resolver::Error::Empty => ErrorClass::Dns,
        };
        return Outcome::failed(class, cause.to_string());
    }
    let class = if error.is_timeout() {
        ErrorClass::Timeout
    } else if chain.iter().any(|cause| is_tls(*cause, error.is_connect())) {
        ErrorClass::Tls
    } else if error.is_connect() {
        ErrorClass::Connect
    } else {
        ErrorClass::Protocol
    };
    let what = match class {
        ErrorClass::Tls => "no TLS connection",
        ErrorClass::Connect => "no connection",
        ErrorClass::Timeout => "no answer in time",
        _ => "no valid answer",
    };
    // Only the causes: `reqwest`'s own text holds the URL.
    let innermost = chain.last().filter(|_| chain.len() > 1);
    match innermost {
        Some(cause) => Outcome::failed(class, format!("{what}: {cause}")),
        None => Outcome::failed(class, what),
    }
}

/// The error and its causes, outermost first.
fn chain_of(error: &reqwest::Error) -> Vec<&(dyn StdError + 'static)> {
    let mut last: &(dyn StdError + 'static) = error;
    let mut chain = vec![last];
    while let Some(cause) = last.source() {
        chain.push(cause);
        last = cause;
    }
    chain
}

/// Whether this cause is a failure of TLS. While connecting, an I/O error inside an I/O error is
/// one: the TLS connector wraps what the handshake returned, a plain TCP failure stands alone.
/// Later it takes an error of the TLS library itself (a receiver that wants a client certificate
/// says so only after the handshake).
fn is_tls(cause: &(dyn StdError + 'static), connecting: bool) -> bool {
    if cause.is::<rustls::Error>() {
        return true;
    }
    let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match inner.and_then(|inner| inner.downcast_ref::<io::Error>()) {
        Some(nested) => connecting || is_tls(nested, connecting),
        None => inner.is_some_and(|inner| inner.is::<rustls::Error>()),
    }
}
