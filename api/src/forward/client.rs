//! How requests travel to other instances: no proxy, no redirect, no cookie, the machine's own
//! certificates for `https`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use reqwest::Client;
use reqwest::redirect::Policy;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::Verifier;

use crate::exchange::REQUEST_ID;
use crate::rate::{RATE_LIMIT, RATE_LIMIT_POLICY};

/// An instance that is there accepts within this time.
const CONNECT: Duration = Duration::from_secs(1);
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);

/// Says that an instance does not run the task that it was asked about.
pub(super) const NOT_OWNER: HeaderName = HeaderName::from_static("x-streaming-hub-not-owner");

/// The headers of an answer that travel back.
const RETURNED: [HeaderName; 8] = [
    CONTENT_TYPE,
    CONTENT_LENGTH,
    ETAG,
    LOCATION,
    RETRY_AFTER,
    REQUEST_ID,
    RATE_LIMIT,
    RATE_LIMIT_POLICY,
];

/// Why another instance gave no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It cannot have seen the request.
    NotSent(String),
    /// What became of the request is not known.
    Unknown(String),
}

/// A client for all instances.
pub(crate) fn make() -> Result<Client, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::new(Arc::clone(&provider)).map_err(|error| error.to_string())?;
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        // "Dangerous" names any verifier of one's own; this one is the platform's.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        .http1_only()
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .build()
        .map_err(|error| error.to_string())
}

/// Sends once. The answer's body is read by whoever gets it.
pub(super) async fn send(
    client: &Client,
    request: reqwest::Request,
) -> Result<reqwest::Response, Failure> {
    client.execute(request).await.map_err(|error| {
        let is_connect = error.is_connect();
        let text = error.without_url().to_string();
        if is_connect { Failure::NotSent(text) } else { Failure::Unknown(text) }
    })
}

/// The answer as the caller gets it: status, the headers that matter, and the body as it arrives.
pub(crate) fn returned(answer: reqwest::Response) -> Response {
    let status = answer.status();
    let headers: HeaderMap = RETURNED
        .into_iter()
        .filter_map(|name| answer.headers().get(&name).cloned().map(|value| (name, value)))
        .collect();
    let mut response = Response::new(Body::new(reqwest::Body::from(answer)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
