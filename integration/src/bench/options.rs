//! What the benchmark is told: flags, or environment variables of the same names in capitals.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::options;

/// How to use it.
pub const USAGE: &str = "\
usage: bench [--NAME VALUE]...     or the environment variable of the same name in capitals

  parts       which parts to run: floor,latency,deliveries,restart,throughput   (these),
              or one of those that run alone: delivery, api, pull, store, sink
  delivery    1: only the delivery engine, phase by phase
  api         1: only the API: its writes, a start with 100,000 subscriptions
  pull        1: only pull subscriptions: pages, long polls, unread entries
  store       1: only the stores: many partitions, restarts over many keys
  sink        rabbitmq, sqs or eventbridge (1: all): only these destinations
  facts       facts of the throughput part                                      (200000)
  payload     bytes of a payload                                                (1024)
  tenants     tenants                                                           (50)
  matches     subscriptions of each tenant to all of its events, in throughput  (1)
  instances   hubs that share the work of the throughput part                   (1)
  partitions  partitions of the source topic and of the internal topics         (4)
  duplicates  duplicates in a hundred facts                                     (2)
  deliveries  deliveries of the deliveries part                                 (20000)
  phases      which of the delivery part: at_once,slow,more_slots,backlog,hanging,breaker,scheduled
  breaker_s   how long its backlog lies behind an open breaker, seconds         (600)
  jobs        jobs of the delivery part's backlogs                              (200000)
  keys        dedup keys of the store part                                      (10000000)
  entries     entries of the pull part's subscriptions                          (200000)
  restarts    kills of the restart part                                         (5)
  seed        of the facts                                                      (1)
  bench_json  file to write the results to
";

/// The parts that run only when they are named: each takes minutes, on brokers of its own.
pub const ALONE: [&str; 5] = ["delivery", "api", "pull", "store", "sink"];
/// The other parts, in the order in which they run.
pub const PARTS: [&str; 5] = ["floor", "latency", "deliveries", "restart", "throughput"];

/// The phases of the delivery part, in the order in which they run.
pub const PHASES: [&str; 7] =
    ["at_once", "slow", "more_slots", "backlog", "hanging", "breaker", "scheduled"];

/// A kind of destination of the sink part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkKind {
    /// A broker of RabbitMQ.
    RabbitMq,
    /// Queues of SQS, at an emulator.
    Sqs,
    /// Buses of EventBridge, at an emulator.
    EventBridge,
}

/// What to measure with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names out of [`PARTS`] or [`ALONE`].
    pub parts: BTreeSet<String>,
    /// What the sink part delivers to.
    pub sinks: Vec<SinkKind>,
    /// Facts of the throughput part.
    pub facts: usize,
    /// Bytes of a payload.
    pub payload_bytes: usize,
    /// Tenants.
    pub tenants: usize,
    /// Subscriptions of each tenant to all of its events, in the throughput part.
    pub matches: usize,
    /// Hubs that share the work of the throughput part.
    pub instances: usize,
    /// Partitions of the source topic and of the internal topics.
    pub partitions: i32,
    /// Duplicates in a hundred facts.
    pub duplicates_percent: u64,
    /// Deliveries of the deliveries part.
    pub deliveries: usize,
    /// Names out of [`PHASES`].
    pub phases: BTreeSet<String>,
    /// How long the delivery part's backlog lies behind an open breaker, seconds.
    pub breaker_s: u64,
    /// Jobs of the delivery part's backlogs.
    pub jobs: usize,
    /// Dedup keys of the store part.
    pub keys: usize,
    /// Entries of the pull part's subscriptions.
    pub entries: usize,
    /// Kills of the restart part.
    pub restarts: usize,
    /// Seed of the facts.
    pub seed: u64,
    /// Where the results go as JSON.
    pub json: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            parts: PARTS.map(str::to_owned).into(),
            sinks: vec![SinkKind::RabbitMq, SinkKind::Sqs, SinkKind::EventBridge],
            facts: 200_000,
            payload_bytes: 1024,
            tenants: 50,
            matches: 1,
            instances: 1,
            partitions: 4,
            duplicates_percent: 2,
            deliveries: 20_000,
            phases: PHASES.map(str::to_owned).into(),
            breaker_s: 600,
            jobs: 200_000,
            keys: 10_000_000,
            entries: 200_000,
            restarts: 5,
            seed: 1,
            json: None,
        }
    }
}

impl Options {
    /// The defaults, changed by the environment, changed by flags.
    ///
    /// # Errors
    /// An unknown name, or a value that cannot be read.
    pub fn read(
        environment: impl Fn(&str) -> Option<String>,
        flags: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        const NAMES: [&str; 22] = [
            "parts",
            "delivery",
            "api",
            "pull",
            "store",
            "sink",
            "entries",
            "keys",
            "phases",
            "breaker_s",
            "jobs",
            "facts",
            "payload",
            "tenants",
            "matches",
            "instances",
            "partitions",
            "duplicates",
            "deliveries",
            "restarts",
            "seed",
            "bench_json",
        ];
        let mut options = Self::default();
        options::read(&NAMES, USAGE, environment, flags, |name, value| options.set(name, value))?;
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let failed = || format!("{name}: {value:?} is not understood");
        match name {
            "parts" => self.parts = names("part", &[&ALONE[..], &PARTS].concat(), value)?,
            "phases" => self.phases = names("phase", &PHASES, value)?,
            alone if ALONE.contains(&alone) => {
                if !matches!(value, "" | "0") {
                    self.parts = [alone.to_owned()].into();
                    if alone == "sink" && value != "1" {
                        self.sinks = vec![sink(value)?];
                    }
                }
            }
            "keys" => self.keys = value.parse().with_context(failed)?,
            "entries" => self.entries = value.parse().with_context(failed)?,
            "breaker_s" => self.breaker_s = value.parse().with_context(failed)?,
            "jobs" => self.jobs = value.parse().with_context(failed)?,
            "bench_json" => self.json = Some(value).filter(|v| !v.is_empty()).map(PathBuf::from),
            "seed" => self.seed = value.parse().with_context(failed)?,
            "duplicates" => self.duplicates_percent = value.parse().with_context(failed)?,
            "partitions" => self.partitions = value.parse().with_context(failed)?,
            "facts" => self.facts = value.parse().with_context(failed)?,
            "payload" => self.payload_bytes = value.parse().with_context(failed)?,
            "tenants" => self.tenants = value.parse().with_context(failed)?,
            "matches" => self.matches = value.parse().with_context(failed)?,
            "instances" => self.instances = value.parse().with_context(failed)?,
            "deliveries" => self.deliveries = value.parse().with_context(failed)?,
            _ => self.restarts = value.parse().with_context(failed)?,
        }
        Ok(())
    }

    /// Whether any of these parts is to run.
    #[must_use]
    pub fn wants(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.parts.contains(*part))
    }

    /// For the results.
    #[must_use]
    pub fn as_json(&self) -> Value {
        json!({
            "facts": self.facts,
            "payload_bytes": self.payload_bytes,
            "tenants": self.tenants,
            "matches": self.matches,
            "instances": self.instances,
            "partitions": self.partitions,
            "duplicates_percent": self.duplicates_percent,
            "deliveries": self.deliveries,
            "breaker_s": self.breaker_s,
            "jobs": self.jobs,
            "keys": self.keys,
            "entries": self.entries,
            "restarts": self.restarts,
            "seed": self.seed,
        })
    }
}

fn sink(value: &str) -> Result<SinkKind> {
    Ok(match value {
        "rabbitmq" => SinkKind::RabbitMq,
        "sqs" => SinkKind::Sqs,
        "eventbridge" => SinkKind::EventBridge,
        _ => bail!("there is no sink {value:?}\n\n{USAGE}"),
    })
}

/// Names of this kind, out of those that there are.
fn names(kind: &str, known: &[&str], value: &str) -> Result<BTreeSet<String>> {
    let names = value.split(',').map(str::trim).map(|name| {
        if !known.contains(&name) {
            bail!("there is no {kind} {name:?}\n\n{USAGE}");
        }
        Ok(name.to_owned())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(environment: &[(&str, &str)], flags: &[&str]) -> Result<Options> {
        let found = |name: &str| {
            let pair = environment.iter().find(|(own, _)| *own == name);
            pair.map(|(_, value)| (*value).to_owned())
        };
        Options::read(found, flags.iter().map(|flag| (*flag).to_owned()))
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_defaults() {
        let environment = [("FACTS", "7"), ("PARTS", "floor, restart"), ("SEED", "3")];
        let options = read(&environment, &["--facts", "8"]).unwrap();
        assert_eq!((options.facts, options.seed, options.tenants), (8, 3, 50));
        assert!(options.wants(&["restart"]) && !options.wants(&["latency", "deliveries"]));
    }

    #[test]
    fn a_large_part_runs_alone_and_only_when_it_is_named() {
        for part in ALONE {
            let variable = part.to_uppercase();
            assert!(!read(&[], &[]).unwrap().wants(&[part]));
            assert!(!read(&[(&variable, "0")], &[]).unwrap().wants(&[part]));
            let options = read(&[(&variable, "1"), ("JOBS", "9")], &[]).unwrap();
            assert!(options.wants(&[part]) && !options.wants(&PARTS) && options.jobs == 9);
        }
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for flags in [
            &["--fact", "1"][..],
            &["--facts"],
            &["--facts", "x"],
            &["--parts", "all"],
            &["--sink", "x"],
            &["--phases", "x"],
        ] {
            assert!(read(&[], flags).is_err(), "{flags:?}");
        }
    }
}
