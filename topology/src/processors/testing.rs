//! A driver for processors, in the manner of Kafka Streams' `TopologyTestDriver`: the real
//! processor, a store in memory, a hand-turned clock, and logs that keep what was committed. It
//! takes steps, commits, aborts and restarts as a stream thread does; it decides nothing.

pub(crate) mod fixtures;
pub(crate) mod logs;

use std::collections::{BTreeMap, VecDeque};

use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::{Checkpoint, MemoryBase, State};

use self::logs::{APPLICATION, Compaction, Dice, Emitted, Entry, Logs};
use crate::runtime::processor::{Error, Processor, Step};
use crate::runtime::spec::{Resume, Source, SubTopology};
use crate::topics::Topic;

/// The topic of the facts of all tests.
pub(crate) const FACTS: &str = "lerian.streaming.ledger";

/// One task of a sub-topology and everything around it.
pub(crate) struct Bench<P: Processor> {
    /// The clock.
    pub(crate) now: UnixMillis,
    pub(crate) processor: P,
    pub(crate) state: State,
    /// What is committed.
    pub(crate) logs: Logs,
    /// The next offset of the source.
    pub(crate) position: i64,
    /// Metadata of the committed position.
    pub(crate) metadata: String,
    /// When the processor wants to be asked again.
    pub(crate) wake_at: Option<UnixMillis>,
    committed: i64,
    /// Where the task's own topics ended at the last look.
    own_ends: BTreeMap<(String, i32), i64>,
    spec: SubTopology,
    source: String,
    partition: i32,
    make: Box<dyn Fn() -> P>,
    disk: MemoryBase,
    open: Emitted,
    taken: Vec<P::Message>,
    dirty: bool,
}

/// How a task comes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restart {
    /// Whether its store survived, as of its last flush.
    pub(crate) keeps_store: bool,
    /// Whether its topics were compacted meanwhile.
    pub(crate) compacted: bool,
    /// Decides in what interleaving the topics are read.
    pub(crate) seed: u64,
}

impl Restart {
    /// The store is lost, everything is read.
    pub(crate) const COLD: Self = Self { keeps_store: false, compacted: false, seed: 1 };

    /// Every kind of restart, each in several interleavings.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..32).map(|n| Self { keeps_store: n & 1 == 0, compacted: n & 2 == 0, seed: n / 4 })
    }

    fn compaction(self) -> Compaction {
        match (self.compacted, self.keeps_store) {
            (false, _) => Compaction::Never,
            // A kept store is young enough to see every tombstone (design 13).
            (true, true) => Compaction::Recent,
            (true, false) => Compaction::LongAgo,
        }
    }
}

impl<P: Processor> Bench<P> {
    pub(crate) fn new(spec: SubTopology, partition: i32, make: impl Fn() -> P + 'static) -> Self {
        let disk = MemoryBase::new();
        let source = match spec.source {
            Source::Facts(_) => FACTS.to_owned(),
            Source::Internal(topic) => topic.name(APPLICATION),
        };
        let mut bench = Self {
            now: UnixMillis(fixtures::T0),
            processor: make(),
            state: State::new(Box::new(disk.clone())),
            logs: Logs::default(),
            position: 0,
            metadata: String::new(),
            wake_at: None,
            committed: 0,
            own_ends: BTreeMap::new(),
            spec,
            source,
            partition,
            make: Box::new(make),
            disk,
            open: Emitted::default(),
            taken: Vec::new(),
            dirty: false,
        };
        bench.restart(Restart::COLD);
        bench
    }

    /// Turns the clock, forwards or backwards.
    pub(crate) fn turn_clock(&mut self, by_ms: i64) {
        self.now = UnixMillis(self.now.0 + by_ms);
    }

    /// Somebody writes to the source; answers the record's offset.
    pub(crate) fn produce(&mut self, entry: Entry) -> i64 {
        let timestamp = entry.timestamp_ms;
        let entry = Entry { partition: self.partition, ..entry };
        let offset = self.logs.end(&self.source, self.partition);
        self.logs.commit(vec![(self.source.clone(), entry)], timestamp);
        offset
    }

    /// Reads one record; answers whether there was one.
    pub(crate) fn try_read(&mut self) -> Result<bool, Error> {
        let next = self.logs.next(&self.source, self.partition, self.position);
        let Some(entry) = next else { return Ok(false) };
        let (source, headers) = (self.source.clone(), entry.refs());
        self.step(|processor, step| processor.record(&entry.record(&source, &headers), step))?;
        self.position = entry.offset + 1;
        Ok(true)
    }

    /// Reads up to so many records.
    pub(crate) fn read(&mut self, records_max: usize) {
        for _ in 0..records_max {
            if !self.try_read().unwrap() {
                return;
            }
        }
    }

    /// Writes a record to the source and reads up to it.
    pub(crate) fn feed(&mut self, entry: Entry) {
        self.produce(entry);
        self.read(usize::MAX);
    }

    pub(crate) fn message(&mut self, message: P::Message) {
        self.step(|processor, step| processor.message(&message, step)).unwrap();
        self.taken.push(message);
    }

    /// Takes the step that the processor wants, if it wants one.
    pub(crate) fn take_step(&mut self) {
        if self.processor.wants_step() {
            self.step(P::step).unwrap();
        }
    }

    /// What the processor wants done now.
    pub(crate) fn act(&mut self) -> Vec<P::Action> {
        let mut actions = Vec::new();
        self.wake_at = self.processor.act(self.now, &self.state, &mut actions).unwrap();
        actions
    }

    fn step(
        &mut self,
        take: impl FnOnce(&mut P, &mut Step<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.dirty = true;
        let mut step = Step {
            now: self.now,
            partition: self.partition,
            position: self.position,
            state: &mut self.state,
            outputs: &mut self.open,
        };
        take(&mut self.processor, &mut step)
    }

    /// The records of the open transaction.
    pub(crate) fn open(&self) -> &[(Topic, Entry)] {
        &self.open.0
    }

    fn take_open(&mut self) -> Vec<(String, Entry)> {
        let open = std::mem::take(&mut self.open.0);
        open.into_iter().map(|(topic, entry)| (topic.name(APPLICATION), entry)).collect()
    }

    pub(crate) fn commit(&mut self) {
        if !std::mem::replace(&mut self.dirty, false) {
            return;
        }
        self.step(P::before_commit).unwrap();
        self.dirty = false;
        self.metadata = self.processor.metadata();
        self.committed = self.position;
        let open = self.take_open();
        self.logs.commit(open, self.now.0);
        self.taken.clear();
        self.state.commit(&self.checkpoint()).unwrap();
        self.processor.committed();
    }

    /// The transaction is aborted: the source is to be read again, messages come again at once.
    pub(crate) fn abort(&mut self) {
        if !std::mem::replace(&mut self.dirty, false) {
            return;
        }
        let open = self.take_open();
        self.logs.abort(open);
        self.position = self.committed;
        self.state.rollback();
        self.processor.aborted();
        for message in std::mem::take(&mut self.taken) {
            self.message(message);
        }
    }

    /// The task is handed back in order, with what the next owner must know.
    pub(crate) fn hand_back(&mut self) {
        self.step(P::hand_back).unwrap();
        self.commit();
    }

    /// Commits, looks where the task's own topics end, and makes all of it survive a restart.
    pub(crate) fn flush(&mut self) {
        self.commit();
        self.look_at_ends();
        self.state.commit(&self.checkpoint()).unwrap();
        self.state.flush().unwrap();
    }

    /// The task ends without a word and comes back as a new incarnation.
    pub(crate) fn restart(&mut self, how: Restart) {
        let open = self.take_open();
        self.logs.abort(open);
        self.taken.clear();
        self.dirty = false;
        self.wake_at = None;
        match how.keeps_store {
            true => self.disk.crash(),
            false => self.disk = MemoryBase::new(),
        }
        self.state = State::new(Box::new(self.disk.clone()));
        self.processor = (self.make)();
        self.restore(how);
        if self.spec.resume == Resume::Restored {
            self.committed = self.logs.end(&self.source, self.partition);
        }
        self.position = self.committed;
        self.look_at_ends();
        self.state.commit(&self.checkpoint()).unwrap();
        self.processor.restored(&self.state).unwrap();
    }

    fn restore(&mut self, how: Restart) {
        let mut dice = Dice::new(how.seed);
        let known = self.state.checkpoint().unwrap().unwrap_or_default();
        let mut parts: Vec<(Topic, VecDeque<Entry>)> = Vec::new();
        for topic in &self.spec.restores {
            let place = (topic.name(APPLICATION), self.partition);
            let from = known.positions.get(&place).copied().unwrap_or(0);
            let place = (&*place.0, place.1);
            let tail = self.logs.tail(place, from, how.compaction(), &mut dice);
            parts.push((*topic, tail.into()));
        }
        loop {
            parts.retain(|(_, entries)| !entries.is_empty());
            if parts.is_empty() {
                return;
            }
            let chosen = dice.roll(parts.len());
            let (topic, entries) = &mut parts[chosen];
            let Some(entry) = entries.pop_front() else { continue };
            let (name, headers) = (topic.name(APPLICATION), entry.refs());
            let record = entry.record(&name, &headers);
            self.processor.restore(*topic, &record, &mut self.state).unwrap();
        }
    }

    fn look_at_ends(&mut self) {
        let places =
            self.spec.restores.iter().map(|topic| (topic.name(APPLICATION), self.partition));
        let logs = &self.logs;
        self.own_ends = places.map(|at| (at.clone(), logs.end(&at.0, at.1))).collect();
    }

    /// From where the restored topics are read after what is applied now: the source from its
    /// position, the task's own topics from where they ended at the last look.
    fn checkpoint(&self) -> Checkpoint {
        let mut positions = self.own_ends.clone();
        if let Some(source) = positions.get_mut(&(self.source.clone(), self.partition)) {
            *source = self.committed;
        }
        Checkpoint { positions, stamped_at_ms: self.now.0 }
    }
}
