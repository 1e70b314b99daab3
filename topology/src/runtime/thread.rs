//! A stream thread: one OS thread that owns a consumer, a transactional producer and the tasks of
//! one sub-topology (design 8). This file starts, supervises and stops it; a `Session` is one life
//! of its clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::consumer::BaseConsumer;
use streaming_hub_model::time::UnixMillis;

use super::mailbox::{Address, Addressed, Mailbox, Waker};
use super::processor::Processor;
use super::restore::{Incarnations, Request, Restore, Restored, Restores};
use super::session::{Ended, Session};
use super::spec::SubTopology;
use super::standby::Standby;
use super::watchdog::Watchdog;
use crate::instances::Owners;
use crate::kafka::error::Error;
use crate::kafka::logs::KafkaLogs;
use crate::kafka::session_clients::KafkaClients;
use crate::shared::Shared;

/// How long a rebuild of the clients waits, so that a broken broker is not hammered.
const REBUILD_PAUSE: Duration = Duration::from_secs(1);

/// Fenced again within this time: somebody else uses the same id, milliseconds.
const FENCED_AGAIN_MS: u64 = 30_000;

/// Whether tasks may run at all (design 18: the table behind them is current).
pub trait Gate: Send + Sync {
    /// Whether they may.
    fn is_open(&self) -> bool;
}

/// The gate of sub-topologies that need no table.
pub struct AlwaysOpen;

impl Gate for AlwaysOpen {
    fn is_open(&self) -> bool {
        true
    }
}

/// Asks everything of an instance to stop.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Carries out what tasks ask for.
pub type Act<P> = Box<dyn Fn(Address, <P as Processor>::Action) + Send>;

/// Makes the processor of a task, given its partition.
pub type Factory<P> = Arc<dyn Fn(i32) -> P + Send + Sync>;

/// What a stream thread runs with.
pub struct Parts<P: Processor> {
    /// The sub-topology.
    pub spec: SubTopology,
    /// Makes processors.
    pub factory: Factory<P>,
    /// Shared by the instance.
    pub shared: Arc<Shared>,
    /// Whether tasks may run.
    pub gate: Arc<dyn Gate>,
    /// Asks for the end.
    pub stop: Stop,
}

/// What a stream thread needs of the real world beside its own clients.
#[derive(Clone)]
pub struct Outside {
    /// Answers high watermarks (read-uncommitted).
    pub watermarks: Arc<BaseConsumer>,
    /// Who ran which task last.
    pub owners: Arc<Owners>,
    /// Watches blocking calls.
    pub watchdog: Arc<Watchdog>,
}

/// A prepared stream thread; its mailbox exists before it runs.
pub struct StreamThread<P: Processor> {
    parts: Parts<P>,
    outside: Outside,
    mailbox: Mailbox<P::Message>,
    inbox: mpsc::Receiver<Addressed<P::Message>>,
    waker: Waker,
}

/// A running stream thread.
pub struct Running {
    name: &'static str,
    handle: JoinHandle<Result<(), Error>>,
    waker: Waker,
}

impl Running {
    /// The sub-topology that it runs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it has ended, by itself or by request.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Wakes it, so that it sees a request to stop at once.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The fatal error that ended it.
    pub fn join(self) -> Result<(), Error> {
        self.handle.join().unwrap_or_else(|_| Err(Error::Fatal("a stream thread panicked".into())))
    }
}

impl<P: Processor> StreamThread<P> {
    /// Prepares a thread.
    #[must_use]
    pub fn new(parts: Parts<P>, outside: Outside) -> Self {
        let waker = Waker::default();
        let (mailbox, inbox) = Mailbox::new(waker.clone());
        parts.shared.status.expect(parts.spec.name);
        Self { parts, outside, mailbox, inbox, waker }
    }

    /// The mailbox of its tasks.
    #[must_use]
    pub fn mailbox(&self) -> Mailbox<P::Message> {
        self.mailbox.clone()
    }

    /// Starts it. `act` carries out what its tasks ask for.
    ///
    /// # Errors
    /// When the machine has no thread left.
    pub fn start(self, act: Act<P>) -> std::io::Result<Running> {
        let (name, waker) = (self.parts.spec.name, self.waker.clone());
        let handle = std::thread::Builder::new()
            .name(format!("stream-{name}"))
            .spawn(move || self.supervise(&act))?;
        Ok(Running { name, handle, waker })
    }

    /// Runs one session after another until the stop, or an error that a new one cannot mend.
    fn supervise(self, act: &Act<P>) -> Result<(), Error> {
        self.waker.bind();
        let spec = Arc::new(self.parts.spec.clone());
        let restores = RestoreThread::start(&spec, &self.parts.shared, &self.outside, &self.waker)
            .map_err(|error| Error::Fatal(format!("no thread for restores: {error}")))?;
        if self.parts.shared.standby_replicas > 0 && spec.has_store() {
            self.keep_copies(&spec, &restores.incarnations)
                .map_err(|error| Error::Fatal(format!("no thread for standby copies: {error}")))?;
        }
        let guard = self.outside.watchdog.guard(&format!("stream-{}", spec.name));
        let mut fencings = Fencings::default();
        while !self.parts.stop.is_requested() {
            self.parts.shared.status.expect(spec.name);
            let watermarks = Arc::clone(&self.outside.watermarks);
            let clients = KafkaClients::open(&spec, &self.parts.shared, watermarks, guard.clone());
            let session = clients
                .map(|clients| Session::new(&self.parts, &self.inbox, &restores, act, clients));
            match session.and_then(Session::run) {
                Ok(Ended::Stopped) => return Ok(()),
                Err(error) if fencings.must_end(&error, self.parts.shared.clock.now()) => {
                    tracing::error!(sub_topology = spec.name, %error, "stream thread ends");
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(sub_topology = spec.name, %error, "clients are rebuilt");
                    self.parts.shared.metrics.rebuilt(spec.name);
                    std::thread::park_timeout(REBUILD_PAUSE);
                }
            }
        }
        Ok(())
    }
}

/// Tells a member id that the coordinator forgot, which comes once, from one that somebody else
/// uses too, which comes again and again.
#[derive(Debug, Default)]
struct Fencings {
    last: Option<UnixMillis>,
}

impl Fencings {
    /// Whether this error ends the thread for good.
    fn must_end(&mut self, error: &Error, now: UnixMillis) -> bool {
        match error {
            Error::Fatal(_) => true,
            Error::Fenced(_) => {
                let last = self.last.replace(now);
                last.is_some_and(|last| now.since(last) < FENCED_AGAIN_MS)
            }
            Error::Retry(_) | Error::Abort(_) | Error::Rebuild(_) => false,
        }
    }
}

impl<P: Processor> StreamThread<P> {
    /// Starts the thread that keeps warm copies of other instances' stores.
    fn keep_copies(
        &self,
        spec: &Arc<SubTopology>,
        incarnations: &Incarnations,
    ) -> std::io::Result<()> {
        let logs = KafkaLogs::open(spec, &self.parts.shared, &self.outside)
            .map_err(std::io::Error::other)?;
        let standby = Standby {
            spec: Arc::clone(spec),
            shared: Arc::clone(&self.parts.shared),
            incarnations: incarnations.clone(),
            logs,
            factory: Arc::clone(&self.parts.factory),
            stop: self.parts.stop.clone(),
            copies: Vec::new(),
        };
        let name = format!("standby-{}", spec.name);
        std::thread::Builder::new().name(name).spawn(move || standby.run()).map(drop)
    }
}

/// The thread that restores for a stream thread; it outlives sessions and ends with its sender.
struct RestoreThread<P: Processor> {
    requests: mpsc::Sender<Request<P>>,
    done: mpsc::Receiver<Restored<P>>,
    incarnations: Incarnations,
}

impl<P: Processor> RestoreThread<P> {
    fn start(
        spec: &Arc<SubTopology>,
        shared: &Arc<Shared>,
        outside: &Outside,
        waker: &Waker,
    ) -> std::io::Result<Self> {
        let outside = outside.clone();
        let (requests, requested) = mpsc::channel::<Request<P>>();
        let (finished, done) = mpsc::channel();
        let incarnations = Incarnations::default();
        let own = Self { requests, done, incarnations: incarnations.clone() };
        let (spec, shared, waker) = (Arc::clone(spec), Arc::clone(shared), waker.clone());
        std::thread::Builder::new().name(format!("restore-{}", spec.name)).spawn(move || {
            let mut logs = match KafkaLogs::open(&spec, &shared, &outside) {
                Ok(logs) => logs,
                Err(error) => {
                    tracing::error!(%error, "no consumer for restores");
                    return;
                }
            };
            while let Ok(Request { task, incarnation, processor }) = requested.recv() {
                let mut restore = Restore {
                    spec: &spec,
                    shared: &shared,
                    incarnations: &incarnations,
                    logs: &mut logs,
                    task: &task,
                    incarnation,
                };
                let result = restore.run(processor);
                if finished.send(Restored { task, incarnation, result }).is_err() {
                    return;
                }
                waker.wake();
            }
        })?;
        Ok(own)
    }
}

impl<P: Processor> Restores<P> for RestoreThread<P> {
    fn request(&self, request: Request<P>) -> Result<(), Error> {
        let gone = |_| Error::Fatal("the restore thread is gone".into());
        self.requests.send(request).map_err(gone)
    }

    fn next(&self) -> Option<Restored<P>> {
        self.done.try_recv().ok()
    }

    fn incarnations(&self) -> &Incarnations {
        &self.incarnations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_be_fenced_once_is_survived_and_again_soon_is_not() {
        let mut fencings = Fencings::default();
        let fenced = Error::Fenced("id".into());
        assert!(!fencings.must_end(&fenced, UnixMillis(1_000)));
        assert!(!fencings.must_end(&fenced, UnixMillis(1_000 + 30_000)));
        assert!(!fencings.must_end(&Error::Rebuild("x".into()), UnixMillis(31_001)));
        assert!(fencings.must_end(&fenced, UnixMillis(31_002)));
        assert!(fencings.must_end(&Error::Fatal("x".into()), UnixMillis(0)));
    }
}
