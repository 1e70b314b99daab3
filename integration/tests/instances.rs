//! Two instances share the work while facts keep coming. One leaves in order: the other takes over
//! at once. One is killed: the other takes over when its session is over. Nothing is lost, nothing
//! enters the inbox twice, every job arrives.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::config::HubConfig;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::{Generator, Shape};
use streaming_hub_integration::hub::Hub;
use streaming_hub_integration::say;
use streaming_hub_integration::traffic::Traffic;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, READY, World};

/// Enough for all of the test; what is left is dropped at its end.
const FACTS: usize = 20_000;
const FACTS_PER_SECOND: usize = 150;
/// What each role of an instance that has partitions counts.
const WORK: [&str; 3] = [
    "streaming_hub_verdicts_total",
    "streaming_hub_inbox_events_total",
    "streaming_hub_deliveries_total",
];

const SHARED: Duration = Duration::from_secs(60);
/// An orderly stop: what is in flight is finished, partitions are handed over.
const LEAVES: Duration = Duration::from_secs(30);
/// From the end of an instance that left until facts on every partition are delivered.
const TAKEN_OVER_AT_ONCE: Duration = Duration::from_secs(5);
/// The same for a killed one: its session of 10 s, its open transaction of 10 s, which the broker
/// looks at every 10 s.
const TAKEN_OVER: Duration = Duration::from_secs(35);
const SETTLED: Duration = Duration::from_secs(120);

#[test]
fn two_instances_share_the_work_and_take_over_from_each_other() -> Result<()> {
    let shape = Shape::default();
    let mut generator = Generator::new(21);
    let facts = generator.facts(FACTS, &shape);
    let tenants = shape.tenants.iter().map(String::as_str).collect::<Vec<_>>();
    world::run(
        &facts,
        |config| config.tenants(&tenants),
        |a| {
            for tenant in &tenants {
                // Several for each tenant, so that every delivery partition has one.
                for number in 0..3 {
                    a.subscribe(Wanted::all(tenant, &format!("all-{number}")).in_flight(16))?;
                }
            }
            let config = HubConfig::new(a.broker.bootstrap())?.tenants(&tenants);
            let mut b = Hub::start(config.set("instance_id", "b"))?;
            b.wait_ready(READY)?;
            let traffic = Traffic::start(a.broker.bootstrap(), facts.clone(), FACTS_PER_SECOND)?;
            let result = leave_and_crash(a, &mut b, &mut || generator.probes(&shape));
            a.sources.extend(traffic.stop()?);
            result?;
            a.settle(SETTLED)?;
            a.check(Delivered::AtLeastOnce)?;
            Ok(())
        },
    )
}

/// Facts for each partition of each topic and each tenant.
trait Probes {
    fn probes(&mut self, shape: &Shape) -> Vec<Fact>;
}

impl Probes for Generator {
    fn probes(&mut self, shape: &Shape) -> Vec<Fact> {
        let mut facts = Vec::new();
        for source in &shape.sources {
            for tenant in &shape.tenants {
                for partition in 0..shape.partitions {
                    let fact = Fact::new(source, tenant, &self.id(), ("probe", "sent"));
                    facts.push(Fact { partition, ..fact });
                }
            }
        }
        facts
    }
}

fn leave_and_crash(
    a: &mut World,
    b: &mut Hub,
    probes: &mut dyn FnMut() -> Vec<Fact>,
) -> Result<()> {
    both_work(&a.hub, b)?;

    let began = wait::instant();
    a.hub.terminate(LEAVES)?;
    say!("the first instance left within {} ms", began.elapsed().as_millis());
    all_delivered(a, &probes(), "left", TAKEN_OVER_AT_ONCE)?;

    a.hub.restart()?;
    a.hub.wait_ready(READY)?;
    both_work(&a.hub, b)?;

    b.kill9()?;
    all_delivered(a, &probes(), "was killed", TAKEN_OVER)?;

    b.restart()?;
    b.wait_ready(READY)?;
    both_work(&a.hub, b)
}

/// Waits until both instances have done some of everything since now.
fn both_work(a: &Hub, b: &Hub) -> Result<()> {
    let counts = |hub: &Hub| -> Result<_> {
        let metrics = hub.metrics()?;
        Ok(WORK.map(|name| metrics.count(name)))
    };
    let began = wait::instant();
    let before = [counts(a)?, counts(b)?];
    wait::until("both instances to work", SHARED, || {
        let now = [counts(a)?, counts(b)?];
        let pairs = now.iter().flatten().zip(before.iter().flatten());
        let done = pairs.map(|(now, before)| now - before).collect::<Vec<_>>();
        Ok(if done.iter().all(|n| *n > 0) { Ok(()) } else { Err(format!("{WORK:?}: {done:?}")) })
    })?;
    say!("both instances work after {} ms", began.elapsed().as_millis());
    Ok(())
}

/// Produces facts on every partition and waits until each subscription has had its own.
fn all_delivered(world: &mut World, facts: &[Fact], what: &str, within: Duration) -> Result<()> {
    let began = wait::instant();
    world.produce(facts)?;
    let mut missing = BTreeSet::new();
    for subscriber in &world.subscribers {
        let own = |fact: &&Fact| fact.text("ce-tenantid") == Some(&subscriber.wanted.tenant);
        missing.extend(facts.iter().filter(own).map(|f| (subscriber.path.clone(), f.id())));
    }
    let mut seen = 0;
    wait::until(&format!("deliveries after an instance {what}"), READY, || {
        let requests = world.receiver.requests();
        for request in &requests[seen..] {
            let id = request.text("X-Lerian-Event-Id").unwrap_or_default();
            missing.remove(&(request.target.clone(), id.to_owned()));
        }
        seen = requests.len();
        Ok(if missing.is_empty() { Ok(()) } else { Err(format!("{} missing", missing.len())) })
    })?;
    let took = began.elapsed();
    say!("after an instance {what}: all partitions delivered within {} ms", took.as_millis());
    ensure!(took <= within, "the takeover took {took:?}, not {within:?} at most");
    Ok(())
}
