//! The shape of a run, drawn from its seed: how many instances, partitions, tenants; how fast time
//! goes; how often stores and transactions fill.

use streaming_hub_model::breaker::BreakerSettings;
use streaming_hub_model::registry::Limits;
use streaming_hub_model::retry::RetrySchedule;
use streaming_hub_topology::processors::delivery::backlog::Bounds;
use streaming_hub_topology::shared::CommitSettings;
use streaming_hub_topology::topics::TopicSettings;

use crate::random::Random;
use crate::workload::Size;

/// The application id of every run.
pub const APPLICATION: &str = "hub";

/// The base of every `seq`.
pub const PULL_BASE: u64 = 1;
/// How long entries stay behind their cursor, milliseconds; short, so that runs see them go.
pub const PULL_READ_MS: u64 = 20_000;
/// The longest that a 429 closes the way, milliseconds.
pub const THROTTLE_MS_MAX: u64 = 5_000;
/// How long unread entries stay, milliseconds.
pub const PULL_UNREAD_MS: u64 = 6 * 3_600_000;

/// The shape of a run.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Instances.
    pub instances: u32,
    /// Partitions of the internal topics.
    pub partitions: i32,
    /// Partitions of each source, at first.
    pub source_partitions: usize,
    /// Producers and tenants.
    pub size: Size,
    /// The most milliseconds of one step of the clock.
    pub pace_ms: i64,
    /// Dedup horizon, milliseconds.
    pub horizon_ms: i64,
    /// Attempts at once in one process.
    pub slots: usize,
    /// Facts in a thousand steps.
    pub facts: u64,
    /// How often a missing transaction marker is written, in a million chances.
    pub markers: u32,
    /// How often a follower reads, in a million chances.
    pub followers: u32,
    /// By how much processes' clocks differ from the run's, at the most, milliseconds.
    pub clocks_ms: i64,
    /// Uncommitted bytes of a store at which it commits.
    pub uncommitted_bytes_max: usize,
    /// Whether some jobs end the process that attempts them.
    pub deadly: bool,
    /// How often operators hold something, in a million chances.
    pub holds: u32,
}

impl Shape {
    /// The shape of a seed.
    #[must_use]
    pub fn draw(random: &mut Random) -> Self {
        let minute_ms = 60_000;
        let horizons = [20 * minute_ms, 60 * minute_ms, 7 * 24 * 60 * minute_ms];
        let paces = [4, 20, 60, 250];
        let full = [600, 5_000, 1 << 20];
        Self {
            instances: u32::try_from(1 + random.below(3)).unwrap_or(1),
            partitions: i32::try_from(1 + random.below(4)).unwrap_or(1),
            source_partitions: 1 + random.index(3),
            size: Size {
                tenants: 1 + random.below(4),
                sources: 1 + random.below(2),
                destinations: 1 + random.below(5),
                duplicates: [50_000, 200_000, 400_000][random.index(3)],
            },
            pace_ms: paces[random.index(paces.len())],
            horizon_ms: horizons[random.index(horizons.len())],
            slots: [2, 4, 64][random.index(3)],
            facts: [30, 60, 120][random.index(3)],
            markers: [1_000_000, 200_000, 40_000][random.index(3)],
            followers: [1_000_000, 300_000, 100_000][random.index(3)],
            clocks_ms: [0, 0, 2_000][random.index(3)],
            uncommitted_bytes_max: full[random.index(full.len())],
            deadly: random.below(6) == 0,
            holds: [0, 0, 300_000][random.index(3)],
        }
    }

    /// Settings of the topics.
    #[must_use]
    pub fn topics(&self) -> TopicSettings {
        TopicSettings {
            application: APPLICATION.to_owned(),
            partitions: self.partitions,
            replication: 1,
            inbox_hours: 7 * 24,
            quarantine_hours: 14 * 24,
            attempts_hours: 7 * 24,
            dead_letter_hours: 30 * 24,
            dedup_horizon_hours: u64::try_from(self.horizon_ms / 3_600_000).unwrap_or(0) + 1,
            payload_bytes_max: 1 << 20,
        }
    }

    /// Commit cadence.
    #[must_use]
    pub fn commit(&self) -> CommitSettings {
        CommitSettings {
            interval_ms: 100,
            bytes: 4_000,
            uncommitted_bytes_max: self.uncommitted_bytes_max,
            drain_ms: 2_000,
            watchdog_ms: 60_000,
        }
    }

    /// The curve of subscriptions without one of their own; short, so that runs get to its end.
    #[must_use]
    pub fn schedule() -> RetrySchedule {
        // These steps are legal.
        RetrySchedule::new(vec![0, 500, 3_000, 20_000]).unwrap_or_default()
    }

    /// Numbers of breakers: openings short enough that a run sees many.
    #[must_use]
    pub fn breaker() -> BreakerSettings {
        BreakerSettings { open_ms: 2_000, open_ms_max: 15_000, ..BreakerSettings::default() }
    }

    /// How much may wait: more than a run ever has.
    #[must_use]
    pub fn bounds() -> Bounds {
        Bounds { age_ms_max: 5 * 24 * 3_600_000, jobs_max: 1_000_000, bytes_max: 1 << 30 }
    }

    /// Limits of the registry.
    #[must_use]
    pub fn limits() -> Limits {
        Limits { subscriptions_per_tenant: 3 }
    }
}
