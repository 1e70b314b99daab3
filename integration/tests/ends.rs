//! How jobs end without being delivered, against a real receiver: exhausted and made again by an
//! operator, their subscription disabled or deleted or its destination gone; and a job that kills
//! its process again and again (design 21).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use streaming_hub_integration::api::{Subscriber, Wanted};
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::config::token_of;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::http::{self, Ask};
use streaming_hub_integration::receiver::Behaviour;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, World};

const SETTLED: Duration = Duration::from_secs(60);
const TENANT: &str = "acme";
const HOUR_MS: u64 = 3_600_000;
const FACTS: usize = 3;
/// Live, among others, and five times alone.
const DEATHS_MAX: usize = 7;

fn call(world: &World, method: &str, target: &str, body: Option<&Value>) -> Result<Value> {
    let answer = world.hub.api(TENANT).call(method, target, body)?;
    ensure!(answer.status == 200, "{method} {target}: {} {}", answer.status, answer.body);
    Ok(answer.json())
}

fn as_operator(world: &World, method: &str, target: &str) -> Result<Value> {
    let token = token_of(None);
    let ask = Ask { method, target, token: Some(&token), body: None };
    let answer = http::ask(world.hub.address(), &ask)?;
    let (status, text) = (answer.status, &answer.body);
    ensure!((200..300).contains(&status), "{method} {target}: {status} {text}");
    Ok(answer.json())
}

fn enable(world: &World, subscriber: &Subscriber, enabled: bool) -> Result<()> {
    let target = format!("/v1/subscriptions/{}", subscriber.id);
    call(world, "PATCH", &target, Some(&json!({ "enabled": enabled }))).map(drop)
}

fn subscribe(world: &mut World, wanted: Wanted, answer: u16) -> Result<Subscriber> {
    let subscriber = world.subscribe(wanted)?;
    world.receiver.script(&subscriber.path, &[Behaviour::Answer(answer)]);
    Ok(subscriber)
}

/// So many requests have come to a subscriber.
fn requests(world: &World, subscriber: &Subscriber, count: usize) -> Result<()> {
    wait::until(&format!("requests to {}", subscriber.path), SETTLED, || {
        let had = world.receiver.deliveries(&subscriber.path).len();
        Ok(if had >= count { Ok(()) } else { Err(format!("{had} of {count}")) })
    })
}

/// The dead letters of a subscriber, once there are so many, all for this reason.
fn letters(
    world: &World,
    subscriber: &Subscriber,
    reason: &str,
    count: usize,
) -> Result<Vec<String>> {
    let target = format!("/admin/dead-letters?subscription={}", subscriber.id);
    wait::until(&format!("dead letters of {}", subscriber.path), SETTLED, || {
        let page = as_operator(world, "GET", &target)?;
        let all = page["dead_letters"].as_array().cloned().unwrap_or_default();
        let are = all.len() == count && all.iter().all(|letter| letter["reason"] == reason);
        let jobs = all.iter().filter_map(|letter| letter["job"].as_str().map(str::to_owned));
        Ok(if are { Ok(jobs.collect()) } else { Err(page.to_string()) })
    })
}

fn facts(ids: &mut Generator, resource: &str, count: usize) -> Vec<Fact> {
    (0..count).map(|_| Fact::new("ledger", TENANT, &ids.id(), (resource, "created"))).collect()
}

#[test]
fn jobs_that_end_undelivered_are_dead_letters_that_say_why_and_one_is_made_again() -> Result<()> {
    world::run(
        &[],
        |config| config.tenants(&[TENANT]).retry(&[0, 100]),
        |world| {
            let late = |name| Wanted::all(TENANT, name).retry(&[0, 10 * HOUR_MS]);
            let failing = subscribe(world, Wanted::all(TENANT, "failing"), 500)?;
            let disabled = subscribe(world, late("disabled"), 500)?;
            let deleted = subscribe(world, late("deleted"), 500)?;
            let gone = subscribe(world, late("gone"), 410)?;
            let mut ids = Generator::new(31);
            world.produce(&facts(&mut ids, "account", FACTS))?;

            made_again(world, &failing)?;
            requests(world, &disabled, FACTS)?;
            enable(world, &disabled, false)?;
            letters(world, &disabled, "subscription_disabled", FACTS)?;
            requests(world, &deleted, FACTS)?;
            world.hub.api(TENANT).delete(&deleted.id)?;
            letters(world, &deleted, "subscription_deleted", FACTS)?;
            disabled_by_410(world, &gone)?;
            for one in [&disabled, &gone] {
                world.receiver.script(&one.path, &[Behaviour::Answer(200)]);
            }
            enable(world, &disabled, true)?;
            // What a destination's answer switched off, only its verification switches on.
            let target = format!("/v1/subscriptions/{}/verify", gone.id);
            call(world, "POST", &target, None)?;
            let before = [&disabled, &gone].map(|one| world.receiver.deliveries(&one.path).len());
            world.produce(&facts(&mut ids, "account", 1))?;
            world.settle(SETTLED)?;
            for (one, before) in [&disabled, &gone].into_iter().zip(before) {
                let had = world.receiver.deliveries(&one.path).len();
                ensure!(had == before + 1, "{}: {had} after {before}", one.path);
            }
            let had = world.receiver.deliveries(&deleted.path).len();
            ensure!(had == FACTS, "a deleted subscription was delivered to: {had}");
            Ok(())
        },
    )
}

/// Each attempt is served, each job a dead letter; one of them is redelivered and arrives.
fn made_again(world: &World, failing: &Subscriber) -> Result<()> {
    let jobs = letters(world, failing, "exhausted", FACTS)?;
    let target = format!("/v1/subscriptions/{}/attempts", failing.id);
    let page = call(world, "GET", &target, None)?;
    let attempts = page["attempts"].as_array().context("attempts")?;
    ensure!(attempts.len() == 2 * FACTS, "{page}");
    let failed = |line: &Value| line["status"] == 500 && line["error_class"] == "http_5xx";
    ensure!(attempts.iter().all(failed), "{page}");
    world.receiver.script(&failing.path, &[Behaviour::Answer(200)]);
    let target = format!("/admin/dead-letters/{}/redeliver", jobs[0]);
    let done = as_operator(world, "POST", &target)?;
    let made = done["redelivered"][0]["job"].as_str().context("no new job")?;
    ensure!(made != jobs[0], "the new job has the id of the old one");
    requests(world, failing, 2 * FACTS + 1)?;
    letters(world, failing, "exhausted", FACTS - 1).map(drop)
}

/// A destination that is gone is not asked again, and its owner is told.
fn disabled_by_410(world: &World, gone: &Subscriber) -> Result<()> {
    let view = wait::until("a subscription disabled by 410", SETTLED, || {
        let view = world.hub.api(TENANT).get(&gone.id)?.context("no such subscription")?;
        Ok(if view["enabled"] == false { Ok(view) } else { Err(view.to_string()) })
    })?;
    ensure!(view["disabled_reason"] == "gone", "{view}");
    letters(world, gone, "subscription_disabled", FACTS).map(drop)
}

#[test]
fn a_job_that_kills_its_process_again_and_again_ends_as_poison_and_nobody_beside_it() -> Result<()>
{
    world::run(
        &[],
        |config| config.tenants(&[TENANT]),
        |world| {
            let beside = Wanted::all(TENANT, "beside").keys(&["account.*"]).in_flight(2);
            let beside = world.subscribe(beside)?;
            let slow = Behaviour::After(Duration::from_millis(200), Behaviour::Answer(200).into());
            world.receiver.script(&beside.path, &[slow]);
            let deadly = world.subscribe(Wanted::all(TENANT, "deadly").keys(&["bomb.*"]))?;
            world.receiver.script(&deadly.path, &[Behaviour::Hang]);
            world.refuses(&deadly);

            let mut ids = Generator::new(32);
            world.produce(&facts(&mut ids, "bomb", 1))?;
            let deaths = die_of(world, &deadly, &mut ids)?;
            eprintln!("{deaths} deaths");
            ensure!(deaths <= DEATHS_MAX, "{deaths} deaths");
            world.settle(SETTLED)?;
            let dead = world.internal.dead_letters()?;
            let [dead] = &dead[..] else { anyhow::bail!("{} dead letters", dead.len()) };
            ensure!(dead.text("hub-subscription") == Some(deadly.id.as_str()), "not the bomb");
            ensure!(dead.text("hub-reason") == Some("poison"), "{:?}", dead.text("hub-reason"));
            world.check(Delivered::AtLeastOnce)?;
            Ok(())
        },
    )
}

/// Kills the hub at each attempt of the deadly job, with others under way, until it is a dead
/// letter; answers how often.
fn die_of(world: &mut World, deadly: &Subscriber, ids: &mut Generator) -> Result<usize> {
    for deaths in 0.. {
        world.produce(&facts(ids, "account", FACTS))?;
        let dies = wait::until("the deadly attempt or the end of its job", SETTLED, || {
            let attempts = world.receiver.deliveries(&deadly.path).len();
            if attempts > deaths {
                return Ok(Ok(true));
            }
            let dead = world.internal.dead_letters()?.len();
            Ok(if dead > 0 { Ok(false) } else { Err(format!("{attempts} attempts")) })
        })?;
        if !dies {
            return Ok(deaths);
        }
        world.hub.kill9()?;
        world.hub.restart()?;
    }
    Ok(DEATHS_MAX + 1)
}
