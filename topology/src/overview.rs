//! What an operator is told of this instance and of the others: from the board on which the stream
//! threads report, and from the instances topic.

use std::sync::Arc;

use streaming_hub_model::follow::FollowSet;
use streaming_hub_model::overview::{Here, Overview, SubTopologyShape, TaskOwner};
use streaming_hub_model::time::UnixMillis;

use crate::instances::Owners;
use crate::shared::Shared;
use crate::topology;

/// Tells what runs.
pub struct HubOverview {
    shared: Arc<Shared>,
    owners: Arc<Owners>,
    follow: FollowSet,
}

impl HubOverview {
    /// Of an instance that follows these topics.
    #[must_use]
    pub fn new(shared: Arc<Shared>, owners: Arc<Owners>, follow: FollowSet) -> Self {
        Self { shared, owners, follow }
    }
}

impl Overview for HubOverview {
    fn here(&self) -> Here {
        let status = &self.shared.status;
        Here {
            instance: self.shared.instance.clone(),
            tasks: status.tasks(),
            standby: status.copies(),
            not_ready: status.missing(),
        }
    }

    fn owners(&self) -> Vec<TaskOwner> {
        let owner = |owner: crate::instances::Owner| TaskOwner {
            sub_topology: owner.sub_topology,
            topic: owner.topic,
            partition: owner.partition,
            instance: owner.instance,
            url: owner.url,
            since: UnixMillis(owner.since),
        };
        self.owners.all().into_iter().map(owner).collect()
    }

    fn application(&self) -> &str {
        &self.shared.application
    }

    fn shape(&self) -> Vec<SubTopologyShape> {
        let application = &self.shared.application;
        let all = topology::all(self.follow.clone());
        let shape = |spec: crate::runtime::spec::SubTopology| {
            let names = |topics: &[crate::topics::Topic]| {
                topics.iter().map(|topic| topic.name(application)).collect()
            };
            SubTopologyShape {
                name: spec.name.to_owned(),
                group: spec.group(application),
                source: spec.source.subscription(application),
                store_of: names(&spec.restores),
                writes: names(&spec.writes),
            }
        };
        all.into_iter().map(shape).collect()
    }
}
