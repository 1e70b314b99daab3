//! `quarantine export` and `quarantine retry`. A retry runs ingest itself over the stored records,
//! by today's configuration, each batch in one transaction; matching drops what it has taken in
//! before, so a second run makes no second copy within the dedup horizon.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use prometheus::Registry;
use serde_json::{Value, json};
use streaming_hub_model::ports::Clock as _;
use streaming_hub_model::reason::ReasonCode;
use streaming_hub_model::time::UnixMillis;
use streaming_hub_topology::clock::SystemClock;
use streaming_hub_topology::follower::View as _;
use streaming_hub_topology::metrics::Metrics;
use streaming_hub_topology::processors::ingest::{Ingest, IngestSettings};
use streaming_hub_topology::salting::Salting;
use streaming_hub_topology::tools::requeue::{Original, Requeue};
use streaming_hub_topology::tools::scan::{Scan, scan};
use streaming_hub_topology::topics::Topic;

use super::{Report, time};
use crate::cli::{QuarantineCommand, QuarantineFilter};
use crate::config::Config;
use crate::settings;

/// A filter that is known to be sound.
struct Wanted<'a> {
    filter: &'a QuarantineFilter,
    since: Option<UnixMillis>,
    until: Option<UnixMillis>,
}

impl<'a> Wanted<'a> {
    fn new(filter: &'a QuarantineFilter) -> anyhow::Result<Self> {
        if let Some(reason) = &filter.reason {
            ReasonCode::parse(reason).context("--reason")?;
        }
        let since = time("--since", filter.since.as_deref())?;
        let until = time("--until", filter.until.as_deref())?;
        Ok(Self { filter, since, until })
    }

    fn admits(&self, original: &Original) -> bool {
        self.filter.reason.as_ref().is_none_or(|reason| *reason == original.reason)
            && self.filter.topic.as_ref().is_none_or(|topic| *topic == original.topic)
            && self.since.is_none_or(|since| original.at >= since)
            && self.until.is_none_or(|until| original.at < until)
    }
}

/// Runs one of them.
pub(super) fn run(config: &Config, command: &QuarantineCommand) -> anyhow::Result<()> {
    match command {
        QuarantineCommand::Export { filter, out, .. } => {
            let wanted = Wanted::new(filter)?;
            let mut file = match out {
                Some(path) => {
                    let made = File::create_new(path);
                    Box::new(made.with_context(|| format!("--out {}", path.display()))?)
                        as Box<dyn Write>
                }
                None => Box::new(io::stdout().lock()),
            };
            export(config, &wanted, &mut file)?;
            Ok(file.flush()?)
        }
        QuarantineCommand::Retry { filter, dry_run, common } => {
            retry(config, &Wanted::new(filter)?, *dry_run)?.print(common.json)
        }
    }
}

/// Hands every record that is wanted to `take`.
fn each(
    config: &Config,
    wanted: &Wanted<'_>,
    mut take: impl FnMut(Original) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let topic = Topic::Quarantine.name(&config.application_id);
    let mut failed = None;
    let what = Scan { topic: &topic, partition: None, since: wanted.since };
    scan(&settings::kafka(config), &config.application_id, what, &mut |record| {
        let original = Original::read(record).filter(|original| wanted.admits(original));
        match original.map(&mut take) {
            None | Some(Ok(())) => ControlFlow::Continue(()),
            Some(Err(error)) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)
}

fn export(config: &Config, wanted: &Wanted<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    each(config, wanted, |original| Ok(writeln!(out, "{}", line(&original))?))
}

/// The fields of the fixtures, so that what is exported can be replayed by the same tools.
fn line(original: &Original) -> Value {
    let header = |(name, value): &(Vec<u8>, Option<Vec<u8>>)| {
        json!([String::from_utf8_lossy(name), value.as_ref().map(|value| BASE64.encode(value))])
    };
    json!({
        "topic": original.topic,
        "partition": original.partition,
        "offset": original.offset,
        "timestamp_ms": original.timestamp_ms,
        "quarantined_at": original.at.to_rfc3339(),
        "reason": original.reason,
        "detail": original.detail,
        "whole": original.is_whole,
        "key_b64": original.key.as_ref().map(|key| BASE64.encode(key)),
        "headers": original.headers.iter().map(header).collect::<Vec<_>>(),
        "value_b64": original.value.as_ref().map(|value| BASE64.encode(value)),
    })
}

fn retry(config: &Config, wanted: &Wanted<'_>, dry_run: bool) -> anyhow::Result<Report> {
    let kafka = settings::kafka(config);
    let ingest = Ingest::new(Arc::new(IngestSettings {
        policy: settings::ingest(config)?,
        partitions: config.topics.partitions,
        message_bytes_max: kafka.message_bytes_max,
        salting: Arc::new(salting(config)?),
        // Its own, shown nowhere: a command has no metrics.
        metrics: Arc::new(Metrics::new(&Registry::new())?),
    }));
    let parts = (ingest, SystemClock.now());
    let mut requeue = Requeue::new(&kafka, &config.application_id, parts, dry_run)?;
    let mut reasons: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    each(config, wanted, |original| {
        let count = reasons.entry(original.reason.clone()).or_default();
        if requeue.take(&original)? {
            count.0 += 1;
        } else {
            count.1 += 1;
        }
        Ok(())
    })?;
    let done = requeue.finish()?;
    let verb = if dry_run { "would be accepted" } else { "accepted" };
    let mut text = format!(
        "{} {verb}, {} refused again, {} not whole\n",
        done.accepted, done.refused, done.incomplete
    );
    for (reason, (accepted, left)) in &reasons {
        text += &format!("  {reason:<20} {accepted:>8} {verb} {left:>8} left\n");
    }
    if !dry_run && done.accepted > 0 {
        text += "they are in the quarantine still; retried again they are known and dropped, for \
                 as long as dedup.horizon_hours\n";
    }
    let reasons: BTreeMap<_, _> = reasons
        .into_iter()
        .map(|(reason, (accepted, left))| (reason, json!({ "accepted": accepted, "left": left })))
        .collect();
    let json = json!({
        "dry_run": dry_run, "accepted": done.accepted, "refused": done.refused,
        "incomplete": done.incomplete, "by_reason": reasons,
    });
    Ok(Report::good(text, json))
}

/// Which tenants are salted, as ingest knows it: the route of an event must be the same.
fn salting(config: &Config) -> anyhow::Result<Salting> {
    let salting = Salting::default();
    let topic = Topic::Salts.name(&config.application_id);
    let what = Scan { topic: &topic, partition: None, since: None };
    scan(&settings::kafka(config), &config.application_id, what, &mut |record| {
        salting.take(record.key, record.value);
        ControlFlow::Continue(())
    })?;
    Ok(salting)
}
