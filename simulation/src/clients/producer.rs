//! The transactional producer of a session over the fake cluster: a record is at its partition as
//! soon as it is emitted, unless that fails or the process dies before it.

use std::rc::Rc;
use std::sync::Arc;

use streaming_hub_topology::kafka::error::Error;
use streaming_hub_topology::runtime::processor::{Output, Outputs};

use super::Names;
use crate::cluster::log::Data;
use crate::cluster::transactions::Refused;
use crate::faults::Fault;
use crate::seam::{Life, Seam};

/// The producer.
pub(super) struct SimProducer<'a> {
    seam: Rc<Seam<'a>>,
    life: Arc<Life>,
    pub(super) id: String,
    pub(super) epoch: u32,
    topics: Rc<Vec<Arc<str>>>,
    pub(super) open: bool,
    pub(super) produced_bytes: usize,
    pub(super) failure: Option<Error>,
}

/// What a refusal asks of the session.
pub(super) fn refused(error: Refused) -> Error {
    match error {
        Refused::Fenced => Error::Rebuild(error.to_string()),
        Refused::StaleMember | Refused::NoPartition => Error::Abort(error.to_string()),
    }
}

impl Outputs for SimProducer<'_> {
    fn emit(&mut self, output: Output<'_>) {
        if self.failure.is_some() || self.life.is_dead() {
            return;
        }
        if self.seam.strikes(Fault::CrashAtEmit) {
            return self.seam.kill(&self.life, "a produced record");
        }
        if self.seam.strikes(Fault::EmitFails) {
            self.failure = Some(Error::Abort("simulated: a record cannot be produced".into()));
            return;
        }
        if !self.open {
            self.open = true;
            self.produced_bytes = 0;
        }
        let topic = Arc::clone(&self.topics[output.topic.index()]);
        let size = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        self.produced_bytes += size(output.key) + size(output.value);
        let data = Data::copy(output.key, output.headers, output.value);
        let mut cluster = self.seam.cluster.borrow_mut();
        let appended = cluster.append((&self.id, self.epoch), (&topic, output.partition), data);
        self.failure = appended.map_err(refused).err();
    }
}

impl<'a> SimProducer<'a> {
    /// A producer whose id has this epoch.
    pub(super) fn new(seam: &Rc<Seam<'a>>, life: &Arc<Life>, names: &Names, epoch: u32) -> Self {
        Self {
            seam: Rc::clone(seam),
            life: Arc::clone(life),
            id: names.member.clone(),
            epoch,
            topics: Rc::clone(&names.topics),
            open: false,
            produced_bytes: 0,
            failure: None,
        }
    }

    /// Ends the transaction at the coordinator.
    pub(super) fn end(&mut self, commit: bool) -> Result<(), Error> {
        let producer = (self.id.as_str(), self.epoch);
        self.seam.cluster.borrow_mut().end(producer, commit).map_err(refused)
    }

    /// Whether the coordinator has no transaction of this producer, which is still the current one.
    pub(super) fn never_began(&self) -> bool {
        let cluster = self.seam.cluster.borrow();
        cluster.has_begun(&self.id, self.epoch) == Some(false)
    }
}
