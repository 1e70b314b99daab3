//! What closes the way to a destination (design 20): a subscription's pause, an operator's hold, a
//! destination that asked to be left alone (429 with `Retry-After`), a breaker that is open. Jobs
//! wait where they are: no record, no step, no change of order. What a gate costs is one entry per
//! subscription that waits behind it.
//!
//! Pause and hold last until the table or the holds change. The others end at a moment, one for
//! each tenant's destination; of those that wait behind a breaker, the ones whose jobs are due
//! longest are its probes.
//!
//! The invariant (I5): whoever waits here is in `waiting` of a gate that has a timer or a probe
//! under way, or is looked at again when the table or the holds change.

mod probes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use streaming_hub_model::attempt::{AttemptResult, Outcome};
use streaming_hub_model::breaker::{Breaker, BreakerSettings, Change, Pass, Phase};
use streaming_hub_model::destination::{DestinationKey, DestinationRecord, GateState};
use streaming_hub_model::id::{JobId, SubscriptionId};
use streaming_hub_model::subscription::Subscription;
use streaming_hub_model::time::UnixMillis;

use super::DeliverySettings;
use crate::destinations::{DestinationOf, Destinations};
use crate::holds::Holds;
use crate::recent::Changes;
use crate::runtime::processor::{Output, Step};
use crate::topics::Topic;

/// How often gates that nobody needs are forgotten, milliseconds.
const SWEEP_MS: u64 = 120_000;

/// What all gates share.
#[derive(Clone)]
pub struct GateSettings {
    /// Numbers of breakers.
    pub breaker: BreakerSettings,
    /// The longest that a 429 closes the way, milliseconds.
    pub throttle_ms_max: u64,
    /// Names destinations.
    pub key: Arc<DestinationKey>,
    /// What operators hold.
    pub holds: Arc<Holds>,
    /// Whose breakers are open, here and elsewhere.
    pub destinations: Arc<Destinations>,
}

/// Whether an attempt may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// It may.
    Open,
    /// The subscription waits until it is told.
    Shut,
}

/// The gate of a tenant's destination.
#[derive(Debug)]
struct Gate {
    breaker: Breaker,
    /// Whether somebody else opened the breaker: it closes when they say so.
    adopted: bool,
    throttled_until: UnixMillis,
    waiting: BTreeSet<SubscriptionId>,
    /// Subscriptions whose next jobs are probes.
    chosen: BTreeSet<SubscriptionId>,
    /// When probes are chosen anew, if none of those that were chosen starts.
    again_at: UnixMillis,
    sink: &'static str,
    host: String,
}

/// An attempt under way, as gates see it.
struct UnderWay {
    subscription: SubscriptionId,
    of: Arc<DestinationOf>,
    /// Of which opening it is a probe; 0 for none.
    probe_of: u32,
}

/// The gates of one task.
pub(super) struct Gates {
    settings: Arc<DeliverySettings>,
    gates: HashMap<Arc<DestinationOf>, Gate>,
    timers: BTreeSet<(UnixMillis, Arc<DestinationOf>)>,
    under_way: HashMap<JobId, UnderWay>,
    /// Names of subscriptions' destinations, as of a generation of their sink.
    names: HashMap<SubscriptionId, (u64, Arc<DestinationOf>)>,
    /// What is to be told to others, and whether the open transaction does.
    untold: BTreeMap<Arc<DestinationOf>, bool>,
    partition: i32,
    table_seen: u64,
    holds_seen: u64,
    destinations_seen: u64,
    swept: UnixMillis,
}

impl Drop for Gates {
    fn drop(&mut self) {
        for gate in self.gates.values() {
            gate.count(&self.settings, -1);
        }
    }
}

impl Gate {
    fn new(subscription: &Subscription) -> Self {
        Self {
            breaker: Breaker::default(),
            adopted: false,
            throttled_until: UnixMillis(0),
            waiting: BTreeSet::new(),
            chosen: BTreeSet::new(),
            again_at: UnixMillis(0),
            sink: subscription.sink.kind(),
            host: subscription.sink.host(),
        }
    }

    /// Counts it among the breakers that are not closed.
    fn count(&self, settings: &DeliverySettings, by: i64) {
        // Half-open by the clock alone counts as open until its first probe.
        match self.breaker.phase(UnixMillis(0)) {
            Phase::Closed => {}
            phase => settings.metrics.waiting.breakers(phase.as_str(), self.sink, by),
        }
    }

    /// Nobody before this moment, because the destination asked for it.
    fn throttled(&self, now: UnixMillis) -> Option<UnixMillis> {
        (self.throttled_until > now).then_some(self.throttled_until)
    }
}

impl Gates {
    pub(super) fn new(settings: Arc<DeliverySettings>, partition: i32) -> Self {
        let gates = &settings.gates;
        let mut destinations_seen = 0;
        // What stands there now is read gate by gate.
        let _ = gates.destinations.since(&mut destinations_seen);
        let (mut table_seen, holds_seen) = (0, gates.holds.changes());
        let _ = settings.table.since(&mut table_seen);
        Self {
            settings,
            gates: HashMap::new(),
            timers: BTreeSet::new(),
            under_way: HashMap::new(),
            names: HashMap::new(),
            untold: BTreeMap::new(),
            partition,
            table_seen,
            holds_seen,
            destinations_seen,
            swept: UnixMillis(0),
        }
    }

    /// The clock was turned back: no gate is closed for longer than a gate may be.
    pub(super) fn turned_back(&mut self, now: UnixMillis) {
        let settings = &self.settings.gates;
        for (of, gate) in &mut self.gates {
            gate.breaker.turned_back(now, &settings.breaker);
            let latest = now.plus(settings.throttle_ms_max);
            gate.throttled_until = gate.throttled_until.min(latest);
            gate.again_at = UnixMillis(0);
            self.timers.insert((now, Arc::clone(of)));
        }
    }

    /// How a destination is doing here; nothing where it has no gate.
    pub(super) fn state_of(&self, of: &DestinationOf, now: UnixMillis) -> Option<GateState> {
        let gate = self.gates.get(of)?;
        Some(GateState {
            tenant: of.0.clone(),
            destination: of.1,
            phase: gate.breaker.phase(now),
            opening: gate.breaker.opening(now),
            throttled_until: gate.throttled(now),
            waiting: gate.waiting.len() as u64,
        })
    }

    /// Whether holds changed since this was asked last.
    pub(super) fn holds_changed(&mut self) -> bool {
        let revision = self.settings.gates.holds.changes();
        std::mem::replace(&mut self.holds_seen, revision) != revision
    }

    /// Which subscriptions changed since this was asked last.
    pub(super) fn changed_subscriptions(&mut self) -> Changes<SubscriptionId> {
        self.settings.table.since(&mut self.table_seen)
    }

    /// When the next gate opens.
    pub(super) fn next_opening(&self) -> Option<UnixMillis> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn name(&mut self, subscription: &Subscription) -> Arc<DestinationOf> {
        let generation = subscription.sink_generation;
        if let Some((of, name)) = self.names.get(&subscription.id)
            && *of == generation
        {
            return Arc::clone(name);
        }
        let destination = self.settings.gates.key.id(&subscription.sink);
        let name = Arc::new((subscription.tenant.clone(), destination));
        self.names.insert(subscription.id, (generation, Arc::clone(&name)));
        name
    }

    /// The gate of a destination: as it is here, or as somebody else left it.
    fn gate(
        &mut self,
        of: &Arc<DestinationOf>,
        subscription: &Subscription,
        now: UnixMillis,
    ) -> &mut Gate {
        let settings = &self.settings;
        self.gates.entry(Arc::clone(of)).or_insert_with(|| {
            let mut gate = Gate::new(subscription);
            if let Some(record) = settings.gates.destinations.get(of) {
                gate.breaker = Breaker::opened(record.opening);
                gate.breaker.turned_back(now, &settings.gates.breaker);
                gate.adopted = true;
                gate.count(settings, 1);
            }
            gate
        })
    }

    fn held(&self, subscription: &Subscription, of: &DestinationOf) -> bool {
        let holds = &self.settings.gates.holds;
        // Without any hold, the common case, no name of a destination is made.
        holds.changes() > 0 && holds.of(&of.0, &of.1.to_string(), subscription.id).is_some()
    }

    /// Whether the next job of a subscription may be attempted now. One whose gate is closed is
    /// told when it opens.
    pub(super) fn look(&mut self, subscription: &Subscription, now: UnixMillis) -> Look {
        let of = self.name(subscription);
        let metrics = Arc::clone(&self.settings.metrics);
        if subscription.paused {
            metrics.waiting.shed("paused");
            return Look::Shut;
        }
        if self.held(subscription, &of) {
            metrics.waiting.shed("hold");
            return Look::Shut;
        }
        let settings = self.settings.gates.clone();
        let id = subscription.id;
        let gate = self.gate(&of, subscription, now);
        let (at, why) = match gate.throttled(now) {
            Some(until) => (Some(until), "throttled"),
            None => match gate.breaker.pass(now, &settings.breaker) {
                Pass::Free => return Look::Open,
                Pass::Probe(_) if gate.chosen.contains(&id) => return Look::Open,
                Pass::Probe(_) => (Some(now), "breaker"),
                Pass::Until(until) => (Some(until), "breaker"),
                Pass::ProbesOut => (None, "breaker"),
            },
        };
        gate.chosen.remove(&id);
        gate.waiting.insert(id);
        if let Some(at) = at {
            self.timers.insert((at, of));
        }
        metrics.waiting.shed(why);
        Look::Shut
    }

    /// An attempt of this job starts.
    pub(super) fn started(&mut self, job: JobId, subscription: &Subscription, now: UnixMillis) {
        let of = self.name(subscription);
        let settings = Arc::clone(&self.settings);
        let gate = self.gate(&of, subscription, now);
        let mut probe_of = 0;
        if let Pass::Probe(_) = gate.breaker.pass(now, &settings.gates.breaker) {
            gate.count(&settings, -1);
            gate.breaker.probe_started();
            gate.count(&settings, 1);
            probe_of = gate.breaker.opening(now).map_or(0, |opening| opening.openings);
        }
        let subscription = subscription.id;
        self.under_way.insert(job, UnderWay { subscription, of, probe_of });
    }

    /// An attempt has returned. Answers who is to be looked at again at once.
    fn returned(
        &mut self,
        job: JobId,
        outcome: &Outcome,
        (now, jitter): (UnixMillis, f64),
    ) -> BTreeSet<SubscriptionId> {
        let Some(UnderWay { subscription, of, probe_of }) = self.under_way.remove(&job) else {
            return BTreeSet::new();
        };
        let settings = Arc::clone(&self.settings);
        let Some(gate) = self.gates.get_mut(&of) else { return BTreeSet::new() };
        let openings = gate.breaker.opening(now).map_or(0, |opening| opening.openings);
        let is_probe = probe_of > 0 && probe_of == openings;
        gate.count(&settings, -1);
        let change = match judge(outcome) {
            None if is_probe => {
                // It waits for the hub's own sake; meanwhile another may probe.
                gate.chosen.remove(&subscription);
                gate.breaker.probe_withdrawn();
                None
            }
            None => None,
            Some(delivered) if is_probe => {
                gate.breaker.probed(delivered, (now, jitter), &settings.gates.breaker)
            }
            Some(_) if probe_of > 0 => None,
            Some(delivered) => {
                gate.breaker.attempted(delivered, (now, jitter), &settings.gates.breaker)
            }
        };
        gate.count(&settings, 1);
        if outcome.status == Some(429)
            && let Some(asked_ms) = outcome.retry_after_ms
        {
            let until = now.plus(asked_ms.min(settings.gates.throttle_ms_max));
            gate.throttled_until = gate.throttled_until.max(until);
        }
        let mut told = BTreeSet::new();
        match change {
            Some(Change::Opened) => {
                gate.adopted = false;
                gate.waiting.append(&mut gate.chosen);
            }
            Some(Change::Closed) => {
                gate.adopted = false;
                told.append(&mut gate.waiting);
                told.append(&mut gate.chosen);
            }
            None => {}
        }
        if change.is_some() {
            settings.metrics.waiting.breaker_changed(change == Some(Change::Opened), gate.sink);
            self.untold.insert(Arc::clone(&of), false);
        }
        if is_probe && change != Some(Change::Closed) {
            // Another probe, or the next opening.
            self.timers.insert((now, of));
        }
        told
    }

    /// What other tasks said about destinations.
    pub(super) fn hear(&mut self, now: UnixMillis) {
        let destinations = Arc::clone(&self.settings.gates.destinations);
        let changed: Vec<_> = match destinations.since(&mut self.destinations_seen) {
            Changes::None => return self.sweep(now),
            Changes::Some(changed) => changed,
            Changes::Any => self.gates.keys().map(|of| (**of).clone()).collect(),
        };
        for of in changed {
            let Some((name, _)) = self.gates.get_key_value(&of) else { continue };
            let name = Arc::clone(name);
            let record = destinations.get(&of);
            let Some(gate) = self.gates.get_mut(&of) else { continue };
            let phase = gate.breaker.phase(now);
            gate.count(&self.settings, -1);
            match record {
                Some(record) if record.partition != self.partition && phase == Phase::Closed => {
                    gate.breaker = Breaker::opened(record.opening);
                    gate.breaker.turned_back(now, &self.settings.gates.breaker);
                    gate.adopted = true;
                }
                None if gate.adopted => {
                    gate.breaker = Breaker::default();
                    gate.adopted = false;
                    self.timers.insert((now, name));
                }
                _ => {}
            }
            gate.count(&self.settings, 1);
        }
    }

    /// Forgets gates that nobody needs.
    fn sweep(&mut self, now: UnixMillis) {
        if now.since(self.swept) < SWEEP_MS && now >= self.swept {
            return;
        }
        self.swept = now;
        let settings = &self.settings;
        self.gates.retain(|_, gate| {
            !gate.waiting.is_empty()
                || !gate.breaker.is_idle(now, &settings.gates.breaker)
                || gate.throttled(now).is_some()
        });
        self.names.retain(|id, _| settings.table.get(*id).is_some());
    }

    /// Writes what others have to know, within the open transaction.
    pub(super) fn publish(&mut self, step: &mut Step<'_>) {
        for (of, told) in &mut self.untold {
            *told = true;
            let gate = self.gates.get(of);
            let opening = gate.and_then(|gate| Some((gate, gate.breaker.opening(step.now)?)));
            let record = opening.map(|(gate, opening)| DestinationRecord {
                tenant: of.0.clone(),
                destination: of.1,
                sink: gate.sink.to_owned(),
                host: gate.host.clone(),
                opening,
                partition: step.partition,
                at: step.now,
            });
            let value = record.and_then(|record| serde_json::to_vec(&record).ok());
            step.outputs.emit(Output {
                topic: Topic::Destinations,
                partition: 0,
                key: Some(DestinationRecord::key(&of.0, of.1).as_bytes()),
                headers: &[],
                value: value.as_deref(),
            });
        }
    }

    /// The transaction has committed.
    pub(super) fn published(&mut self) {
        self.untold.retain(|_, told| !*told);
    }

    /// It has aborted: what it told is told again.
    pub(super) fn unpublished(&mut self) {
        self.untold.values_mut().for_each(|told| *told = false);
    }
}

/// What an outcome says about the destination: that it took the event, that it did not, or nothing.
fn judge(outcome: &Outcome) -> Option<bool> {
    match &outcome.result {
        AttemptResult::Delivered => Some(true),
        AttemptResult::Failed { class, .. } => class.tells_of_destination().then_some(false),
        AttemptResult::NotAttempted { .. } => None,
    }
}
