//! The pull log through its life: a salted tenant's entries, many readers that share commits, an
//! answer that `kill -9` cut off, a subscription that is deleted, and a topic that is made anew.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use serde_json::{Value, json};
use streaming_hub_integration::api::Api;
use streaming_hub_integration::config::{HubConfig, token_of};
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::internal::open_in;
use streaming_hub_integration::say;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, READY, World};

const TENANT: &str = "acme";
const SALTED: &str = "hot";
const WITHIN: Duration = Duration::from_secs(60);
/// Before every id's time, Unix milliseconds: all of the salted tenant's ids are spread.
const SINCE: u64 = 1_000_000_000_000;
/// Readers at once, and how often each reads.
const READERS: (usize, usize) = (24, 20);

fn configure(config: HubConfig) -> HubConfig {
    let raised = ["pull.reads", "api.requests"];
    raised.iter().fold(config.tenants(&[TENANT, SALTED]), |config, limit| {
        config
            .set(&format!("{limit}_per_second"), 10_000)
            .set(&format!("{limit}_burst"), 10_000)
            .set("topics.partitions", 4)
            // A sweep every few seconds.
            .set("pull.read_retention_ms", 60_000)
    })
}

/// A pull subscription to the events of one resource.
fn create(api: &Api, name: &str, resource: &str) -> Result<String> {
    let types = [format!("{resource}.*")];
    let body = json!({"name": name, "event_types": types, "sink": {"type": "pull"}});
    let made = api.call("POST", "/v1/subscriptions", Some(&body))?;
    ensure!(made.status == 201, "{made:?}");
    Ok(made.json()["id"].as_str().context("no id")?.to_owned())
}

fn target(id: &str, more: &str) -> String {
    format!("/v1/events?subscription_id={id}{more}")
}

fn page(api: &Api, id: &str, more: &str) -> Result<Value> {
    let answer = api.call("GET", &target(id, more), None)?;
    ensure!(answer.status == 200, "{more}: {answer:?}");
    Ok(answer.json())
}

fn seqs(page: &Value) -> Vec<u64> {
    page["events"].as_array().into_iter().flatten().filter_map(|e| e["seq"].as_u64()).collect()
}

fn facts(
    generator: &mut Generator,
    (tenant, resource): (&str, &str),
    count: usize,
    bytes: usize,
) -> Vec<Fact> {
    let fact = |id: &str| {
        let data = format!("{{\"filling\":\"{}\"}}", "x".repeat(bytes));
        let fact = Fact::new("ledger", tenant, id, (resource, "created"));
        fact.carrying(Some(data.into_bytes()))
    };
    (0..count).map(|_| fact(&generator.id())).collect()
}

#[test]
fn a_pull_log_keeps_its_promises_from_the_first_entry_to_a_topic_made_anew() -> Result<()> {
    let mut generator = Generator::new(78);
    let first = facts(&mut generator, (TENANT, "other"), 1, 10);
    world::run(&first, configure, |world| {
        salted_tenant(world, &mut generator)?;
        let served = readers_share_commits(world, &mut generator)?;
        an_answer_cut_off(world, &mut generator)?;
        deleted(world, &mut generator)?;
        made_anew(world, &mut generator, &served)
    })
}

/// Its events come from several partitions of the inbox into one log.
fn salted_tenant(world: &mut World, generator: &mut Generator) -> Result<()> {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", world.broker.bootstrap()).create()?;
    let (topic, value) = (world.internal.name("salts"), format!("{{\"since\":{SINCE}}}"));
    let record = BaseRecord::to(&topic).key(SALTED).payload(&value).partition(0);
    producer.send(record).map_err(|(error, _)| error)?;
    producer.flush(WITHIN)?;
    let api = world.hub.api(SALTED);
    let id = create(&api, "salted", "account")?;
    let mut sent = BTreeSet::new();
    wait::until("the tenant to be spread", WITHIN, || {
        let more = facts(generator, (SALTED, "account"), 20, 10);
        world.produce(&more)?;
        sent.extend(more.iter().map(Fact::id));
        world.wait_matched(WITHIN)?;
        let inbox = world.internal.inbox()?;
        let own = inbox.iter().filter(|record| record.text("hub-tenant") == Some(SALTED));
        let places = own.map(|record| record.partition).collect::<BTreeSet<_>>();
        Ok(if places.len() > 1 { Ok(()) } else { Err(format!("{places:?}")) })
    })?;
    let (mut seen, mut after) = (Vec::new(), 0);
    wait::until("the salted tenant's entries", WITHIN, || {
        let page = page(&api, &id, &format!("&after={after}&limit=7"))?;
        for event in page["events"].as_array().context("no events")? {
            let seq = event["seq"].as_u64().context("no seq")?;
            ensure!(seq > after, "{seq} behind {after}");
            after = seq;
            seen.push(event["ceId"].as_str().context("no id")?.to_owned());
        }
        Ok(if seen.len() >= sent.len() { Ok(()) } else { Err(format!("{} seen", seen.len())) })
    })?;
    let each: BTreeSet<String> = seen.iter().cloned().collect();
    ensure!(each == sent && seen.len() == sent.len(), "{} of {}", seen.len(), sent.len());
    Ok(())
}

/// Reads that come at once are answered by fewer commits than there are reads. Answers the
/// subscriptions, and the highest `seq` that each served.
fn readers_share_commits(
    world: &mut World,
    generator: &mut Generator,
) -> Result<Vec<(String, u64)>> {
    let api = world.hub.api(TENANT);
    let (readers, times) = READERS;
    let made = (0..readers).map(|n| create(&api, &format!("pull-{n}"), "account"));
    let ids = made.collect::<Result<Vec<_>>>()?;
    world.produce(&facts(generator, (TENANT, "account"), times, 10))?;
    for id in &ids {
        wait::until("the entries", WITHIN, || {
            let backlog = api.get(id)?.context("it is gone")?["pull"]["backlog"].clone();
            Ok(if backlog == json!(times) { Ok(()) } else { Err(backlog.to_string()) })
        })?;
    }
    let count = || -> Result<(u64, u64)> {
        let metrics = world.hub.metrics()?;
        let commits = "streaming_hub_commit_seconds_count";
        let pages = metrics.count("streaming_hub_pull_pages_total");
        Ok((pages, metrics.count_with(commits, "sub_topology", "pull")))
    };
    let before = count()?;
    let last = std::thread::scope(|scope| {
        let read = |id: &str| -> Result<u64> {
            let mut last = 0;
            for _ in 0..times {
                let own = seqs(&page(&api, id, "&limit=1")?);
                ensure!(own.len() == 1 && own[0] > last, "{own:?} behind {last}");
                last = own[0];
            }
            Ok(last)
        };
        let threads: Vec<_> = ids.iter().map(|id| scope.spawn(move || read(id))).collect();
        let joined = threads.into_iter().map(|t| t.join().map_err(|_| anyhow!("a panic"))?);
        joined.collect::<Result<Vec<_>>>()
    })?;
    let after = count()?;
    let (pages, commits) = (after.0 - before.0, after.1 - before.1);
    say!("{pages} pages in {commits} commits");
    ensure!(pages == (readers * times) as u64 && 2 * commits <= pages, "{pages} in {commits}");
    Ok(ids.into_iter().zip(last).collect())
}

/// Between the commit of the cursor and the last byte of the answer the instance dies: the page is
/// acknowledged, and `after` brings it again.
fn an_answer_cut_off(world: &mut World, generator: &mut Generator) -> Result<()> {
    let api = world.hub.api(TENANT);
    let id = create(&api, "cut off", "large")?;
    // More than the sockets' buffers hold.
    let sent = facts(generator, (TENANT, "large"), 30, 400_000);
    world.produce(&sent)?;
    wait::until("the large entries", WITHIN, || {
        let backlog = api.get(&id)?.context("it is gone")?["pull"]["backlog"].clone();
        Ok(if backlog == json!(sent.len()) { Ok(()) } else { Err(backlog.to_string()) })
    })?;
    let mut stream = TcpStream::connect(world.hub.address())?;
    let (target, token) = (target(&id, ""), token_of(Some(TENANT)));
    write!(stream, "GET {target} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n\r\n")?;
    // Nobody reads the answer.
    wait::until("the cursor to be committed", WITHIN, || {
        let cursors = world.internal.read("cursors")?;
        let own = cursors.iter().any(|record| record.key_text() == id);
        Ok(if own { Ok(()) } else { Err("no cursor yet".to_owned()) })
    })?;
    world.hub.kill9()?;
    drop(stream);
    world.hub.restart()?;
    world.hub.wait_ready(READY)?;
    let api = world.hub.api(TENANT);
    let read = |more: &str| -> Result<Vec<u64>> {
        let mut found = Vec::new();
        wait::until("a page after the restart", WITHIN, || {
            let answer = api.call("GET", &self::target(&id, more), None)?;
            found = seqs(&answer.json());
            Ok(if answer.status == 200 { Ok(()) } else { Err(format!("{}", answer.status)) })
        })?;
        Ok(found)
    };
    let (next, lost) = (read("")?, read("&after=0")?);
    ensure!(!lost.is_empty() && lost.len() + next.len() == sent.len(), "{lost:?} {next:?}");
    ensure!(lost.last() < next.first(), "{lost:?} {next:?}");
    Ok(())
}

/// A deleted subscription answers 404 at once, and leaves neither entries nor a cursor.
fn deleted(world: &mut World, generator: &mut Generator) -> Result<()> {
    let api = world.hub.api(TENANT);
    let id = create(&api, "deleted", "gone")?;
    world.produce(&facts(generator, (TENANT, "gone"), 3, 10))?;
    wait::until("an entry", WITHIN, || {
        let found = seqs(&page(&api, &id, "&limit=1")?);
        Ok(if found.is_empty() { Err("none yet".to_owned()) } else { Ok(()) })
    })?;
    // All others were read to their ends; a sweep counts it.
    world.hub.wait_metrics(WITHIN, |metrics| {
        let backlog = metrics.count("streaming_hub_pull_backlog_count");
        let of = metrics.count("streaming_hub_pull_unread_subscriptions_count");
        if (backlog, of) == (2, 1) { Ok(()) } else { Err(format!("{backlog} of {of}")) }
    })?;
    api.delete(&id)?;
    ensure!(api.call("GET", &target(&id, ""), None)?.status == 404);
    wait::until("the clean-up", WITHIN, || {
        let (entries, cursors) = (world.internal.read("pull")?, world.internal.read("cursors")?);
        let open = open_in(&entries);
        let left = open.values().filter(|r| r.text("hub-subscription") == Some(&id)).count();
        let cursor = open_in(&cursors).contains_key(&id);
        let clean = left == 0 && !cursor;
        Ok(if clean { Ok(()) } else { Err(format!("{left} entries, cursor: {cursor}")) })
    })
}

/// Offsets begin at 0 again, and every `seq` is above those that were served.
fn made_anew(world: &mut World, generator: &mut Generator, served: &[(String, u64)]) -> Result<()> {
    world.hub.terminate(READY)?;
    world.broker.delete_topic(&world.internal.name("pull"))?;
    world.hub.restart()?;
    world.hub.wait_ready(READY)?;
    let api = world.hub.api(TENANT);
    world.produce(&facts(generator, (TENANT, "account"), 2, 10))?;
    for (id, last) in served {
        wait::until("an entry of the new topic", WITHIN, || {
            let answer = api.call("GET", &target(id, &format!("&after={last}")), None)?;
            let (cursor, found) = (answer.json()["cursor"].as_u64(), seqs(&answer.json()));
            ensure!(answer.status == 503 || cursor >= Some(*last), "{answer:?}");
            ensure!(found.iter().all(|seq| seq > last), "{found:?} behind {last}");
            Ok(if found.len() == 2 { Ok(()) } else { Err(format!("{answer:?}")) })
        })?;
    }
    Ok(())
}
