//! How a stream thread hears of anything: messages for its tasks, and a wake-up while it sleeps.
//! A wake-up is `unpark`, which is never lost: one that comes before the sleep ends it at once.

use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

/// A task of one sub-topology: topic and partition of its source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// Topic of its source.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// Where a message goes: to one incarnation of a task (design 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The task.
    pub task: TaskId,
    /// The incarnation that asked; a later one drops the message.
    pub incarnation: u64,
}

/// A message under way.
pub type Addressed<M> = (Address, M);

/// Wakes a stream thread.
#[derive(Clone, Default)]
pub struct Waker(Arc<OnceLock<Thread>>);

impl Waker {
    /// Binds the waker to the calling thread.
    pub(crate) fn bind(&self) {
        let _ = self.0.set(std::thread::current());
    }

    /// Wakes the bound thread; without one there is nobody asleep.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

/// The sending side of a stream thread's mailbox.
pub struct Mailbox<M> {
    sender: mpsc::Sender<Addressed<M>>,
    waker: Waker,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), waker: self.waker.clone() }
    }
}

impl<M> Mailbox<M> {
    /// A mailbox and its receiving side.
    #[must_use]
    pub fn new(waker: Waker) -> (Self, mpsc::Receiver<Addressed<M>>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender, waker }, receiver)
    }

    /// Delivers a message; after the thread's end it is dropped, as one for a past incarnation.
    pub fn send(&self, address: Address, message: M) {
        let _ = self.sender.send((address, message));
        self.waker.wake();
    }
}
