//! Serving the router over a socket until told to stop. A stop lets running requests finish and
//! closes idle connections at once; what is not done by the deadline is left behind.
//!
//! Connections are bounded here, before there is a request: how long its headers may take, and how
//! much of them is read at all. What is twice as large as is allowed (see `exchange`) is 431
//! without a body, and a closed connection.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::exchange::{HEADER_BYTES_MAX, HEADERS_MAX};

/// How long the headers of a request may take, and how long a connection may be idle.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// The largest request line and headers that are read, bytes.
const READ_BYTES_MAX: usize = 2 * HEADER_BYTES_MAX;
/// The most headers that are read.
const READ_HEADERS_MAX: usize = 2 * HEADERS_MAX;

/// Serves until `shutdown` completes, then for at most `drain` more while requests finish.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    mut listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    let open = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            // Waits and tries again by itself when there is no file descriptor left.
            (stream, _) = Listener::accept(&mut listener) => connect(stream, &router, &open),
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    if tokio::time::timeout(drain, open.shutdown()).await.is_err() {
        tracing::warn!(drain_ms = drain.as_millis(), "requests were still open at the stop");
    }
    Ok(())
}

fn connect(stream: TcpStream, router: &Router, open: &GracefulShutdown) {
    // Answers are small and complete: waiting to fill a segment only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(READ_BYTES_MAX)
        .max_headers(READ_HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
    let connection = open.watch(connection);
    Handle::current().spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended early");
        }
    });
}

#[cfg(test)]
mod tests;
