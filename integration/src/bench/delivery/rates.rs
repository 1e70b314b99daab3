//! Deliveries a second by an instance that only delivers: what it costs is not mixed with what
//! ingest and match cost, which is shown beside it. The jobs come faster than they are delivered;
//! or they were there before the instance was, and each is claimed on record first (design 21).

use anyhow::{Context as _, Result};

use super::{HOSTS, LONG, ground, made, shape, subscribe_all};
use crate::api::Wanted;
use crate::bench::deliveries::{as_f64, mib, middle, per_second};
use crate::bench::hook::Manner;
use crate::bench::options::Options;
use crate::bench::report::Report;
use crate::bench::stage::{self, READY, Stage};
use crate::hub::Hub;
use crate::{say, wait};

/// Attempts under way in one instance, by default.
const SLOTS: i64 = 256;

/// A pass: how destinations answer, how many attempts each subscription allows, and the slots.
struct Pass {
    answers_ms: u64,
    in_flight: u16,
    slots: i64,
    /// Whether the jobs are there before the instance.
    backlog: bool,
    /// Names of rate, CPU and memory in the report.
    names: [&'static str; 3],
}

impl Default for Pass {
    fn default() -> Self {
        Self { answers_ms: 0, in_flight: 16, slots: SLOTS, backlog: false, names: [""; 3] }
    }
}

/// Destinations that answer at once.
pub(super) fn at_once(options: &Options, report: &mut Report) -> Result<()> {
    let names = ["delivery.rate", "delivery.cpu_per_100k_s", "delivery.peak_mib"];
    pass(&Pass { names, ..Pass::default() }, options, report)
}

/// Destinations that take 200 ms: the slots are the limit.
pub(super) fn slow(options: &Options, report: &mut Report) -> Result<()> {
    let names = ["delivery_200ms.rate", "delivery_200ms.cpu_per_100k_s", "delivery_200ms.peak_mib"];
    pass(&Pass { answers_ms: 200, in_flight: 4, names, ..Pass::default() }, options, report)
}

/// The same with four times as many slots.
pub(super) fn more_slots(options: &Options, report: &mut Report) -> Result<()> {
    let names = ["delivery_slots.rate", "delivery_slots.cpu_per_100k_s", "delivery_slots.peak_mib"];
    pass(&Pass { answers_ms: 200, slots: 4 * SLOTS, names, ..Pass::default() }, options, report)
}

/// Destinations that answer at once, and jobs that an instance before this one left behind.
pub(super) fn backlog(options: &Options, report: &mut Report) -> Result<()> {
    let names = ["backlog.rate", "backlog.cpu_per_100k_s", "backlog.peak_mib"];
    pass(&Pass { backlog: true, names, ..Pass::default() }, options, report)
}

fn pass(pass: &Pass, options: &Options, report: &mut Report) -> Result<()> {
    let jobs = options.deliveries;
    say!("delivery: {jobs} jobs, answers after {} ms", pass.answers_ms);
    let mut stage = ground(options, HOSTS.into())?;
    stage.hook.behave(Manner::After(pass.answers_ms));
    let mut maker = Hub::start(stage.config("a", &["ingest", "match", "registry", "api"])?)?;
    maker.wait_ready(READY)?;
    subscribe_all(&stage, &maker, |tenant| Wanted::all(tenant, "all").in_flight(pass.in_flight))?;
    let before = maker.cpu_seconds()?;
    let shape = shape(&stage, &stage.tenants);
    let config = stage.config("b", &["delivery", "api"])?;
    let config = config.set("delivery.attempts_in_flight", pass.slots);
    let mut hub = if pass.backlog {
        stage.load(jobs, &shape, |_| {})?;
        made(&mut maker, jobs)?;
        Hub::start(config)?
    } else {
        let mut hub = Hub::start(config)?;
        hub.wait_ready(READY)?;
        stage.load(jobs, &shape, |_| {})?;
        hub
    };
    let cpu = delivered(&stage, &mut hub, jobs).with_context(|| hub.log_tail())?;
    let (_, peak) = hub.rss_bytes()?;
    let per_100k = 1e5 / as_f64(jobs);
    let arrivals = stage.hook.since(0);
    let rate = per_second(middle(&arrivals));
    let [rate_name, cpu_name, peak_name] = pass.names;
    report.add(rate_name, "deliveries a second, 64 tenants, the middle 80 %", rate, "/s");
    let what = "CPU of the delivering instance for 100,000";
    report.add(cpu_name, what, cpu * per_100k, "s");
    let made_cpu = maker.cpu_seconds()? - before;
    if pass.answers_ms == 0 && !pass.backlog {
        let what = "CPU of ingest and match for the same";
        report.add("delivery.made_cpu_per_100k_s", what, made_cpu * per_100k, "s");
    }
    report.add(peak_name, "peak memory of the delivering instance", mib(peak), "MiB");
    Ok(())
}

/// Waits for all deliveries: the processor time from the first of them to the last, seconds.
fn delivered(stage: &Stage, hub: &mut Hub, jobs: usize) -> Result<f64> {
    let mut first = None;
    let last = wait::until("all deliveries", LONG, || {
        stage::runs(hub)?;
        let count = stage.hook.count();
        let cpu = hub.cpu_seconds()?;
        if count > 0 {
            first.get_or_insert(cpu);
        }
        Ok(if count >= jobs { Ok(cpu) } else { Err(format!("{count} of {jobs}")) })
    })?;
    Ok(last - first.unwrap_or(last))
}
