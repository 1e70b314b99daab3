//! The stream threads of a process: the hub's real sessions over the fake clients, one turn at a
//! time, rebuilt after an error as the hub's own supervisor does.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use streaming_hub_topology::instances::Owners;
use streaming_hub_topology::kafka::error::Error;
use streaming_hub_topology::runtime::mailbox::{Addressed, Mailbox, Waker};
use streaming_hub_topology::runtime::processor::Processor;
use streaming_hub_topology::runtime::session::Session;
use streaming_hub_topology::runtime::thread::{Act, Parts};

use crate::arena::Arena;
use crate::clients::{Names, SimClients};
use crate::logs::{SimLogs, SimRestores};
use crate::seam::{Life, Seam};

/// How long a rebuild of the clients waits, milliseconds.
const REBUILD_PAUSE_MS: i64 = 1_000;

/// What a session borrows.
pub struct Kept<P: Processor> {
    parts: Parts<P>,
    inbox: mpsc::Receiver<Addressed<P::Message>>,
    restores: SimRestores<P>,
    act: Act<P>,
}

/// What became of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// Nothing was to be done.
    Idle,
    /// Something was done.
    Worked,
    /// The clients are rebuilt, for this reason.
    Rebuilt(String),
    /// The thread ended, for this reason.
    Ended(String),
    /// It is in the middle of a turn, or waits before it makes new clients.
    Busy,
}

/// A stream thread.
pub trait StreamThread {
    /// Its sub-topology.
    fn name(&self) -> &'static str;
    /// Takes a turn.
    fn turn(&self) -> Turned;
    /// Whether a restore waits to begin.
    fn wants_restore(&self) -> bool;
    /// Does one restore.
    fn restore(&self);
    /// Leaves in order.
    ///
    /// # Errors
    /// What kept it from doing so.
    fn leave(&self) -> Result<(), Error>;
    /// Drops everything that it has.
    fn drop_all(&self);
}

/// A stream thread of one sub-topology.
pub struct SimThread<'a, P: Processor> {
    kept: &'a Kept<P>,
    seam: Rc<Seam<'a>>,
    life: Arc<Life>,
    names: Names,
    owners: Arc<Owners>,
    session: RefCell<Option<Session<'a, P, SimClients<'a>>>>,
    in_turn: Cell<bool>,
    rebuild_ms: Cell<i64>,
}

/// What all stream threads of a process share.
pub struct Common<'a> {
    /// The seam.
    pub seam: Rc<Seam<'a>>,
    /// The process.
    pub life: Arc<Life>,
    /// Who ran which task last.
    pub owners: Arc<Owners>,
    /// Names of the internal topics, by their number.
    pub topics: Rc<Vec<Arc<str>>>,
}

impl<'a, P: Processor> SimThread<'a, P> {
    /// A thread with these parts, and its mailbox.
    pub fn new(
        arena: &'a Arena<Kept<P>>,
        common: &Common<'a>,
        parts: Parts<P>,
        act: Act<P>,
    ) -> (Self, Mailbox<P::Message>) {
        let (mailbox, inbox) = Mailbox::new(Waker::default());
        let (spec, shared) = (&parts.spec, &parts.shared);
        let names = Names {
            group: spec.group(&shared.application),
            member: spec.member(&shared.application, &shared.instance, 0),
            topics: Rc::clone(&common.topics),
        };
        let kept = arena.keep(Kept { parts, inbox, restores: SimRestores::default(), act });
        let own = Self {
            kept,
            seam: Rc::clone(&common.seam),
            life: Arc::clone(&common.life),
            names,
            owners: Arc::clone(&common.owners),
            session: RefCell::new(None),
            in_turn: Cell::new(false),
            rebuild_ms: Cell::new(0),
        };
        (own, mailbox)
    }

    fn open(&self) -> Result<Session<'a, P, SimClients<'a>>, Error> {
        self.kept.parts.shared.status.expect(self.kept.parts.spec.name);
        let clients = SimClients::open(&self.seam, &self.life, self.names.clone())?;
        let Kept { parts, inbox, restores, act } = self.kept;
        Ok(Session::new(parts, inbox, restores, act, clients))
    }

    fn take_turn(&self) -> Result<bool, Error> {
        let held = self.session.borrow_mut().take();
        let mut session = match held {
            Some(session) => session,
            None => self.open()?,
        };
        let worked = session.turn()?;
        if !self.life.is_dead() {
            *self.session.borrow_mut() = Some(session);
        }
        Ok(worked)
    }
}

impl<P: Processor> StreamThread for SimThread<'_, P> {
    fn name(&self) -> &'static str {
        self.kept.parts.spec.name
    }

    fn turn(&self) -> Turned {
        if self.in_turn.get() || self.rebuild_ms.get() > self.seam.clock.now_ms() {
            return Turned::Busy;
        }
        self.in_turn.set(true);
        let turned = self.take_turn();
        self.in_turn.set(false);
        match turned {
            Ok(false) => Turned::Idle,
            Ok(true) => Turned::Worked,
            Err(_) if self.life.is_dead() => Turned::Worked,
            Err(Error::Fatal(text)) => Turned::Ended(text),
            Err(error) => {
                self.rebuild_ms.set(self.seam.clock.now_ms() + REBUILD_PAUSE_MS);
                Turned::Rebuilt(error.to_string())
            }
        }
    }

    fn wants_restore(&self) -> bool {
        self.kept.restores.has_work()
    }

    fn restore(&self) {
        let spec = &self.kept.parts.spec;
        let named = (spec.name, self.names.group.clone());
        let logs = SimLogs::new(&self.seam, &self.life, named, &self.owners);
        self.kept.restores.run_one(spec, &self.kept.parts.shared, logs);
    }

    fn leave(&self) -> Result<(), Error> {
        let held = self.session.borrow_mut().take();
        let Some(mut session) = held else { return Ok(()) };
        self.in_turn.set(true);
        let left = session.leave();
        self.in_turn.set(false);
        left
    }

    fn drop_all(&self) {
        let held = self.session.borrow_mut().take();
        drop(held);
        self.kept.restores.clear();
    }
}
