//! What closes the way to a receiver, against a real one: a pause, a wish to be left alone, a
//! breaker; and strict order. Jobs wait where they are and go on in order.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use streaming_hub_integration::api::{Subscriber, Wanted};
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::config::HubConfig;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::receiver::Behaviour;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, World};

const SETTLED: Duration = Duration::from_secs(60);
const TENANT: &str = "acme";
const FACTS: usize = 8;

/// The events that a receiver got, in order, retries included.
fn got(world: &World, subscriber: &Subscriber) -> Vec<String> {
    let requests = world.receiver.deliveries(&subscriber.path);
    requests.iter().filter_map(|r| r.text("X-Lerian-Event-Id")).map(str::to_owned).collect()
}

fn patch(world: &World, subscriber: &Subscriber, change: &Value) -> Result<()> {
    let target = format!("/v1/subscriptions/{}", subscriber.id);
    let answer = world.hub.api(TENANT).call("PATCH", &target, Some(change))?;
    ensure!(answer.status == 200, "PATCH {change}: {}", answer.status);
    Ok(())
}

fn subscribe(world: &mut World, name: &str, behaviours: &[Behaviour]) -> Result<Subscriber> {
    let subscriber = world.subscribe(Wanted::all(TENANT, name))?;
    world.receiver.script(&subscriber.path, behaviours);
    Ok(subscriber)
}

#[test]
fn jobs_wait_behind_closed_gates_and_go_on_in_order() -> Result<()> {
    world::run(
        &[],
        |config: HubConfig| {
            config
                .tenants(&[TENANT])
                .retry(&[0, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50])
                .set("breaker.failures_max", 5)
                .set("breaker.open_ms", 2_000)
                .set("breaker.open_ms_max", 2_000)
        },
        |world| {
            let answer = Behaviour::Answer;
            let paused = subscribe(world, "paused", &[answer(200)])?;
            patch(world, &paused, &json!({"paused": true}))?;
            let asks = [Behaviour::RetryAfter(429, 3), answer(200)];
            let busy = subscribe(world, "busy", &asks)?;
            let fails = [vec![answer(500); 5], vec![answer(200)]].concat();
            let broken = subscribe(world, "broken", &fails)?;
            let strict = subscribe(world, "strict", &[answer(503), answer(503), answer(200)])?;
            patch(world, &strict, &json!({"ordering": "strict"}))?;

            let mut ids = Generator::new(5);
            let fact = |_| Fact::new("ledger", TENANT, &ids.id(), ("account", "created"));
            let facts: Vec<Fact> = (0..FACTS).map(fact).collect();
            world.produce(&facts)?;
            ensure_strict(world, &strict)?;
            left_alone(world, &busy)?;
            opened_and_closed(world, &broken)?;
            ensure!(got(world, &paused).is_empty(), "a paused subscription was delivered to");
            patch(world, &paused, &json!({"paused": false}))?;
            world.settle(SETTLED)?;
            world.check(Delivered::AtLeastOnce)?;
            Ok(())
        },
    )
}

/// Everything is delivered; answers the events in order.
fn all(world: &World, subscriber: &Subscriber, requests: usize) -> Result<Vec<String>> {
    wait::until(&format!("deliveries to {}", subscriber.path), SETTLED, || {
        let got = got(world, subscriber);
        Ok(if got.len() >= requests { Ok(got) } else { Err(format!("{}", got.len())) })
    })
}

/// Nothing passes the one that failed.
fn ensure_strict(world: &World, strict: &Subscriber) -> Result<()> {
    let got = all(world, strict, FACTS + 2)?;
    ensure!(got[0] == got[1] && got[1] == got[2], "something passed the first: {got:?}");
    let mut rest = got[2..].to_vec();
    rest.sort_unstable();
    rest.dedup();
    ensure!(rest.len() == FACTS, "{got:?}");
    Ok(())
}

/// Who asks to be left alone is.
fn left_alone(world: &World, busy: &Subscriber) -> Result<()> {
    all(world, busy, FACTS + 1)?;
    let requests = world.receiver.deliveries(&busy.path);
    let apart_ms = requests[1].at_ms - requests[0].at_ms;
    ensure!(apart_ms >= 3_000, "the next request came after {apart_ms} ms");
    Ok(())
}

/// Five failures open the breaker, the next request comes after its time, and it closes.
fn opened_and_closed(world: &World, broken: &Subscriber) -> Result<()> {
    all(world, broken, FACTS + 5)?;
    let requests = world.receiver.deliveries(&broken.path);
    let apart_ms = requests[5].at_ms - requests[4].at_ms;
    ensure!(apart_ms >= 1_900, "a probe came after {apart_ms} ms");
    wait::until("a record that it closed", SETTLED, || {
        let told = world.internal.read("destinations")?;
        let ends = told.last().is_some_and(|last| last.value.is_none());
        Ok(if told.len() == 2 && ends { Ok(()) } else { Err(format!("{} records", told.len())) })
    })?;
    Ok(())
}
