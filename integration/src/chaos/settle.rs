//! The end of a run: no more faults and facts; the hubs get time to finish.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::load::Written;
use super::plan::hub_name;
use super::stage::Stage;
use crate::internal::{Internal, RETRY_TIERS};
use crate::say;
use crate::wait;

/// How long everything may take until it is at rest. Two busy processors and an outage's backlog
/// are in it.
const SETTLED: Duration = Duration::from_secs(180);
/// Topics are read whole to see how far things are: not all the time.
const LOOK_MS: i64 = 2_000;
/// How often it is said what is left.
const SAY_MS: i64 = 10_000;

/// Waits until all was read, matched and ended. Answers what was not in time.
///
/// # Errors
/// When a hub is not ready, or the topics cannot be read.
pub fn settle(stage: &mut Stage, written: &Written) -> Result<Vec<String>> {
    say!("all faults are over: settling");
    let began = wait::instant();
    let mut faults = Vec::new();
    if let Err(error) = stage.wait_ready() {
        faults.push(format!("settling: {error:#}"));
    }
    let internal = stage.internal()?;
    let (mut looked_ms, mut said_ms) = (0, wait::unix_ms());
    let mut state = "nothing was looked at".to_owned();
    let settled = wait::until("everything to settle", SETTLED, || {
        for (number, hub) in stage.hubs.iter_mut().enumerate() {
            let ended = hub.ended()?;
            ensure!(ended.is_none(), "hub {} ended: {ended:?}", hub_name(number));
        }
        if wait::unix_ms() - looked_ms < LOOK_MS {
            return Ok(Err(state.clone()));
        }
        let left = unfinished(&internal, written)?;
        looked_ms = wait::unix_ms();
        Ok(match left {
            None => Ok(()),
            Some(left) => {
                if looked_ms - said_ms >= SAY_MS {
                    said_ms = looked_ms;
                    say!("settling for {:.1} s: {left}", began.elapsed().as_secs_f64());
                }
                state = left;
                Err(state.clone())
            }
        })
    });
    match settled {
        Ok(()) => say!("settled after {:.1} s", began.elapsed().as_secs_f64()),
        Err(error) => faults.push(format!("settling: {error:#}")),
    }
    Ok(faults)
}

/// What is not at rest yet.
fn unfinished(internal: &Internal, written: &Written) -> Result<Option<String>> {
    for topic in &written.topics {
        for place in internal.positions("ingest", topic)? {
            if place.committed.unwrap_or(0) != place.end {
                return Ok(Some(format!("ingest has not read all: {place:?}")));
            }
        }
    }
    let accepted = BTreeSet::from([internal.name("ingest-repartition")]);
    if !internal.has_read("match", &accepted)? {
        return Ok(Some("match has not read all".to_owned()));
    }
    if !internal.has_read("pull", &BTreeSet::from([internal.name("pull")]))? {
        return Ok(Some("pull has not read all".to_owned()));
    }
    for tier in (0..=RETRY_TIERS).rev() {
        let (name, records) = match tier {
            0 => ("deliveries".to_owned(), internal.deliveries()?),
            _ => (format!("tier {tier}"), internal.retries(tier)?),
        };
        let open = crate::internal::open_in(&records);
        if let Some((job, record)) = open.iter().next() {
            let what = format!("{} jobs wait in {name}, {job} at {}", open.len(), record.place());
            return Ok(Some(what));
        }
    }
    Ok(None)
}
