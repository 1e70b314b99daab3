//! Other instances of this hub, and why a call to a task has no answer here (design 24). A task
//! runs on one instance at a time; whoever asks it elsewhere is forwarded there by the API.

/// Another instance as `<app>-instances` names it. Whoever can write to that topic can name any:
/// what is sent there, and whether, is the API's to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its id.
    pub instance: String,
    /// Where it says that its API is reached.
    pub url: String,
}

/// Why a call to a task has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The task runs on another instance.
    #[error("the task runs on instance {}", .0.instance)]
    Elsewhere(Peer),
    /// It runs nowhere that is known now: restoring, or between two owners. Nothing happened.
    #[error("the task is between two owners or restoring")]
    Unknown,
    /// It was given up before it answered: whether the call took effect is not known.
    #[error("the task was given up before it answered")]
    Abandoned,
    /// No answer within the time: whether the call took effect is not known.
    #[error("the task did not answer in time")]
    TimedOut,
}
