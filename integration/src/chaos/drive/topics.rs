//! What is done to source topics. A broker that is away may refuse it: then it is said, and left.

use anyhow::{Result, ensure};

use super::{Drive, Later};
use crate::chaos::gather::Deleted;
use crate::chaos::load::SourceTopic;
use crate::chaos::stage::ORIGIN;

/// A source topic grows to so many partitions at most.
const PARTITIONS_MAX: i32 = 8;
/// So many source topics at most.
const TOPICS_MAX: usize = 8;
/// New partitions are written to after so long: the producer has heard of them by then.
const HEARD_MS: u64 = 3_000;
/// How often a closed topic is looked at, and how long it may take to be read.
const LOOK_MS: u64 = 2_000;
const READ_MS: u64 = 60_000;

impl Drive<'_> {
    /// Which of the topics a draw means.
    fn drawn(&self, draw: u64) -> Option<SourceTopic> {
        let topics = self.load.topics();
        let open = topics.into_iter().filter(|topic| topic.open).collect::<Vec<_>>();
        let at = usize::try_from(draw % (open.len() as u64).max(1)).unwrap_or(0);
        open.get(at).cloned()
    }

    pub(super) fn grow(&mut self, draw: u64) {
        let Some(topic) = self.drawn(draw).filter(|topic| topic.partitions < PARTITIONS_MAX) else {
            return self.say(format_args!("  none: it is large enough"));
        };
        // It may have grown a moment ago.
        let had = self.partitions.get(&topic.source).copied().unwrap_or(topic.partitions);
        let partitions = had + 1 + i32::try_from(self.random.below(2)).unwrap_or(0);
        let count = usize::try_from(partitions).unwrap_or(0);
        match self.stage.broker.grow_topic(&topic.topic(), count) {
            Ok(()) => {
                self.say(format_args!("  {} has {partitions} partitions", topic.topic()));
                self.tally.grown += 1;
                self.partitions.insert(topic.source.clone(), partitions);
                self.after(HEARD_MS, Later::Grown { source: topic.source, partitions });
            }
            Err(error) => self.say(format_args!("  {error:#}")),
        }
    }

    pub(super) fn grown(&mut self, source: &str, partitions: i32) {
        let topics = self.load.topics();
        if let Some(topic) = topics.into_iter().find(|topic| topic.source == source) {
            self.load.set(SourceTopic { partitions, ..topic });
        }
    }

    pub(super) fn new_topic(&mut self) {
        if self.load.topics().len() >= TOPICS_MAX {
            return self.say(format_args!("  none: there are {TOPICS_MAX}"));
        }
        self.tally.made += 1;
        let partitions = 1 + i32::try_from(self.random.below(3)).unwrap_or(0);
        let topic = SourceTopic::new(&format!("app-{}", self.tally.made), partitions);
        match self.stage.broker.create_topic(&topic.topic(), topic.partitions, &[]) {
            Ok(()) => {
                self.say(format_args!("  {} with {partitions} partitions", topic.topic()));
                self.load.set(topic);
            }
            Err(error) => self.say(format_args!("  {error:#}")),
        }
    }

    /// No more facts for a topic, which is to be deleted. The one that half of the subscriptions
    /// are about stays.
    pub(super) fn close(&mut self, draw: u64) {
        let Some(topic) = self.drawn(draw).filter(|topic| topic.source != ORIGIN) else {
            return self.say(format_args!("  none: that one stays"));
        };
        self.say(format_args!("  {} gets no more facts", topic.topic()));
        let until_ms = self.now_ms() + READ_MS;
        let source = topic.source.clone();
        self.load.set(SourceTopic { open: false, ..topic });
        self.after(LOOK_MS, Later::Delete { source, until_ms });
    }

    /// Deletes a closed topic if the hubs have surely read all of it.
    pub(super) fn delete(&mut self, source: &str, until_ms: u64) {
        let topic = SourceTopic::new(source, 0).topic();
        match self.read_whole(&topic) {
            Ok(deleted) => match self.stage.broker.delete_topic(&topic) {
                Ok(()) => {
                    self.say(format_args!("{topic} is deleted"));
                    self.load.remove(source);
                    self.tally.deleted += 1;
                    self.deleted.push(deleted);
                }
                Err(error) => self.keep(source, &format!("{error:#}")),
            },
            Err(_) if self.now_ms() < until_ms => {
                self.after(LOOK_MS, Later::Delete { source: source.to_owned(), until_ms });
            }
            Err(error) => self.keep(source, &format!("{error:#}")),
        }
    }

    fn keep(&mut self, source: &str, why: &str) {
        self.say(format_args!("{source} stays: {why}"));
        let topics = self.load.topics();
        if let Some(topic) = topics.into_iter().find(|topic| topic.source == source) {
            self.load.set(SourceTopic { open: true, ..topic });
        }
    }

    /// The records of a topic that nobody writes to any more, once the hubs have read all of them.
    fn read_whole(&self, topic: &str) -> Result<Deleted> {
        let left = self.load.under_way(topic);
        ensure!(left == 0, "{left} records are under way");
        let internal = self.stage.internal()?;
        for place in internal.positions("ingest", topic)? {
            ensure!(place.committed.unwrap_or(0) == place.end, "{place:?}");
        }
        Ok(Deleted { records: internal.topic(topic)? })
    }
}
