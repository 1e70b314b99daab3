//! Makes the attempts that delivery tasks order: on the async runtime, outside of any transaction,
//! and sends back what became of each. A panic of a sink is an outcome like any other.

use std::sync::Arc;
use std::time::Duration;

use streaming_hub_model::attempt::{AttemptResult, ErrorClass, Outcome};
use streaming_hub_model::sink::Sink;
use tokio::runtime::Handle;

use crate::metrics::Metrics;
use crate::processors::delivery::{Message, Order, Returned};
use crate::runtime::mailbox::{Address, Mailbox};

/// Carries out orders.
pub struct Dispatcher {
    runtime: Handle,
    sink: Arc<dyn Sink>,
    mailbox: Mailbox<Message>,
    metrics: Arc<Metrics>,
    lease: Duration,
}

impl Dispatcher {
    /// A dispatcher that answers into the mailbox, and cancels an attempt that has not ended by
    /// itself within its lease.
    #[must_use]
    pub fn new(
        runtime: Handle,
        sink: Arc<dyn Sink>,
        (mailbox, metrics): (Mailbox<Message>, Arc<Metrics>),
        lease: Duration,
    ) -> Self {
        Self { runtime, sink, mailbox, metrics, lease }
    }

    /// Starts one attempt.
    pub fn dispatch(&self, address: Address, order: Order) {
        let Order { job, attempt, slot, waited_ms } = order;
        let (sink, mailbox) = (Arc::clone(&self.sink), self.mailbox.clone());
        let metrics = Arc::clone(&self.metrics);
        let kind = attempt.subscription.sink.kind();
        let (delivery_id, started) = (attempt.delivery_id, attempt.at);
        let sink_generation = attempt.subscription.sink_generation;
        metrics.attempt_started(kind, waited_ms);
        let lease = self.lease;
        let attempt = self.runtime.spawn(async move {
            // Dropping the attempt's future cancels it.
            tokio::time::timeout(lease, sink.attempt(attempt)).await.unwrap_or_else(|_| {
                let duration_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
                let late = Outcome::failed(ErrorClass::Timeout, "the attempt outlived its lease");
                Outcome { duration_ms, ..late }
            })
        });
        self.runtime.spawn(async move {
            let outcome = attempt.await.unwrap_or_else(|error| {
                tracing::error!(%job, %error, "a sink failed in the middle of an attempt");
                Outcome::failed(ErrorClass::Panic, "the sink's own code failed")
            });
            if let AttemptResult::NotAttempted { detail } = &outcome.result {
                tracing::error!(%job, detail, "a delivery could not be attempted; tried again");
            }
            // The slot first: the task that hears of the outcome may claim it at once.
            drop(slot);
            metrics.attempt_ended(kind, label(&outcome), outcome.duration_ms);
            let returned = Returned { job, delivery_id, started, sink_generation, outcome };
            mailbox.send(address, Message::Returned(returned));
        });
    }
}

fn label(outcome: &Outcome) -> &'static str {
    match &outcome.result {
        AttemptResult::Delivered => "delivered",
        AttemptResult::Failed { class, .. } => class.as_str(),
        AttemptResult::NotAttempted { .. } => "not_attempted",
    }
}
