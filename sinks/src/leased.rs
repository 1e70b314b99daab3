//! How an attempt and a verification begin at the sinks that keep a client for each destination
//! (SQS, EventBridge, RabbitMQ): the configuration of their kind, the choice between a look-up and
//! a test event, a client of one's own (I8). What follows is each sink's.

use streaming_hub_model::attempt::{Attempt, Outcome};
use streaming_hub_model::sink::{NotAdmitted, SinkFuture};
use streaming_hub_model::sink_config::VerifyWith;
use streaming_hub_model::subscription::SinkConfig;

use crate::WRONG_SINK;
use crate::pool::Lease;

/// A sink with a client for each destination.
pub(crate) trait Leased: Send + Sync {
    /// The configuration of its kind.
    type Config: Sync;
    /// What is kept for each destination.
    type Client: Send + Sync;

    /// The configuration, if it is of this kind.
    fn config(sink: &SinkConfig) -> Option<&Self::Config>;

    /// How the owner wants it verified.
    fn verify_with(config: &Self::Config) -> VerifyWith;

    /// The destination's client, and the right to use it once; else the outcome.
    fn lease(
        &self,
        attempt: &Attempt,
        config: &Self::Config,
    ) -> impl Future<Output = Result<Lease<Self::Client>, Outcome>> + Send;

    /// Delivers the event.
    fn deliver(
        &self,
        attempt: &Attempt,
        config: &Self::Config,
    ) -> impl Future<Output = Outcome> + Send;

    /// Asks whether the destination is there; sends nothing. Where the permission to ask is
    /// missing, the outcome names it.
    fn look_up(
        &self,
        client: &Self::Client,
        config: &Self::Config,
    ) -> impl Future<Output = Outcome> + Send;
}

/// The sink's answer to an attempt.
pub(crate) fn attempt<S: Leased>(sink: &S, attempt: Attempt) -> SinkFuture<'_, Outcome> {
    Box::pin(async move {
        match S::config(&attempt.subscription.sink) {
            Some(config) => sink.deliver(&attempt, config).await,
            None => Outcome::not_attempted(WRONG_SINK),
        }
    })
}

/// The sink's answer to a verification.
pub(crate) fn verify<S: Leased>(sink: &S, attempt: Attempt) -> SinkFuture<'_, Outcome> {
    Box::pin(async move {
        let Some(config) = S::config(&attempt.subscription.sink) else {
            return Outcome::not_attempted(WRONG_SINK);
        };
        if S::verify_with(config) == VerifyWith::Event {
            return sink.deliver(&attempt, config).await;
        }
        match sink.lease(&attempt, config).await {
            Ok(lease) => sink.look_up(&lease.client, config).await,
            Err(outcome) => outcome,
        }
    })
}

/// The configuration that a sink is asked to admit.
pub(crate) fn admitted<S: Leased>(sink: &SinkConfig) -> Result<&S::Config, NotAdmitted> {
    S::config(sink).ok_or_else(|| NotAdmitted { field: "type", message: WRONG_SINK.to_owned() })
}
