//! A restart over many jobs that are scheduled for later: after `kill -9` with the state directory
//! as it was, and without it, from the logs in Kafka. The time is that until the instance is ready
//! and counts its jobs again; the memory is beside that of the same instance without any job.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{HOSTS, LONG, ground, made, shape, subscribe_all, whole_hub};
use crate::api::Wanted;
use crate::bench::deliveries::{as_f64, mib};
use crate::bench::hook::Manner;
use crate::bench::options::Options;
use crate::bench::report::Report;
use crate::bench::stage::{READY, Stage};
use crate::hub::Hub;
use crate::{say, wait};

/// The second step, drawn between 0 and its value: few jobs fall due while this runs.
const STEPS_MS: [u64; 2] = [0, 36_000_000];

/// Schedules the jobs and restarts over them.
pub(super) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let mut stage = ground(options, HOSTS.into())?;
    let mut hub = whole_hub(&stage, &[])?;
    let wanted = |tenant: &str| Wanted::all(tenant, "all").in_flight(16).retry(&STEPS_MS);
    subscribe_all(&stage, &hub, wanted)?;
    let measured = measured(options, &mut stage, &mut hub, report);
    measured.with_context(|| hub.log_tail())
}

fn measured(
    options: &Options,
    stage: &mut Stage,
    hub: &mut Hub,
    report: &mut Report,
) -> Result<()> {
    let (empty, _) = hub.rss_bytes()?;
    say!("scheduled: {} jobs", options.jobs);
    stage.hook.behave(Manner::Refuse);
    let shape = shape(stage, &stage.tenants);
    stage.load(options.jobs, &shape, |_| {})?;
    made(hub, options.jobs)?;
    // Some fall due a second time before the last had its first attempt.
    let wanted = options.jobs - options.jobs / 20;
    scheduled(hub, wanted)?;
    hub.kill9()?;
    let (warm, warm_rss) = restart(hub, wanted)?;
    hub.kill9()?;
    std::fs::remove_dir_all(hub.config().directory().join("state"))?;
    let (cold, cold_rss) = restart(hub, wanted)?;
    report.add("scheduled.jobs", "jobs scheduled for later", as_f64(options.jobs), "");
    let mut add = |name, what, value, unit| report.add(name, what, value, unit);
    add("scheduled.restart_s", "kill -9 to ready with all of them", warm.as_secs_f64(), "s");
    add("scheduled.cold_restart_s", "the same without state directory", cold.as_secs_f64(), "s");
    add("scheduled.empty_mib", "memory before there were any", mib(empty), "MiB");
    add("scheduled.rss_mib", "memory after the restart", mib(warm_rss), "MiB");
    add("scheduled.cold_rss_mib", "the same without state directory", mib(cold_rss), "MiB");
    Ok(())
}

/// Waits until so many jobs lie in the first tier.
fn scheduled(hub: &Hub, jobs: usize) -> Result<()> {
    wait::until("all jobs to be scheduled", LONG, || {
        let Ok(metrics) = hub.metrics() else { return Ok(Err("no metrics yet".to_owned())) };
        let count = metrics.count_with("streaming_hub_waiting_jobs_count", "place", "retry-01");
        let count = usize::try_from(count)?;
        Ok(if count >= jobs { Ok(()) } else { Err(format!("{count} of {jobs}")) })
    })
}

/// How long it takes, and the memory then.
fn restart(hub: &mut Hub, jobs: usize) -> Result<(Duration, u64)> {
    let began = wait::instant();
    hub.restart()?;
    hub.wait_ready(READY)?;
    scheduled(hub, jobs)?;
    Ok((began.elapsed(), hub.rss_bytes()?.0))
}
