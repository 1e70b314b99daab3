//! A tenant with a large backlog for 64 destinations that hang, or answer at the last moment, and
//! what another tenant's new jobs wait because of it: produce to webhook before and meanwhile.
//! Breakers never open here, which is the harder case: the hanging tenant uses its full share of
//! slots all the time.

use std::collections::HashMap;

use anyhow::{Context as _, Result};

use super::{HOSTS, LONG, activate, ground, made, shape, subscribe, whole_hub};
use crate::api::Wanted;
use crate::bench::deliveries::as_f64;
use crate::bench::hook::Manner;
use crate::bench::latency::arrivals;
use crate::bench::options::Options;
use crate::bench::pace::Pace;
use crate::bench::percentiles::Percentiles;
use crate::bench::report::Report;
use crate::bench::stage::Stage;
use crate::bench::writer::Writer;
use crate::hub::Hub;
use crate::{say, wait};

/// Facts of the quiet tenant in a measurement, and those before the first that counts.
const FACTS: usize = 150;
const FIRST: usize = 20;
const PER_SECOND: u32 = 5;
/// What a hanging tenant may hold: a quarter of the slots.
const SHARE: u64 = 64;
/// Just in time for a sender that waits for 10 s.
const LATE_MS: u64 = 9_900;

/// Measures the quiet tenant before and beside the other.
pub(super) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let mut stage = ground(options, 2)?;
    let [loud, quiet] = [0, 1].map(|number| stage.tenants[number].clone());
    let mut hub = whole_hub(&stage, &[])?;
    for number in 0..usize::from(HOSTS) {
        let wanted = Wanted::all(&loud, &format!("s{number}")).in_flight(4);
        subscribe(&stage, &hub, &wanted, number)?;
    }
    activate(&hub, &Wanted::all(&quiet, "all").in_flight(4), &stage.hook.url("/quiet"))?;
    let measured = measured(options, &mut stage, &mut hub, (&loud, &quiet), report);
    measured.with_context(|| hub.log_tail())
}

fn measured(
    options: &Options,
    stage: &mut Stage,
    hub: &mut Hub,
    (loud, quiet): (&str, &str),
    report: &mut Report,
) -> Result<()> {
    say!("hanging: the quiet tenant alone, {FACTS} facts");
    let alone = latency(stage, hub, quiet)?;
    let before = usize::try_from(hub.metrics()?.count("streaming_hub_jobs_total"))?;
    let facts = options.jobs.div_ceil(HOSTS.into());
    say!("hanging: {facts} events of the other tenant for {HOSTS} destinations that hang");
    stage.hook.behave(Manner::Hang);
    let shape = shape(stage, &[loud.to_owned()]);
    stage.load(facts, &shape, |_| {})?;
    made(hub, before + facts * usize::from(HOSTS))?;
    hub.wait_metrics(LONG, |metrics| {
        let count = metrics.count("streaming_hub_attempts_in_flight_count");
        if count >= SHARE { Ok(()) } else { Err(format!("{count} attempts under way")) }
    })?;
    let beside = latency(stage, hub, quiet)?;
    say!("hanging: the same while they answer after {LATE_MS} ms");
    stage.hook.behave(Manner::After(LATE_MS));
    let late = latency(stage, hub, quiet)?;
    let waiting = hub.metrics()?.count("streaming_hub_waiting_jobs_count");
    report.add_percentiles(
        &alone,
        &[
            ("hanging.alone_p50_ms", "produce to webhook, quiet tenant alone, p50", 500),
            ("hanging.alone_max_ms", "the same, slowest", 1_000),
        ],
    );
    report.add_percentiles(
        &beside,
        &[
            ("hanging.beside_p50_ms", "beside 64 hanging destinations, p50", 500),
            ("hanging.beside_max_ms", "the same, slowest", 1_000),
        ],
    );
    report.add_percentiles(
        &late,
        &[
            ("hanging.late_p50_ms", "beside 64 that answer after 9.9 s, p50", 500),
            ("hanging.late_max_ms", "the same, slowest", 1_000),
        ],
    );
    let waiting = as_f64(usize::try_from(waiting)?);
    report.add("hanging.waiting_jobs", "jobs that waited meanwhile", waiting, "");
    Ok(())
}

fn latency(stage: &mut Stage, hub: &mut Hub, tenant: &str) -> Result<Percentiles> {
    let own = std::mem::replace(&mut stage.shape.tenants, vec![tenant.to_owned()]);
    let facts = stage.unique_facts(FIRST + FACTS);
    stage.shape.tenants = own;
    let writer = Writer::prompt(stage.broker.bootstrap())?;
    let before = stage.hook.count();
    let (mut pace, mut sent) = (Pace::per_second(PER_SECOND), HashMap::new());
    for (number, fact) in facts.iter().enumerate() {
        pace.wait();
        if number >= FIRST {
            sent.insert(fact.id(), wait::instant());
        }
        writer.send(fact)?;
    }
    writer.finish()?;
    let arrived = arrivals(&stage.hook, before, &facts, hub)?;
    Ok(Percentiles::of(sent.iter().map(|(id, sent)| arrived[id].duration_since(*sent)).collect()))
}
