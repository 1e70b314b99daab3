//! What a processor is: `step(state, input, now) -> effects` (design 25). Writes go into the
//! task's uncommitted state, records into [`Outputs`]; neither happens unless the transaction
//! commits. Nothing here has a clock, randomness or I/O.

use streaming_hub_model::headers::{HeaderRef, Headers};
use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::{ExpiryRule, State};

use crate::topics::Topic;

/// A record as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Name of its topic.
    pub topic: &'a str,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, Unix milliseconds; −1 when it has none.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its headers in order.
    pub headers: &'a [HeaderRef<'a>],
    /// Its value.
    pub value: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// A view of its headers.
    #[must_use]
    pub fn view(&self) -> Headers<'a> {
        Headers::new(self.headers)
    }
}

/// A record to be written within the transaction.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// Its topic.
    pub topic: Topic,
    /// Its partition, computed by the hub (design 15).
    pub partition: i32,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its headers in order.
    pub headers: &'a [HeaderRef<'a>],
    /// Its value; `None` is a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
}

/// Where a step's records go. An error is the runtime's affair: it aborts the transaction.
pub trait Outputs {
    /// Adds a record to the transaction.
    fn emit(&mut self, output: Output<'_>);
}

/// What a step works with.
pub struct Step<'a> {
    /// Now.
    pub now: UnixMillis,
    /// The task's partition.
    pub partition: i32,
    /// The next offset that the task reads of its source, the current record excluded.
    pub position: i64,
    /// The task's state.
    pub state: &'a mut State,
    /// Where records go.
    pub outputs: &'a mut dyn Outputs,
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The local store failed; the task is closed and restored anew.
    #[error(transparent)]
    State(#[from] streaming_hub_state::Error),
    /// An internal record of a format that this release does not know: the task stops.
    #[error("{0}")]
    Format(#[from] streaming_hub_model::internal::Error),
    /// Going on would break a promise; an operator must decide. The task stops.
    #[error("{0}")]
    Refused(String),
}

/// What a task did with what it shares with the instance's other tasks, for example attempt slots.
#[derive(Debug, Clone, Copy, Default)]
pub struct Acted {
    /// It took some of it.
    pub took: bool,
    /// It left what is next to another task, whose turn it is.
    pub yielded: bool,
}

/// The deciding part of a sub-topology's tasks. One value serves one task. What has a body here is
/// for those that need it.
pub trait Processor: Send + 'static {
    /// What reaches a task from outside Kafka (outcomes of attempts, calls).
    type Message: Send + 'static;
    /// What a task asks of the outside once its step is taken.
    type Action: Send + 'static;

    /// Rules by which the store forgets by itself.
    fn expiry(&self) -> Vec<ExpiryRule> {
        Vec::new()
    }

    /// Takes a record of a restored topic into the state. Also used by standbys.
    ///
    /// # Errors
    /// See [`Error`].
    fn restore(
        &mut self,
        topic: Topic,
        record: &Record<'_>,
        state: &mut State,
    ) -> Result<(), Error> {
        let _ = (topic, record, state);
        Ok(())
    }

    /// The state is restored: builds what is kept in memory.
    ///
    /// # Errors
    /// See [`Error`].
    fn restored(&mut self, state: &State) -> Result<(), Error> {
        let _ = state;
        Ok(())
    }

    /// Whether the task may run now, given the metadata of its committed position (design 18).
    fn may_run(&self, committed_metadata: &str) -> bool {
        let _ = committed_metadata;
        true
    }

    /// Processes one record of the source. A record that cannot be processed is a verdict, never
    /// an error.
    ///
    /// # Errors
    /// See [`Error`].
    fn record(&mut self, record: &Record<'_>, step: &mut Step<'_>) -> Result<(), Error>;

    /// Processes one message. It comes again if the transaction aborts.
    ///
    /// # Errors
    /// See [`Error`].
    fn message(&mut self, message: &Self::Message, step: &mut Step<'_>) -> Result<(), Error>;

    /// Whether the task wants a step of its own, without a record or a message.
    fn wants_step(&self) -> bool {
        false
    }

    /// That step.
    ///
    /// # Errors
    /// See [`Error`].
    fn step(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        let _ = step;
        Ok(())
    }

    /// Whether somebody waits for the open transaction: it commits at the end of the turn.
    fn wants_commit(&self) -> bool {
        false
    }

    /// Writes what belongs to the whole transaction, just before it commits.
    ///
    /// # Errors
    /// See [`Error`].
    fn before_commit(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        let _ = step;
        Ok(())
    }

    /// Metadata to commit beside the position.
    fn metadata(&self) -> String {
        String::new()
    }

    /// What the task wants done outside of any transaction now, and when to be asked again at the
    /// latest even if nothing arrives.
    ///
    /// # Errors
    /// See [`Error`].
    fn act(
        &mut self,
        now: UnixMillis,
        state: &State,
        actions: &mut Vec<Self::Action>,
    ) -> Result<Option<UnixMillis>, Error> {
        let _ = (now, state, actions);
        Ok(None)
    }

    /// What the last [`Processor::act`] did with what the tasks of an instance share.
    fn acted(&self) -> Acted {
        Acted::default()
    }

    /// The transaction with this task's steps has committed.
    fn committed(&mut self);

    /// It has aborted: the state is rolled back, the source is read again from the committed
    /// position, messages come again.
    fn aborted(&mut self);

    /// Whether the next owner must be told something when the task is handed over in order.
    fn has_to_hand_back(&self) -> bool {
        false
    }

    /// Writes that, in the last transaction before the task is let go.
    ///
    /// # Errors
    /// See [`Error`].
    fn hand_back(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        let _ = step;
        Ok(())
    }

    /// How many of its actions are under way; a clean stop waits for them (bounded).
    fn under_way(&self) -> usize {
        0
    }
}
