//! The world of one run: a cluster, several instances with their processes, producers and tenants,
//! and the scheduler that says whose turn it is. Everything follows from one seed.

mod settle;
mod steps;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use streaming_hub_model::follow::FollowSet;
use streaming_hub_model::id::JobId;
use streaming_hub_model::subscription::Ordering;
use streaming_hub_state::family::dedup;
use streaming_hub_topology::runtime::spec::SubTopology;
use streaming_hub_topology::topics::Topic;
use streaming_hub_topology::topology;
use uuid::Uuid;

use crate::check::ledger::{Ledger, Rules};
use crate::check::pull::PullLogs;
use crate::check::{Invariant, Violation, transaction};
use crate::cluster::internal_topics;
use crate::cluster::transactions::Committed;
use crate::consumers::Consumers;
use crate::defect::Defect;
use crate::destinations::is_deadly;
use crate::disks::{DiskFaults, Disks};
use crate::history::{self, At, Call, History, Parts, Place};
use crate::process::{Arenas, Process, Settings, claimed_at};
use crate::run::Amount;
use crate::seam::{Life, Others, Seam};
use crate::shape::{PULL_BASE, Shape};
use crate::workload::Workload;

/// How long one wait of a turn lasts that others' turns lie in, milliseconds.
const WAIT_MS: i64 = 100;

/// How long an instance may be away, milliseconds.
const LONG_AWAY_MS: i64 = 12 * 24 * 3_600_000;

/// One instance: its disks outlive its processes.
struct Instance<'a> {
    name: String,
    disks: Disks,
    process: RefCell<Option<Rc<Process<'a>>>>,
    /// Not before this moment does it start again, Unix milliseconds.
    down_until_ms: Cell<i64>,
}

/// The world.
pub struct World<'a> {
    arenas: &'a Arenas,
    seam: Rc<Seam<'a>>,
    settings: Settings,
    shape: Shape,
    instances: Vec<Instance<'a>>,
    workload: RefCell<Workload>,
    history: RefCell<History>,
    ledger: RefCell<Ledger>,
    pull_logs: RefCell<PullLogs>,
    consumers: RefCell<Consumers>,
    topics: BTreeMap<Arc<str>, Topic>,
    /// Dedup entries in the committed changelog, by partition.
    remembered: RefCell<HashSet<(i32, Vec<u8>)>>,
    /// The first delivery id of each job (for a defect).
    delivery_ids: RefCell<HashMap<JobId, Uuid>>,
    violation: RefCell<Option<Violation>>,
    steps: Cell<u64>,
    /// No step is taken beyond so many.
    steps_max: u64,
    lives: Cell<u64>,
}

/// All sub-topologies that run.
fn sub_topologies() -> [SubTopology; 5] {
    let ingest = topology::ingest(FollowSet::default());
    [ingest, topology::matching(), topology::delivery(), topology::pull(), topology::registry()]
}

impl<'a> World<'a> {
    /// A world in which nothing runs yet.
    #[must_use]
    pub fn new(
        arenas: &'a Arenas,
        seam: &Rc<Seam<'a>>,
        settings: Settings,
        shape: Shape,
        (disk_faults, steps_max): (DiskFaults, u64),
    ) -> Rc<Self> {
        let application = settings.topics.application.clone();
        let partitions = settings.topics.partitions.unsigned_abs();
        let workload = Workload::new(&application, partitions, shape.size);
        make_topics(seam, &settings, &workload, shape.source_partitions);
        let instances = (0..shape.instances).map(|n| Instance {
            name: format!("hub-{n}"),
            disks: Disks::new(seam.random.borrow_mut().next(), disk_faults),
            process: RefCell::new(None),
            down_until_ms: Cell::new(seam.clock.now_ms() + 500 * i64::from(n)),
        });
        let rules = Rules {
            horizon_ms: settings.horizon_ms,
            skew_ms: 60_000,
            clocks_ms: shape.clocks_ms,
            schedule: settings.schedule.clone(),
            partitions,
            salted: BTreeSet::new(),
        };
        let world = Rc::new(Self {
            arenas,
            seam: Rc::clone(seam),
            instances: instances.collect(),
            workload: RefCell::new(workload),
            history: RefCell::default(),
            ledger: RefCell::new(Ledger::new(rules)),
            pull_logs: RefCell::new(PullLogs::new(PULL_BASE)),
            consumers: RefCell::default(),
            topics: internal_topics(&application),
            remembered: RefCell::default(),
            delivery_ids: RefCell::default(),
            violation: RefCell::default(),
            steps: Cell::new(0),
            steps_max,
            lives: Cell::new(0),
            settings,
            shape,
        });
        let weak: Weak<dyn Others + 'a> = Rc::downgrade(&world) as _;
        seam.belongs_to(weak);
        world
    }

    /// Steps taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// The first violation, if there was one.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.violation.borrow().clone()
    }

    /// How much happened.
    #[must_use]
    pub fn amount(&self) -> Amount {
        let history = self.history.borrow();
        let made = history.jobs.iter().filter(|job| job.place == Place::Ready);
        Amount {
            facts: history.facts.len(),
            inbox: history.inbox.len(),
            jobs: made.filter(|job| job.put.is_some()).count(),
            attempts: history.attempts.len(),
            pages: history.pages,
            processes: self.lives.get(),
        }
    }

    fn is_over(&self) -> bool {
        self.violation.borrow().is_some()
    }

    fn judge(&self, found: Result<(), Violation>) {
        if let Err(violation) = found {
            self.seam.trace.say(|| format!("  VIOLATION {violation}"));
            self.violation.borrow_mut().get_or_insert(violation);
        }
    }

    /// The processes that live.
    fn processes(&self) -> Vec<Rc<Process<'a>>> {
        self.instances.iter().filter_map(|one| one.process.borrow().clone()).collect()
    }

    /// Those that live and do not stand still.
    fn awake(&self) -> Vec<Rc<Process<'a>>> {
        let now = self.seam.clock.now_ms();
        let mut all = self.processes();
        all.retain(|one| !one.life.is_dead() && one.life.asleep_until_ms() <= now);
        all
    }

    /// What follows every step: committed transactions and new calls are noted and judged, the dead
    /// are buried.
    fn note(&self) {
        let committed = self.seam.cluster.borrow_mut().take_committed();
        committed.iter().for_each(|txn| self.note_transaction(txn));
        self.note_pages();
        for instance in &self.instances {
            let process = instance.process.borrow().clone();
            let Some(process) = process else { continue };
            self.note_calls(&process);
            if process.life.is_dead() {
                self.bury(instance, true);
            }
        }
    }

    /// Answered reads, after the transactions that they waited for.
    fn note_pages(&self) {
        for served in self.consumers.borrow_mut().answered() {
            self.seam.trace.say(|| {
                let entries: Vec<_> = served.entries.iter().map(|(seq, _)| seq).collect();
                let (id, ask) = (served.asked.subscription, served.asked.ask);
                format!("  {id} after {:?}: {entries:?}, cursor {}", ask.after, served.cursor)
            });
            self.history.borrow_mut().pages += usize::from(!served.entries.is_empty());
            self.judge(self.pull_logs.borrow_mut().answered(&served));
        }
    }

    /// What a transaction writes and which positions it carries, by topic.
    fn check_carried(&self, txn: &Committed) {
        let topic = |name: &Arc<str>| self.topics.get(name).copied();
        let records = txn.records.iter().filter_map(|record| {
            Some((topic(&record.topic)?, record.partition, record.data.value.is_none()))
        });
        let positions = txn.offsets.values().flatten().map(|position| &position.task);
        let carried = positions.filter_map(|task| Some((topic(&task.topic)?, task.partition)));
        self.judge(transaction::carries(records, &carried.collect()));
    }

    fn note_transaction(&self, txn: &Committed) {
        // That defect is to be noticed by what comes of it.
        if !self.seam.has(Defect::CursorUnfenced) {
            self.check_carried(txn);
        }
        let mut lines = Vec::new();
        for record in &txn.records {
            let Some(topic) = self.topics.get(&record.topic).copied() else { continue };
            let (partition, offset) = (record.partition, record.offset);
            let headers = record.data.header_refs();
            let (key, value) = (record.data.key.as_deref(), record.data.value.as_deref());
            if topic == Topic::Dedup {
                self.remember(partition, value);
            }
            let at = At { topic, partition, offset, at_ms: txn.at_ms };
            lines.extend(history::read(at, &Parts { key, headers: &headers, value }));
        }
        self.seam.trace.say(|| {
            let told: Vec<_> = lines.iter().map(told).collect();
            let positions = txn.offsets.values().flatten();
            let positions: Vec<_> =
                positions.map(|p| format!("{} to {}", p.task, p.offset)).collect();
            let (told, positions) = (told.join(", "), positions.join(", "));
            format!("  committed {} of {}: {told}; {positions}", txn.txn, txn.id)
        });
        let mut ledger = self.ledger.borrow_mut();
        self.judge(ledger.take(&lines));
        self.judge(self.pull_logs.borrow_mut().take(&lines));
        for (group, positions) in &txn.offsets {
            for position in positions {
                let place = (&*position.task.topic, position.task.partition);
                self.judge(ledger.take_position(group, place, position.offset));
            }
        }
        let mut history = self.history.borrow_mut();
        lines.into_iter().for_each(|line| history.add(line));
    }

    fn remember(&self, partition: i32, value: Option<&[u8]>) {
        let mut remembered = self.remembered.borrow_mut();
        let entries = value.into_iter().filter_map(|packed| dedup::unpack(packed).ok()).flatten();
        for entry in entries.flatten() {
            remembered.insert((partition, entry.key().to_vec()));
        }
    }

    fn note_calls(&self, process: &Process<'_>) {
        let mut deadly = None;
        while let Some((address, order)) = process.next_order() {
            let (subscription, event) = (&order.attempt.subscription, &order.attempt.event);
            let call = Call {
                job: order.job,
                delivery_id: order.attempt.delivery_id,
                subscription: subscription.id,
                owner: subscription.tenant.as_str().to_owned(),
                tenant: event.tenant.as_str().to_owned(),
                caller: (process.life.number, address.incarnation),
                in_lane: order.slot.is_in_lane(),
                at_most: match subscription.ordering {
                    Ordering::Arrival => usize::from(subscription.max_in_flight),
                    Ordering::Strict => 1,
                },
                target: subscription.sink.target(),
                at_ms: claimed_at(&order).0 - process.ahead_ms(&self.seam),
                behind: process.behind(&order),
            };
            let call = self.as_received(call);
            if self.shape.deadly && is_deadly(call.job) && !process.life.is_dead() {
                deadly = Some(call.job);
            }
            self.seam.trace.say(|| format!("  {} attempts {}", process.life.instance, call.job));
            self.judge(self.ledger.borrow_mut().call(&call));
            let mut random = self.seam.random.borrow_mut();
            let now_ms = self.seam.clock.now_ms();
            process.destinations.borrow_mut().call(address, order, &mut random, now_ms);
        }
        if let Some(job) = deadly {
            self.judge(self.ledger.borrow_mut().killed(job));
            self.seam.kill(&process.life, "an attempt");
        }
    }

    /// A call as the destination sees it.
    fn as_received(&self, call: Call) -> Call {
        if !self.seam.has(Defect::DeliveryIdKept) {
            return call;
        }
        let mut first = self.delivery_ids.borrow_mut();
        let delivery_id = *first.entry(call.job).or_insert(call.delivery_id);
        Call { delivery_id, ..call }
    }

    /// Takes away what a process leaves: nothing of it runs any more.
    fn bury(&self, instance: &Instance<'a>, crashed: bool) {
        let Some(process) = instance.process.borrow_mut().take() else { return };
        process.life.end();
        process.threads.iter().for_each(|thread| thread.drop_all());
        self.note_calls(&process);
        let mut ledger = self.ledger.borrow_mut();
        process.destinations.borrow().ids().for_each(|id| ledger.returned(id));
        drop(ledger);
        self.seam.cluster.borrow_mut().set_awake(&instance.name, false);
        if crashed {
            instance.disks.crash();
            self.check_disks(instance);
            if self.seam.strikes(crate::faults::Fault::DiskLost) {
                instance.disks.lose();
            }
        }
        let longest = [2_000, 9_000, 40_000, LONG_AWAY_MS][self.seam.random.borrow_mut().index(4)];
        let down_ms = self.seam.random.borrow_mut().range(0, longest);
        instance.down_until_ms.set(self.seam.clock.now_ms() + down_ms);
    }

    /// Whatever ended a process: its disks hold nothing that was not committed.
    fn check_disks(&self, instance: &Instance<'a>) {
        let remembered = self.remembered.borrow();
        for ((sub_topology, partition), base) in instance.disks.stores() {
            if sub_topology != "match" {
                continue;
            }
            for key in settle::keys(&base, streaming_hub_state::Family::Dedup) {
                if !remembered.contains(&(partition, key)) {
                    let what = format!(
                        "the disk of {} has a dedup entry of partition {partition} that was \
                         never committed",
                        instance.name
                    );
                    self.judge(Err(Violation::new(Invariant::Store, what)));
                }
            }
        }
    }

    fn instance_of(&self, life: &Life) -> Option<&Instance<'a>> {
        let is_its = |one: &&Instance<'a>| {
            one.process.borrow().as_ref().is_some_and(|p| p.life.number == life.number)
        };
        self.instances.iter().find(is_its)
    }
}

fn make_topics(seam: &Seam<'_>, settings: &Settings, workload: &Workload, partitions: usize) {
    let mut cluster = seam.cluster.borrow_mut();
    for spec in sub_topologies() {
        let application = &settings.topics.application;
        cluster.add_group(&spec.group(application), &spec.source, application);
    }
    for topic in Topic::all() {
        let count = usize::try_from(topic.partitions(&settings.topics)).unwrap_or(1);
        cluster.add_topic(&topic.name(&settings.topics.application), count);
    }
    workload.topics().for_each(|topic| cluster.add_topic(&topic, partitions));
}

/// A line in few words.
fn told(line: &history::Line) -> String {
    match line {
        history::Line::Verdict(verdict) => format!("verdict on {}", verdict.from),
        history::Line::Taken(taken) => {
            let (table, id) = (taken.table.unwrap_or(-1), taken.event.1);
            format!("inbox {}/{} {id} table {table}", taken.partition, taken.offset)
        }
        history::Line::Job(job) => {
            let verb = if job.put.is_some() { "put" } else { "end" };
            format!("{verb} {} in {:?} at {}", job.job, job.place, job.offset)
        }
        history::Line::Attempted(one) => format!("attempt {} of {}", one.number, one.job),
        history::Line::Row(row) => {
            format!("row {} at {}: {}", row.id, row.offset, row.row.is_some())
        }
        history::Line::Entry(entry) => format!("{:?} of {}", entry.marked, entry.subscription),
        history::Line::Cursor(cursor) => {
            format!("cursor of {} at {:?}", cursor.subscription, cursor.cursor)
        }
        history::Line::Claimed(job, claim) => format!("claim of {job}: {claim:?}"),
        history::Line::Wished(wish) => format!("wish about {}", wish.change.subscription),
        history::Line::Reply(reply) => format!("reply {:?}", reply.verdict),
    }
}

impl Others for World<'_> {
    fn run(&self, steps: u32) {
        for _ in 0..steps {
            if self.steps.get() < self.steps_max {
                self.step();
            } else {
                self.wait();
            }
        }
    }

    fn wait(&self) {
        self.background();
        self.seam.clock.advance(WAIT_MS);
        self.seam.cluster.borrow_mut().tick();
    }

    fn heed(&self, life: &Life) {
        let Some(instance) = self.instance_of(life) else { return };
        if life.is_dead() {
            self.bury(instance, true);
        } else {
            let awake = life.asleep_until_ms() <= self.seam.clock.now_ms();
            self.seam.cluster.borrow_mut().set_awake(&instance.name, awake);
        }
    }
}
