//! Failure spans (contract section 4, "Auto-disable"): a destination that fails for days without a
//! success has its subscription disabled, and one that answers 410 at once. Both are changes to the
//! registry, the one writer of subscriptions (design 17), in the task's own transaction.
//!
//! Not here: when a span is reason enough (`model::failure_span`), what the registry makes of the
//! change, and what becomes of the jobs that wait (`ends`).

use std::ops::ControlFlow;

use streaming_hub_model::change::{Action, Change};
use streaming_hub_model::failure_span::FailureSpan;
use streaming_hub_model::id::{SubscriptionId, uuid_v7};
use streaming_hub_model::routing;
use streaming_hub_model::subscription::{DisabledReason, Subscription};
use streaming_hub_state::State;
use streaming_hub_state::family::failure_span;

use super::Delivery;
use crate::runtime::processor::{Error, Output, Record, Step};
use crate::topics::Topic;

/// Takes a record of the topic into the store: a span, or its end. A stranger's is passed over.
pub(super) fn restore(record: &Record<'_>, state: &mut State) {
    let key = record.key.and_then(|key| std::str::from_utf8(key).ok());
    let Some(Ok(id)) = key.map(SubscriptionId::parse) else { return };
    match record.value {
        Some(value) if decode(value).is_some() => {
            state.put(failure_span::key(id.as_bytes()), value.to_vec());
        }
        Some(_) => {}
        None => state.delete(failure_span::key(id.as_bytes())),
    }
}

fn decode(value: &[u8]) -> Option<FailureSpan> {
    serde_json::from_slice(value).ok()
}

pub(super) fn span_of(state: &State, id: SubscriptionId) -> Result<Option<FailureSpan>, Error> {
    Ok(state.get(&failure_span::key(id.as_bytes()))?.and_then(|value| decode(&value)))
}

/// Writes a span, or ends it, in its topic and in the store.
fn write(id: SubscriptionId, span: Option<FailureSpan>, step: &mut Step<'_>) {
    // Numbers alone: it can always be written.
    let value = span.map(|span| serde_json::to_vec(&span).unwrap_or_default());
    step.outputs.emit(Output {
        topic: Topic::Failures,
        partition: step.partition,
        key: Some(id.to_string().as_bytes()),
        headers: &[],
        value: value.as_deref(),
    });
    match value {
        Some(value) => step.state.put(failure_span::key(id.as_bytes()), value),
        None => step.state.delete(failure_span::key(id.as_bytes())),
    }
}

impl Delivery {
    /// One success clears a span.
    pub(super) fn span_cleared(
        &mut self,
        id: SubscriptionId,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        if span_of(step.state, id)?.is_some() {
            write(id, None, step);
        }
        Ok(())
    }

    /// An attempt at this destination failed.
    pub(super) fn span_grows(
        &mut self,
        id: SubscriptionId,
        sink_generation: u64,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let before = span_of(step.state, id)?;
        if let Some(span) = FailureSpan::after(before, step.now, sink_generation) {
            write(id, Some(span), step);
        }
        Ok(())
    }

    /// A destination answered that it wants nothing any more.
    pub(super) fn gone(
        &mut self,
        id: SubscriptionId,
        sink_generation: u64,
        step: &mut Step<'_>,
    ) -> Result<(), Error> {
        let row = self.settings.table.get(id).filter(|row| row.enabled);
        if let Some(row) = row.filter(|row| row.sink_generation == sink_generation) {
            self.disable(&row, DisabledReason::Gone, step);
        }
        self.span_cleared(id, step)
    }

    /// Looks at every span: one that trips has its subscription disabled and is over, as is one
    /// of a subscription that takes no attempts.
    pub(super) fn look_at_spans(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        let mut spans = Vec::new();
        let mut failed = Ok(());
        let _ = step.state.scan(&failure_span::all(), &mut |key, value| {
            match failure_span::decode_key(key).map(SubscriptionId::from_bytes) {
                Ok(Ok(id)) => spans.extend(decode(value).map(|span| (id, span))),
                Ok(Err(_)) => {}
                Err(error) => failed = Err(error),
            }
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        failed?;
        for (id, span) in spans {
            match self.settings.table.get(id).filter(|row| row.enabled) {
                None => write(id, None, step),
                Some(row) if span.trips(self.settings.auto_disable, step.now) => {
                    self.disable(&row, DisabledReason::Failing, step);
                    write(id, None, step);
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn disable(&mut self, row: &Subscription, reason: DisabledReason, step: &mut Step<'_>) {
        let change = Change {
            id: uuid_v7(step.now.0, self.settings.entropy.ten()),
            // Nobody waits for the reply.
            reply_to: String::new(),
            tenant: row.tenant.clone(),
            subscription: row.id,
            action: Action::Disable { reason, sink_generation: row.sink_generation },
        };
        let Ok(value) = serde_json::to_vec(&change) else { return };
        let partitions = self.settings.partitions.unsigned_abs();
        step.outputs.emit(Output {
            topic: Topic::SubscriptionChanges,
            partition: routing::partition_for_tenant(row.tenant.as_str(), partitions),
            key: Some(row.tenant.as_str().as_bytes()),
            headers: &[],
            value: Some(&value),
        });
        self.tally.push(super::outcome::Counted::Disabled(reason));
    }
}
