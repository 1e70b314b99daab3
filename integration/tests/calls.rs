//! Two hubs share the work: what one of them is asked and the other has is answered all the same;
//! what neither can say is named. Attempts, dead letters and redelivery, holds, quarantine byte for
//! byte, traces, replays, erasure, and a hub that is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use streaming_hub_integration::api::{Subscriber, Wanted};
use streaming_hub_integration::config::{HubConfig, token_of};
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::http::{self, Answer, Ask};
use streaming_hub_integration::hub::Hub;
use streaming_hub_integration::receiver::Behaviour;
use streaming_hub_integration::say;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, READY, World};

const TENANT: &str = "acme";
const SHARED: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(20);
/// Several subscriptions, so that both hubs surely own some.
const SUBSCRIPTIONS: usize = 6;

#[test]
fn what_another_hub_has_is_asked_of_it() -> Result<()> {
    let mut ids = Generator::new(77);
    let facts: Vec<_> =
        (0..3).map(|_| Fact::new("ledger", TENANT, &ids.id(), ("account", "created"))).collect();
    let bad = Fact::new("ledger", TENANT, &ids.id(), ("account", "created"))
        .with("ce-time", b"yesterday")
        .and(b"\xff-odd", Some(b"\xfd\xfe"))
        .carrying(Some(vec![0, 159, 146, 150]))
        .keyed(Some(b"\xffkey"))
        .quarantined("bad_time");
    let last = Fact::new("ledger", TENANT, &ids.id(), ("account", "created"));
    let mut all = facts.clone();
    all.push(bad.clone());
    world::run(&all, configure, |a| {
        let config = configure(HubConfig::new(a.broker.bootstrap())?);
        let mut b = Hub::start(config.set("instance_id", "b"))?;
        b.wait_ready(READY)?;
        both_own(a, &b)?;
        let subscribers = subscribe(a)?;
        a.produce(&all)?;
        attempts_through_both(a, &b, &subscribers)?;
        destinations(a, &b, &subscribers)?;
        dead_letters(a, &b)?;
        holds(a, &b, &subscribers[0])?;
        quarantined(&b, &bad)?;
        traced(a, &b, &facts[0])?;
        replayed(a, &b, &subscribers)?;
        killed(a, &mut b)?;
        erased(a, last)
    })
}

/// No retries, and breakers that open at the third failure for long enough to be seen.
fn configure(config: HubConfig) -> HubConfig {
    let config = config.tenants(&[TENANT]).retry(&[0]).set("breaker.failures_max", 3);
    config.set("breaker.open_ms", 15_000).set("breaker.open_ms_max", 15_000)
}

fn as_operator(hub: &Hub, method: &str, target: &str, body: Option<&Value>) -> Result<Answer> {
    let token = token_of(None);
    http::ask(hub.address(), &Ask { method, target, token: Some(&token), body })
}

fn ok(answer: &Answer, what: &str) -> Result<Value> {
    ensure!((200..300).contains(&answer.status), "{what}: {} {}", answer.status, answer.body);
    Ok(answer.json())
}

/// Both run delivery tasks, and each says so of the other.
fn both_own(a: &World, b: &Hub) -> Result<()> {
    wait::until("both hubs to have delivery tasks", SHARED, || {
        let view = ok(&as_operator(&a.hub, "GET", "/admin/tasks", None)?, "tasks")?;
        let instances = view["instances"].as_array().cloned().unwrap_or_default();
        let runs = |instance: &Value| {
            let tasks = instance["tasks"].as_array().cloned().unwrap_or_default();
            let of =
                |task: &&Value| task["sub_topology"] == "delivery" && task["state"] == "running";
            tasks.iter().filter(of).count()
        };
        let counts: Vec<_> = instances.iter().map(runs).collect();
        let done = counts.len() == 2 && counts.iter().all(|n| *n > 0) && view["partial"] == false;
        Ok(if done { Ok(()) } else { Err(format!("{counts:?} {}", view["missing"])) })
    })?;
    let shape = ok(&as_operator(b, "GET", "/admin/topology", None)?, "topology")?;
    ensure!(shape["instances"].as_array().is_some_and(|list| list.len() == 2), "{shape}");
    Ok(())
}

/// Half of them take what they get, the others refuse it: dead letters at once.
fn subscribe(world: &mut World) -> Result<Vec<Subscriber>> {
    let mut made = Vec::new();
    for number in 0..SUBSCRIPTIONS {
        let subscriber = world.subscribe(Wanted::all(TENANT, &format!("s{number}")))?;
        if number % 2 == 1 {
            world.receiver.script(&subscriber.path, &[Behaviour::Answer(500)]);
            world.refuses(&subscriber);
        }
        made.push(subscriber);
    }
    Ok(made)
}

fn attempts_through_both(world: &World, b: &Hub, subscribers: &[Subscriber]) -> Result<()> {
    for (number, subscriber) in subscribers.iter().enumerate() {
        let target = format!("/v1/subscriptions/{}/attempts", subscriber.id);
        let outcome = if number % 2 == 1 { "failed" } else { "delivered" };
        for hub in [&world.hub, b] {
            let api = hub.api(TENANT);
            wait::until("attempts", SOON, || {
                let page = ok(&api.call("GET", &target, None)?, "attempts")?;
                let own = page["attempts"].as_array().cloned().unwrap_or_default();
                let done = own.len() == 3 && own.iter().all(|line| line["outcome"] == outcome);
                Ok(if done { Ok(()) } else { Err(page.to_string()) })
            })?;
            let view = ok(
                &api.call("GET", &format!("/v1/subscriptions/{}", subscriber.id), None)?,
                "read",
            )?;
            ensure!(view["delivery"]["backlog"] == 0, "{view}");
        }
    }
    Ok(())
}

/// What a hub lists under a path for a query, page by page, and the last page.
fn paged(hub: &Hub, (path, list): (&str, &str), query: &str) -> Result<(Vec<Value>, Value)> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ok(&as_operator(hub, "GET", &format!("{path}?{query}{cursor}"), None)?, path)?;
        all.extend(page[list].as_array().cloned().unwrap_or_default());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok((all, page)),
        }
    }
}

fn listed(hub: &Hub, query: &str) -> Result<(Vec<Value>, Value)> {
    paged(hub, ("/admin/destinations", "destinations"), &format!("limit=4{query}"))
}

/// Through either hub: every destination, the breakers of those that refuse three times open, with
/// their failure spans, whichever hub owns them.
fn destinations(world: &World, b: &Hub, subscribers: &[Subscriber]) -> Result<()> {
    let refusing: BTreeSet<_> = subscribers.iter().skip(1).step_by(2).map(|s| &*s.id).collect();
    for hub in [&world.hub, b] {
        wait::until("open breakers", SOON, || {
            let (all, _) = listed(hub, "")?;
            let (open, last) = listed(hub, &format!("&state=open&tenant={TENANT}"))?;
            let ids = |one: &Value| one["subscriptions"][0]["id"].as_str().map(str::to_owned);
            let found: BTreeSet<_> = open.iter().filter_map(ids).collect();
            let whole = |one: &Value| {
                one["breaker"]["openings"] == 1 && one["subscriptions"][0]["failing"].is_object()
            };
            let done = all.len() == SUBSCRIPTIONS
                && found.iter().map(String::as_str).collect::<BTreeSet<_>>() == refusing
                && open.iter().all(whole)
                && last["partial"] == false;
            Ok(if done { Ok(()) } else { Err(json!({"all": all, "open": open}).to_string()) })
        })?;
    }
    let (all, _) = listed(b, "")?;
    let text = Value::from(all).to_string();
    ensure!(!text.contains("/acme/") && text.contains("127.0.0.1"), "{text}");
    Ok(())
}

fn letters(hub: &Hub, query: &str) -> Result<(Vec<Value>, Value)> {
    paged(hub, ("/admin/dead-letters", "dead_letters"), &format!("limit=2{query}"))
}

/// Listed through either hub, read in full, redelivered by one and by filter from the hub that may
/// not have them.
fn dead_letters(world: &World, b: &Hub) -> Result<()> {
    for hub in [&world.hub, b] {
        let (all, _) = letters(hub, "&tenant=acme&reason=exhausted")?;
        ensure!(all.len() == 9, "{} dead letters", all.len());
    }
    let (all, _) = letters(b, "")?;
    for letter in &all {
        let job = letter["job"].as_str().context("a letter without a job")?;
        for hub in [&world.hub, b] {
            let full = as_operator(hub, "GET", &format!("/admin/dead-letters/{job}"), None)?;
            let full = ok(&full, "a dead letter")?;
            ensure!(full["status"] == 500 && full["payload_base64"].is_string(), "{full}");
        }
    }
    for number in (1..SUBSCRIPTIONS).step_by(2) {
        world.receiver.script(&format!("/{TENANT}/s{number}"), &[Behaviour::Answer(200)]);
    }
    let job = all[0]["job"].as_str().unwrap_or_default();
    let target = format!("/admin/dead-letters/{job}/redeliver");
    let done = ok(&as_operator(b, "POST", &target, None)?, "redelivery")?;
    ensure!(done["redelivered"].as_array().is_some_and(|list| list.len() == 1), "{done}");
    let body = json!({"tenant": TENANT});
    let done = as_operator(&world.hub, "POST", "/admin/dead-letters/redeliver", Some(&body))?;
    let done = ok(&done, "redelivery by filter")?;
    ensure!(done["redelivered"].as_array().is_some_and(|list| list.len() == 8), "{done}");
    // They wait behind their breakers.
    wait::until("redeliveries", SHARED, || {
        let (left, _) = letters(b, "")?;
        let taken = world.receiver.requests().iter().filter(|r| !r.is_probe()).count();
        // 3 facts for 6 subscriptions, and the 9 once more.
        let done = left.is_empty() && taken == 27;
        Ok(if done { Ok(()) } else { Err(format!("{} letters, {taken} requests", left.len())) })
    })
}

/// A hold that one hub sets is known to the other, and lifted there.
fn holds(world: &World, b: &Hub, held: &Subscriber) -> Result<()> {
    let body = json!({"scope": "subscription", "subscription": held.id, "reason": "maintenance"});
    let set = ok(&as_operator(&world.hub, "PUT", "/admin/holds", Some(&body))?, "a hold")?;
    ensure!(set["by"] == "operator", "{set}");
    let listed = |hub: &Hub| -> Result<usize> {
        let all = ok(&as_operator(hub, "GET", "/admin/holds", None)?, "holds")?;
        Ok(all["holds"].as_array().map_or(0, Vec::len))
    };
    wait::until("the hold on the other hub", SOON, || {
        let count = listed(b)?;
        Ok(if count == 1 { Ok(()) } else { Err(format!("{count}")) })
    })?;
    let target = format!("/admin/holds?scope=subscription&subscription={}", held.id);
    let lifted = as_operator(b, "DELETE", &target, None)?;
    ensure!(lifted.status == 204, "{} {}", lifted.status, lifted.body);
    wait::until("the hold to be lifted", SOON, || {
        let count = listed(&world.hub)?;
        Ok(if count == 0 { Ok(()) } else { Err(format!("{count}")) })
    })
}

/// A malformed record is shown byte for byte.
fn quarantined(hub: &Hub, bad: &Fact) -> Result<()> {
    let target = "/admin/quarantine?reason=bad_time&source=ledger&from=2020-01-01T00:00:00Z";
    let entry = wait::until("the quarantined record", SOON, || {
        let page = ok(&as_operator(hub, "GET", target, None)?, "quarantine")?;
        Ok(page["quarantined"][0]["id"].as_str().map(str::to_owned).ok_or(page.to_string()))
    })?;
    let full = as_operator(hub, "GET", &format!("/admin/quarantine/{entry}"), None)?;
    let full = ok(&full, "a quarantined record")?;
    ensure!(full["value_base64"] == "AJ+Slg==", "{full}");
    ensure!(full["key_base64"] == "/2tleQ==", "{full}");
    let headers = full["headers"].as_array().cloned().unwrap_or_default();
    ensure!(headers.len() == bad.headers.len(), "{full}");
    let odd = headers.iter().find(|header| header["name_base64"] == "/y1vZGQ=");
    ensure!(odd.is_some_and(|odd| odd["value_base64"] == "/f4="), "{full}");
    for other in ["reason=bad_id", "source=lender", "to=2020-01-01T00:00:00Z"] {
        let page = as_operator(hub, "GET", &format!("/admin/quarantine?{other}"), None)?;
        let page = ok(&page, other)?;
        ensure!(page["quarantined"] == json!([]), "{other}: {page}");
    }
    let none = as_operator(hub, "GET", "/admin/quarantine/0-999999", None)?;
    ensure!(none.status == 404, "{} {}", none.status, none.body);
    Ok(())
}

/// An event is found with its subscriptions, jobs and attempts through either hub, and only by its
/// tenant.
fn traced(world: &World, b: &Hub, fact: &Fact) -> Result<()> {
    let target = format!("/v1/events/{}/trace", fact.id());
    for hub in [&world.hub, b] {
        let trace = ok(&hub.api(TENANT).call("GET", &target, None)?, "a trace")?;
        ensure!(trace["verdict"] == "accepted" && trace["partial"] == false, "{trace}");
        let all = trace["subscriptions"].as_array().cloned().unwrap_or_default();
        ensure!(all.len() == SUBSCRIPTIONS, "{trace}");
        let attempted = |one: &&Value| one["attempts"].as_array().is_some_and(|a| !a.is_empty());
        ensure!(all.iter().filter(attempted).count() > 0, "{trace}");
    }
    let unknown = "/v1/events/0198f3a2-11aa-7c3e-9d21-5b8f0c4de001/trace";
    let trace = ok(&b.api(TENANT).call("GET", unknown, None)?, "a trace of nothing")?;
    ensure!(trace["verdict"] == "not_found" && trace["searched"]["to_the_end"] == true, "{trace}");
    Ok(())
}

/// Stored events are delivered once more, counted first, through the hub that may not own them.
fn replayed(world: &World, b: &Hub, subscribers: &[Subscriber]) -> Result<()> {
    for subscriber in subscribers {
        let target = format!("/v1/subscriptions/{}/replay", subscriber.id);
        let before = world.receiver.deliveries(&subscriber.path).len();
        let body = json!({"from": "2020-01-01T00:00:00Z", "dry_run": true});
        let counted = ok(&b.api(TENANT).call("POST", &target, Some(&body))?, "a dry run")?;
        ensure!(counted["count"] == 3 && counted["complete"] == true, "{counted}");
        let body = json!({"from": "2020-01-01T00:00:00Z", "event_types": ["account.created"]});
        ok(&b.api(TENANT).call("POST", &target, Some(&body))?, "a replay")?;
        wait::until("the replay", SOON, || {
            let progress = ok(&world.hub.api(TENANT).call("GET", &target, None)?, "progress")?;
            let after = world.receiver.deliveries(&subscriber.path).len();
            let done = progress["state"] == "done" && progress["jobs"] == 3 && after == before + 3;
            Ok(if done { Ok(()) } else { Err(format!("{progress}, {after} of {before} + 3")) })
        })?;
    }
    Ok(())
}

/// While a hub is dead and its tasks are nobody's, lists are partial and say so; then they are
/// whole again.
fn killed(world: &World, b: &mut Hub) -> Result<()> {
    b.kill9()?;
    let (_, page) = letters(&world.hub, "")?;
    ensure!(page["partial"] == true, "{page}");
    let missing = page["missing"].as_array().map_or(0, Vec::len);
    ensure!(missing > 0, "{page}");
    let tasks = ok(&as_operator(&world.hub, "GET", "/admin/tasks", None)?, "tasks")?;
    ensure!(tasks["missing"] == json!(["instance/b"]), "{}", tasks["missing"]);
    let began = wait::instant();
    wait::until("the rest to be taken over", SHARED, || {
        let (_, page) = letters(&world.hub, "")?;
        let whole = page["partial"] == false;
        Ok(if whole { Ok(()) } else { Err(page["missing"].to_string()) })
    })?;
    say!("{missing} partitions were away, for {} ms", began.elapsed().as_millis());
    Ok(())
}

/// Nothing that waits to be read is left of an erased tenant, either.
fn erased(world: &mut World, fact: Fact) -> Result<()> {
    let api = world.hub.api(TENANT);
    let log = json!({"name": "log", "event_types": ["*"], "sink": {"type": "pull"}});
    let log = ok(&api.call("POST", "/v1/subscriptions", Some(&log))?, "a pull subscription")?;
    let target = format!("/v1/subscriptions/{}", log["id"].as_str().unwrap_or_default());
    world.produce(&[fact])?;
    wait::until("an entry to be read", SOON, || {
        let view = ok(&api.call("GET", &target, None)?, "a pull subscription")?;
        Ok(if view["pull"]["backlog"] == 1 { Ok(()) } else { Err(view.to_string()) })
    })?;
    let body = json!({"tenant": TENANT});
    let done = as_operator(&world.hub, "POST", "/admin/tenants/erase", Some(&body))?;
    let done = ok(&done, "an erasure")?;
    let all = SUBSCRIPTIONS + 1;
    ensure!(done["subscriptions_deleted"] == all && done["complete"] == true, "{done}");
    ensure!(api.list()?.is_empty(), "subscriptions are left");
    for topic in ["pull", "dead-letters", "deliveries"] {
        let mut left = BTreeMap::new();
        for record in world.internal.read(topic)? {
            left.insert(record.key.clone(), record.value.is_some());
        }
        ensure!(!left.values().any(|is_left| *is_left), "{topic} holds {}", left.len());
    }
    Ok(())
}
