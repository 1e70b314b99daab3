//! `kill -9` of the hub in the middle of its work: nothing is lost, nothing enters the inbox twice,
//! every job arrives, and the restart goes on from its stores instead of building them again. What
//! it needs of memory and, idle, of the processor is measured on the same hub.

use std::time::Duration;

use anyhow::{Result, ensure};
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::{Generator, Shape};
use streaming_hub_integration::internal::RETRY_TIERS;
use streaming_hub_integration::say;
use streaming_hub_integration::traffic::Traffic;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, READY, World};

const FACTS: usize = 5_000;
const FACTS_PER_SECOND: usize = 800;
/// Facts before the first clean stop: what a rebuilt store would read once more.
const WARM_UP: usize = 1_000;
/// The tenant of the facts that show that a restarted hub works again.
const MARKER_TENANT: &str = "marker";

/// From the start of the process to the delivery of a fact that was produced after it.
const WORKS_AGAIN: Duration = Duration::from_secs(5);
const SETTLED: Duration = Duration::from_secs(120);
const MEMORY_BYTES_MAX: u64 = 300 * 1024 * 1024;
/// The aim is 3 % of a core; the rest is for neighbours that push the hub from warm caches.
const IDLE_CORE_MAX: f64 = 0.06;
/// Also the time after which a store's writes are on disk at the latest (design 3).
const IDLE: Duration = Duration::from_secs(60);
/// What a restart may read again once everything is on disk.
const TAIL_RECORDS_MAX: u64 = 20;

/// What was seen of the hub over its lives.
#[derive(Default)]
struct Seen {
    peak_bytes: u64,
    markers: Vec<Fact>,
}

#[test]
fn kill_9_in_the_middle_of_5_000_facts_loses_nothing_and_doubles_nothing() -> Result<()> {
    let shape = Shape::default();
    let warm_up = Generator::new(11).facts(WARM_UP, &shape);
    let facts = Generator::new(12).facts(FACTS, &shape);
    let mut tenants = shape.tenants.iter().map(String::as_str).collect::<Vec<_>>();
    tenants.push(MARKER_TENANT);
    let everything = [warm_up.as_slice(), &facts].concat();
    world::run(
        &everything,
        |config| config.tenants(&tenants),
        |world| {
            for tenant in &tenants {
                world.subscribe(Wanted::all(tenant, "all").in_flight(16))?;
            }
            let kept = stop_cleanly_after(world, &warm_up)?;
            let mut seen = Seen::default();
            let traffic = Traffic::start(world.broker.bootstrap(), facts, FACTS_PER_SECOND)?;
            for deliveries in [WARM_UP + FACTS / 5, WARM_UP + FACTS / 2] {
                wait_delivered(world, deliveries)?;
                ensure!(traffic.goes_on(), "the kill came after the last fact");
                say!("kill -9 with {} of {FACTS} facts written", traffic.written());
                crash(world, &mut seen)?;
                restored_only_what_came_since(world, kept)?;
            }
            world.sources.extend(traffic.finish()?);
            world.settle(SETTLED)?;
            world.check(Delivered::AtLeastOnce)?;
            seen.look(world)?;
            idles(world)?;
            restores_next_to_nothing(world, &mut seen)?;
            seen.fits()?;
            world.settle(SETTLED)?;
            world.check(Delivered::AtLeastOnce)?;
            no_store_was_rebuilt(world)
        },
    )
}

/// Some work, then an orderly stop and a start, which has nothing to restore. Answers how many
/// records the stores are made of.
fn stop_cleanly_after(world: &mut World, facts: &[Fact]) -> Result<u64> {
    world.produce(facts)?;
    world.settle(SETTLED)?;
    world.hub.terminate(Duration::from_secs(30))?;
    world.hub.restart()?;
    world.hub.wait_ready(READY)?;
    let (restored, kept) = (restored(world)?, store_records(world)?);
    say!("clean restart: {restored} records restored, {kept} lie in the stores' topics");
    ensure!(restored <= TAIL_RECORDS_MAX, "a clean restart restored {restored} records");
    Ok(kept)
}

fn wait_delivered(world: &mut World, deliveries: usize) -> Result<()> {
    wait::until(&format!("{deliveries} deliveries"), SETTLED, || {
        let ended = world.hub.ended()?;
        ensure!(ended.is_none(), "the hub ended: {ended:?}");
        let found = world.receiver.delivered();
        Ok(if found >= deliveries { Ok(()) } else { Err(found.to_string()) })
    })
}

/// Kills the hub, starts it again, and waits until a fact that was produced since then arrives.
fn crash(world: &mut World, seen: &mut Seen) -> Result<()> {
    seen.look(world)?;
    world.hub.kill9()?;
    let began = wait::instant();
    world.hub.restart()?;
    let marker = seen.marker();
    world.produce(std::slice::from_ref(&marker))?;
    let path = format!("/{MARKER_TENANT}/all");
    wait::until("the delivery of a new fact", READY, || {
        let deliveries = world.receiver.deliveries(&path);
        let arrived = |request: &str| request == marker.id();
        let found = deliveries.iter().any(|r| r.text("X-Lerian-Event-Id").is_some_and(arrived));
        Ok(if found { Ok(()) } else { Err(format!("{} before", deliveries.len())) })
    })?;
    let took = began.elapsed();
    world.hub.wait_ready(READY)?;
    say!(
        "after kill -9: a new fact delivered {} ms after the start, ready after {} ms",
        took.as_millis(),
        began.elapsed().as_millis()
    );
    ensure!(took <= WORKS_AGAIN, "the hub took {took:?} to work again");
    Ok(())
}

impl Seen {
    fn marker(&mut self) -> Fact {
        let mut ids = Generator::new(100 + self.markers.len() as u64);
        let marker = Fact::new("ledger", MARKER_TENANT, &ids.id(), ("marker", "sent"));
        self.markers.push(marker.clone());
        marker
    }

    fn look(&mut self, world: &World) -> Result<()> {
        let (_, peak) = world.hub.rss_bytes()?;
        self.peak_bytes = self.peak_bytes.max(peak);
        Ok(())
    }

    fn fits(&self) -> Result<()> {
        let mib = self.peak_bytes / (1024 * 1024);
        say!("peak memory of the hub: {mib} MiB");
        ensure!(self.peak_bytes < MEMORY_BYTES_MAX, "the hub took {mib} MiB");
        Ok(())
    }
}

/// The topics that stores are views of, the tiers excepted.
const STORED: [&str; 10] = [
    "attempts",
    "claims",
    "cursors",
    "dead-letters",
    "dedup",
    "deliveries",
    "failures",
    "idempotency",
    "pull",
    "subscriptions",
];

fn restored(world: &World) -> Result<u64> {
    Ok(world.hub.metrics()?.count("streaming_hub_restored_records_total"))
}

/// How many records lie in the topics that stores are views of.
fn store_records(world: &World) -> Result<u64> {
    let internal = &world.internal;
    let tiers = (1..=RETRY_TIERS).map(|tier| format!("retry-{tier:02}"));
    let mut count = 0;
    for topic in STORED.map(str::to_owned).into_iter().chain(tiers) {
        count += internal.read(&topic)?.len() as u64;
    }
    Ok(count)
}

/// A store that was built anew would have read the `kept` records of the first lives, too.
fn restored_only_what_came_since(world: &World, kept: u64) -> Result<()> {
    let restored = restored(world)?;
    let since = store_records(world)? - kept;
    say!("restored {restored} records; {since} came since the stores were last on disk");
    ensure!(restored <= since, "{restored} records were restored, only {since} were new");
    Ok(())
}

/// A hub without work takes next to nothing of the processor.
fn idles(world: &World) -> Result<()> {
    let began = wait::instant();
    let before = world.hub.cpu_seconds()?;
    wait::until("the idle time to pass", IDLE * 2, || {
        Ok(if began.elapsed() >= IDLE { Ok(()) } else { Err("not yet".to_owned()) })
    })?;
    let share = (world.hub.cpu_seconds()? - before) / began.elapsed().as_secs_f64();
    say!("an idle hub uses {:.1} % of a core", share * 100.0);
    ensure!(share < IDLE_CORE_MAX, "an idle hub uses {:.1} % of a core", share * 100.0);
    Ok(())
}

/// A crash after the idle minute costs only what came since: all else is on disk.
fn restores_next_to_nothing(world: &mut World, seen: &mut Seen) -> Result<()> {
    crash(world, seen)?;
    let restored = restored(world)?;
    say!("restored {restored} records");
    ensure!(restored <= TAIL_RECORDS_MAX, "{restored} records were restored");
    Ok(())
}

/// What the hub says when it cannot go on from a store that it finds.
fn no_store_was_rebuilt(world: &World) -> Result<()> {
    let log = std::fs::read_to_string(world.hub.config().log())?;
    let wrong = |line: &&str| {
        line.contains("local store is rebuilt") || line.contains("local store discarded")
    };
    let lines = log.lines().filter(wrong).collect::<Vec<_>>();
    ensure!(lines.is_empty(), "stores were rebuilt:\n{}", lines.join("\n"));
    Ok(())
}
