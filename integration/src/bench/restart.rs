//! How long a killed hub takes to work again: from the start of its process until a fact that was
//! produced after it arrives at its webhook. Its stores are as the parts before left them.

use anyhow::Result;

use super::deliveries::as_f64;
use super::latency::{arrivals, warm_writer};
use super::percentiles::Percentiles;
use super::report::Report;
use super::stage::{READY, Stage};
use crate::hub::Hub;
use crate::{say, wait};

/// Kills and restarts the hub so many times.
///
/// # Errors
/// When it does not come back.
pub fn run(stage: &mut Stage, hub: &mut Hub, kills: usize, report: &mut Report) -> Result<()> {
    let writer = warm_writer(stage, hub)?;
    let (mut works, mut ready, mut restored) = (Vec::new(), Vec::new(), 0);
    for kill in 1..=kills {
        let facts = stage.unique_facts(1);
        let before = stage.hook.count();
        hub.kill9()?;
        let began = wait::instant();
        hub.restart()?;
        writer.send(&facts[0])?;
        writer.finish()?;
        let arrived = arrivals(&stage.hook, before, &facts, hub)?[&facts[0].id()];
        hub.wait_ready(READY)?;
        ready.push(began.elapsed());
        works.push(arrived.duration_since(began));
        let records = hub.metrics()?.count("streaming_hub_restored_records_total");
        say!("restart {kill}: works after {:?}, {records} records restored", works.last());
        restored = restored.max(usize::try_from(records)?);
    }
    let (works, ready) = (Percentiles::of(works), Percentiles::of(ready));
    let what = "kill -9: start to delivery of a new fact, median";
    report.add("restart.works_p50_ms", what, works.p50_ms(), "ms");
    report.add("restart.works_max_ms", "the same, slowest", works.max_ms(), "ms");
    report.add("restart.ready_p50_ms", "start to ready, median", ready.p50_ms(), "ms");
    let what = "records restored, at most";
    report.add("restart.restored_records", what, as_f64(restored), "");
    Ok(())
}
