//! How HTTP requests travel, a webhook's and AWS's alike. Everything that `reqwest` would do by
//! itself and that would undo the guard or the isolation of tenants is switched off here: proxies
//! from the environment, redirects, a shared resolver, TLS sessions shared between clients. Cookies
//! and decompression are not compiled in.
//!
//! One thing is left on: a request that the protocol itself guarantees was not processed (an idle
//! connection closed before a byte was written, HTTP/2 `REFUSED_STREAM`, `GOAWAY`) is sent again
//! within the same attempt. The receiver has not seen it, so it is still one attempt.

pub(crate) mod failure;

use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use tower::{Layer, Service};

use crate::Error;
use crate::resolver::Resolver;

/// The most bytes of a response's body that are taken, and the window that HTTP/2 offers for it.
pub(crate) const BODY_BYTES_MAX: u32 = 64 * 1024;

/// TLS sessions that a client remembers; it talks to one host only.
const SESSIONS_MAX: usize = 8;

/// HTTP/2 pings within an attempt's time while it waits, so that a connection whose other end is
/// gone dies with the first attempt that meets it. Unlike one of HTTP/1 it would not be closed by
/// that attempt's time-out, and every later one would meet it again.
const PINGS_PER_ATTEMPT: u64 = 4;

/// What a client may take.
#[derive(Debug, Clone)]
pub(crate) struct HttpLimits {
    /// The limit of an attempt, milliseconds.
    pub(crate) timeout_ms: u64,
    /// The limit of getting a connection, milliseconds.
    pub(crate) connect_timeout_ms: u64,
    /// How long an unused connection is kept, milliseconds.
    pub(crate) idle_ms: u64,
    /// Connections that are kept.
    pub(crate) connections_max: usize,
    /// A PEM file of root certificates that are trusted beside the machine's.
    pub(crate) ca_file: Option<PathBuf>,
}

/// Makes clients that share what is costly and harmless to share: root certificates, the verifier
/// and the resolver. Connections and TLS sessions are each client's own.
pub(crate) struct Factory {
    tls: ClientConfig,
    resolver: Arc<Resolver>,
    connect_timeout: Duration,
    idle_timeout: Duration,
    ping: Duration,
    connections_max: usize,
}

impl Factory {
    /// Reads root certificates once.
    pub(crate) fn new(limits: &HttpLimits, resolver: Resolver) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let extra = limits.ca_file.as_deref().map_or_else(|| Ok(Vec::new()), read_pem)?;
        Ok(Self {
            tls: tls_config(extra, provider)?,
            resolver: Arc::new(resolver),
            connect_timeout: Duration::from_millis(limits.connect_timeout_ms),
            idle_timeout: Duration::from_millis(limits.idle_ms),
            ping: Duration::from_millis((limits.timeout_ms / PINGS_PER_ATTEMPT).max(1)),
            connections_max: limits.connections_max,
        })
    }

    /// A client without a connection.
    pub(crate) fn make(&self) -> reqwest::Result<Client> {
        let mut tls = self.tls.clone();
        // The clone would share the sessions of the original, and a resumed session is one
        // tenant's secret (I8).
        tls.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(self.resolver.clone())
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
            .http1_title_case_headers()
            .http2_initial_stream_window_size(BODY_BYTES_MAX)
            .http2_initial_connection_window_size(BODY_BYTES_MAX * 16)
            .http2_keep_alive_interval(self.ping)
            .http2_keep_alive_timeout(self.ping)
            .connector_layer(ForegroundLayer)
            .connect_timeout(self.connect_timeout)
            .pool_idle_timeout(self.idle_timeout)
            .pool_max_idle_per_host(self.connections_max)
            .build()
    }
}

fn tls_config(
    extra: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<ClientConfig, rustls::Error> {
    let verifier = Verifier::new_with_extra_roots(extra, provider.clone())?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        // "Dangerous" names any verifier of one's own; this one is the platform's.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn read_pem(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |reason: String| Error::CaFile { path: path.to_owned(), reason };
    let found =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(wrong("it has no certificate".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(error.to_string())),
    }
}

tokio::task_local! {
    /// Set while the future of an attempt is being polled.
    static IN_ATTEMPT: ();
}

/// Runs an attempt's exchange, in which alone connections are opened.
pub(crate) async fn foreground<F: Future>(exchange: F) -> F::Output {
    IN_ATTEMPT.scope((), exchange).await
}

type BoxError = Box<dyn StdError + Send + Sync>;

/// Keeps a client from opening connections that no attempt waits for. When a connection becomes
/// free while a new one is being opened for an attempt, the client uses the free one and opens the
/// other one in the background, for later: against a slow destination these add up, above any
/// limit. Here such an opening ends as soon as it is polled outside of an attempt.
#[derive(Debug, Clone, Copy)]
struct ForegroundLayer;

#[derive(Debug, Clone)]
struct Foreground<S>(S);

/// The end of an opening that nobody waits for. It reaches nobody either.
#[derive(Debug, thiserror::Error)]
#[error("the attempt that opened this connection uses another one")]
struct Unneeded;

impl<S> Layer<S> for ForegroundLayer {
    type Service = Foreground<S>;

    fn layer(&self, inner: S) -> Foreground<S> {
        Foreground(inner)
    }
}

impl<S, R> Service<R> for Foreground<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let opening = self.0.call(request);
        Box::pin(async move {
            let mut opening = pin!(opening);
            poll_fn(|cx| match IN_ATTEMPT.try_with(|()| ()) {
                Ok(()) => opening.as_mut().poll(cx),
                Err(_) => Poll::Ready(Err(Unneeded.into())),
            })
            .await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connector that is never done.
    struct Pending;

    impl Service<()> for Pending {
        type Response = ();
        type Error = BoxError;
        type Future = std::future::Pending<Result<(), BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            std::future::pending()
        }
    }

    #[tokio::test]
    async fn an_opening_ends_when_no_attempt_waits_for_it() {
        let mut opening = ForegroundLayer.layer(Pending).call(());
        let polled = foreground(poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx)))).await;
        assert!(polled.is_pending());
        assert!(opening.await.is_err_and(|error| error.is::<Unneeded>()));
    }
}
