//! Consumer groups as an operator sees and moves them: members, positions, lag, new positions, and
//! topics that are made anew.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_model::time::UnixMillis;

use super::{Error, scan};
use crate::clock::Watch;
use crate::kafka::client::KafkaSettings;
use crate::kafka::{group, offsets};
use crate::runtime::spec::SubTopology;

/// How long one question to the broker may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a group's position may take; a pending transaction holds it back.
const POSITION: Duration = Duration::from_secs(3);
/// How long deleted topics may take to be gone.
const GONE: Duration = Duration::from_secs(30);

/// A group at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// Its name.
    pub group: String,
    /// Whether it is between two rebalances.
    pub is_stable: bool,
    /// Its members.
    pub members: BTreeSet<String>,
    /// Where it stands on each partition of its sources.
    pub positions: Vec<PositionState>,
}

/// Where a group stands on a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionState {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The committed position, if there is one.
    pub committed: Option<i64>,
    /// The first offset that is there.
    pub low: i64,
    /// The end.
    pub high: i64,
}

impl PositionState {
    /// Records between position and end, transaction markers included.
    #[must_use]
    pub fn lag(&self) -> i64 {
        self.high - self.committed.unwrap_or(self.low).clamp(self.low, self.high)
    }
}

/// A tool's view of the consumer groups of one application.
pub struct Groups {
    settings: KafkaSettings,
    application: String,
}

impl Groups {
    /// A view through clients of its own.
    #[must_use]
    pub fn new(settings: KafkaSettings, application: &str) -> Self {
        Self { settings, application: application.to_owned() }
    }

    fn reader(&self, group: &str) -> Result<BaseConsumer, Error> {
        let client_id = format!("{}-tools", self.application);
        Ok(self.settings.assigned_reader(&client_id, group).create()?)
    }

    /// The partitions of a sub-topology's sources.
    fn sources_by(
        &self,
        reader: &BaseConsumer,
        spec: &SubTopology,
    ) -> Result<Vec<(String, i32)>, Error> {
        let metadata = reader.fetch_metadata(None, ANSWER)?;
        let wanted = |topic: &str| spec.source.reads(&self.application, topic);
        let topics = metadata.topics().iter().filter(|topic| wanted(topic.name()));
        let partitions = topics
            .flat_map(|topic| topic.partitions().iter().map(|p| (topic.name().to_owned(), p.id())));
        let mut partitions: Vec<_> = partitions.collect();
        partitions.sort();
        Ok(partitions)
    }

    /// Members and positions of a sub-topology's group.
    ///
    /// # Errors
    /// When Kafka does not answer.
    pub fn state(&self, spec: &SubTopology) -> Result<GroupState, Error> {
        let name = spec.group(&self.application);
        let reader = self.reader(&name)?;
        let group = group::describe(&reader, &name)?;
        let sources = self.sources_by(&reader, spec)?;
        let asked: Vec<_> = sources.iter().map(|(t, p)| (t.as_str(), *p)).collect();
        let low = offsets::low_watermarks(&reader, &asked)?;
        let high = offsets::high_watermarks(&reader, &asked)?;
        let mut positions = Vec::with_capacity(sources.len());
        for ((topic, partition), (low, high)) in sources.into_iter().zip(low.into_iter().zip(high))
        {
            let committed = offsets::committed(&reader, &topic, partition, POSITION)?;
            let committed = committed.map(|(offset, _)| offset);
            positions.push(PositionState { topic, partition, committed, low, high });
        }
        Ok(GroupState {
            group: name,
            is_stable: group.is_stable,
            members: group.members.into_iter().collect(),
            positions,
        })
    }

    /// Where a sub-topology's sources stand at a time, or where they begin.
    ///
    /// # Errors
    /// When Kafka does not answer.
    pub fn at(
        &self,
        spec: &SubTopology,
        time: Option<UnixMillis>,
    ) -> Result<Vec<(String, i32, i64)>, Error> {
        let reader = self.reader(&spec.group(&self.application))?;
        let sources = self.sources_by(&reader, spec)?;
        let asked: Vec<_> = sources.iter().map(|(t, p)| (t.as_str(), *p)).collect();
        let low = offsets::low_watermarks(&reader, &asked)?;
        let wanted = match time {
            None => low,
            Some(time) => {
                let ends = offsets::high_watermarks(&reader, &asked)?;
                let found = scan::at_time(&reader, &asked, time)?;
                found.into_iter().zip(ends).map(|(found, end)| found.unwrap_or(end)).collect()
            }
        };
        Ok(sources.into_iter().zip(wanted).map(|((t, p), offset)| (t, p, offset)).collect())
    }

    /// Moves a group that has no members to these positions.
    ///
    /// # Errors
    /// When Kafka refuses: somebody joined.
    pub fn move_to(
        &self,
        spec: &SubTopology,
        positions: &[(String, i32, i64)],
    ) -> Result<(), Error> {
        let reader = self.reader(&spec.group(&self.application))?;
        let mut list = TopicPartitionList::new();
        for (topic, partition, offset) in positions {
            list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
        }
        if list.count() > 0 {
            reader.commit(&list, CommitMode::Sync)?;
        }
        Ok(())
    }

    /// Deletes topics and waits until they are gone; what is not there is gone already.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub async fn delete_topics(&self, names: &[&str]) -> Result<(), Error> {
        let client_id = format!("{}-tools", self.application);
        let admin: AdminClient<DefaultClientContext> = self.settings.admin(&client_id).create()?;
        let options = AdminOptions::new().operation_timeout(Some(GONE));
        for result in admin.delete_topics(names, &options).await? {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
                Err((topic, code)) => {
                    return Err(Error::Topic { topic, reason: code.to_string() });
                }
            }
        }
        let watch = Watch::start();
        let reader = self.reader(&client_id)?;
        loop {
            let metadata = reader.fetch_metadata(None, ANSWER)?;
            let left = metadata.topics().iter().find(|topic| names.contains(&topic.name()));
            let Some(left) = left else { return Ok(()) };
            if watch.elapsed() > GONE {
                let reason = "it is still there 30 s after its deletion".to_owned();
                return Err(Error::Topic { topic: left.name().to_owned(), reason });
            }
            let _ = reader.poll(Duration::from_millis(100));
        }
    }
}
