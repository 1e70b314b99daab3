//! The clients of one session over the fake cluster: a static group member and a transactional
//! producer, as `Clients` asks for them, with the faults that librdkafka and a broker have.

mod producer;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use streaming_hub_topology::kafka::error::Error;
use streaming_hub_topology::runtime::clients::{Clients, GroupEvent, Position, Take};
use streaming_hub_topology::runtime::mailbox::TaskId;
use streaming_hub_topology::runtime::processor::{Outputs, Record};
use streaming_hub_topology::topics::Topic;

use self::producer::{SimProducer, refused};
use crate::cluster::groups::Membership;
use crate::cluster::log::{Data, Read};
use crate::defect::Defect;
use crate::faults::Fault;
use crate::seam::{Life, Seam, dead};

/// The most records of one turn.
const BUDGET_MAX: u64 = 12;

/// Names of a session's clients.
#[derive(Debug, Clone)]
pub struct Names {
    /// The consumer group.
    pub group: String,
    /// The member's and the producer's id.
    pub member: String,
    /// Names of the internal topics, by their number.
    pub topics: Rc<Vec<Arc<str>>>,
}

/// The clients.
pub struct SimClients<'a> {
    seam: Rc<Seam<'a>>,
    life: Arc<Life>,
    names: Names,
    token: u64,
    /// What the application has and did not give back.
    owned: BTreeSet<TaskId>,
    /// Events that the client itself makes.
    own_events: VecDeque<GroupEvent>,
    /// Put out of the group, and told so.
    lost: bool,
    /// Unsubscribed, and gone once everything is given back.
    leaving: bool,
    fetching: BTreeMap<TaskId, i64>,
    /// Where fetching stood when it was stopped.
    stood: BTreeMap<TaskId, i64>,
    /// How many more records this turn brings.
    budget: u64,
    producer: SimProducer<'a>,
}

impl<'a> SimClients<'a> {
    /// New clients: the producer ends its predecessor's transaction first (design 2).
    ///
    /// # Errors
    /// When the process dies meanwhile.
    pub fn open(seam: &Rc<Seam<'a>>, life: &Arc<Life>, names: Names) -> Result<Self, Error> {
        let epoch = seam.cluster.borrow_mut().init_transactions(&names.member);
        seam.between(life, "init_transactions")?;
        let (group, member) = (&names.group, &names.member);
        let token = seam.cluster.borrow_mut().join(group, member, &life.instance);
        let producer = SimProducer::new(seam, life, &names, epoch);
        Ok(Self {
            seam: Rc::clone(seam),
            life: Arc::clone(life),
            names,
            token,
            owned: BTreeSet::new(),
            own_events: VecDeque::new(),
            lost: false,
            leaving: false,
            fetching: BTreeMap::new(),
            stood: BTreeMap::new(),
            budget: 0,
            producer,
        })
    }

    fn alive(&self) -> Result<(), Error> {
        if self.life.is_dead() { Err(dead()) } else { Ok(()) }
    }

    fn breaks(&self) -> Result<(), Error> {
        self.alive()?;
        if self.seam.strikes(Fault::ClientFails) {
            return Err(Error::Rebuild("simulated: the client broke".into()));
        }
        Ok(())
    }

    fn membership(&self) -> Option<Membership> {
        let cluster = self.seam.cluster.borrow();
        cluster.membership(&self.names.group, &self.names.member, self.token)
    }

    /// The next record of what is fetched, and moves behind it.
    fn next_record(&mut self) -> Result<Option<Fetched>, Error> {
        let committed = !self.seam.has(Defect::ReadUncommitted);
        let cluster = self.seam.cluster.borrow();
        for (task, next) in &mut self.fetching {
            let Some(log) = cluster.log(&task.topic, task.partition) else { continue };
            match log.read(*next, committed) {
                Read::Record { offset, at_ms, data } => {
                    *next = offset + 1;
                    return Ok(Some(Fetched { task: task.clone(), offset, at_ms, data }));
                }
                Read::End(end) => *next = end,
                Read::Below(low) => {
                    return Err(Error::Rebuild(format!("{task} begins at {low} now")));
                }
            }
        }
        Ok(None)
    }

    fn rejoin_if_out(&mut self) {
        if self.owned.is_empty() && self.lost && !self.leaving {
            self.lost = false;
            let mut cluster = self.seam.cluster.borrow_mut();
            let (group, member) = (&self.names.group, &self.names.member);
            self.token = cluster.join(group, member, &self.life.instance);
        }
    }

    fn send(&mut self, positions: &[Position]) -> Result<(), Error> {
        let Some(known) = self.membership() else {
            // Whether the client has heard of it yet, the coordinator has not forgotten it.
            return Err(Error::Abort("this member is not in its group now".into()));
        };
        if self.seam.strikes(Fault::PutOut) {
            let mut cluster = self.seam.cluster.borrow_mut();
            cluster.leave(&self.names.group, &self.names.member, self.token);
        }
        self.seam.between(&self.life, "sending positions")?;
        if self.seam.strikes(Fault::PositionsFail) {
            return Err(Error::Abort("simulated: positions could not be sent".into()));
        }
        let producer = (self.producer.id.as_str(), self.producer.epoch);
        let pull = self.names.group.ends_with("-pull");
        if pull && self.seam.has(Defect::CursorUnfenced) {
            return Ok(());
        }
        let none = self.seam.has(Defect::NoPositions);
        let positions = if none { &[] } else { positions };
        let mut cluster = self.seam.cluster.borrow_mut();
        cluster.send_offsets(producer, (&self.names.group, &known), positions).map_err(refused)
    }

    /// Ends the transaction, with a commit's faults.
    fn end(&mut self) -> Result<(), Error> {
        let seam = Rc::clone(&self.seam);
        if seam.strikes(Fault::CommitFails) {
            if seam.has(Defect::CommitAssumed) {
                return self.producer.end(false);
            }
            return Err(Error::Abort("simulated: the commit failed".into()));
        }
        if seam.strikes(Fault::UnknownAborted) {
            return Err(Error::Rebuild("simulated: unknown outcome".into()));
        }
        if seam.strikes(Fault::UnknownCommitted) {
            self.producer.end(true)?;
            if seam.has(Defect::UnknownTakenForAborted) {
                self.producer.open = false;
                return Err(Error::Abort("simulated: unknown outcome".into()));
            }
            return Err(Error::Rebuild("simulated: unknown outcome".into()));
        }
        self.producer.end(true)
    }
}

struct Fetched {
    task: TaskId,
    offset: i64,
    at_ms: i64,
    data: Rc<Data>,
}

impl Drop for SimClients<'_> {
    fn drop(&mut self) {
        let mut cluster = self.seam.cluster.borrow_mut();
        cluster.drop_client(&self.names.group, &self.names.member, self.token);
    }
}

impl Clients for SimClients<'_> {
    fn poll(&mut self, take: &mut Take<'_>) -> Result<bool, Error> {
        self.breaks()?;
        if self.budget == 0 {
            self.budget = self.seam.below(BUDGET_MAX);
            return Ok(false);
        }
        self.budget -= 1;
        let Some(Fetched { task, offset, at_ms, data }) = self.next_record()? else {
            return Ok(false);
        };
        let headers = data.header_refs();
        let record = Record {
            topic: &task.topic,
            partition: task.partition,
            offset,
            timestamp_ms: at_ms,
            key: data.key.as_deref(),
            headers: &headers,
            value: data.value.as_deref(),
        };
        take(&record, &mut self.producer)?;
        self.alive()?;
        Ok(true)
    }

    fn next_event(&mut self) -> Option<GroupEvent> {
        if self.life.is_dead() {
            return None;
        }
        if let Some(event) = self.own_events.pop_front() {
            return Some(event);
        }
        if self.lost || self.leaving {
            return None;
        }
        if self.membership().is_none() {
            self.lost = true;
            if self.owned.is_empty() {
                self.rejoin_if_out();
                return None;
            }
            return Some(GroupEvent::Lost(self.owned.iter().cloned().collect()));
        }
        let mut cluster = self.seam.cluster.borrow_mut();
        let event = cluster.next_event(&self.names.group, &self.names.member, self.token)?;
        self.seam.trace.say(|| format!("  {} hears {event:?}", self.names.member));
        if let GroupEvent::Assigned(tasks) = &event {
            self.owned.extend(tasks.iter().cloned());
        }
        Some(event)
    }

    fn accept_assignment(&mut self) -> Result<(), Error> {
        self.breaks()?;
        let mut cluster = self.seam.cluster.borrow_mut();
        cluster.accept(&self.names.group, &self.names.member, self.token);
        Ok(())
    }

    fn fetch(&mut self, from: &[(TaskId, i64)]) -> Result<(), Error> {
        self.breaks()?;
        for (task, offset) in from {
            let stood = self.stood.remove(task).filter(|_| self.seam.has(Defect::NoRewind));
            let from = stood.map_or(*offset, |stood| stood.max(*offset));
            self.fetching.insert(task.clone(), from);
        }
        Ok(())
    }

    fn stop_fetching(&mut self, tasks: &[TaskId]) -> Result<(), Error> {
        self.breaks()?;
        for task in tasks {
            if let Some(next) = self.fetching.remove(task) {
                self.stood.insert(task.clone(), next);
            }
        }
        Ok(())
    }

    fn release(&mut self, tasks: &[TaskId]) -> Result<(), Error> {
        self.breaks()?;
        for task in tasks {
            self.owned.remove(task);
            self.fetching.remove(task);
            self.stood.remove(task);
        }
        let (group, member) = (&self.names.group, &self.names.member);
        let mut cluster = self.seam.cluster.borrow_mut();
        if !self.lost {
            cluster.release(group, member, self.token, tasks);
        }
        if self.leaving && self.owned.is_empty() {
            cluster.leave(group, member, self.token);
        }
        drop(cluster);
        self.rejoin_if_out();
        Ok(())
    }

    fn misses_partitions(&mut self) -> bool {
        let member = self.membership().is_some();
        member && self.seam.cluster.borrow().misses_partitions(&self.names.group)
    }

    fn unsubscribe(&mut self) {
        if self.life.is_dead() {
            return;
        }
        self.leaving = true;
        if self.owned.is_empty() {
            let mut cluster = self.seam.cluster.borrow_mut();
            cluster.leave(&self.names.group, &self.names.member, self.token);
        } else {
            let own = self.owned.iter().cloned().collect();
            self.own_events.push_back(GroupEvent::Revoked(own));
        }
    }

    fn subscribe(&mut self) -> Result<(), Error> {
        self.breaks()?;
        (self.leaving, self.lost) = (false, false);
        let mut cluster = self.seam.cluster.borrow_mut();
        self.token = cluster.join(&self.names.group, &self.names.member, &self.life.instance);
        Ok(())
    }

    fn leave(&mut self) {
        if !self.life.is_dead() {
            let mut cluster = self.seam.cluster.borrow_mut();
            cluster.leave(&self.names.group, &self.names.member, self.token);
        }
    }

    fn outputs(&mut self) -> &mut dyn Outputs {
        &mut self.producer
    }

    fn is_open(&self) -> bool {
        self.producer.open
    }

    fn produced_bytes(&self) -> usize {
        self.producer.produced_bytes
    }

    fn commit(&mut self, positions: &[Position]) -> Result<(), Error> {
        self.breaks()?;
        if let Some(failure) = self.producer.failure.take() {
            return Err(failure);
        }
        self.producer.open = true;
        self.seam.between(&self.life, "a commit's beginning")?;
        self.send(positions)?;
        self.seam.between(&self.life, "sent positions")?;
        self.end()?;
        self.producer.open = false;
        self.seam.between(&self.life, "a commit's end")
    }

    fn abort(&mut self) -> Result<(), Error> {
        self.alive()?;
        self.seam.trace.say(|| format!("  {} aborts", self.names.member));
        self.producer.failure = None;
        if !self.producer.open {
            return Ok(());
        }
        self.seam.between(&self.life, "an abort")?;
        if self.seam.strikes(Fault::AbortFails) {
            return Err(Error::Rebuild("simulated: the abort failed".into()));
        }
        match self.producer.end(false) {
            // Nothing was sent yet.
            Err(Error::Rebuild(_)) if self.producer.never_began() => {}
            other => other?,
        }
        self.producer.open = false;
        self.seam.between(&self.life, "an abort's end")
    }

    fn high_watermarks(&mut self, asked: &[(&str, i32)]) -> Result<Vec<i64>, Error> {
        self.breaks()?;
        if self.seam.strikes(Fault::AnswerFails) {
            return Err(Error::Retry("simulated: no answer".into()));
        }
        let cluster = self.seam.cluster.borrow();
        let high = |(topic, partition): &(&str, i32)| {
            cluster.log(topic, *partition).map_or(0, crate::cluster::log::Log::high)
        };
        Ok(asked.iter().map(high).collect())
    }

    fn sleep(&mut self, _: u64) {
        self.seam.let_others_run(2);
        // Only the outcome of a sleep matters, and that is the next call's.
        let _ = self.seam.resume(&self.life);
    }
}

/// Names of the internal topics by their number; a number that no topic has is an empty name.
#[must_use]
pub fn topic_names(application: &str) -> Rc<Vec<Arc<str>>> {
    let count = Topic::all().map(Topic::index).max().map_or(0, |last| last + 1);
    let mut names: Vec<Arc<str>> = vec![Arc::from(""); count];
    for topic in Topic::all() {
        names[topic.index()] = topic.name(application).into();
    }
    Rc::new(names)
}

/// A cell that counts.
pub(crate) fn add_one(cell: &Cell<u64>) -> u64 {
    cell.set(cell.get() + 1);
    cell.get()
}
