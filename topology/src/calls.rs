//! Calls from outside (the API) to a task: a message with a way to answer, addressed to the
//! incarnation that runs now, and where to turn when the task runs elsewhere (design 24).
//!
//! Not here: what a call means (each processor's messages), and the way to another instance (the
//! API forwards).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use streaming_hub_model::peer::{CallError, Peer};
use tokio::sync::oneshot;

use crate::instances::{Owner, Owners};
use crate::runtime::mailbox::{Address, Mailbox, TaskId};
use crate::runtime::status::Status;

/// Answers one call, once. A message comes again after an abort, so a processor answers what it
/// wrote only in `committed`, and keeps a clone of this until then.
#[derive(Debug)]
pub struct Reply<T>(Arc<Mutex<Option<oneshot::Sender<T>>>>);

impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Reply<T> {
    /// A reply and where it arrives.
    #[must_use]
    pub fn new() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    /// Answers; only the first answer counts, and a caller that is gone hears none.
    pub fn send(&self, answer: T) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            let _ = sender.send(answer);
        }
    }

    /// Whether somebody still waits for the answer.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }
}

/// Where a task runs, as far as this instance knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Here, as this incarnation.
    Here(Address),
    /// On another instance.
    Elsewhere(Peer),
    /// Nowhere that is known now: restoring, or between two owners.
    Unknown,
}

/// The way to the tasks of one sub-topology.
pub struct Calls<M> {
    sub_topology: &'static str,
    source: Arc<str>,
    instance: String,
    mailbox: Mailbox<M>,
    status: Arc<Status>,
    owners: Arc<Owners>,
}

impl<M> Calls<M> {
    /// The tasks of `sub_topology`, whose source is the topic `source`, through this mailbox.
    #[must_use]
    pub fn new(
        (sub_topology, source): (&'static str, Arc<str>),
        instance: String,
        mailbox: Mailbox<M>,
        (status, owners): (Arc<Status>, Arc<Owners>),
    ) -> Self {
        Self { sub_topology, source, instance, mailbox, status, owners }
    }

    /// Where the task of a partition runs.
    #[must_use]
    pub fn place(&self, partition: i32) -> Place {
        if let Some(address) = self.status.running(self.sub_topology, partition) {
            return Place::Here(address);
        }
        let task = TaskId { topic: Arc::clone(&self.source), partition };
        match self.owners.of(self.sub_topology, &task) {
            Some(Owner { instance, url, .. }) if instance != self.instance => {
                Place::Elsewhere(Peer { instance, url })
            }
            _ => Place::Unknown,
        }
    }

    /// Asks the task of a partition and waits for its answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn ask<T>(
        &self,
        partition: i32,
        deadline: Duration,
        message: impl FnOnce(Reply<T>) -> M,
    ) -> Result<T, CallError> {
        let address = match self.place(partition) {
            Place::Here(address) => address,
            Place::Elsewhere(peer) => return Err(CallError::Elsewhere(peer)),
            Place::Unknown => return Err(CallError::Unknown),
        };
        let (reply, answer) = Reply::new();
        self.mailbox.send(address, message(reply));
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(CallError::Abandoned),
            Err(_) => Err(CallError::TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::mailbox::Waker;
    use crate::runtime::task::TaskState;

    fn owner(instance: &str) -> Vec<u8> {
        serde_json::to_vec(&serde_json::json!({
            "sub_topology": "delivery", "topic": "t", "partition": 2, "instance": instance,
            "url": "http://b/", "transactional_id": "x", "since": 1,
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_call_reaches_the_incarnation_that_runs_and_brings_its_answer() {
        let (mailbox, inbox) = Mailbox::<Reply<u32>>::new(Waker::default());
        let status = Arc::new(Status::default());
        let task = TaskId { topic: "t".into(), partition: 1 };
        let address = Address { task, incarnation: 4 };
        status.set("delivery", address.clone(), TaskState::Running);
        let views = (status, Arc::new(Owners::default()));
        let calls = Calls::new(("delivery", "t".into()), "a".into(), mailbox, views);
        let answering = tokio::task::spawn_blocking(move || {
            let (to, reply) = inbox.recv().unwrap();
            reply.send(7);
            // A second answer, as after an abort, changes nothing.
            reply.send(8);
            to
        });
        assert_eq!(calls.ask(1, Duration::from_secs(5), |reply| reply).await, Ok(7));
        assert_eq!(answering.await.unwrap(), address);
    }

    #[tokio::test]
    async fn a_task_that_does_not_run_here_is_looked_for_elsewhere() {
        use crate::follower::View;
        let (mailbox, _inbox) = Mailbox::<Reply<u32>>::new(Waker::default());
        let owners = Arc::new(Owners::default());
        let views = (Arc::new(Status::default()), Arc::clone(&owners));
        let calls = Calls::new(("delivery", "t".into()), "a".into(), mailbox, views);
        let asked = || calls.ask(2, Duration::from_secs(5), |reply| reply);
        assert_eq!(asked().await, Err(CallError::Unknown));
        assert!(owners.take(Some(b"task/delivery/t/2"), Some(&owner("b"))));
        let Err(CallError::Elsewhere(found)) = asked().await else { panic!("not elsewhere") };
        assert_eq!(found.url, "http://b/");
        // Our own old record is no place to turn to.
        assert!(owners.take(Some(b"task/delivery/t/2"), Some(&owner("a"))));
        assert_eq!(asked().await, Err(CallError::Unknown));
    }

    #[tokio::test]
    async fn a_task_given_up_before_it_answers_is_not_waited_for() {
        let (mailbox, inbox) = Mailbox::<Reply<u32>>::new(Waker::default());
        let status = Arc::new(Status::default());
        let task = TaskId { topic: "t".into(), partition: 0 };
        status.set("delivery", Address { task, incarnation: 1 }, TaskState::Running);
        let views = (status, Arc::new(Owners::default()));
        let calls = Calls::new(("delivery", "t".into()), "a".into(), mailbox, views);
        drop(inbox);
        let asked = calls.ask(0, Duration::from_secs(60), |reply| reply).await;
        assert_eq!(asked, Err(CallError::Abandoned));
    }
}
