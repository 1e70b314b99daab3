//! Gates whose moment has come: those that are open let everybody through, of those behind a
//! breaker that is half-open the jobs that are due longest go first, as its probes.

use std::collections::BTreeSet;
use std::sync::Arc;

use streaming_hub_model::attempt::Outcome;
use streaming_hub_model::breaker::Pass;
use streaming_hub_model::id::{JobId, SubscriptionId};
use streaming_hub_model::subscription::Ordering;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::State;

use super::super::{Delivery, allowed};
use crate::destinations::DestinationOf;
use crate::runtime::processor::Error;

/// After how long probes are chosen anew, milliseconds.
const AGAIN_MS: u64 = 5_000;

impl Delivery {
    /// Tells the gates of an outcome, and wakes whom it lets through.
    pub(in super::super) fn pass_on(&mut self, job: JobId, outcome: &Outcome, now: UnixMillis) {
        let jitter = self.jitter();
        for id in self.gates.returned(job, outcome, (now, jitter)) {
            self.lanes.unpark(id);
        }
    }

    /// Opens the gates whose moment has come.
    pub(in super::super) fn open_gates(
        &mut self,
        now: UnixMillis,
        state: &State,
    ) -> Result<(), Error> {
        while let Some((at, of)) = self.gates.timers.first().cloned() {
            if at > now {
                return Ok(());
            }
            self.gates.timers.pop_first();
            self.open_gate(of, now, state)?;
        }
        Ok(())
    }

    fn open_gate(
        &mut self,
        of: Arc<DestinationOf>,
        now: UnixMillis,
        state: &State,
    ) -> Result<(), Error> {
        let settings = Arc::clone(&self.settings);
        let Some(gate) = self.gates.gates.get_mut(&of) else { return Ok(()) };
        if gate.waiting.is_empty() && gate.chosen.is_empty() {
            return Ok(());
        }
        if let Some(until) = gate.throttled(now) {
            self.gates.timers.insert((until, of));
            return Ok(());
        }
        match gate.breaker.pass(now, &settings.gates.breaker) {
            Pass::ProbesOut => {}
            Pass::Until(until) => {
                self.gates.timers.insert((until, of));
            }
            Pass::Free => {
                let mut all = std::mem::take(&mut gate.waiting);
                all.append(&mut gate.chosen);
                all.into_iter().for_each(|id| self.lanes.unpark(id));
            }
            Pass::Probe(left) => {
                let mut all = std::mem::take(&mut gate.waiting);
                all.append(&mut gate.chosen);
                let chosen = self.choose(&all, usize::try_from(left).unwrap_or(0), now, state)?;
                let gates = &mut self.gates;
                if let Some(gate) = gates.gates.get_mut(&of) {
                    gate.chosen = chosen.iter().copied().collect();
                    gate.waiting = &all - &gate.chosen;
                    // Nobody's job may be due and admitted now, and who is chosen may find that
                    // its job is not any more: no probe starts whose return would be heard of.
                    if gate.again_at <= now {
                        gate.again_at = now.plus(AGAIN_MS);
                        gates.timers.insert((gate.again_at, of));
                    }
                }
                for id in chosen {
                    self.lanes.unpark(id);
                    self.lanes.queue(id);
                }
            }
        }
        Ok(())
    }

    /// Of these subscriptions so many whose jobs are due longest, and may be attempted.
    fn choose(
        &self,
        of: &BTreeSet<SubscriptionId>,
        count: usize,
        now: UnixMillis,
        state: &State,
    ) -> Result<Vec<SubscriptionId>, Error> {
        let mut due = Vec::new();
        for id in of {
            let subscription = self.settings.table.get(*id);
            if self.lanes.in_flight(*id) >= allowed(subscription.as_deref()) {
                continue;
            }
            let strict = subscription.is_some_and(|s| s.ordering == Ordering::Strict);
            let next = self.next_job(*id, strict, state)?;
            due.extend(next.filter(|job| job.facts.due <= now).map(|job| (job.facts.due, *id)));
        }
        due.sort_unstable();
        Ok(due.into_iter().take(count).map(|(_, id)| id).collect())
    }
}
