//! What the runtime asks of Kafka, as narrow as it needs it: a session's group membership, records
//! and transactions, and a restore's reading of logs. `kafka` implements it for real brokers, the
//! simulation for its own, so that both run the same sessions and restores.

use streaming_hub_model::time::UnixMillis;

use super::mailbox::TaskId;
use super::processor::{Outputs, Record};
use crate::kafka::error::Error;

/// What the group told this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupEvent {
    /// These partitions are ours from now on.
    Assigned(Vec<TaskId>),
    /// These partitions are to be given back; our membership still stands.
    Revoked(Vec<TaskId>),
    /// These partitions are somebody else's already.
    Lost(Vec<TaskId>),
}

/// A position to be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Whose.
    pub task: TaskId,
    /// The next offset to be read.
    pub offset: i64,
    /// What goes beside it.
    pub metadata: String,
}

/// What a step of a session does with one record.
pub type Take<'a> = dyn FnMut(&Record<'_>, &mut dyn Outputs) -> Result<(), Error> + 'a;

/// The clients of one session.
pub trait Clients {
    /// Hands the next fetched record to `take`, with the outputs of the transaction. Answers
    /// whether there was one.
    ///
    /// # Errors
    /// Those of `take`, and a client's own.
    fn poll(&mut self, take: &mut Take<'_>) -> Result<bool, Error>;

    /// What the group told and was not handled yet.
    fn next_event(&mut self) -> Option<GroupEvent>;

    /// Whether something was told and not handled yet.
    fn has_event(&self) -> bool {
        false
    }

    /// Answers an assignment: nothing of it is fetched yet.
    ///
    /// # Errors
    /// When the client refuses.
    fn accept_assignment(&mut self) -> Result<(), Error>;

    /// Fetches these tasks' partitions from these offsets on.
    ///
    /// # Errors
    /// When the client refuses.
    fn fetch(&mut self, from: &[(TaskId, i64)]) -> Result<(), Error>;

    /// Stops fetching these partitions; what was fetched of them is dropped.
    ///
    /// # Errors
    /// When the client refuses.
    fn stop_fetching(&mut self, tasks: &[TaskId]) -> Result<(), Error>;

    /// Gives these partitions back to the group, whether they are fetched or not.
    ///
    /// # Errors
    /// When the client refuses.
    fn release(&mut self, tasks: &[TaskId]) -> Result<(), Error>;

    /// Whether a partition of the source belongs to nobody although this member has been in its
    /// group for a while: what static membership does not notice (design 7).
    fn misses_partitions(&mut self) -> bool {
        false
    }

    /// Gives everything back and waits for the group to have taken it; [`Clients::subscribe`]
    /// comes next.
    fn unsubscribe(&mut self) {}

    /// Joins the group again after [`Clients::unsubscribe`].
    ///
    /// # Errors
    /// When the client refuses.
    fn subscribe(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Leaves the group at once instead of after a session time-out (design 7).
    fn leave(&mut self);

    /// Where records of the transaction go; begins one with the first.
    fn outputs(&mut self) -> &mut dyn Outputs;

    /// Whether a transaction is open.
    fn is_open(&self) -> bool;

    /// Key and value bytes of the open transaction.
    fn produced_bytes(&self) -> usize;

    /// Commits the open transaction, or one of positions alone, with these positions.
    ///
    /// # Errors
    /// [`Error::Abort`] when nothing of it is or becomes visible, [`Error::Rebuild`] when that is
    /// not known.
    fn commit(&mut self, positions: &[Position]) -> Result<(), Error>;

    /// Aborts the open transaction, if there is one.
    ///
    /// # Errors
    /// When the producer is of no use any more.
    fn abort(&mut self) -> Result<(), Error>;

    /// The high watermarks of these partitions, open transactions included (design 2).
    ///
    /// # Errors
    /// When the broker does not answer.
    fn high_watermarks(&mut self, asked: &[(&str, i32)]) -> Result<Vec<i64>, Error>;

    /// Sleeps until something may have arrived, at most so many milliseconds.
    fn sleep(&mut self, at_most_ms: u64);
}

/// The ends of one partition's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The oldest offset that is kept.
    pub low: i64,
    /// The next offset to be written, open transactions included.
    pub high: i64,
}

/// The logs that a restore reads.
pub trait Logs {
    /// The stable position of a task in its group, with its metadata; `None` when it has none.
    ///
    /// # Errors
    /// [`Error::Retry`] while a transaction on it is pending.
    fn committed(&mut self, task: &TaskId) -> Result<Option<(i64, String)>, Error>;

    /// Ends the pending transaction of the task's last owner, if that owner is gone from the
    /// group; otherwise the broker does it, 10 to 20 s later (design 2).
    fn end_predecessor(&mut self, task: &TaskId) {
        let _ = task;
    }

    /// The ends of these partitions.
    ///
    /// # Errors
    /// When the broker does not answer.
    fn ends(&mut self, asked: &[(&str, i32)]) -> Result<Vec<Ends>, Error>;

    /// The first offset of a partition at or after this time; `None` when there is none.
    ///
    /// # Errors
    /// When the broker does not answer.
    fn offset_at(&mut self, task: &TaskId, time: UnixMillis) -> Result<Option<i64>, Error>;

    /// Starts reading these partitions from these offsets, read-committed.
    ///
    /// # Errors
    /// When the client refuses.
    fn start(&mut self, from: &[(&str, i32, i64)]) -> Result<(), Error>;

    /// Hands the next record to `take`; answers whether there was one.
    ///
    /// # Errors
    /// [`Error::Rebuild`] when a log moved below the reader, and what `take` answers.
    fn next(&mut self, take: &mut TakeLog<'_>) -> Result<bool, Error>;

    /// How far each partition was read, transaction markers and aborted records included.
    ///
    /// # Errors
    /// When the client refuses.
    fn positions(&mut self) -> Result<Vec<(String, i32, i64)>, Error>;

    /// Ends the reading.
    fn stop(&mut self);
}

/// What a restore does with one record.
pub type TakeLog<'a> = dyn FnMut(&Record<'_>) -> Result<(), Error> + 'a;
