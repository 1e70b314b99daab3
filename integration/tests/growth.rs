//! A followed topic grows while facts flow: every event of old and new partitions is taken in and
//! delivered once.

use std::time::Duration;

use anyhow::{Result, ensure};
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::world;

const SETTLED: Duration = Duration::from_secs(60);
const TENANT: &str = "acme";
const TOPIC: &str = "lerian.streaming.ledger";

#[test]
fn partitions_that_a_source_gains_under_load_are_read_from_their_beginning() -> Result<()> {
    let mut ids = Generator::new(5);
    let mut batch = |partitions: i32| -> Vec<Fact> {
        (0..300)
            .map(|number| {
                let mut fact = Fact::new("ledger", TENANT, &ids.id(), ("account", "created"));
                fact.partition = number % partitions;
                fact
            })
            .collect()
    };
    let first = batch(2);
    world::run(
        &first,
        |config| config.tenants(&[TENANT]),
        |world| {
            world.subscribe(Wanted::all(TENANT, "all").in_flight(16))?;
            world.produce(&first)?;
            // Not waited for: the topic grows while these are on their way.
            world.broker.grow_topic(TOPIC, 6)?;
            world.produce(&batch(6))?;
            world.broker.grow_topic(TOPIC, 9)?;
            world.produce(&batch(9))?;
            world.settle(SETTLED)?;
            let counts = world.check(Delivered::Once)?.counts();
            ensure!(counts.events == 900 && counts.jobs == 900, "{counts:?}");
            Ok(())
        },
    )
}
