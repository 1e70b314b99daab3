//! Every real and made-up fact of the fixtures, through a real broker and the real program: its
//! verdict, exactly one inbox record, exactly its jobs, one delivered request with the same bytes
//! and a valid signature.

use std::time::Duration;

use anyhow::{Result, ensure};
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::scenario;
use streaming_hub_integration::world::{self, World};

const SETTLED: Duration = Duration::from_secs(90);
const COUNTED: Duration = Duration::from_secs(10);

#[test]
fn every_fixture_gets_its_verdict_and_each_match_is_delivered_once_byte_for_byte() -> Result<()> {
    let facts = scenario::fixtures()?;
    let again = scenario::duplicates(&facts);
    let topics = [facts.as_slice(), &again].concat();
    world::run(
        &topics,
        |config| config.tenants(&scenario::TENANTS),
        |world| {
            scenario::subscribe(world)?;
            world.produce(&facts)?;
            world.settle(SETTLED)?;
            let counts = world.check(Delivered::Once)?.counts();
            ensure!(counts.duplicates == 2, "the fixtures hold two duplicates: {counts:?}");
            ensure!(counts.jobs > 60, "most events match, some of them twice: {counts:?}");

            // The same again, some of it on other partitions: all of it is known, nothing follows.
            world.produce(&facts)?;
            world.produce(&again)?;
            world.settle(SETTLED)?;
            let after = world.check(Delivered::Once)?.counts();
            ensure!((after.events, after.jobs) == (counts.events, counts.jobs), "{after:?}");
            agrees(world, after.events as u64, (after.duplicates as u64, after.jobs as u64))
        },
    )
}

/// The hub's own counters say the same.
fn agrees(world: &World, events: u64, (duplicates, jobs): (u64, u64)) -> Result<()> {
    let wanted = (events, duplicates, jobs, jobs);
    world.hub.wait_metrics(COUNTED, |metrics| {
        let found = (
            metrics.count("streaming_hub_inbox_events_total"),
            metrics.count("streaming_hub_duplicates_total"),
            metrics.count("streaming_hub_jobs_total"),
            metrics.count("streaming_hub_deliveries_total"),
        );
        let state = || format!("events, duplicates, jobs, deliveries: {found:?}, not {wanted:?}");
        if found == wanted { Ok(()) } else { Err(state()) }
    })
}
