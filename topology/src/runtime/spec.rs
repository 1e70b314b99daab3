//! What the runtime is told about a sub-topology: its name, its source, what its tasks restore and
//! from where they resume. The topology itself is declared in `topology.rs`.

use streaming_hub_model::follow::{FollowSet, Followed};

use crate::topics::Topic;

/// Where a sub-topology's records come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Topics of the producers.
    Facts(FollowSet),
    /// One internal topic.
    Internal(Topic),
}

/// Where a task resumes reading its source (design 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// At the committed position: one transaction wrote it and the restored topics.
    Committed,
    /// Where the restore of the source ended: the source is what the store is a view of.
    Restored,
}

/// A sub-topology as the runtime sees it.
#[derive(Debug, Clone)]
pub struct SubTopology {
    /// Its name: part of group, member and transactional ids.
    pub name: &'static str,
    /// Its source.
    pub source: Source,
    /// Topics whose partition of the task's number the store is a view of.
    pub restores: Vec<Topic>,
    /// Where tasks resume.
    pub resume: Resume,
    /// Topics that it writes.
    pub writes: Vec<Topic>,
}

impl Source {
    /// Whether it is this internal topic.
    #[must_use]
    pub fn is(&self, topic: Topic) -> bool {
        matches!(self, Self::Internal(own) if *own == topic)
    }

    /// Whether records of this topic are read.
    #[must_use]
    pub fn reads(&self, application: &str, topic: &str) -> bool {
        match self {
            Self::Facts(follow) => follow.classify(topic) != Followed::NotFollowed,
            Self::Internal(own) => own.name(application) == topic,
        }
    }

    /// What a consumer subscribes to: patterns, or a topic's name.
    #[must_use]
    pub fn subscription(&self, application: &str) -> Vec<String> {
        match self {
            Self::Facts(follow) => follow.subscription_patterns(),
            Self::Internal(topic) => vec![topic.name(application)],
        }
    }
}

impl SubTopology {
    /// Its consumer group.
    #[must_use]
    pub fn group(&self, application: &str) -> String {
        format!("{application}-{}", self.name)
    }

    /// The member and transactional id of one of its threads (design 7).
    #[must_use]
    pub fn member(&self, application: &str, instance: &str, thread: u32) -> String {
        format!("{application}-{}-{instance}-{thread}", self.name)
    }

    /// Whether its tasks have a store.
    #[must_use]
    pub fn has_store(&self) -> bool {
        !self.restores.is_empty()
    }
}
