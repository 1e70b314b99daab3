//! Destinations that succeed, fail, hang and answer late, that ask to be left alone or are gone,
//! and the attempts under way: what a dispatcher does in the hub. And jobs whose attempt ends the
//! process.

use std::collections::BTreeMap;

use streaming_hub_model::attempt::{AttemptResult, ErrorClass, Outcome};
use streaming_hub_model::id::JobId;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_topology::processors::delivery::slots::Slot;
use streaming_hub_topology::processors::delivery::{Order, Returned};
use streaming_hub_topology::runtime::mailbox::Address;
use uuid::Uuid;

use crate::random::Random;

/// How long a call may take, milliseconds.
const CALL_MS_MAX: i64 = 15_000;
/// The longest time that a destination asks for, milliseconds.
const ASKED_MS_MAX: u64 = 8_000;
/// One job in so many is deadly, where any is.
const DEADLY_OF: u8 = 24;

/// Whether an attempt of this job ends its process, whoever makes it.
#[must_use]
pub fn is_deadly(job: JobId) -> bool {
    job.as_bytes().last().is_some_and(|last| last % DEADLY_OF == 0)
}

/// How a destination behaves.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// Failures in a million calls.
    fails: u32,
    /// Calls in a million that get no answer.
    hangs: u32,
    /// Calls in a million that the hub itself cannot make.
    not_attempted: u32,
    /// Calls in a million at which it asks to be left alone.
    asks: u32,
    /// Calls in a million at which it is gone.
    gone: u32,
    slowest_ms: i64,
}

/// An attempt under way.
pub struct UnderWay {
    address: Address,
    job: JobId,
    delivery_id: Uuid,
    started: UnixMillis,
    /// The tenant's destination.
    of: (String, String),
    sink_generation: u64,
    outcome: Outcome,
    answers_ms: i64,
    slot: Slot,
}

/// An attempt that has answered.
pub struct Answer {
    /// The call.
    pub call: Uuid,
    /// Who is to hear of it.
    pub address: Address,
    /// Tenant and target that answered.
    pub of: (String, String),
    /// What became of it.
    pub returned: Returned,
}

/// The destinations of one process, and its attempts under way.
#[derive(Default)]
pub struct Destinations {
    manners: BTreeMap<String, Manner>,
    under_way: Vec<UnderWay>,
}

impl Destinations {
    /// Starts a call.
    pub fn call(&mut self, address: Address, order: Order, random: &mut Random, now_ms: i64) {
        let Order { job, attempt, slot, .. } = order;
        let target = attempt.subscription.sink.target();
        let of = (attempt.subscription.tenant.as_str().to_owned(), target.clone());
        let manner = *self.manners.entry(target).or_insert_with(|| Manner::draw(random));
        let (outcome, took_ms) = manner.answer(random);
        self.under_way.push(UnderWay {
            address,
            job,
            delivery_id: attempt.delivery_id,
            started: attempt.at,
            of,
            sink_generation: attempt.subscription.sink_generation,
            outcome,
            answers_ms: now_ms + took_ms,
            slot,
        });
    }

    /// When the next call answers, Unix milliseconds.
    #[must_use]
    pub fn next_answer_ms(&self) -> Option<i64> {
        self.under_way.iter().map(|one| one.answers_ms).min()
    }

    /// Takes one of the calls that have answered by now. `to_newest` takes it for the newest call
    /// of its job, whichever incarnation made that one (a defect).
    pub fn answered(
        &mut self,
        now_ms: i64,
        random: &mut Random,
        to_newest: bool,
    ) -> Option<Answer> {
        let due = |(index, one): (usize, &UnderWay)| (one.answers_ms <= now_ms).then_some(index);
        let due: Vec<_> = self.under_way.iter().enumerate().filter_map(due).collect();
        let index = *random.pick(&due)?;
        let one = self.under_way.remove(index);
        let sink_generation = one.sink_generation;
        let UnderWay { mut address, job, delivery_id: call, started, of, outcome, slot, .. } = one;
        drop(slot);
        let mut delivery_id = call;
        let newest = self.under_way.iter().rev().find(|one| one.job == job).filter(|_| to_newest);
        if let Some(newest) = newest {
            (address, delivery_id) = (newest.address.clone(), newest.delivery_id);
        }
        let returned = Returned { job, delivery_id, started, sink_generation, outcome };
        Some(Answer { call, address, of, returned })
    }

    /// Ids of all calls under way.
    pub fn ids(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.under_way.iter().map(|one| one.delivery_id)
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

impl Manner {
    fn draw(random: &mut Random) -> Self {
        let fails = [0, 0, 100_000, 500_000, 1_000_000];
        let slowest = [5, 50, 500, 5_000];
        Self {
            fails: fails[random.index(fails.len())],
            hangs: if random.below(3) == 0 { 50_000 } else { 0 },
            not_attempted: if random.below(4) == 0 { 30_000 } else { 0 },
            asks: if random.below(3) == 0 { 200_000 } else { 0 },
            gone: if random.below(6) == 0 { 50_000 } else { 0 },
            slowest_ms: slowest[random.index(slowest.len())],
        }
    }

    fn answer(self, random: &mut Random) -> (Outcome, i64) {
        if random.chance(self.hangs) {
            return (Outcome::failed(ErrorClass::Timeout, "no answer"), CALL_MS_MAX);
        }
        if random.chance(self.not_attempted) {
            return (Outcome::not_attempted("simulated"), 0);
        }
        let took_ms = random.range(0, self.slowest_ms);
        if random.chance(self.asks) {
            let (status, class) = match random.below(2) {
                0 => (429, ErrorClass::Throttled),
                _ => (503, ErrorClass::Http5xx),
            };
            let asked_ms = 1_000 + random.below(ASKED_MS_MAX - 1_000);
            return (refused(status, class, Some(asked_ms)), took_ms);
        }
        if random.chance(self.gone) {
            return (refused(410, ErrorClass::Gone, None), took_ms);
        }
        if random.chance(self.fails) {
            return (Outcome::failed(ErrorClass::Http5xx, "503"), took_ms);
        }
        let result = AttemptResult::Delivered;
        let duration_ms = took_ms.unsigned_abs();
        let (status, excerpt) = (Some(200), Vec::new());
        (Outcome { result, status, excerpt, duration_ms, retry_after_ms: None }, took_ms)
    }
}

fn refused(status: u16, class: ErrorClass, retry_after_ms: Option<u64>) -> Outcome {
    let outcome = Outcome::failed(class, "refused");
    Outcome { status: Some(status), retry_after_ms, ..outcome }
}
