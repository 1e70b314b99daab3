//! A wrapper around the hub's real processors: it notes at which position of the table a match was
//! made, and it is where defects of deciding code are put. Everything else it hands on.

use std::sync::Arc;

use streaming_hub_model::headers::{HeaderRef, Headers};
use streaming_hub_model::id::EventId;
use streaming_hub_model::reclaim::DurableClaim;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_model::{internal, routing};
use streaming_hub_state::{ExpiryRule, State};
use streaming_hub_topology::destinations::Destinations;
use streaming_hub_topology::runtime::processor::{
    Acted, Error, Output, Outputs, Processor, Record, Step,
};
use streaming_hub_topology::table::Table;
use streaming_hub_topology::topics::Topic;

use crate::cluster::log::Data;
use crate::defect::Defect;
use crate::history::{SEEN_AT, SEEN_TABLE};

/// What the observers of a process share.
pub struct Eye {
    /// The subscriptions.
    pub table: Arc<Table>,
    /// Partitions of the internal topics.
    pub partitions: u32,
    /// The deliberate defect, if any.
    pub defect: Option<Defect>,
    /// Whose breakers are open.
    pub destinations: Arc<Destinations>,
}

impl Eye {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Whether a job that waits uses up a step (a defect).
    fn sheds(&self) -> bool {
        self.has(Defect::ShedTakesStep) && !self.destinations.all().is_empty()
    }
}

/// An observed processor.
pub struct Observed<P> {
    inner: P,
    eye: Arc<Eye>,
    /// Records that wait for the next transaction.
    delayed: Vec<(Topic, i32, Data)>,
    /// Records whose transaction this is.
    ripe: Vec<(Topic, i32, Data)>,
    /// Messages of the open transaction.
    messages: usize,
    /// Messages to be swallowed.
    swallow: usize,
    /// Whether it answers reads before they are committed (a defect).
    answers_early: bool,
}

impl<P> Observed<P> {
    /// Observes a processor of this sub-topology.
    pub fn new(inner: P, name: &str, eye: Arc<Eye>) -> Self {
        let answers_early = name == "pull" && eye.has(Defect::AnsweredEarly);
        let (delayed, ripe, messages, swallow) = (Vec::new(), Vec::new(), 0, 0);
        Self { inner, eye, delayed, ripe, messages, swallow, answers_early }
    }

    fn watch<R>(
        &mut self,
        step: &mut Step<'_>,
        take: impl FnOnce(&mut P, &mut Step<'_>) -> R,
    ) -> R {
        for (topic, partition, data) in &self.ripe {
            let (key, headers) = (data.key.as_deref(), data.header_refs());
            let value = data.value.as_deref();
            let output =
                Output { topic: *topic, partition: *partition, key, headers: &headers, value };
            step.outputs.emit(output);
        }
        let Step { now, partition, position, .. } = *step;
        let mut tap =
            Tap { eye: &self.eye, now, outputs: step.outputs, delayed: &mut self.delayed };
        let state = &mut *step.state;
        let mut watched = Step { now, partition, position, state, outputs: &mut tap };
        take(&mut self.inner, &mut watched)
    }
}

/// Watches what a step emits.
struct Tap<'a> {
    eye: &'a Eye,
    now: UnixMillis,
    outputs: &'a mut dyn Outputs,
    delayed: &'a mut Vec<(Topic, i32, Data)>,
}

impl Tap<'_> {
    fn emit_with(&mut self, output: &Output<'_>, replaced: &[(&str, String)]) {
        let kept =
            |(name, _): &&HeaderRef<'_>| !replaced.iter().any(|(n, _)| n.as_bytes() == *name);
        let mut headers: Vec<HeaderRef<'_>> = output.headers.iter().filter(kept).copied().collect();
        headers.extend(replaced.iter().map(|(n, v)| (n.as_bytes(), Some(v.as_bytes()))));
        self.outputs.emit(Output { headers: &headers, ..*output });
    }
}

impl Outputs for Tap<'_> {
    fn emit(&mut self, output: Output<'_>) {
        let is_retry = matches!(output.topic, Topic::Retry(_)) && output.value.is_some();
        match output.topic {
            Topic::Inbox => {
                let tenant = Headers::new(output.headers).last_text(internal::TENANT);
                let home =
                    routing::partition_for_tenant(tenant.unwrap_or_default(), self.eye.partitions);
                let table = self.eye.table.position(home).to_string();
                self.emit_with(&output, &[(SEEN_TABLE, table), (SEEN_AT, self.now.0.to_string())]);
            }
            Topic::Deliveries if output.value.is_some() && self.eye.has(Defect::WrongTenant) => {
                self.emit_with(&output, &[(internal::TENANT, "stranger".to_owned())]);
            }
            _ if is_retry && self.eye.has(Defect::SplitMove) => {
                let data = Data::copy(output.key, output.headers, output.value);
                self.delayed.push((output.topic, output.partition, data));
            }
            _ if is_retry && self.eye.has(Defect::ForgottenAttempt) => {
                self.emit_with(&output, &[(internal::ATTEMPTS, "0".to_owned())]);
            }
            _ if is_retry && self.eye.sheds() => {
                let attempts = Headers::new(output.headers).last_text(internal::ATTEMPTS);
                let attempts = attempts.and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
                self.emit_with(&output, &[(internal::ATTEMPTS, (attempts + 1).to_string())]);
            }
            Topic::Claims if self.eye.has(Defect::ClaimUnwritten) => {}
            Topic::Claims if self.eye.has(Defect::ReclaimNotCounted) => {
                let claim = output.value.and_then(|value| serde_json::from_slice(value).ok());
                let claim = claim.map(|claim| DurableClaim { reclaims: 0, ..claim });
                let value = claim.and_then(|claim| serde_json::to_vec(&claim).ok());
                self.outputs.emit(Output { value: value.as_deref(), ..output });
            }
            _ => self.outputs.emit(output),
        }
    }
}

impl<P: Processor> Processor for Observed<P> {
    type Message = P::Message;
    type Action = P::Action;

    fn expiry(&self) -> Vec<ExpiryRule> {
        self.inner.expiry()
    }

    fn restore(
        &mut self,
        topic: Topic,
        record: &Record<'_>,
        state: &mut State,
    ) -> Result<(), Error> {
        let mut record = *record;
        if self.eye.has(Defect::ScrambledOrder) && topic == Topic::Deliveries {
            record.offset ^= 15;
        }
        self.inner.restore(topic, &record, state)
    }

    fn restored(&mut self, state: &State) -> Result<(), Error> {
        self.inner.restored(state)
    }

    fn may_run(&self, committed_metadata: &str) -> bool {
        self.eye.has(Defect::StaleTable) || self.inner.may_run(committed_metadata)
    }

    fn record(&mut self, record: &Record<'_>, step: &mut Step<'_>) -> Result<(), Error> {
        let id = record.view().last_text(internal::ID).and_then(|id| EventId::parse(id).ok());
        match id {
            Some(id) if self.eye.has(Defect::ExpiryByIdTime) => {
                let made = id.unix_millis().to_string();
                let mut headers = record.headers.to_vec();
                headers.push((internal::ARRIVAL.as_bytes(), Some(made.as_bytes())));
                let record = Record { headers: &headers, ..*record };
                self.watch(step, |inner, step| inner.record(&record, step))
            }
            _ => self.watch(step, |inner, step| inner.record(record, step)),
        }
    }

    fn message(&mut self, message: &P::Message, step: &mut Step<'_>) -> Result<(), Error> {
        if self.swallow > 0 {
            self.swallow -= 1;
            return Ok(());
        }
        self.messages += 1;
        self.watch(step, |inner, step| inner.message(message, step))
    }

    fn wants_step(&self) -> bool {
        self.inner.wants_step()
    }

    fn step(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        self.watch(step, P::step)
    }

    fn wants_commit(&self) -> bool {
        self.inner.wants_commit()
    }

    fn before_commit(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        self.watch(step, P::before_commit)?;
        if self.answers_early {
            self.inner.committed();
        }
        if self.eye.has(Defect::ApplyBeforeCommit)
            && let Some(checkpoint) = step.state.checkpoint()?
        {
            step.state.commit(&checkpoint)?;
        }
        Ok(())
    }

    fn metadata(&self) -> String {
        self.inner.metadata()
    }

    fn act(
        &mut self,
        now: UnixMillis,
        state: &State,
        actions: &mut Vec<P::Action>,
    ) -> Result<Option<UnixMillis>, Error> {
        self.inner.act(now, state, actions)
    }

    fn acted(&self) -> Acted {
        self.inner.acted()
    }

    fn committed(&mut self) {
        self.messages = 0;
        self.ripe = std::mem::take(&mut self.delayed);
        self.inner.committed();
    }

    fn aborted(&mut self) {
        if self.eye.has(Defect::SwallowedOutcome) {
            self.swallow = self.messages;
        }
        self.messages = 0;
        self.delayed.clear();
        self.inner.aborted();
    }

    fn has_to_hand_back(&self) -> bool {
        self.inner.has_to_hand_back()
    }

    fn hand_back(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        self.watch(step, P::hand_back)
    }

    fn under_way(&self) -> usize {
        self.inner.under_way()
    }
}
