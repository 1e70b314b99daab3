//! A task: one source partition, its processor, its store, and where it stands. Its life:
//!
//! ```text
//! Created ──► Restoring ──► Suspended ──► Running ──► Closed
//!    │            │             │   ▲        │
//!    │            │             │   └────────┘ (gate shut, rewound)
//!    └────────────┴─────────────┴──────────────────────► Closed
//! ```
//!
//! *Suspended* is restored but not fetching: the table behind it is not current, or an abort sent
//! it back. Only a running task takes records.

use std::collections::BTreeMap;
use std::fmt;

use streaming_hub_model::time::UnixMillis;
use streaming_hub_state::State;

use super::mailbox::{Address, TaskId};
use super::processor::Processor;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskState {
    /// Assigned, nothing done yet.
    Created,
    /// Its store is being restored.
    Restoring,
    /// Restored, not fetching.
    Suspended,
    /// Fetching and processing.
    Running,
    /// Given up; the partition is somebody else's or the process ends.
    Closed,
}

impl TaskState {
    /// The legal transitions, all of them.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        use TaskState::{Closed, Created, Restoring, Running, Suspended};
        matches!(
            (self, next),
            (Created, Restoring | Closed)
                | (Restoring, Suspended | Closed)
                | (Suspended, Running | Closed)
                | (Running, Suspended | Closed)
        )
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Restoring => "restoring",
            Self::Suspended => "suspended",
            Self::Running => "running",
            Self::Closed => "closed",
        })
    }
}

/// What the stall detector remembers of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    position: i64,
    end: i64,
    /// Since when the position stands while the log grew.
    stands: Option<UnixMillis>,
}

impl Progress {
    /// Takes a new look; answers since when the position stands although the log grew.
    pub(crate) fn stands(
        &mut self,
        position: i64,
        end: i64,
        now: UnixMillis,
    ) -> Option<UnixMillis> {
        if position != self.position || position >= end {
            // It moves, or there is nothing to read.
            self.stands = None;
        } else if end > self.end {
            self.stands = self.stands.or(Some(now));
        }
        (self.position, self.end) = (position, end);
        self.stands
    }
}

/// What a restore hands over.
pub struct Live<P> {
    pub(crate) processor: P,
    pub(crate) state: State,
    /// Metadata of the committed position.
    pub(crate) metadata: String,
    /// How far each restored topic was read.
    pub(crate) positions: BTreeMap<(String, i32), i64>,
}

/// A task of a stream thread.
pub(crate) struct Task<P: Processor> {
    pub(crate) id: TaskId,
    pub(crate) incarnation: u64,
    stage: TaskState,
    /// Present from *suspended* on.
    pub(crate) live: Option<Live<P>>,
    /// The next offset to read.
    pub(crate) position: i64,
    /// The position of the last commit (or of the start).
    pub(crate) committed: i64,
    /// Whether the open transaction writes or reads for it.
    pub(crate) dirty: bool,
    /// Whether its ownership is still to be announced in the instances topic.
    pub(crate) unannounced: bool,
    /// Messages of the open transaction; they come again after an abort.
    pub(crate) taken: Vec<P::Message>,
    /// When its processor wants to be asked again.
    pub(crate) wake_at: Option<UnixMillis>,
    /// From where its own topics would be restored, by topic and partition.
    pub(crate) own_positions: BTreeMap<(String, i32), i64>,
    /// Whether it wrote its own topics since `own_positions` was taken.
    pub(crate) wrote_own: bool,
    /// What the stall detector saw last.
    pub(crate) progress: Progress,
    /// When its checkpoint was last stamped without a commit, Unix milliseconds.
    pub(crate) stamped_at_ms: i64,
}

impl<P: Processor> Task<P> {
    pub(crate) fn new(id: TaskId, incarnation: u64) -> Self {
        Self {
            id,
            incarnation,
            stage: TaskState::Created,
            live: None,
            position: 0,
            committed: 0,
            dirty: false,
            unannounced: true,
            taken: Vec::new(),
            wake_at: None,
            own_positions: BTreeMap::new(),
            wrote_own: false,
            progress: Progress::default(),
            stamped_at_ms: 0,
        }
    }

    pub(crate) fn address(&self) -> Address {
        Address { task: self.id.clone(), incarnation: self.incarnation }
    }

    /// Whether what its committed position was made with is known here (design 18).
    pub(crate) fn may_run(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.processor.may_run(&live.metadata))
    }

    pub(crate) fn stage(&self) -> TaskState {
        self.stage
    }

    pub(crate) fn is_running(&self) -> bool {
        self.stage == TaskState::Running
    }

    /// Moves on; an illegal transition is a defect of the runtime and changes nothing.
    pub(crate) fn enter(&mut self, next: TaskState) {
        debug_assert!(self.stage.may_become(next), "{} -> {next}", self.stage);
        if self.stage.may_become(next) {
            tracing::debug!(task = %self.id, incarnation = self.incarnation, from = %self.stage,
                to = %next, "task moves on");
            self.stage = next;
        } else {
            tracing::error!(task = %self.id, from = %self.stage, to = %next,
                "illegal task transition");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TaskState::{self, Closed, Created, Restoring, Running, Suspended};
    use super::{Progress, UnixMillis};

    #[test]
    fn a_task_stalls_when_its_log_grows_and_its_position_stands() {
        let mut progress = Progress::default();
        let mut at = |position, end, now| progress.stands(position, end, UnixMillis(now));
        assert_eq!(at(5, 9, 1), None, "the first look");
        assert_eq!(at(5, 9, 2), None, "the end is a transaction marker, perhaps");
        assert_eq!(at(5, 10, 3), Some(UnixMillis(3)));
        assert_eq!(at(5, 10, 4), Some(UnixMillis(3)));
        assert_eq!(at(6, 12, 5), None, "it moved");
    }

    #[test]
    fn a_task_runs_only_after_its_restore_and_never_after_its_end() {
        let all = [Created, Restoring, Suspended, Running, Closed];
        let legal: Vec<(TaskState, TaskState)> = all
            .into_iter()
            .flat_map(|a| all.into_iter().map(move |b| (a, b)))
            .filter(|(a, b)| a.may_become(*b))
            .collect();
        assert_eq!(
            legal,
            [
                (Created, Restoring),
                (Created, Closed),
                (Restoring, Suspended),
                (Restoring, Closed),
                (Suspended, Running),
                (Suspended, Closed),
                (Running, Suspended),
                (Running, Closed),
            ]
        );
    }
}
