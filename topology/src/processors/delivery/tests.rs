//! Delivery on a bench: jobs come in, attempts go out and return, and after every commit each job
//! is in exactly one place (`checker`).

mod attempt_log;
mod checker;
mod claims;
mod crash;
mod dead_letters;
mod ends;
mod failures;
mod gates;
mod outcomes;
mod places;
mod rewinds;
mod simulation;

use serde_json::{Value, json};
use streaming_hub_model::attempt::{AttemptResult, ErrorClass};
use streaming_hub_model::breaker::BreakerSettings;
use streaming_hub_model::destination::DestinationKey;
use streaming_hub_model::job::JobFacts;
use streaming_hub_model::reclaim::{DurableClaim, RECLAIMS_MAX};
use streaming_hub_model::routing;

use streaming_hub_model::failure_span::AutoDisable;
use streaming_hub_model::ports::Entropy;
use streaming_hub_model::retry::RetrySchedule;

use super::backlog::Bounds;
use super::claims::Lane;
use super::gates::GateSettings;
use super::slots::Slots;
use super::*;
use crate::destinations::Destinations;
use crate::holds::Holds;
use crate::processors::testing::Bench;
use crate::processors::testing::fixtures::{Counters, FixedEntropy, accepted, event_id, header};
use crate::processors::testing::logs::Entry;
use crate::table::Table;
use crate::table::tests::{id, put, subscription as row, table_at};
use crate::topology;

const TENANT: &str = "acme";
const PARTITIONS: u32 = 2;
const PARTITION: i32 = 1;
/// The default curve of these tests, milliseconds.
const STEPS_MS: [u64; 3] = [0, 1_000, 60_000];
/// How much may wait in these tests.
const BOUNDS: Bounds = Bounds { age_ms_max: 400 * 86_400_000, jobs_max: 2_000, bytes_max: 2 << 20 };

/// A delivery task and everything around it.
struct World {
    bench: Bench<Delivery>,
    table: Arc<Table>,
    holds: Arc<Holds>,
    destinations: Arc<Destinations>,
    slots: Arc<Slots>,
    entropy: Arc<FixedEntropy>,
    counters: Counters,
    /// Attempts under way.
    orders: Vec<Order>,
    /// The most attempts that a schedule allows here.
    attempts_max: usize,
    events: u64,
}

impl World {
    fn new() -> Self {
        Self::with_slots(256)
    }

    fn with_slots(attempts_max: usize) -> Self {
        Self::made_of(attempts_max, Retention::default())
    }

    fn made_of(attempts_max: usize, retention: Retention) -> Self {
        // One that does not open.
        let breaker = BreakerSettings {
            failures_max: u32::MAX,
            attempts_min: u32::MAX,
            ..BreakerSettings::default()
        };
        Self::with(attempts_max, retention, breaker)
    }

    fn with(attempts_max: usize, retention: Retention, breaker: BreakerSettings) -> Self {
        let (counters, table) = (Counters::new(), Arc::new(table_at(1)));
        // The one tenant has a quarter of them.
        let slots = Slots::new(4 * attempts_max, 1 << 20);
        let entropy = Arc::new(FixedEntropy::default());
        let (holds, destinations) = (Arc::<Holds>::default(), Arc::<Destinations>::default());
        let settings = Arc::new(DeliverySettings {
            table: Arc::clone(&table),
            slots: Arc::clone(&slots),
            entropy: Arc::clone(&entropy) as Arc<dyn Entropy>,
            gates: GateSettings {
                breaker,
                throttle_ms_max: 600_000,
                key: Arc::new(DestinationKey::new([1; 32])),
                holds: Arc::clone(&holds),
                destinations: Arc::clone(&destinations),
            },
            bounds: BOUNDS,
            retry_schedule: RetrySchedule::new(STEPS_MS.to_vec()).unwrap(),
            partitions: PARTITIONS.cast_signed(),
            lane: Arc::new(Lane::default()),
            auto_disable: AutoDisable::default(),
            retention,
            metrics: Arc::clone(&counters.metrics),
        });
        let make = move || Delivery::new(Arc::clone(&settings), PARTITION);
        Self {
            bench: Bench::new(topology::delivery(), PARTITION, make),
            table,
            holds,
            destinations,
            slots,
            entropy,
            counters,
            orders: Vec::new(),
            attempts_max: STEPS_MS.len(),
            events: 0,
        }
    }

    /// Puts subscription `n` into the table.
    fn subscribe(&self, n: u8, change: impl FnOnce(&mut Value)) {
        let mut row = row(n, TENANT, &["*"]);
        change(&mut row);
        assert!(put(&self.table, &row));
    }

    /// Takes subscription `n` out of the table.
    fn unsubscribe(&self, n: u8) {
        assert!(self.table.take(Some(id(n).to_string().as_bytes()), None));
    }

    /// The table has taken everything below this position of the tenant's partition.
    fn advance_table(&self, position: i64) {
        self.table.advance(home(), position);
    }

    /// Match makes a job for subscription `n`, due now; it is not read yet.
    fn job(&mut self, n: u8) -> JobId {
        self.job_with(n, |_| ())
    }

    fn job_with(&mut self, n: u8, change: impl FnOnce(&mut JobFacts)) -> JobId {
        self.events += 1;
        let now = self.bench.now;
        let mut facts =
            JobFacts { subscription: id(n), matched: now, table: 0, attempts: 0, due: now };
        change(&mut facts);
        let (job, entry) = record(self.events, &facts);
        self.bench.produce(entry);
        job
    }

    /// Jobs of subscription `n`, read.
    fn jobs<const N: usize>(&mut self, n: u8) -> [JobId; N] {
        let jobs = std::array::from_fn(|_| self.job(n));
        self.bench.read(usize::MAX);
        jobs
    }

    /// Starts the attempts that the task wants now; answers the jobs in order.
    fn act(&mut self) -> Vec<JobId> {
        let orders = self.bench.act();
        let jobs = orders.iter().map(|order| order.job).collect();
        self.orders.extend(orders);
        jobs
    }

    /// The attempt of this job returns.
    fn answer(&mut self, job: JobId, outcome: Outcome) {
        let at = self.orders.iter().position(|order| order.job == job).unwrap();
        let returned = self.take_order(at, outcome);
        self.bench.message(Message::Returned(returned));
    }

    fn take_order(&mut self, at: usize, outcome: Outcome) -> Returned {
        let Order { job, attempt, slot, .. } = self.orders.remove(at);
        drop(slot);
        Returned {
            job,
            delivery_id: attempt.delivery_id,
            started: attempt.at,
            sink_generation: attempt.subscription.sink_generation,
            outcome,
        }
    }

    fn commit(&mut self) {
        self.bench.commit();
        checker::check(self);
    }

    /// A turn of the stream thread; answers the jobs whose attempts it started.
    fn turn(&mut self) -> Vec<JobId> {
        self.bench.read(usize::MAX);
        let started = self.act();
        self.bench.take_step();
        self.commit();
        started
    }

    /// A task that ends takes no outcome any more.
    fn restart(&mut self, how: crate::processors::testing::Restart) {
        self.orders.clear();
        self.bench.restart(how);
    }

    /// Where a job lies in the topics, by the topic's short name; `None` when it is done.
    fn place(&self, job: JobId) -> Option<String> {
        let places = checker::topics();
        let holds = |topic: &Topic| self.bench.logs.live(*topic).contains_key(&job.to_string());
        places.into_iter().find(holds).map(|topic| topic.to_string())
    }

    /// The job's record where it lies.
    fn record_of(&self, job: JobId) -> Entry {
        let mut live = checker::topics().into_iter().map(|topic| self.bench.logs.live(topic));
        live.find_map(|live| live.get(&job.to_string()).map(|entry| (*entry).clone())).unwrap()
    }

    /// The durable claim of a job, as committed.
    fn durable(&self, job: JobId) -> Option<DurableClaim> {
        let live = self.bench.logs.live(Topic::Claims);
        live.get(&job.to_string()).map(|entry| serde_json::from_value(entry.json()).unwrap())
    }

    /// Whether a job's attempt is made in the lane.
    fn is_in_lane(&self, job: JobId) -> bool {
        self.durable(job).is_some_and(|claim| claim.lane)
    }

    /// The lines of the attempt log about a job.
    fn attempts(&self, job: JobId) -> Vec<Value> {
        let lines = self.bench.logs.all(Topic::Attempts).into_iter().map(Entry::json);
        lines.filter(|line| line["job"] == job.to_string()).collect()
    }
}

fn home() -> i32 {
    routing::partition_for_tenant(TENANT, PARTITIONS)
}

/// The record of the job that delivers the `event`-th event, as match writes it.
fn record(event: u64, facts: &JobFacts) -> (JobId, Entry) {
    let mut entry = accepted(event_id(event), TENANT, facts.matched.0);
    entry.headers.extend(facts.headers().map(|(name, value)| header(name, value)));
    let job = JobId::derive(TENANT, event_id(event), facts.subscription, b"");
    entry.key = Some(job.to_string().into_bytes());
    (job, entry)
}

fn delivered() -> Outcome {
    Outcome {
        result: AttemptResult::Delivered,
        status: Some(204),
        excerpt: b"thanks".to_vec(),
        duration_ms: 12,
        retry_after_ms: None,
    }
}

fn failed() -> Outcome {
    Outcome {
        status: Some(503),
        excerpt: b"try later \xff".to_vec(),
        duration_ms: 34,
        ..Outcome::failed(ErrorClass::Http5xx, "the destination answered 503")
    }
}

fn not_attempted() -> Outcome {
    Outcome::not_attempted("no key")
}

fn strict(max_in_flight: u16) -> impl Fn(&mut Value) {
    move |row| row["max_in_flight"] = json!(max_in_flight)
}
