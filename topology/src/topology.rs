//! The topology, declared in one place: its sub-topologies, their sources, what their tasks
//! restore, what they write. `streaming-hub topology` prints it.

use std::fmt::Write;

use streaming_hub_model::follow::FollowSet;

use crate::runtime::spec::{Resume, Source, SubTopology};
use crate::topics::{RETRY_TIERS, Topic};

/// Classifies the producers' records.
#[must_use]
pub fn ingest(follow: FollowSet) -> SubTopology {
    SubTopology {
        name: "ingest",
        source: Source::Facts(follow),
        restores: Vec::new(),
        resume: Resume::Committed,
        writes: vec![Topic::IngestRepartition, Topic::Quarantine, Topic::Instances],
    }
}

/// Takes each event in once and makes its jobs.
#[must_use]
pub fn matching() -> SubTopology {
    SubTopology {
        name: "match",
        source: Source::Internal(Topic::IngestRepartition),
        restores: vec![Topic::Dedup],
        resume: Resume::Committed,
        writes: vec![Topic::Inbox, Topic::Deliveries, Topic::Pull, Topic::Dedup, Topic::Instances],
    }
}

/// Delivers jobs.
#[must_use]
pub fn delivery() -> SubTopology {
    let tiers = (1..=RETRY_TIERS).map(Topic::Retry);
    let mut restores = vec![Topic::Deliveries];
    restores.extend(tiers);
    restores.extend([Topic::Attempts, Topic::DeadLetters, Topic::Claims, Topic::Failures]);
    let mut writes = restores.clone();
    writes.extend([Topic::SubscriptionChanges, Topic::Instances]);
    SubTopology {
        name: "delivery",
        source: Source::Internal(Topic::Deliveries),
        restores,
        resume: Resume::Restored,
        writes,
    }
}

/// Keeps the entries of pull subscriptions and their cursors.
#[must_use]
pub fn pull() -> SubTopology {
    SubTopology {
        name: "pull",
        source: Source::Internal(Topic::Pull),
        restores: vec![Topic::Pull, Topic::Cursors],
        resume: Resume::Restored,
        writes: vec![Topic::Pull, Topic::Cursors, Topic::Instances],
    }
}

/// Decides changes of subscriptions.
#[must_use]
pub fn registry() -> SubTopology {
    SubTopology {
        name: "registry",
        source: Source::Internal(Topic::SubscriptionChanges),
        restores: vec![Topic::Subscriptions, Topic::Idempotency],
        resume: Resume::Committed,
        writes: vec![
            Topic::Subscriptions,
            Topic::Idempotency,
            Topic::SubscriptionReplies,
            Topic::Instances,
        ],
    }
}

/// Every sub-topology, in the order of a record's life.
#[must_use]
pub fn all(follow: FollowSet) -> Vec<SubTopology> {
    vec![ingest(follow), matching(), delivery(), pull(), registry()]
}

/// The whole topology as a Mermaid flow chart.
#[must_use]
pub fn mermaid(application: &str, follow: FollowSet) -> String {
    let mut text = String::from("flowchart LR\n");
    for spec in all(follow) {
        let _ = writeln!(text, "  {}([{}])", spec.name, spec.name);
        match &spec.source {
            Source::Facts(_) => {
                let sources = spec.source.subscription(application).join("<br>");
                let _ = writeln!(text, "  facts[\"{sources}\"] --> {}", spec.name);
            }
            Source::Internal(topic) => {
                let name = topic.name(application);
                let _ = writeln!(text, "  {topic}[{name}] --> {}", spec.name);
            }
        }
        let is_shared = |topic: &&Topic| !matches!(topic, Topic::Retry(2..) | Topic::Instances);
        for topic in spec.writes.iter().filter(is_shared) {
            let name = match topic {
                Topic::Retry(_) => format!("{application}-retry-01 … -{RETRY_TIERS}"),
                other => other.name(application),
            };
            let _ = writeln!(text, "  {} --> {topic}[{name}]", spec.name);
        }
    }
    text
}

/// The whole topology as text.
#[must_use]
pub fn describe(application: &str, follow: FollowSet) -> String {
    let mut text = String::new();
    for spec in all(follow) {
        let _ = writeln!(text, "sub-topology {}  (group {})", spec.name, spec.group(application));
        let source = spec.source.subscription(application).join("  ");
        let _ = writeln!(text, "  source    {source}");
        let names = |topics: &[Topic]| {
            topics.iter().map(|topic| topic.name(application)).collect::<Vec<_>>().join(" ")
        };
        if spec.has_store() {
            let _ = writeln!(text, "  store of  {}", names(&spec.restores));
        }
        let resume = match spec.resume {
            Resume::Committed => "at the committed position",
            Resume::Restored => "where the restore ended",
        };
        let _ = writeln!(text, "  resumes   {resume}");
        let _ = writeln!(text, "  writes    {}\n", names(&spec.writes));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::Kind;

    #[test]
    fn a_tasks_own_topics_have_one_writer_and_a_queue_has_one_reader() {
        let all = all(FollowSet::default());
        for topic in Topic::all() {
            let writers = all.iter().filter(|spec| spec.writes.contains(&topic)).count();
            let readers = all.iter().filter(|spec| spec.source.is(topic)).count();
            match topic.kind() {
                Kind::Own => assert_eq!((writers, readers), (1, 0), "{topic}"),
                Kind::Queue => assert_eq!(readers, 1, "{topic}"),
                Kind::SharedLog => assert_eq!((writers, readers), (2, 1), "{topic}"),
                Kind::Published => assert_eq!(readers, 0, "{topic}"),
            }
        }
    }

    #[test]
    fn the_description_names_every_sub_topology_and_its_topics() {
        let text = describe("hub", FollowSet::default());
        for name in ["ingest", "match", "delivery", "pull", "registry", "hub-retry-11", "^lerian"] {
            assert!(text.contains(name), "{name}");
        }
    }
}
