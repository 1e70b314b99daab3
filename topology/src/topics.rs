//! The hub's internal topics (design 10): which there are, of which kind, and with which settings
//! they are made. The one place that knows their names.

use std::fmt;

/// An internal topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// Accepted events on their way to matching, by tenant.
    IngestRepartition,
    /// Every accepted event, once.
    Inbox,
    /// What could not be accepted, byte-exact.
    Quarantine,
    /// Changelog of the dedup store, packed.
    Dedup,
    /// Delivery jobs, by subscription.
    Deliveries,
    /// Jobs that wait for their *n*-th retry, 1 to 11.
    Retry(u8),
    /// One record for each attempt.
    Attempts,
    /// Jobs that ended without delivery.
    DeadLetters,
    /// Claims of restored jobs, before they are attempted.
    Claims,
    /// Since when subscriptions' attempts fail.
    Failures,
    /// What is wished of the registry.
    SubscriptionChanges,
    /// What the registry answered.
    SubscriptionReplies,
    /// All subscriptions, by tenant.
    Subscriptions,
    /// Who owns which task, and the layout of the partitioned topics.
    Instances,
    /// Which tenants are spread over all partitions, and since when.
    Salts,
    /// Destinations whose breakers are open.
    Destinations,
    /// What operators hold.
    Holds,
    /// Entries of pull subscriptions, by subscription.
    Pull,
    /// How far pull subscriptions were read.
    Cursors,
    /// Idempotency keys and the answers kept under them.
    Idempotency,
}

/// How many retry tiers there are: one for each back-off step but the first.
pub const RETRY_TIERS: u8 = 11;

/// What a topic is for, which decides its settings and who may write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Between sub-topologies; its reader deletes what it has read.
    Queue,
    /// A compacted log that two sub-topologies write.
    SharedLog,
    /// Written by the owning task only, read to restore.
    Own,
    /// Read by everyone, by explicit assignment.
    Published,
}

/// What happens to a topic's old records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleanup {
    /// The last record of a key stays.
    Compact,
    /// Records go after this many hours.
    Delete(u64),
    /// The last record of a key stays, for this many hours.
    CompactAndDelete(u64),
    /// Nothing goes by itself.
    Keep,
}

/// The settings from the configuration that shape topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSettings {
    /// Application id, the prefix of every name.
    pub application: String,
    /// Partitions of every partitioned internal topic.
    pub partitions: i32,
    /// Replicas of each.
    pub replication: i32,
    /// Retention of the inbox, hours.
    pub inbox_hours: u64,
    /// Retention of the quarantine, hours.
    pub quarantine_hours: u64,
    /// Retention of the attempt log, hours.
    pub attempts_hours: u64,
    /// Retention of dead letters, hours.
    pub dead_letter_hours: u64,
    /// Dedup horizon, hours; its changelog is kept three days longer (design 12).
    pub dedup_horizon_hours: u64,
    /// Largest accepted payload, bytes.
    pub payload_bytes_max: usize,
}

/// `delete.retention.ms` of compacted topics (design 13). What may be older than half of it has to
/// be made anew: a deletion that it did not see may be gone.
pub(crate) const DELETE_RETENTION_MS: i64 = 7 * 24 * 3_600_000;
/// Hours that the dedup changelog outlives the horizon: the longest outage to survive.
const DEDUP_OUTAGE_HOURS: u64 = 72;
/// Hours that registry replies are kept.
const REPLY_HOURS: u64 = 1;
/// Attempts that a restore reads of each partition: enough for the last ones of its subscriptions,
/// and a matter of a second however long the log is.
const ATTEMPTS_TAIL: i64 = 20_000;
/// Hours that an idempotency key's last record is kept: longer than the key counts.
const IDEMPOTENCY_HOURS: u64 = 36;
/// Room beside a payload for headers and framing, bytes.
const RECORD_OVERHEAD_BYTES: usize = 1024 * 1024;
/// The least `max.message.bytes` of an internal topic: larger than what brokers let producers
/// write by default, so that a quarantined record fits.
const MESSAGE_BYTES_MIN: usize = 4 * 1024 * 1024;

impl TopicSettings {
    /// `max.message.bytes` of every internal topic, bytes.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        (self.payload_bytes_max + RECORD_OVERHEAD_BYTES).max(MESSAGE_BYTES_MIN)
    }

    /// The largest value that surely fits a record beside its headers, bytes.
    #[must_use]
    pub fn value_bytes_max(&self) -> usize {
        self.message_bytes_max() - RECORD_OVERHEAD_BYTES
    }
}

impl Topic {
    /// All internal topics.
    pub fn all() -> impl Iterator<Item = Self> {
        let retries = (1..=RETRY_TIERS).map(Self::Retry);
        [
            Self::IngestRepartition,
            Self::Inbox,
            Self::Quarantine,
            Self::Dedup,
            Self::Deliveries,
            Self::Attempts,
            Self::DeadLetters,
            Self::Claims,
            Self::Failures,
            Self::SubscriptionChanges,
            Self::SubscriptionReplies,
            Self::Subscriptions,
            Self::Instances,
            Self::Salts,
            Self::Destinations,
            Self::Holds,
            Self::Pull,
            Self::Cursors,
            Self::Idempotency,
        ]
        .into_iter()
        .chain(retries)
    }

    /// A small number for tables, unique for each topic.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::IngestRepartition => 0,
            Self::Inbox => 1,
            Self::Quarantine => 2,
            Self::Dedup => 3,
            Self::Deliveries => 4,
            Self::Attempts => 5,
            Self::DeadLetters => 6,
            Self::SubscriptionChanges => 7,
            Self::SubscriptionReplies => 8,
            Self::Subscriptions => 9,
            Self::Instances => 10,
            Self::Salts => 11,
            Self::Retry(tier) => 11 + usize::from(tier),
            Self::Claims => 23,
            Self::Failures => 24,
            Self::Destinations => 25,
            Self::Holds => 26,
            Self::Pull => 27,
            Self::Cursors => 28,
            Self::Idempotency => 29,
        }
    }

    /// The topic's full name under an application id.
    #[must_use]
    pub fn name(self, application: &str) -> String {
        format!("{application}-{self}")
    }

    /// What it is for.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::IngestRepartition | Self::SubscriptionChanges => Kind::Queue,
            Self::Deliveries | Self::Pull => Kind::SharedLog,
            Self::Dedup
            | Self::Retry(_)
            | Self::Attempts
            | Self::DeadLetters
            | Self::Claims
            | Self::Failures
            | Self::Cursors
            | Self::Idempotency => Kind::Own,
            Self::Inbox
            | Self::Quarantine
            | Self::SubscriptionReplies
            | Self::Subscriptions
            | Self::Instances
            | Self::Salts
            | Self::Destinations
            | Self::Holds => Kind::Published,
        }
    }

    /// Whether its reader deletes what it has read.
    #[must_use]
    pub fn is_queue(self) -> bool {
        self.kind() == Kind::Queue
    }

    /// How many partitions it has.
    #[must_use]
    pub fn partitions(self, settings: &TopicSettings) -> i32 {
        match self {
            Self::SubscriptionReplies
            | Self::Instances
            | Self::Salts
            | Self::Destinations
            | Self::Holds => 1,
            _ => settings.partitions,
        }
    }

    /// Of a long log whose end is all that a store keeps: how many records before its end a
    /// restore reads at the most. `None` for a log that is restored whole.
    #[must_use]
    pub fn restored_tail(self) -> Option<i64> {
        (self == Self::Attempts).then_some(ATTEMPTS_TAIL)
    }

    fn cleanup(self, settings: &TopicSettings) -> Cleanup {
        match self {
            Self::IngestRepartition | Self::SubscriptionChanges => Cleanup::Keep,
            Self::Deliveries
            | Self::Retry(_)
            | Self::Claims
            | Self::Failures
            | Self::Subscriptions
            | Self::Instances
            | Self::Salts
            | Self::Destinations
            | Self::Holds
            | Self::Pull
            | Self::Cursors => Cleanup::Compact,
            Self::Dedup => Cleanup::Delete(settings.dedup_horizon_hours + DEDUP_OUTAGE_HOURS),
            Self::Inbox => Cleanup::Delete(settings.inbox_hours),
            Self::Quarantine => Cleanup::Delete(settings.quarantine_hours),
            Self::Attempts => Cleanup::Delete(settings.attempts_hours),
            Self::DeadLetters => Cleanup::CompactAndDelete(settings.dead_letter_hours),
            Self::SubscriptionReplies => Cleanup::Delete(REPLY_HOURS),
            Self::Idempotency => Cleanup::CompactAndDelete(IDEMPOTENCY_HOURS),
        }
    }

    /// The settings that the topic is made with and checked against, by name.
    #[must_use]
    pub fn config(self, settings: &TopicSettings) -> Vec<(&'static str, String)> {
        let hours = |hours: u64| (hours * 3_600_000).to_string();
        let mut config = vec![("max.message.bytes", settings.message_bytes_max().to_string())];
        let (policy, retention) = match self.cleanup(settings) {
            Cleanup::Keep => ("delete", "-1".to_owned()),
            Cleanup::Delete(h) => ("delete", hours(h)),
            Cleanup::Compact => ("compact", "-1".to_owned()),
            Cleanup::CompactAndDelete(h) => ("compact,delete", hours(h)),
        };
        config.push(("cleanup.policy", policy.to_owned()));
        config.push(("retention.ms", retention));
        if policy.starts_with("compact") {
            // Design 13: a checkpoint may be half of `delete.retention.ms` old.
            config.push(("delete.retention.ms", DELETE_RETENTION_MS.to_string()));
            config.push(("segment.bytes", (64 * 1024 * 1024).to_string()));
            config.push(("segment.ms", hours(6)));
            config.push(("min.cleanable.dirty.ratio", "0.2".to_owned()));
            // Whoever reads up to where the topic ended an hour ago, at the most, finds each key's
            // last record before that end: what has overtaken it since cannot have removed it yet.
            config.push(("min.compaction.lag.ms", hours(1)));
            config.push(("max.compaction.lag.ms", hours(24)));
        }
        config
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IngestRepartition => "ingest-repartition",
            Self::Inbox => "inbox",
            Self::Quarantine => "quarantine",
            Self::Dedup => "dedup",
            Self::Deliveries => "deliveries",
            Self::Retry(tier) => return write!(f, "retry-{tier:02}"),
            Self::Attempts => "attempts",
            Self::DeadLetters => "dead-letters",
            Self::Claims => "claims",
            Self::Failures => "failures",
            Self::SubscriptionChanges => "subscription-changes",
            Self::SubscriptionReplies => "subscription-replies",
            Self::Subscriptions => "subscriptions",
            Self::Instances => "instances",
            Self::Salts => "salts",
            Self::Destinations => "destinations",
            Self::Holds => "holds",
            Self::Pull => "pull",
            Self::Cursors => "cursors",
            Self::Idempotency => "idempotency",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> TopicSettings {
        TopicSettings {
            application: "hub".into(),
            partitions: 8,
            replication: 3,
            inbox_hours: 168,
            quarantine_hours: 336,
            attempts_hours: 168,
            dead_letter_hours: 720,
            dedup_horizon_hours: 168,
            payload_bytes_max: 1024 * 1024,
        }
    }

    #[test]
    fn every_topic_has_a_number_and_a_name_of_its_own() {
        let mut numbers: Vec<_> = Topic::all().map(Topic::index).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
        let names: std::collections::HashSet<_> = Topic::all().map(|t| t.name("hub")).collect();
        assert_eq!(names.len(), count);
        assert!(names.contains("hub-retry-01") && names.contains("hub-retry-11"));
    }

    #[test]
    fn queues_keep_everything_and_are_never_compacted() {
        for topic in Topic::all().filter(|t| t.kind() == Kind::Queue) {
            let config = topic.config(&settings());
            assert!(config.contains(&("cleanup.policy", "delete".into())), "{topic}");
            assert!(config.contains(&("retention.ms", "-1".into())), "{topic}");
        }
    }

    #[test]
    fn the_dedup_changelog_outlives_the_horizon() {
        let config = Topic::Dedup.config(&settings());
        assert!(config.contains(&("retention.ms", (10 * 24 * 3_600_000u64).to_string())));
    }

    #[test]
    fn an_internal_record_has_room_for_the_largest_payload() {
        assert!(settings().value_bytes_max() >= 3 * 1024 * 1024);
        let large = TopicSettings { payload_bytes_max: 10_000_000, ..settings() };
        assert!(large.value_bytes_max() >= 10_000_000);
    }
}
