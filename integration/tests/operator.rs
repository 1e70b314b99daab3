//! The operator's side against a real broker and the real program: the producers' dead letters,
//! every command, a reset, and a hub whose disk was wiped.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::config::token_of;
use streaming_hub_integration::facts::{self, Fact};
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::http::{self, Answer, Ask};
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, READY, World};

const TENANT: &str = "acme";
const SOON: Duration = Duration::from_secs(30);
const STOPPED: Duration = Duration::from_secs(30);
const DOCTOR: Duration = Duration::from_secs(5);

#[test]
fn an_operator_sees_dead_letters_and_repairs_a_hub_by_its_commands() -> Result<()> {
    let mut ids = Generator::new(9);
    let facts: Vec<Fact> = (0..5).map(|_| fact(&ids.id())).collect();
    let orphans: Vec<Fact> = (0..3)
        .map(|_| fact(&ids.id()).without("ce-tenantid").quarantined("missing_tenant"))
        .collect();
    let configure =
        |config: streaming_hub_integration::config::HubConfig| config.tenants(&[TENANT]);
    world::run(&[facts.clone(), orphans.clone()].concat(), configure, |world| {
        world.subscribe(Wanted::all(TENANT, "all"))?;
        producers_dead_letters(world)?;
        world.produce(&facts)?;
        world.produce(&orphans)?;
        world.settle(SOON)?;
        looking(world, &facts)?;
        transcript(world)?;
        quarantined(world, orphans.len())?;
        log_level(world)?;
        let all = facts.len() + orphans.len();
        wiped_disk(world, &facts, all)?;
        reset(world, all)
    })
}

fn fact(id: &str) -> Fact {
    Fact::new("ledger", TENANT, id, ("account", "created"))
}

fn admin(world: &World, method: &str, target: &str, body: Option<&Value>) -> Result<Answer> {
    let token = token_of(None);
    let ask = Ask { method, target, token: Some(&token), body };
    http::ask(world.hub.address(), &ask)
}

/// The JSON that a command prints.
fn command(world: &World, arguments: &[&str]) -> Result<Value> {
    let text = world.hub.command(&[arguments, &["--json"]].concat())?;
    serde_json::from_str(&text).with_context(|| text)
}

/// JSON lines that a command prints.
fn lines(world: &World, arguments: &[&str]) -> Result<Vec<Value>> {
    let text = world.hub.command(arguments)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn producers_dead_letters(world: &mut World) -> Result<()> {
    let entries: Vec<Fact> =
        facts::real_records()?.into_iter().filter(|fact| fact.topic.ends_with(".dlq")).collect();
    world.produce(&entries)?;
    let list = |query: &str| Ok::<_, anyhow::Error>(admin(world, "GET", query, None)?.json());
    let page = wait::until("all dead letters in the index", SOON, || {
        let page = list("/admin/dlq?limit=5")?;
        Ok(if page["total"] == entries.len() { Ok(page) } else { Err(page.to_string()) })
    })?;
    ensure!(page["by_cause"]["codec"] == 4 && page["by_cause"]["handler"] == 2, "{page}");
    ensure!(page["by_topic"]["lerian.streaming.crm.dlq"] == 7, "{page}");
    let (mut seen, mut cursor) = (0, page["next_cursor"].clone());
    seen += page["entries"].as_array().map_or(0, Vec::len);
    while let Some(next) = cursor.as_str() {
        let page = list(&format!("/admin/dlq?limit=5&cursor={next}"))?;
        seen += page["entries"].as_array().map_or(0, Vec::len);
        cursor = page["next_cursor"].clone();
    }
    ensure!(seen == entries.len(), "pages show {seen} of {}", entries.len());
    let omitted = list("/admin/dlq?cause_kind=handler&application=crm")?;
    let omitted = omitted["entries"].as_array().context("entries")?;
    let omitted = omitted.iter().find(|entry| entry["payload_omitted"] == true).context("one")?;
    let place = format!(
        "/admin/dlq/{}/{}/{}",
        omitted["topic"].as_str().unwrap_or_default(),
        omitted["partition"],
        omitted["offset"]
    );
    let entry = list(&place)?;
    ensure!(entry["payload_bytes"] == 1_010_000 && entry["payload_base64"].is_null(), "{entry}");
    ensure!(entry["consumer_group"] == "crm-lender-events", "{entry}");
    ensure!(entry["headers"].as_array().is_some_and(|all| all.len() > 15), "{entry}");
    // Through this nothing else can be read.
    let other = admin(world, "GET", "/admin/dlq/streaming-hub-subscriptions/0/0", None)?;
    ensure!(other.status == 404, "{other:?}");
    ensure!(list("/admin/dlq?content=command")?["total"] == 1, "one is a command");
    world.hub.wait_metrics(SOON, |metrics| {
        let found = metrics.count("streaming_hub_producer_dlq_entries_total");
        if found == entries.len() as u64 { Ok(()) } else { Err(format!("{found} counted")) }
    })?;
    ensure!(world.internal.inbox()?.is_empty(), "none of them becomes an event");
    Ok(())
}

/// What changes nothing.
fn looking(world: &World, facts: &[Fact]) -> Result<()> {
    ensure!(command(world, &["topics", "verify"])?["as_planned"] == true);
    ensure!(
        command(world, &["topics", "plan"])?["topics"].as_array().is_some_and(|t| t.len() > 20)
    );
    let names = command(world, &["topology"])?.to_string();
    ensure!(names.contains("streaming-hub-ingest") && names.contains("retry-11"), "{names}");
    let chart = world.hub.command(&["topology", "--mermaid"])?;
    ensure!(chart.starts_with("flowchart") && chart.contains("--> match"), "{chart}");
    ensure!(command(world, &["salt", "--tenant", TENANT, "--dry-run"])?["recorded"] == false);

    // Its looks are bounded in time: on a machine that is busy with other tests one may fail.
    let found = wait::until("a doctor in time that finds nothing", SOON, || {
        let began = wait::instant();
        let found = command(world, &["doctor"]);
        let took = began.elapsed();
        Ok(match found {
            Ok(found) if took < DOCTOR => Ok(found),
            other => Err(format!("{other:?} after {took:?}")),
        })
    })?;
    ensure!(found["problems"] == 0, "{found}");
    let text = found.to_string();
    for check in ["transactions", "clock", "topics", "replicas", "groups", "disk", "instances"] {
        ensure!(text.contains(&format!("\"check\":\"{check}\"")), "{check}: {found}");
    }

    let token = token_of(None);
    let status = command(world, &["status", "--token", &token])?;
    ensure!(status["instance"]["ready"] == true, "{status}");
    let groups = status["groups"].as_array().context("groups")?;
    let ingest = groups.iter().find(|group| group["group"] == "streaming-hub-ingest");
    ensure!(ingest.is_some_and(|group| group["members"].as_array().is_some_and(|m| m.len() == 1)));

    let id = facts[2].id();
    let found = lines(world, &["inbox", "grep", "--id", &id, "--payload", "--json"])?;
    ensure!(found.len() == 1 && found[0]["tenant"] == TENANT, "{found:?}");
    let none = ["inbox", "grep", "--tenant", TENANT, "--type", "account.deleted", "--json"];
    ensure!(lines(world, &none)?.is_empty());
    let all = ["inbox", "grep", "--type", "account.*", "--since", "2020-01-01T00:00:00Z", "--json"];
    ensure!(lines(world, &all)?.len() == facts.len());
    let known = lines(world, &["dedup", "print", "--id", &id, "--json"])?;
    ensure!(known.len() == 1 && known[0]["tenant"] == TENANT, "{known:?}");
    Ok(())
}

/// The session in docs/cli.md is what the commands print.
fn transcript(world: &World) -> Result<()> {
    let page = include_str!("../../docs/cli.md");
    let session = page.split("```console\n").nth(1).and_then(|rest| rest.split("```").next());
    let session = session.context("docs/cli.md has no session")?;
    let mut count = 0;
    for block in session.split("$ streaming-hub ").skip(1) {
        let (line, wanted) = block.split_once('\n').unwrap_or((block, ""));
        let arguments: Vec<_> = line.split(' ').collect();
        let wanted: Vec<_> = wanted.lines().collect();
        wait::until(&format!("what docs/cli.md shows of {line}"), SOON, || {
            let printed = world.hub.command(&arguments).unwrap_or_else(|error| error.to_string());
            let found: Vec<_> = printed.lines().collect();
            Ok(if matches(&wanted, &found) { Ok(()) } else { Err(printed) })
        })?;
        count += 1;
    }
    ensure!(count > 6, "{count} commands");
    Ok(())
}

/// Whether lines are as wanted; `…` alone is any number of them.
fn matches(wanted: &[&str], found: &[&str]) -> bool {
    match (wanted, found) {
        ([], _) => found.is_empty(),
        (["…", rest @ ..], _) => {
            (0..=found.len()).any(|skipped| matches(rest, &found[skipped..]))
        }
        ([line, rest @ ..], [own, others @ ..]) => is_like(line, own) && matches(rest, others),
        (_, []) => false,
    }
}

/// Whether a line is as wanted; `…` within it is anything.
fn is_like(wanted: &str, found: &str) -> bool {
    let mut parts = wanted.split('…');
    let Some(mut rest) = parts.next().and_then(|start| found.strip_prefix(start)) else {
        return false;
    };
    let parts: Vec<_> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn a_transcript_is_compared_line_by_line_with_its_gaps() {
    assert!(matches(&["a … c", "…", "z"], &["a b c", "x", "y", "z"]));
    assert!(matches(&["…"], &[]) && matches(&[], &[]));
    assert!(!matches(&["a"], &["a", "b"]) && !matches(&["a … c"], &["a b d"]));
    assert!(!is_like("1 … 2", "1 2 3") && is_like("… 2", "x 2"));
}

/// Producers send no tenant; the default is set afterwards.
fn quarantined(world: &mut World, orphans: usize) -> Result<()> {
    let exported = lines(world, &["quarantine", "export", "--reason", "missing_tenant"])?;
    ensure!(exported.len() == orphans, "{exported:?}");
    ensure!(exported[0]["topic"] == "lerian.streaming.ledger", "{exported:?}");
    let retry = ["quarantine", "retry", "--reason", "missing_tenant"];
    ensure!(command(world, &retry)?["accepted"] == 0, "there is no default tenant yet");
    let with = [&retry[..], &["--set", "ingest.default_tenant=acme"]].concat();
    let dry = command(world, &[&with[..], &["--dry-run"]].concat())?;
    ensure!(dry["accepted"] == orphans && dry["dry_run"] == true, "{dry}");
    let before = world.receiver.delivered();
    // Twice: matching takes each in once.
    for _ in 0..2 {
        ensure!(command(world, &with)?["accepted"] == orphans);
    }
    wait::until("the retried records at the receiver", SOON, || {
        let found = world.receiver.delivered() - before;
        Ok(if found == orphans { Ok(()) } else { Err(format!("{found} arrived")) })
    })?;
    world.hub.wait_metrics(SOON, |metrics| {
        let found = metrics.count("streaming_hub_duplicates_total");
        if found == orphans as u64 { Ok(()) } else { Err(format!("{found} duplicates")) }
    })
}

fn log_level(world: &World) -> Result<()> {
    let target = "/admin/log-level";
    let body = json!({ "filter": "info,streaming_hub_topology=debug" });
    let put = admin(world, "PUT", target, Some(&body))?;
    ensure!(put.status == 200, "{put:?}");
    let now = admin(world, "GET", target, None)?.json();
    ensure!(now["filter"].as_str().is_some_and(|text| text.contains("=debug")), "{now}");
    let wrong = admin(world, "PUT", target, Some(&json!({ "filter": "a=b=c" })))?;
    ensure!(wrong.status == 422, "{wrong:?}");
    Ok(())
}

/// Kafka alone brings everything back: what is known stays known, what was delivered stays so.
fn wiped_disk(world: &mut World, facts: &[Fact], all: usize) -> Result<()> {
    let delivered = world.receiver.delivered();
    world.hub.kill9()?;
    std::fs::remove_dir_all(world.hub.config().directory().join("state"))?;
    world.hub.restart()?;
    world.hub.wait_ready(READY)?;
    world.produce(facts)?;
    world.settle(SOON)?;
    let ids: usize = world.internal.inbox_ids()?.values().map(Vec::len).sum();
    ensure!(ids == all, "{ids} events in the inbox, not {all}");
    ensure!(world.receiver.delivered() == delivered, "something was delivered again");
    Ok(())
}

fn reset(world: &mut World, all: usize) -> Result<()> {
    let ingest = ["reset", "--scope", "ingest", "--to", "beginning", "--execute"];
    ensure!(world.hub.command(&ingest).is_err(), "a running hub is not reset");
    world.hub.terminate(STOPPED)?;
    let plan = command(world, &ingest[..5])?;
    ensure!(plan["executed"] == false && plan["records_again"].as_i64() >= Some(8), "{plan}");
    command(world, &ingest)?;
    let before = world.receiver.delivered();
    world.hub.restart()?;
    world.hub.wait_ready(READY)?;
    world.settle(SOON)?;
    ensure!(world.receiver.delivered() == before, "known ids are not delivered again");

    world.hub.terminate(STOPPED)?;
    let whole = ["reset", "--scope", "application", "--to", "beginning", "--execute"];
    let done = command(world, &whole)?;
    ensure!(done["stores_left"] == json!([]), "{done}");
    world.hub.restart()?;
    world.hub.wait_ready(READY)?;
    // The orphans have no tenant again: the default was set for a command only.
    let again = all - 3;
    wait::until("every event once more", SOON, || {
        let found = world.receiver.delivered() - before;
        Ok(if found == again { Ok(()) } else { Err(format!("{found} of {again} arrived")) })
    })
}
