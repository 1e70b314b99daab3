//! Why a request got no answer, from the HTTP client's error: a class for the curve and metrics,
//! and a text without URL or address.

use std::error::Error as StdError;
use std::io;

use streaming_hub_model::attempt::{ErrorClass, Outcome};

use crate::resolver;

/// The outcome of an attempt that got no answer.
pub(crate) fn outcome(error: &reqwest::Error) -> Outcome {
    match class(error) {
        (Some(class), detail) => Outcome::failed(class, detail),
        (None, detail) => Outcome::not_attempted(detail),
    }
}

/// What kind of failure, none for a fault of the hub's own, and in words that name neither the
/// URL, which may be a secret, nor an address.
pub(crate) fn class(error: &reqwest::Error) -> (Option<ErrorClass>, String) {
    let chain = chain_of(error);
    let resolution = chain.iter().find_map(|cause| cause.downcast_ref::<resolver::Error>());
    if let Some(cause) = resolution {
        return (cause.class(), cause.to_string());
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
        Some(cause) => (Some(class), format!("{what}: {cause}")),
        None => (Some(class), what.to_owned()),
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
