//! Deliberate defects: each takes away one thing that exactly-once rests on, at the boundary of the
//! real code. A simulation that does not notice one of them would not notice a real one either.

use crate::cluster::Laws;

/// A deliberate defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Defect {
    /// Stores take a transaction's writes before it commits.
    ApplyBeforeCommit,
    /// A commit is taken for done although it may still fail.
    CommitAssumed,
    /// An unknown outcome of a commit is taken for an abort.
    UnknownTakenForAborted,
    /// Transactions carry no positions.
    NoPositions,
    /// A member whose generation is over is not refused.
    StaleGroupMetadata,
    /// A producer of an old epoch is not refused, and its transaction not ended.
    NoEpochs,
    /// Positions are told while a transaction on them is pending.
    UnstablePositions,
    /// A restore ends at the last stable offset instead of the high watermark.
    RestoreToLso,
    /// Sources and logs are read uncommitted.
    ReadUncommitted,
    /// After an abort fetching goes on where it stood.
    NoRewind,
    /// An outcome of an older incarnation is accepted.
    OldOutcome,
    /// An outcome of an aborted transaction does not come again.
    SwallowedOutcome,
    /// Dedup forgets by the id's own time instead of the arrival.
    ExpiryByIdTime,
    /// Tasks run whatever the table's age.
    StaleTable,
    /// A job ends because its subscription was not read yet.
    EndedUnread,
    /// Tombstone and tier record of a job go in two transactions.
    SplitMove,
    /// A retry forgets that it is one.
    ForgottenAttempt,
    /// A restore loses the order of arrival.
    ScrambledOrder,
    /// A store keeps its checkpoint without the writes before it.
    TornStore,
    /// A checkpoint's age is not looked at.
    AgelessCheckpoint,
    /// Salting applies to ids of any time at once.
    SaltedAtOnce,
    /// Jobs are another tenant's.
    WrongTenant,
    /// A pull task's transactions carry no positions: who lost the partition moves cursors.
    CursorUnfenced,
    /// Reads of a pull subscription are answered before their transaction commits.
    AnsweredEarly,
    /// A claim made in the lane does not count.
    ReclaimNotCounted,
    /// Claims are not written down.
    ClaimUnwritten,
    /// While a breaker is open, a job that waits uses up a step.
    ShedTakesStep,
    /// Strict order is not kept.
    StrictForgotten,
    /// Jobs of a paused subscription end.
    PauseDrops,
    /// Delivery does not read holds.
    HoldUnread,
    /// What a destination asks for is not heard.
    RetryAfterUnheard,
    /// A later attempt has the first one's delivery id.
    DeliveryIdKept,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 32] = [
        Self::ApplyBeforeCommit,
        Self::CommitAssumed,
        Self::UnknownTakenForAborted,
        Self::NoPositions,
        Self::StaleGroupMetadata,
        Self::NoEpochs,
        Self::UnstablePositions,
        Self::RestoreToLso,
        Self::ReadUncommitted,
        Self::NoRewind,
        Self::OldOutcome,
        Self::SwallowedOutcome,
        Self::ExpiryByIdTime,
        Self::StaleTable,
        Self::EndedUnread,
        Self::SplitMove,
        Self::ForgottenAttempt,
        Self::ScrambledOrder,
        Self::TornStore,
        Self::AgelessCheckpoint,
        Self::SaltedAtOnce,
        Self::WrongTenant,
        Self::CursorUnfenced,
        Self::AnsweredEarly,
        Self::ReclaimNotCounted,
        Self::ClaimUnwritten,
        Self::ShedTakesStep,
        Self::StrictForgotten,
        Self::PauseDrops,
        Self::HoldUnread,
        Self::RetryAfterUnheard,
        Self::DeliveryIdKept,
    ];

    /// What the cluster does under it.
    #[must_use]
    pub fn laws(defect: Option<Self>) -> Laws {
        let has = |one: Self| defect == Some(one);
        Laws {
            epochs_fence: !has(Self::NoEpochs),
            init_aborts_the_predecessor: !has(Self::NoEpochs),
            generations_fence: !has(Self::StaleGroupMetadata),
            positions_are_stable: !has(Self::UnstablePositions),
        }
    }
}
