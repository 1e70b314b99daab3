//! One process of the hub: its stream threads, its views, its attempts, over the disks of its
//! instance. Made as the composition root makes it, with everything outside replaced.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};

use streaming_hub_model::destination::DestinationKey;
use streaming_hub_model::envelope::IngestPolicy;
use streaming_hub_model::failure_span::AutoDisable;
use streaming_hub_model::follow::FollowSet;
use streaming_hub_model::hold::Scope;
use streaming_hub_model::ports::Clock;
use streaming_hub_model::registry::Limits;
use streaming_hub_model::retry::RetrySchedule;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_topology::destinations::Destinations;
use streaming_hub_topology::follower::View;
use streaming_hub_topology::holds::Holds;
use streaming_hub_topology::instances::Owners;
use streaming_hub_topology::kafka::admin::Consumed;
use streaming_hub_topology::kafka::client::KafkaSettings;
use streaming_hub_topology::metrics::Metrics;
use streaming_hub_topology::processors::delivery::backlog::Bounds;
use streaming_hub_topology::processors::delivery::gates::GateSettings;
use streaming_hub_topology::processors::delivery::slots::Slots;
use streaming_hub_topology::processors::delivery::{
    Delivery, DeliverySettings, Message, Order, Retention, Returned,
};
use streaming_hub_topology::processors::ingest::{Ingest, IngestSettings};
use streaming_hub_topology::processors::matching::{Match, MatchSettings};
use streaming_hub_topology::processors::pull::{Pull, PullSettings, Read};
use streaming_hub_topology::processors::registry::Registry;
use streaming_hub_topology::pull::Desk;
use streaming_hub_topology::runtime::mailbox::{Address, Mailbox};
use streaming_hub_topology::runtime::processor::Processor;
use streaming_hub_topology::runtime::spec::SubTopology;
use streaming_hub_topology::runtime::status::Status;
use streaming_hub_topology::runtime::thread::{AlwaysOpen, Gate, Parts, Stop};
use streaming_hub_topology::salting::Salting;
use streaming_hub_topology::shared::{CommitSettings, Shared};
use streaming_hub_topology::table::Table;
use streaming_hub_topology::topics::TopicSettings;
use streaming_hub_topology::topology;

use crate::arena::Arena;
use crate::clock::{ProcessClock, SeededEntropy};
use crate::defect::Defect;
use crate::destinations::Destinations as Calls;
use crate::disks::{Disks, SimStores};
use crate::follower::{SimFollower, Twisted};
use crate::observe::{Eye, Observed};
use crate::seam::{Life, Seam};
use crate::shape::{PULL_BASE, PULL_READ_MS, PULL_UNREAD_MS, Shape, THROTTLE_MS_MAX};
use crate::threads::{Common, Kept, SimThread, StreamThread};

/// What sessions of one run borrow.
#[derive(Default)]
pub struct Arenas {
    ingest: Arena<Kept<Observed<Ingest>>>,
    matching: Arena<Kept<Observed<Match>>>,
    delivery: Arena<Kept<Observed<Delivery>>>,
    pull: Arena<Kept<Observed<Pull>>>,
    registry: Arena<Kept<Observed<Registry>>>,
}

/// The settings of all processes of one run.
#[derive(Clone)]
pub struct Settings {
    /// Names and counts of topics.
    pub topics: TopicSettings,
    /// Dedup horizon, milliseconds.
    pub horizon_ms: i64,
    /// The curve of subscriptions without one of their own.
    pub schedule: RetrySchedule,
    /// Limits of the registry.
    pub limits: Limits,
    /// How much may wait.
    pub bounds: Bounds,
    /// Attempts at once in one process.
    pub slots: usize,
    /// Commit cadence.
    pub commit: CommitSettings,
    /// By how much processes' clocks differ from the run's, at the most, milliseconds.
    pub clocks_ms: i64,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Names of the internal topics, by their number.
    pub topic_names: Rc<Vec<Arc<str>>>,
}

/// A process.
pub struct Process<'a> {
    /// Its life.
    pub life: Arc<Life>,
    /// What its threads share.
    pub shared: Arc<Shared>,
    /// Feeds its views.
    pub follower: SimFollower,
    /// Its stream threads.
    pub threads: Vec<Box<dyn StreamThread + 'a>>,
    /// Its attempt slots.
    pub slots: Arc<Slots>,
    /// Its calls.
    pub destinations: RefCell<Calls>,
    table: Arc<Table>,
    /// Its copy of the holds.
    holds: Arc<Holds>,
    /// Since when it knows them, by its clock.
    holds_known: RefCell<BTreeMap<Scope, UnixMillis>>,
    orders: mpsc::Receiver<(Address, Order)>,
    mailbox: Mailbox<Message>,
    reads: Mailbox<Read>,
}

impl Process<'_> {
    /// The next attempt that a task orders.
    pub fn next_order(&self) -> Option<(Address, Order)> {
        self.orders.try_recv().ok()
    }

    /// Its follower reads some records of each partition.
    pub fn follow(&self, seam: &Seam<'_>, at_most: u64) {
        self.follower.step(seam, at_most);
        let now = self.shared.clock.now();
        let mut known = self.holds_known.borrow_mut();
        let standing: Vec<_> = self.holds.all().iter().map(|hold| hold.scope.clone()).collect();
        known.retain(|scope, _| standing.contains(scope));
        standing.into_iter().for_each(|scope| _ = known.entry(scope).or_insert(now));
    }

    /// Whether it was cut off for so long that only a new process mends it (the hub ends then).
    pub fn is_outdated(&self) -> bool {
        self.table.is_outdated()
    }

    /// What an attempt should have waited behind, as far as the process knew when it claimed.
    pub fn behind(&self, order: &Order) -> Option<String> {
        let (subscription, at) = (&order.attempt.subscription, claimed_at(order));
        if subscription.paused {
            return Some("pause".to_owned());
        }
        let destination = destination_key().id(&subscription.sink).to_string();
        let hold = self.holds.of(&subscription.tenant, &destination, subscription.id)?;
        let known = self.holds_known.borrow().get(&hold.scope).copied();
        known.is_some_and(|since| since < at).then(|| format!("hold of {}", hold.scope))
    }

    /// By how much its clock is ahead, milliseconds.
    pub fn ahead_ms(&self, seam: &Seam<'_>) -> i64 {
        self.shared.clock.now().0 - seam.clock.now_ms()
    }

    /// Where a read of a partition's pull subscriptions goes, if its task runs here.
    pub fn pull_task(&self, partition: i32) -> Option<Address> {
        self.shared.status.running("pull", partition)
    }

    /// Hands a read to its task.
    pub fn read(&self, address: Address, read: Read) {
        self.reads.send(address, read);
    }

    /// Hands an outcome to its task.
    pub fn answer(&self, address: Address, returned: Returned) {
        self.mailbox.send(address, Message::Returned(returned));
    }
}

/// Makes the parts of one process.
struct Maker<'m, 'a> {
    arenas: &'a Arenas,
    common: Common<'a>,
    settings: &'m Settings,
    shared: Arc<Shared>,
    table: Arc<Table>,
    /// The table as delivery sees it.
    told: Arc<Table>,
    salting: Arc<Salting>,
    holds: Arc<Holds>,
    destinations: Arc<Destinations>,
    slots: Arc<Slots>,
    eye: Arc<Eye>,
}

/// The table as delivery is told it: as it is, or as a defect has it.
struct Told {
    table: Arc<Table>,
    /// One that says that it has read everything.
    lying: Option<Arc<Table>>,
    /// One whose records are read otherwise.
    twisted: Option<Twisted>,
}

impl Told {
    fn new(defect: Option<Defect>, real: &Arc<Table>, other: &dyn Fn() -> Arc<Table>) -> Self {
        let lying = (defect == Some(Defect::EndedUnread)).then(other);
        let twists = [Defect::StrictForgotten, Defect::PauseDrops];
        let twist = defect.filter(|defect| twists.contains(defect));
        let twisted = twist.map(|defect| Twisted { table: other(), defect });
        let table = twisted.as_ref().map(|twisted| &twisted.table).or(lying.as_ref());
        Self { table: Arc::clone(table.unwrap_or(real)), lying, twisted }
    }
}

/// Starts a process of an instance.
pub fn start<'a>(
    arenas: &'a Arenas,
    seam: &Rc<Seam<'a>>,
    settings: &Settings,
    life: &Arc<Life>,
    disks: &Disks,
) -> Process<'a> {
    let ahead_ms = seam.random.borrow_mut().range(-settings.clocks_ms, settings.clocks_ms);
    let clock: Arc<dyn Clock> = Arc::new(ProcessClock { base: seam.clock.clone(), ahead_ms });
    let partitions = settings.topics.partitions;
    let table = Arc::new(Table::new(partitions, Arc::clone(&clock)));
    let Told { table: told, lying, twisted } =
        Told::new(seam.defect, &table, &|| Arc::new(Table::new(partitions, Arc::clone(&clock))));
    let (owners, salting) = (Arc::new(Owners::default()), Arc::new(Salting::default()));
    let (holds, health) = (Arc::new(Holds::default()), Arc::new(Destinations::default()));
    let mut views: Vec<Arc<dyn View>> = vec![
        Arc::clone(&table) as _,
        Arc::clone(&owners) as _,
        Arc::clone(&salting) as _,
        Arc::clone(&holds) as _,
        Arc::clone(&health) as _,
    ];
    views.extend(twisted.map(|twisted| Arc::new(twisted) as Arc<dyn View>));
    let follower = SimFollower::new((&table, &clock), views, &settings.topics, lying);
    let eye = Eye {
        table: Arc::clone(&table),
        partitions: partitions.unsigned_abs(),
        defect: seam.defect,
        destinations: Arc::clone(&health),
    };
    let topics = Rc::clone(&settings.topic_names);
    let common = Common { seam: Rc::clone(seam), life: Arc::clone(life), owners, topics };
    let maker = Maker {
        arenas,
        common,
        settings,
        shared: shared((seam, settings), life, disks, clock),
        table,
        told,
        salting,
        holds: if seam.has(Defect::HoldUnread) { Arc::default() } else { Arc::clone(&holds) },
        destinations: health,
        slots: Slots::new(settings.slots, usize::MAX / 2),
        eye: Arc::new(eye),
    };
    let (sender, orders) = mpsc::channel();
    let (delivery, mailbox) = maker.delivery(sender);
    let (pull, reads) = maker.pull();
    let threads: Vec<Box<dyn StreamThread + 'a>> = vec![
        maker.ingest(),
        maker.matching(),
        Box::new(delivery),
        maker.registry(),
        Box::new(pull),
    ];
    Process {
        life: Arc::clone(life),
        shared: maker.shared,
        follower,
        threads,
        slots: maker.slots,
        destinations: RefCell::default(),
        table: maker.table,
        holds,
        holds_known: RefCell::default(),
        orders,
        mailbox,
        reads,
    }
}

fn shared(
    (seam, settings): (&Seam<'_>, &Settings),
    life: &Arc<Life>,
    disks: &Disks,
    clock: Arc<dyn Clock>,
) -> Arc<Shared> {
    let stores = SimStores { disks: disks.clone(), life: Arc::clone(life) };
    let entropy = SeededEntropy::new(seam.random.borrow_mut().next());
    Arc::new(Shared {
        application: settings.topics.application.clone(),
        instance: life.instance.clone(),
        advertised_url: format!("http://{}/", life.instance),
        kafka: no_kafka(),
        topics: settings.topics.clone(),
        start_at: None,
        standby_replicas: 0,
        commit: settings.commit,
        stores: Arc::new(stores),
        clock,
        entropy: Arc::new(entropy),
        status: Arc::new(Status::default()),
        metrics: Arc::clone(&settings.metrics),
        consumed: Consumed::default(),
        incarnations: AtomicU64::new(0),
    })
}

/// When an attempt was claimed, by its process's clock: its id says so. It starts later if its
/// claim has to commit first.
#[must_use]
pub fn claimed_at(order: &Order) -> UnixMillis {
    let ms = order.attempt.delivery_id.as_u128() >> 80;
    UnixMillis(i64::try_from(ms).unwrap_or(0))
}

/// What names destinations.
#[must_use]
pub fn destination_key() -> DestinationKey {
    DestinationKey::new([7; 32])
}

/// Client settings that nobody uses.
fn no_kafka() -> KafkaSettings {
    KafkaSettings {
        bootstrap_servers: String::new(),
        properties: BTreeMap::new(),
        transaction_timeout_ms: 0,
        session_timeout_ms: 0,
        heartbeat_interval_ms: 0,
        max_poll_interval_ms: 0,
        fetch_queue_kbytes: 0,
        producer_queue_kbytes: 0,
        message_bytes_max: 0,
        metadata_refresh_ms: 0,
    }
}

impl<'a> Maker<'_, 'a> {
    fn parts<P: Processor>(
        &self,
        spec: SubTopology,
        gate: Arc<dyn Gate>,
        make: impl Fn(i32) -> P + Send + Sync + 'static,
    ) -> Parts<Observed<P>> {
        let (eye, name) = (Arc::clone(&self.eye), spec.name);
        Parts {
            spec,
            factory: Arc::new(move |p| Observed::new(make(p), name, Arc::clone(&eye))),
            shared: Arc::clone(&self.shared),
            gate,
            stop: Stop::default(),
        }
    }

    fn gate(&self) -> Arc<dyn Gate> {
        Arc::clone(&self.table) as _
    }

    fn ingest(&self) -> Box<dyn StreamThread + 'a> {
        let settings = Arc::new(IngestSettings {
            policy: IngestPolicy::default(),
            partitions: self.settings.topics.partitions,
            message_bytes_max: self.settings.topics.message_bytes_max(),
            salting: Arc::clone(&self.salting),
            metrics: Arc::clone(&self.settings.metrics),
        });
        let spec = topology::ingest(FollowSet::default());
        let parts = self.parts(spec, self.gate(), move |_| Ingest::new(Arc::clone(&settings)));
        let arena = &self.arenas.ingest;
        Box::new(SimThread::new(arena, &self.common, parts, Box::new(|_, _| ())).0)
    }

    fn matching(&self) -> Box<dyn StreamThread + 'a> {
        let settings = Arc::new(MatchSettings {
            table: Arc::clone(&self.table),
            retry_schedule: self.settings.schedule.clone(),
            horizon_ms: self.settings.horizon_ms,
            partitions: self.settings.topics.partitions,
            packed_bytes_max: self.settings.topics.value_bytes_max(),
            metrics: Arc::clone(&self.settings.metrics),
        });
        let is_stale = self.eye.defect == Some(Defect::StaleTable);
        let gate = if is_stale { Arc::new(AlwaysOpen) } else { self.gate() };
        let make = move |p| Match::new(Arc::clone(&settings), p);
        let parts = self.parts(topology::matching(), gate, make);
        let arena = &self.arenas.matching;
        Box::new(SimThread::new(arena, &self.common, parts, Box::new(|_, _| ())).0)
    }

    fn delivery(
        &self,
        orders: mpsc::Sender<(Address, Order)>,
    ) -> (SimThread<'a, Observed<Delivery>>, Mailbox<Message>) {
        let settings = Arc::new(DeliverySettings {
            table: Arc::clone(&self.told),
            slots: Arc::clone(&self.slots),
            entropy: Arc::clone(&self.shared.entropy),
            retry_schedule: self.settings.schedule.clone(),
            gates: GateSettings {
                breaker: Shape::breaker(),
                throttle_ms_max: THROTTLE_MS_MAX,
                key: Arc::new(destination_key()),
                holds: Arc::clone(&self.holds),
                destinations: Arc::clone(&self.destinations),
            },
            bounds: self.settings.bounds,
            partitions: self.settings.topics.partitions,
            lane: Arc::default(),
            // Spans of days would trip over the leaps of this clock.
            auto_disable: AutoDisable { enabled: false, ..AutoDisable::default() },
            retention: Retention::default(),
            metrics: Arc::clone(&self.settings.metrics),
        });
        let make = move |p| Delivery::new(Arc::clone(&settings), p);
        let parts = self.parts(topology::delivery(), self.gate(), make);
        let act = move |address, order| {
            let _ = orders.send((address, order));
        };
        SimThread::new(&self.arenas.delivery, &self.common, parts, Box::new(act))
    }

    fn pull(&self) -> (SimThread<'a, Observed<Pull>>, Mailbox<Read>) {
        let settings = Arc::new(PullSettings {
            table: Arc::clone(&self.told),
            desk: Arc::new(Desk::default()),
            base: PULL_BASE,
            read_ms: PULL_READ_MS,
            unread_ms: PULL_UNREAD_MS,
            partitions: self.settings.topics.partitions,
            metrics: Arc::clone(&self.settings.metrics),
        });
        let make = move |p| Pull::new(Arc::clone(&settings), p);
        let parts = self.parts(topology::pull(), self.gate(), make);
        let act = |_, never: std::convert::Infallible| match never {};
        SimThread::new(&self.arenas.pull, &self.common, parts, Box::new(act))
    }

    fn registry(&self) -> Box<dyn StreamThread + 'a> {
        let (limits, metrics) = (self.settings.limits, Arc::clone(&self.settings.metrics));
        let make = move |_| Registry::new(limits, Arc::clone(&metrics));
        let parts = self.parts(topology::registry(), Arc::new(AlwaysOpen), make);
        let arena = &self.arenas.registry;
        Box::new(SimThread::new(arena, &self.common, parts, Box::new(|_, _| ())).0)
    }
}
