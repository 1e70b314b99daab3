//! `make demo`: facts on a real broker arrive as signed webhooks. Starts broker, hub and receiver,
//! subscribes, produces the fixtures with duplicates and malformed records among them, waits until
//! all is done, and prints what was produced beside what came of it. Ends with status 0 only if
//! both agree. `DEMO_HOLD=1` keeps everything running to look around; `SINKS=all` shows
//! destinations of all kinds instead.
#![expect(clippy::print_stdout, reason = "the table is what the program is for")]

mod hold;
mod sinks;
mod table;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use streaming_hub_integration::check::{self, Delivered};
use streaming_hub_integration::facts::{self, Fact};
use streaming_hub_integration::world::World;
use streaming_hub_integration::{scenario, wait};

use crate::table::Table;

/// How long the hub may take for all of it.
const SETTLED: Duration = Duration::from_secs(120);
/// How long its end may take.
const STOPPED: Duration = Duration::from_secs(30);

const AGREES: &str = "All agrees with what was produced: every event once in the inbox, every
match delivered with the payload's bytes and a valid signature, every malformed record kept byte
for byte.";

fn main() -> ExitCode {
    match chosen() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Says on standard error what is being done, and when.
struct Progress {
    began: Instant,
}

impl Progress {
    fn say(&self, what: &str) {
        eprintln!("demo: {:5.1} s  {what}", self.began.elapsed().as_secs_f64());
    }
}

/// Whether all agrees in the demonstration that the environment asks for.
fn chosen() -> Result<bool> {
    let progress = Progress { began: wait::instant() };
    match std::env::var("SINKS").unwrap_or_default().as_str() {
        "" => demo(&progress),
        "all" => sinks::demo(&progress),
        other => bail!("SINKS={other}: it may be `all`"),
    }
}

fn demo(progress: &Progress) -> Result<bool> {
    let facts = [scenario::fixtures()?, scenario::duplicates(&facts::events()?)].concat();
    progress.say("starting Kafka, the hub and a webhook receiver");
    let mut world = World::start_with(&facts, |config| config.tenants(&scenario::TENANTS))?;
    progress.say(&format!(
        "the hub is ready: http://{} on Kafka {}",
        world.hub.address(),
        world.broker.bootstrap()
    ));
    let agrees = show(&mut world, &facts, progress);
    let agrees = world.explained(agrees)?;
    if std::env::var_os("DEMO_HOLD").is_some_and(|value| value == "1") {
        hold::hold(&world)?;
    }
    progress.say("stopping the hub and Kafka");
    world.hub.terminate(STOPPED).context("the hub's end")?;
    Ok(agrees)
}

fn show(world: &mut World, facts: &[Fact], progress: &Progress) -> Result<bool> {
    scenario::subscribe(world)?;
    let (subscriptions, tenants) = (world.subscribers.len(), scenario::TENANTS.len());
    progress.say(&format!("{subscriptions} subscriptions of {tenants} tenants, all verified"));
    world.produce(facts)?;
    progress.say(&format!("{} records produced", facts.len()));
    world.settle(SETTLED)?;
    progress.say("all of them are read, matched and delivered; checking");
    let history = world.history(Delivered::Once)?;
    let faults = history.faults();
    let table = Table::settled(world, &history)?;
    println!("\n{table}");
    if faults.is_empty() && table.agrees() {
        println!("{AGREES}");
    } else {
        println!("It does NOT agree. {}", check::summary(&faults));
    }
    let (_, peak) = world.hub.rss_bytes()?;
    let (mib, cpu) = (peak / (1024 * 1024), world.hub.cpu_seconds()?);
    println!("\nThe hub took {mib} MiB of memory at its highest and {cpu:.1} s of processor time.");
    Ok(faults.is_empty() && table.agrees())
}
