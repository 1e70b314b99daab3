//! `make demo SINKS=all`: two events at a destination of each kind.

use anyhow::{Context as _, Result};
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::sinks::{Arrival, Servers, Subscriptions, TENANT, facts};
use streaming_hub_integration::world::World;

use crate::{Progress, STOPPED};

/// Whether each event arrived once at each destination, as it was sent.
pub(crate) fn demo(progress: &Progress) -> Result<bool> {
    progress.say("starting RabbitMQ and an emulator of SQS and EventBridge");
    let servers = Servers::start()?;
    let facts = facts();
    progress.say("starting Kafka, the hub and a webhook receiver");
    let mut world = World::start_with(&facts, |config| config.tenants(&[TENANT]))?;
    let shown = show(&mut world, &servers, (&facts, progress));
    let arrived = world.explained(shown)?;
    progress.say("stopping the hub and all servers");
    world.hub.terminate(STOPPED).context("the hub's end")?;
    Ok(arrived)
}

fn show(
    world: &mut World,
    servers: &Servers,
    (facts, progress): (&[Fact], &Progress),
) -> Result<bool> {
    let subscriptions = Subscriptions::create(world, servers)?;
    progress.say("a subscription of each kind, all verified");
    world.produce(facts)?;
    progress.say(&format!("{} records produced", facts.len()));
    let arrivals = subscriptions.arrivals(world, servers, facts)?;
    println!("\n{:<12} {:<10} {:>7}   payload", "destination", "event", "arrived");
    for Arrival { sink, event, times, compared, same } in &arrivals {
        let verdict = if *same { "the same" } else { "NOT the same" };
        println!("{sink:<12} {event:<10} {times:>7}   {verdict} {compared}");
    }
    println!("\n(The emulator of EventBridge writes JSON anew: there the value is compared.)");
    Ok(arrivals.iter().all(|arrival| arrival.same && arrival.times == 1))
}
