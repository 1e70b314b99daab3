//! Writes through the API from many sides at once: over two instances, with the hub switching the
//! same subscription off in between; repeated under a key on another instance, after a restart, and
//! after Kafka was away.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use streaming_hub_integration::api::{Api, Wanted};
use streaming_hub_integration::config::HubConfig;
use streaming_hub_integration::generate::{Generator, Shape};
use streaming_hub_integration::hub::Hub;
use streaming_hub_integration::receiver::Behaviour;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, READY, World};

const TENANT: &str = "acme";
const ALL: &str = "/v1/subscriptions";
/// Writers that each add to what they have read, and writers that set a field of their own.
const ADDERS: usize = 25;
const SETTERS: usize = 25;
const SETTLED: Duration = Duration::from_secs(60);
/// The deadline of a write, and some for a busy machine.
const ANSWERED: Duration = Duration::from_secs(25);
/// A claim whose request died lapses after the request's time limit and a margin.
const RESUMED: Duration = Duration::from_secs(60);

#[test]
fn no_write_is_lost_or_made_twice() -> Result<()> {
    let mut generator = Generator::new(62);
    let shape = Shape { tenants: vec![TENANT.to_owned()], ..Shape::default() };
    let facts = generator.facts(2, &shape);
    world::run(
        &facts,
        |config| config.tenants(&[TENANT]),
        |world| {
            let config = HubConfig::new(world.broker.bootstrap())?.tenants(&[TENANT]);
            let mut other = Hub::start(config.set("instance_id", "b"))?;
            other.wait_ready(READY)?;
            let apis = [world.hub.api(TENANT), other.api(TENANT)];
            patchers(world, &apis, &facts)?;
            repeated(world, &apis, &mut other)?;
            without_kafka(world, &apis)
        },
    )
}

fn patchers(
    world: &mut World,
    apis: &[Api; 2],
    facts: &[streaming_hub_integration::facts::Fact],
) -> Result<()> {
    let subscriber = world.subscribe(Wanted::all(TENANT, "patched"))?;
    world.receiver.script(&subscriber.path, &[Behaviour::Answer(410)]);
    world.produce(facts)?;
    let path = format!("{ALL}/{}", subscriber.id);
    std::thread::scope(|scope| -> Result<()> {
        let mut writers = Vec::new();
        for n in 0..ADDERS {
            let (api, path) = (&apis[n % 2], &path);
            writers.push(scope.spawn(move || add(api, path, n)));
        }
        for n in 0..SETTERS {
            let (api, path) = (&apis[n % 2], &path);
            writers.push(scope.spawn(move || {
                let body = json!({"schema_major": 1, "max_in_flight": n + 2});
                let answer = api.call("PATCH", path, Some(&body))?;
                ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
                Ok(())
            }));
        }
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        Ok(())
    })?;
    wait::until("the subscription to be switched off", SETTLED, || {
        let now = apis[0].get(&subscriber.id)?.context("gone")?;
        Ok(if now["enabled"] == false { Ok(()) } else { Err(now.to_string()) })
    })?;
    let now = apis[0].get(&subscriber.id)?.context("gone")?;
    ensure!(now["disabled_reason"] == "gone", "{now}");
    let name = now["name"].as_str().unwrap_or_default();
    let mut tags: Vec<_> = name.split(',').skip(1).collect();
    tags.sort_unstable();
    tags.dedup();
    ensure!(tags.len() == ADDERS, "{} of {ADDERS} additions are left: {name}", tags.len());
    ensure!(now["max_in_flight"].as_u64().is_some_and(|n| n >= 2), "{now}");
    let verified = {
        world.receiver.script(&subscriber.path, &[Behaviour::Answer(200)]);
        apis[1].verify(&subscriber.id)?
    };
    ensure!(verified["enabled"] == true, "{verified}");
    apis[1].delete(&subscriber.id)
}

/// Adds to the name what no other writer adds, on the version that was read, until it is taken.
fn add(api: &Api, path: &str, n: usize) -> Result<()> {
    for _ in 0..500 {
        let read = api.call("GET", path, None)?.json();
        let etag = format!("\"{}\"", read["version"]);
        let name = format!("{},{n:02}", read["name"].as_str().context("no name")?);
        let headers = [("If-Match", etag.as_str())];
        let answer = api.call_with("PATCH", path, &headers, Some(&json!({"name": name})))?;
        match answer.status {
            200 => return Ok(()),
            412 => {}
            status => anyhow::bail!("{status} {}", answer.body),
        }
    }
    anyhow::bail!("writer {n} was never first")
}

fn creation(name: &str, world: &World) -> Value {
    let sink = json!({"type": "webhook", "url": world.receiver.url("/keys")});
    json!({"name": name, "event_types": ["a.b"], "sink": sink})
}

/// A key on one instance, on the other, and on it again after a restart.
fn repeated(world: &World, apis: &[Api; 2], other: &mut Hub) -> Result<()> {
    let (body, headers) = (creation("repeated", world), [("Idempotency-Key", "over-instances")]);
    let first = apis[0].call_with("POST", ALL, &headers, Some(&body))?;
    ensure!(first.status == 201, "{} {}", first.status, first.body);
    let second = apis[1].call_with("POST", ALL, &headers, Some(&body))?;
    ensure!(second.json() == first.json(), "{} instead of {}", second.body, first.body);
    other.kill9()?;
    other.restart()?;
    other.wait_ready(READY)?;
    let third = wait::until("the answer after a restart", RESUMED, || {
        let answer = apis[1].call_with("POST", ALL, &headers, Some(&body))?;
        Ok(if answer.status == 503 { Err(answer.body) } else { Ok(answer) })
    })?;
    ensure!(third.json() == first.json(), "{} instead of {}", third.body, first.body);
    let other = apis[1].call_with("POST", ALL, &headers, Some(&creation("other", world)))?;
    ensure!(other.json()["code"] == "idempotency_mismatch", "{}", other.body);
    ensure!(named(apis, "repeated")? == 1, "it was made twice");
    Ok(())
}

fn named(apis: &[Api; 2], name: &str) -> Result<usize> {
    Ok(apis[0].list()?.iter().filter(|one| one["name"] == name).count())
}

/// A write while Kafka is away says so in time; repeated under its key afterwards it is made once.
fn without_kafka(world: &World, apis: &[Api; 2]) -> Result<()> {
    let (body, headers) = (creation("outage", world), [("Idempotency-Key", "over-an-outage")]);
    world.broker.kill_node(1)?;
    let began = wait::instant();
    let away = apis[0].call_with("POST", ALL, &headers, Some(&body))?;
    ensure!(away.status == 503, "{} {}", away.status, away.body);
    ensure!(began.elapsed() < ANSWERED, "it took {:?}", began.elapsed());
    world.broker.start_node(1)?;
    let made = wait::until("the write after the outage", RESUMED, || {
        let answer = apis[0].call_with("POST", ALL, &headers, Some(&body))?;
        let again = matches!(answer.status, 409 | 503);
        Ok(if again { Err(answer.body) } else { Ok(answer) })
    })?;
    ensure!(made.status == 201, "{} {}", made.status, made.body);
    let again = apis[0].call_with("POST", ALL, &headers, Some(&body))?;
    ensure!(again.json() == made.json(), "{} instead of {}", again.body, made.body);
    ensure!(named(apis, "outage")? == 1, "it was made twice");
    Ok(())
}
