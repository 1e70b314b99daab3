//! Writes through the API from many sides at once: over three instances, with the hub switching the
//! same subscription off in between; repeated under a key on another instance, after a restart,
//! after the first instance died between commit and answer, and after Kafka was away.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
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
/// The three instances.
type Apis = [Api; 3];

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
            let mut third = third(world)?;
            let apis = [world.hub.api(TENANT), other.api(TENANT), third.api(TENANT)];
            patchers(world, &apis, &facts)?;
            repeated(world, &apis, &mut other)?;
            died_in_between(&apis, &mut third)?;
            without_kafka(world, &apis)
        },
    )
}

/// An instance that only answers: no task moves when it dies. Its claims lapse sooner.
fn third(world: &World) -> Result<Hub> {
    let config = HubConfig::new(world.broker.bootstrap())?.tenants(&[TENANT]);
    let config = config.set("instance_id", "c").set("roles", vec!["api"]);
    let mut hub = Hub::start(config.set("api.request_timeout_ms", 12_000))?;
    hub.wait_ready(READY)?;
    Ok(hub)
}

/// Writers add to what they have read, others set a field; half of those wait until the hub has
/// switched the subscription off, in the midst of the adding. Every write has a version number.
fn patchers(
    world: &mut World,
    apis: &Apis,
    facts: &[streaming_hub_integration::facts::Fact],
) -> Result<()> {
    let subscriber = world.subscribe(Wanted::all(TENANT, "patched"))?;
    world.receiver.script(&subscriber.path, &[Behaviour::Answer(410)]);
    let path = format!("{ALL}/{}", subscriber.id);
    let read = || apis[0].get(&subscriber.id)?.context("gone");
    let first = version(&read()?)?;
    let written = std::thread::scope(|scope| -> Result<Vec<Value>> {
        let adder = |n: usize| (&apis[n % apis.len()], &path, n);
        let mut writers = Vec::new();
        for n in 0..ADDERS {
            let (api, path, n) = adder(n);
            writers.push(scope.spawn(move || add(api, path, n)));
        }
        for n in 0..SETTERS {
            let (api, path, n) = adder(n);
            writers.push(scope.spawn(move || set(api, path, n)));
        }
        world.produce(facts)?;
        let joined = writers.into_iter().map(|writer| match writer.join() {
            Ok(written) => written,
            Err(_) => anyhow::bail!("a writer panicked"),
        });
        joined.collect()
    })?;
    let now = apis[0].get(&subscriber.id)?.context("gone")?;
    ensure!(now["disabled_reason"] == "gone", "{now}");
    let name = now["name"].as_str().unwrap_or_default();
    let mut tags: Vec<_> = name.split(',').skip(1).collect();
    tags.sort_unstable();
    tags.dedup();
    ensure!(tags.len() == ADDERS, "{} of {ADDERS} additions are left: {name}", tags.len());
    ensure!(now["max_in_flight"].as_u64().is_some_and(|n| n >= 2), "{now}");
    numbered(first, &written, version(&now)?)?;
    world.receiver.script(&subscriber.path, &[Behaviour::Answer(200)]);
    let verified = apis[1].verify(&subscriber.id)?;
    ensure!(verified["enabled"] == true, "{verified}");
    apis[1].delete(&subscriber.id)
}

fn version(view: &Value) -> Result<u64> {
    view["version"].as_u64().with_context(|| format!("no version: {view}"))
}

/// So many numbers as accepted writes, and one for the hub's own: after it every answer shows it.
/// (An answer shows the subscription as it is then, with the number of that.)
fn numbered(first: u64, written: &[Value], last: u64) -> Result<()> {
    let writes = u64::try_from(ADDERS + SETTERS)? + 1;
    ensure!(last == first + writes, "{first} and {writes} writes made {last}");
    let of = |enabled: bool| {
        let own = written.iter().filter(move |one| one["enabled"] == enabled);
        own.map(version).collect::<Result<BTreeSet<_>>>()
    };
    let (on, off) = (of(true)?, of(false)?);
    ensure!(
        !on.is_empty() && !off.is_empty(),
        "it was not switched off in between: {on:?} {off:?}"
    );
    ensure!(on.last() < off.first(), "on at {on:?}, off at {off:?}");
    Ok(())
}

/// Adds to the name what no other writer adds, on the version that was read, until it is taken.
fn add(api: &Api, path: &str, n: usize) -> Result<Value> {
    for _ in 0..500 {
        let read = api.call("GET", path, None)?.json();
        let etag = format!("\"{}\"", read["version"]);
        let name = format!("{},{n:02}", read["name"].as_str().context("no name")?);
        let headers = [("If-Match", etag.as_str())];
        let answer = api.call_with("PATCH", path, &headers, Some(&json!({"name": name})))?;
        match answer.status {
            200 => return Ok(answer.json()),
            412 => {}
            status => anyhow::bail!("{status} {}", answer.body),
        }
    }
    anyhow::bail!("writer {n} was never first")
}

/// Sets a field, every other writer only once the subscription is off.
fn set(api: &Api, path: &str, n: usize) -> Result<Value> {
    if n % 2 == 1 {
        wait::until("the subscription to be switched off", SETTLED, || {
            let now = api.call("GET", path, None)?.json();
            Ok(if now["enabled"] == false { Ok(()) } else { Err(now.to_string()) })
        })?;
    }
    let body = json!({"schema_major": 1, "max_in_flight": n + 2});
    let answer = api.call("PATCH", path, Some(&body))?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
    Ok(answer.json())
}

fn creation(name: &str, world: &World) -> Value {
    let sink = json!({"type": "webhook", "url": world.receiver.url("/keys")});
    json!({"name": name, "event_types": ["a.b"], "sink": sink})
}

/// A key on one instance, on the other, and on it again after a restart.
fn repeated(world: &World, apis: &Apis, other: &mut Hub) -> Result<()> {
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

fn named(apis: &Apis, name: &str) -> Result<usize> {
    Ok(apis[0].list()?.iter().filter(|one| one["name"] == name).count())
}

/// The instance dies when what it was asked for is committed and before it has answered: a
/// repetition elsewhere finds what was made, and is answered the same from then on.
fn died_in_between(apis: &Apis, third: &mut Hub) -> Result<()> {
    // It takes the probe of the creation, which is committed by then, and does not answer.
    let receiver = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    receiver.set_nonblocking(true)?;
    let url = format!("http://{}/", receiver.local_addr()?);
    let sink =
        json!({"type": "webhook", "url": url, "secret": "a-secret-that-is-long-enough-for-it"});
    let body = json!({"name": "died", "event_types": ["a.b"], "sink": sink, "verify": true});
    let headers = [("Idempotency-Key", "over-a-death")];
    let answer = std::thread::scope(|scope| -> Result<_> {
        let asking = scope.spawn(|| apis[2].call_with("POST", ALL, &headers, Some(&body)));
        let _probe = wait::until("the probe", SETTLED, || {
            ensure!(!asking.is_finished(), "it was answered");
            Ok(receiver.accept().map_err(|error| error.to_string()))
        })?;
        third.kill9()?;
        asking.join().map_err(|_| anyhow::anyhow!("the caller panicked"))
    })?;
    ensure!(answer.is_err(), "it was answered: {answer:?}");
    drop(receiver);
    let own = || -> Result<Vec<Value>> {
        Ok(apis[0].list()?.into_iter().filter(|one| one["name"] == "died").collect())
    };
    let made = own()?;
    ensure!(made.len() == 1, "{} were made", made.len());
    let first = wait::until("the claim to lapse", RESUMED, || {
        let answer = apis[0].call_with("POST", ALL, &headers, Some(&body))?;
        Ok(if matches!(answer.status, 409 | 503) { Err(answer.body) } else { Ok(answer) })
    })?;
    ensure!(first.status == 201, "{} {}", first.status, first.body);
    ensure!(first.json()["id"] == made[0]["id"], "{} instead of {}", first.body, made[0]);
    let second = apis[1].call_with("POST", ALL, &headers, Some(&body))?;
    ensure!(second.json() == first.json(), "{} instead of {}", second.body, first.body);
    ensure!(second.header("Idempotency-Replayed") == Some("true"), "{second:?}");
    ensure!(own()?.len() == 1, "it was made twice");
    Ok(())
}

/// A write while Kafka is away says so in time; repeated under its key afterwards it is made once.
fn without_kafka(world: &World, apis: &Apis) -> Result<()> {
    let (body, headers) = (creation("outage", world), [("Idempotency-Key", "over-an-outage")]);
    world.broker.kill_node(1)?;
    let began = wait::instant();
    let away = apis[0].call_with("POST", ALL, &headers, Some(&body))?;
    ensure!(away.status == 503, "{} {}", away.status, away.body);
    ensure!(away.header("Retry-After").is_some(), "{away:?}");
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
