//! `make bench DELIVERY=1`: the delivery engine, phase by phase, each on a broker and a receiver of
//! its own: rates ([`rates`]), one tenant's destinations that hang beside another tenant
//! ([`hanging`]), a backlog behind an open breaker ([`breaker`]), a restart over many scheduled
//! jobs ([`scheduled`]). Each tenant's destination is a host of its own, a loopback address: one
//! host's connections are limited. A phase that fails keeps no other from running.

mod breaker;
mod hanging;
mod rates;
mod scheduled;

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::hook::{Hook, TOLD};
use super::options::{Options, PHASES};
use super::report::Report;
use super::stage::{self, ALL_ROLES, READY, Stage};
use crate::api::Wanted;
use crate::broker::Broker;
use crate::generate::Shape;
use crate::hub::Hub;
use crate::{say, wait};

/// Hosts of the receiver, and tenants of the phases that have many.
const HOSTS: u8 = 64;
/// How long making or ending all jobs of a phase may take.
const LONG: Duration = Duration::from_secs(1_800);

/// A phase's name, and what runs it.
type Phase = (&'static str, fn(&Options, &mut Report) -> Result<()>);

const RUN: [Phase; PHASES.len()] = [
    (PHASES[0], rates::at_once),
    (PHASES[1], rates::slow),
    (PHASES[2], rates::more_slots),
    (PHASES[3], rates::backlog),
    (PHASES[4], hanging::run),
    (PHASES[5], breaker::run),
    (PHASES[6], scheduled::run),
];

/// Runs the wanted phases, each whatever became of the others.
///
/// # Errors
/// When one of them does not get where it should.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let mut failed = Vec::new();
    for (name, phase) in RUN.iter().filter(|(name, _)| options.phases.contains(*name)) {
        if let Err(error) = phase(options, report) {
            say!("phase {name} failed: {error:?}");
            failed.push(*name);
        }
    }
    ensure!(failed.is_empty(), "phases failed: {}", failed.join(", "));
    Ok(())
}

/// A broker, and a receiver with many hosts.
fn ground(options: &Options, tenants: usize) -> Result<Stage> {
    let mut stage = Stage::new(Broker::start()?, options, tenants)?;
    let hosts = (1..=HOSTS).map(|number| Ipv4Addr::new(127, 0, 1, number));
    stage.hook = Hook::start_at(&hosts.collect::<Vec<_>>())?;
    Ok(stage)
}

/// Facts without duplicates, of these tenants.
fn shape(stage: &Stage, tenants: &[String]) -> Shape {
    Shape { tenants: tenants.to_vec(), ..stage.without_duplicates() }
}

/// Makes a subscription, active, whose deliveries the receiver treats as it is told; its host has
/// this number.
fn subscribe(stage: &Stage, hub: &Hub, wanted: &Wanted, host: usize) -> Result<()> {
    let url = stage.hook.url_at(host, &format!("{TOLD}{}", wanted.tenant));
    activate(hub, wanted, &url)
}

fn activate(hub: &Hub, wanted: &Wanted, url: &str) -> Result<()> {
    let api = hub.api(&wanted.tenant);
    let (id, _) = api.create(wanted, url)?;
    let state = &api.verify(&id)?["verification_state"];
    ensure!(state == "active", "the subscription of {} is {state}", wanted.tenant);
    Ok(())
}

/// Each tenant subscribes to all of its events, at a host of its own.
fn subscribe_all(stage: &Stage, hub: &Hub, wanted: impl Fn(&str) -> Wanted) -> Result<()> {
    say!("creating {} subscriptions", stage.tenants.len());
    for (number, tenant) in stage.tenants.iter().enumerate() {
        subscribe(stage, hub, &wanted(tenant), number)?;
    }
    Ok(())
}

/// Waits until this hub has made so many jobs.
fn made(hub: &mut Hub, jobs: usize) -> Result<()> {
    wait::until("all jobs to be made", LONG, || {
        stage::runs(hub)?;
        let Ok(metrics) = hub.metrics() else { return Ok(Err("no metrics".to_owned())) };
        let made = usize::try_from(metrics.count("streaming_hub_jobs_total"))?;
        Ok(if made >= jobs { Ok(()) } else { Err(format!("{made} of {jobs}")) })
    })
}

/// A hub of all roles, ready.
fn whole_hub(stage: &Stage, settings: &[(&str, i64)]) -> Result<Hub> {
    let mut config = stage.config("a", &ALL_ROLES)?;
    for (name, value) in settings {
        config = config.set(name, *value);
    }
    let mut hub = Hub::start(config)?;
    hub.wait_ready(READY)?;
    Ok(hub)
}
