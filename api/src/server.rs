//! Serving the router over a socket until told to stop. A stop lets running requests finish and
//! closes idle connections at once; what is not done by the deadline is left behind.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Serves until `shutdown` completes, then for at most `drain` more while requests finish.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    let listener = listener.tap_io(|stream| {
        // Answers are small and complete: waiting to fill a segment only delays them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
    });
    let (stopping, stopped) = oneshot::channel();
    let signal = async move {
        shutdown.await;
        // The receiver is gone only when the server has ended already.
        let _ = stopping.send(());
    };
    let deadline = async {
        // An error means that the server ended first, and then the other branch has won.
        let _ = stopped.await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        served = axum::serve(listener, router).with_graceful_shutdown(signal) => served,
        () = deadline => {
            tracing::warn!(drain_ms = drain.as_millis(), "requests were still open at the stop");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
