//! `make bench`: latency, throughput, restart time and memory of the hub beside the floors of the
//! same broker, as a table on standard output and, with `BENCH_JSON`, as a file. It measures and
//! asserts nothing; progress goes to standard error.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use streaming_hub_integration::bench::options::Options;
use streaming_hub_integration::bench::report::Report;
use streaming_hub_integration::bench::stage::{ALL_ROLES, READY, Stage};
use streaming_hub_integration::bench::{
    api, deliveries, delivery, floor, latency, machine, pull, restart, sink, store, throughput,
};
use streaming_hub_integration::broker::Broker;
use streaming_hub_integration::hub::Hub;
use streaming_hub_integration::say;

/// Tenants of the parts with deliveries.
const RECEIVING_TENANTS: usize = 64;

/// A part on brokers of its own.
type Part = fn(&Options, &mut Report) -> Result<()>;
/// The parts that run only when they are named.
const ALONE: [(&str, Part); 5] = [
    ("delivery", delivery::run),
    ("api", api::run),
    ("pull", pull::run),
    ("store", store::run),
    ("sink", sink::run),
];

fn main() -> Result<()> {
    let environment = |name: &str| std::env::var(name).ok();
    let options = Options::read(environment, std::env::args().skip(1))?;
    let mut report = Report::default();
    if options.wants(&["floor", "latency", "deliveries", "restart"]) {
        small(&options, &mut report)?;
    }
    if options.wants(&["throughput"]) {
        say!("starting a broker");
        let mut stage = Stage::new(Broker::start()?, &options, options.tenants)?;
        throughput::run(&mut stage, &options, &mut report)?;
    }
    let mut failed = Vec::new();
    for (name, run) in ALONE {
        if options.wants(&[name]) {
            failed.extend(run(&options, &mut report).err().map(|error| (name, error)));
        }
    }
    finish(&options, &report)?;
    // What was measured is told before what was not.
    match failed.pop() {
        Some((name, error)) => Err(error.context(format!("part {name}"))),
        None => Ok(()),
    }
}

/// The parts that need no large backlog, on one broker.
fn small(options: &Options, report: &mut Report) -> Result<()> {
    say!("starting a broker");
    let broker = Broker::start()?;
    if options.wants(&["floor", "latency"]) {
        floor::run(&broker, options.payload_bytes, report)?;
    }
    if !options.wants(&["latency", "deliveries", "restart"]) {
        return Ok(());
    }
    let mut stage = Stage::new(broker, options, RECEIVING_TENANTS)?;
    let mut hub = Hub::start(stage.config("a", &ALL_ROLES)?)?;
    hub.wait_ready(READY)?;
    stage.subscribe(&hub, 1)?;
    let measured = hub_parts(options, &mut stage, &mut hub, report);
    measured.with_context(|| hub.log_tail())
}

fn hub_parts(
    options: &Options,
    stage: &mut Stage,
    hub: &mut Hub,
    report: &mut Report,
) -> Result<()> {
    if options.wants(&["latency"]) {
        latency::run(stage, hub, report)?;
    }
    if options.wants(&["deliveries"]) {
        deliveries::run(stage, hub, options.deliveries, report)?;
    }
    if options.wants(&["restart"]) {
        restart::run(stage, hub, options.restarts, report)?;
    }
    Ok(())
}

fn finish(options: &Options, report: &Report) -> Result<()> {
    let machine = machine::describe();
    let mut out = std::io::stdout().lock();
    writeln!(out, "machine  {machine}")?;
    writeln!(out, "options  {}", options.as_json())?;
    writeln!(out, "{}", report.table())?;
    if let Some(path) = &options.json {
        let json = report.json(&options.as_json(), &machine);
        std::fs::write(path, format!("{json:#}\n"))
            .with_context(|| format!("writing {}", path.display()))?;
        say!("written to {}", path.display());
    }
    Ok(())
}
