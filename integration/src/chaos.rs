//! Chaos: real brokers, real hubs, and faults drawn from a seed, while facts keep coming. What
//! `make chaos` runs for minutes and a test runs for one.
//!
//! A [`plan`] says beforehand what happens when; [`drive`] carries it out; [`load`] writes facts
//! all the while, and pull consumers ([`consume`]) read them. Then the faults end, everything
//! settles, [`gather`] reads the topics, and [`rules`] holds them against what was produced: no hub
//! is asked. A hub that ends by itself is started again, as its operators would, and counted.
//!
//! Not done: stalls of the network through a proxy. Clients go where brokers say that they are, so
//! a proxy would have to rewrite Kafka's protocol. A broker that is stopped for some seconds
//! (`SIGSTOP`) keeps its connections and answers nobody, which is the same to its clients.

pub mod consume;
pub mod drive;
pub mod gather;
pub mod keep;
pub mod load;
pub mod options;
pub mod plan;
pub mod random;
pub mod report;
pub mod rules;
pub mod settle;
pub mod stage;
pub mod writer;

use anyhow::{Context as _, Result};

use crate::say;
use consume::Consumers;
use drive::Drive;
use load::Load;
use options::Options;
use plan::Step;
use report::Report;
use stage::{SALTED, Stage, TENANTS};

/// Runs a plan and checks what came of it.
///
/// # Errors
/// When the harness itself fails; what the hubs did wrong is in the report.
pub fn run(options: &Options, plan: &[Step]) -> Result<Report> {
    let mut stage = Stage::start(options)?;
    let result = act(options, plan, &mut stage);
    let failed = result.as_ref().map_or(true, |report| !report.faults.is_empty());
    if failed || options.keep {
        let faults = result.as_ref().map_or(&[][..], |report| &report.faults);
        let place = keep::keep(options.seed, &stage, faults)?;
        say!("logs and topics are kept in {}", place.display());
    }
    result.with_context(|| format!("seed {}", options.seed))
}

fn act(options: &Options, plan: &[Step], stage: &mut Stage) -> Result<Report> {
    let consumers = Consumers::start(stage, &[TENANTS[0], TENANTS[1], SALTED])?;
    let load = Load::start(stage.broker.bootstrap(), options, &stage.sources)?;
    let mut drive = Drive::new(stage, &load, options.seed);
    let driven = drive.run(plan, options.duration_ms());
    let (tally, deleted) = drive.finish();
    let written = load.finish()?;
    driven?;
    let unsettled = settle::settle(stage, &written)?;
    let consumed = consumers.finish()?;
    let evidence = gather::gather(stage, written, deleted, consumed)?;
    let mut faults = rules::faults(&evidence);
    faults.extend(unsettled);
    faults.extend(tally.faults.iter().cloned());
    Ok(Report::new(options, &tally, &evidence, faults))
}
