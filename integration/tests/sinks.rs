//! Destinations of all kinds in the whole hub: the flow of `make demo SINKS=all`, and a broker that
//! dies under the load.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use streaming_hub_integration::generate::{Generator, Shape};
use streaming_hub_integration::sinks::{
    RabbitMq, Servers, Subscriptions, TENANT, facts, subscribe,
};
use streaming_hub_integration::wait;
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

#[test]
fn nothing_is_lost_when_rabbitmq_dies_and_comes_back_in_the_middle_of_5000_jobs() -> Result<()> {
    const JOBS: usize = 5_000;
    const QUEUE: &str = "all";
    const LIMIT: Duration = Duration::from_secs(120);
    let rabbitmq = RabbitMq::start()?;
    rabbitmq.bind(QUEUE, "#", QUEUE)?;
    let shape =
        Shape { tenants: vec![TENANT.to_owned()], duplicates_per_mille: 0, ..Shape::default() };
    let facts = Generator::new(1).facts(JOBS, &shape);
    // A breaker as in operation, but for a pause that a test can wait for.
    let configure = |config: streaming_hub_integration::config::HubConfig| {
        let config = config.tenants(&[TENANT]).set("breaker.failures_max", 5);
        config.set("breaker.open_ms", 500).set("breaker.open_ms_max", 1_000)
    };
    let mut world = World::start_with(&facts, configure)?;
    let result = (|| {
        subscribe(
            &world.hub.api(TENANT),
            &json!({
                "name": "all", "event_types": ["*"], "max_in_flight": 32,
                "retry_schedule": [0, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500],
                "sink": rabbitmq.sink(QUEUE, "{type}"),
            }),
        )?;
        world.produce(&facts)?;
        wait::until("the first deliveries", LIMIT, || {
            let there = rabbitmq.waiting(QUEUE)?;
            Ok(if there > JOBS / 10 { Ok(()) } else { Err(format!("{there}")) })
        })?;
        rabbitmq.crash()?;
        let survived = rabbitmq.waiting(QUEUE)?;
        ensure!(survived < JOBS, "it died only after all of {survived}");
        world.settle(LIMIT)?;
        ensure!(world.internal.dead_letters()?.is_empty(), "no job has ended as a dead letter");
        let attempts = world.internal.attempts()?;
        let failed = attempts.iter().filter(|line| line["outcome"] == "failed").count();
        ensure!(failed > 0, "the broker's absence was not noticed");
        let mut sent: BTreeMap<_, _> = facts.iter().map(|fact| (fact.id(), &fact.value)).collect();
        let mut arrived = BTreeSet::new();
        for (id, payload) in rabbitmq.take(QUEUE)? {
            let value = sent.get(&id).and_then(|value| value.as_deref());
            ensure!(value == Some(&payload[..]), "{id} is not as it was sent");
            arrived.insert(id);
        }
        sent.retain(|id, _| !arrived.contains(id));
        ensure!(sent.is_empty(), "{} never arrived: {:?}", sent.len(), sent.keys().next());
        Ok(())
    })();
    world.explained(result)
}
