//! Destinations of all kinds side by side: the flow of `make demo SINKS=all`.

use anyhow::{Result, ensure};
use streaming_hub_integration::sinks::{Servers, Subscriptions, TENANT, facts};
use streaming_hub_integration::world::World;

#[test]
fn an_event_arrives_once_and_as_it_was_sent_at_a_destination_of_each_kind() -> Result<()> {
    let (servers, facts) = (Servers::start()?, facts());
    let mut world = World::start_with(&facts, |config| config.tenants(&[TENANT]))?;
    let result = (|| {
        let subscriptions = Subscriptions::create(&mut world, &servers)?;
        world.produce(&facts)?;
        let arrivals = subscriptions.arrivals(&mut world, &servers, &facts)?;
        ensure!(arrivals.len() == 5 * facts.len(), "{arrivals:#?}");
        ensure!(arrivals.iter().all(|own| own.same && own.times == 1), "{arrivals:#?}");
        Ok(())
    })();
    world.explained(result)
}
