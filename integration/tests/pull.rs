//! Pull subscriptions over two instances: whichever is asked answers; entries come once, in order
//! and as they were sent; a cursor never goes back, also when an instance stands still past its
//! session and wakes up again, or dies.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use streaming_hub_integration::api::{Api, Wanted};
use streaming_hub_integration::bench::writer::Writer;
use streaming_hub_integration::config::{HubConfig, token_of};
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::hub::Hub;
use streaming_hub_integration::say;
use streaming_hub_integration::wait;
use streaming_hub_integration::world::{self, READY, World};

const TENANT: &str = "acme";
const OTHER: &str = "evil";
/// So many subscriptions that both instances own some.
const SUBSCRIPTIONS: usize = 6;
/// A session, an open transaction and the broker's look at it, as in `instances.rs`.
const TAKEN_OVER: Duration = Duration::from_secs(45);
const VISIBLE: Duration = Duration::from_secs(20);
/// Less than what lies between two looks of a waiting read at its task, without what it waited.
const WOKEN_MS: u128 = 350;

/// A consumer as `docs/pull.md` advises: it passes the last `seq` that it has processed.
struct Consumer {
    id: String,
    processed: u64,
    seen: Vec<Value>,
}

impl Consumer {
    fn create(api: &Api, name: &str) -> Result<Self> {
        let body = json!({"name": name, "event_types": ["*"], "sink": {"type": "pull"}});
        let made = api.call("POST", "/v1/subscriptions", Some(&body))?;
        ensure!(made.status == 201, "{made:?}");
        ensure!(made.json()["verification_state"] == "active", "{made:?}");
        let id = made.json()["id"].as_str().context("no id")?.to_owned();
        Ok(Self { id, processed: 0, seen: Vec::new() })
    }

    /// One read behind what was processed; whether there may be more.
    fn read(&mut self, api: &Api, more: &str) -> Result<bool> {
        let target =
            format!("/v1/events?subscription_id={}&after={}{more}", self.id, self.processed);
        let answer = api.call("GET", &target, None)?;
        ensure!(answer.status == 200, "{target}: {answer:?}");
        let page = answer.json();
        for event in page["events"].as_array().context("no events")? {
            let seq = event["seq"].as_u64().context("no seq")?;
            ensure!(seq > self.processed, "{seq} after {}", self.processed);
            self.processed = seq;
            self.seen.push(event.clone());
        }
        let cursor = page["cursor"].as_u64().context("no cursor")?;
        ensure!(cursor >= self.processed, "cursor {cursor}, served {}", self.processed);
        let next = &page["next_cursor"];
        ensure!(next.is_null() || next == &json!(self.processed), "{next}");
        Ok(!next.is_null())
    }

    /// Reads, through errors, until it has seen so many entries.
    fn follow(&mut self, api: &Api, count: usize, within: Duration) -> Result<()> {
        wait::until(&format!("{count} entries of {}", self.id), within, || {
            let result = self.read(api, "&limit=7");
            let seen = format!("{} seen, {result:?}", self.seen.len());
            Ok(if self.seen.len() >= count { Ok(()) } else { Err(seen) })
        })
    }

    fn ids(&self) -> Vec<&str> {
        self.seen.iter().map(|event| event["ceId"].as_str().unwrap_or_default()).collect()
    }
}

/// Facts of the tenant, of every kind of data.
fn facts(generator: &mut Generator, count: usize) -> Vec<Fact> {
    let fact = |n: usize, id: &str| {
        let fact = Fact::new("ledger", TENANT, id, ("account", "created"));
        let fact = fact.with("ce-time", "2026-09-21T14:13:02.000015838Z");
        match n % 5 {
            0 => fact.carrying(Some(b"{\"b\":1.10,\n\"a\":12345678901234567890}".to_vec())),
            1 => fact.carrying(Some(b"\x00\xff".to_vec())),
            2 => fact.carrying(None),
            3 => fact.with("ce-datacontenttype", "text/plain").carrying(Some(b"{}".to_vec())),
            _ => fact,
        }
    };
    (0..count).map(|n| fact(n, &generator.id())).collect()
}

#[test]
fn pull_consumers_meet_every_entry_once_and_in_order_on_any_instance() -> Result<()> {
    let mut generator = Generator::new(77);
    let first = facts(&mut generator, 25);
    let tenants = [TENANT, OTHER];
    let configure = |config: HubConfig| config.tenants(&tenants);
    world::run(&first.clone(), configure, |a| {
        let config = HubConfig::new(a.broker.bootstrap())?.tenants(&tenants);
        let mut b = Hub::start(config.set("instance_id", "b"))?;
        b.wait_ready(READY)?;
        let apis = [a.hub.api(TENANT), b.api(TENANT)];
        let names: Vec<_> = (0..SUBSCRIPTIONS).map(|n| format!("pull-{n}")).collect();
        let made = names.iter().map(|name| Consumer::create(&apis[0], name));
        let mut consumers = made.collect::<Result<Vec<_>>>()?;
        let mut sent = first.clone();
        a.produce(&first)?;
        for consumer in &mut consumers {
            consumer.follow(&apis[0], sent.len(), VISIBLE)?;
        }
        whole_and_as_sent(&consumers, &sent)?;
        any_instance_answers(&apis, &mut consumers)?;
        what_is_refused(a, &consumers[0])?;
        a_lost_answer(a, &apis, &mut consumers, &mut (&mut generator, &mut sent))?;
        documented_session(a, &mut (&mut generator, &mut sent))?;
        command_line(a, &consumers[1], sent.len())?;
        for consumer in &mut consumers {
            consumer.follow(&apis[0], sent.len(), VISIBLE)?;
        }
        long_poll(a, &apis, &mut consumers, &mut (&mut generator, &mut sent))?;
        zombie(a, &b, &mut consumers, &mut (&mut generator, &mut sent))?;
        killed(a, &mut b, &mut consumers, &mut (&mut generator, &mut sent))
    })
}

/// Each has every entry once, in the order of the inbox (one partition: that of the source).
fn whole_and_as_sent(consumers: &[Consumer], sent: &[Fact]) -> Result<()> {
    let expected: Vec<String> = sent.iter().map(Fact::id).collect();
    for consumer in consumers {
        ensure!(consumer.ids() == expected, "{} differs: {:?}", consumer.id, consumer.ids());
    }
    for (event, fact) in consumers[0].seen.iter().zip(sent) {
        ensure!(event["type"] == "account.created" && event["source"] == "ledger", "{event}");
        ensure!(event["time"] == "2026-09-21T14:13:02.000015838Z", "{event}");
        let is_json = fact.text("ce-datacontenttype") == Some("application/json");
        match fact.value.as_deref() {
            None => ensure!(event.get("payload").or(event.get("payload_base64")).is_none()),
            Some(b"\x00\xff") => ensure!(event["payload_base64"] == "AP8=", "{event}"),
            Some(_) if !is_json => ensure!(event["payload_base64"] == "e30=", "{event}"),
            Some(value) => {
                let value: Value = serde_json::from_slice(value)?;
                ensure!(event["payload"] == value, "{event}");
            }
        }
    }
    Ok(())
}

/// Old pages read the same on both; the cursor stands, and is shown on both.
fn any_instance_answers(apis: &[Api; 2], consumers: &mut [Consumer]) -> Result<()> {
    for consumer in consumers {
        let again = format!("/v1/events?subscription_id={}&after=0&limit=5", consumer.id);
        let [one, two] = apis.each_ref().map(|api| api.call("GET", &again, None));
        let (one, two) = (one?, two?);
        ensure!(one.status == 200 && one.body == two.body, "{one:?} {two:?}");
        let text = "\"payload\":{\"b\":1.10,\n\"a\":12345678901234567890}";
        ensure!(one.body.contains(text), "not the same text: {}", one.body);
        ensure!(one.json()["cursor"] == json!(consumer.processed), "{one:?}");
        for api in apis {
            let shown = api.get(&consumer.id)?.context("it is gone")?;
            let expected = json!({
                "cursor": consumer.processed, "high_watermark": consumer.processed,
                "backlog": 0, "oldest_unread_at": null,
            });
            ensure!(shown["pull"] == expected, "{shown}");
        }
        // Nothing that does not exist yet is forfeited.
        let beyond = format!("/v1/events?subscription_id={}&after=9000000000", consumer.id);
        let answer = apis[1].call("GET", &beyond, None)?;
        ensure!(answer.json()["cursor"] == json!(consumer.processed), "{answer:?}");
    }
    Ok(())
}

fn what_is_refused(a: &mut World, consumer: &Consumer) -> Result<()> {
    let target = format!("/v1/events?subscription_id={}", consumer.id);
    let api = a.hub.api(TENANT);
    ensure!(api.call("HEAD", &target, None)?.status == 405);
    ensure!(a.hub.api(OTHER).call("GET", &target, None)?.status == 404);
    let push = a.subscribe(Wanted::all(OTHER, "push"))?;
    let push = format!("/v1/events?subscription_id={}", push.id);
    let answer = a.hub.api(OTHER).call("GET", &push, None)?;
    let code = answer.json()["code"].clone();
    ensure!((answer.status, &code) == (409, &json!("not_a_pull_subscription")), "{answer:?}");
    Ok(())
}

/// What a test goes on with: ids, and what was sent.
type More<'a> = (&'a mut Generator, &'a mut Vec<Fact>);

fn produce(a: &mut World, more: &mut More<'_>, count: usize) -> Result<usize> {
    let new = facts(more.0, count);
    a.produce(&new)?;
    more.1.extend(new);
    Ok(more.1.len())
}

/// An answer that got lost behind the commit was acknowledged: without `after` the next page comes,
/// with it the lost one.
fn a_lost_answer(
    a: &mut World,
    apis: &[Api; 2],
    consumers: &mut [Consumer],
    more: &mut More<'_>,
) -> Result<()> {
    let count = produce(a, more, 4)?;
    let consumer = &mut consumers[0];
    let target = format!("/v1/events?subscription_id={}&limit=2&wait=20", consumer.id);
    let first = |body: &Value| body["events"][0]["seq"].as_u64();
    let lost = apis[0].call("GET", &target, None)?.json();
    let next = apis[0].call("GET", &target, None)?.json();
    ensure!(first(&next) > first(&lost), "{lost} {next}");
    for consumer in consumers {
        consumer.follow(&apis[1], count, VISIBLE)?;
    }
    Ok(())
}

/// The session of `docs/pull.md`, command by command as it stands there.
fn documented_session(a: &mut World, more: &mut More<'_>) -> Result<()> {
    let page = include_str!("../../docs/pull.md");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let (hub, mut id) = (format!("http://{}", a.hub.address()), String::new());
    let mut ran = 0;
    for block in blocks.filter(|block| block.starts_with("curl")) {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", block]);
        command.env("HUB", &hub).env("TOKEN", token_of(Some(TENANT))).env("ID", &id);
        let output = command.output()?;
        ensure!(output.status.success(), "{block}: {output:?}");
        let answer: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(answer.get("code").is_none(), "{block}: {answer}");
        if id.is_empty() {
            answer["id"].as_str().context("no id")?.clone_into(&mut id);
            // So that the read that waits has something to wait for.
            produce(a, more, 1)?;
        } else {
            ensure!(answer["events"].is_array() && answer["cursor"].is_u64(), "{answer}");
        }
        ran += 1;
    }
    ensure!(ran == 4, "{ran} commands");
    a.hub.api(TENANT).delete(&id)
}

/// The program's own consumer: every entry on a line, and from a state file only once.
fn command_line(a: &World, consumer: &Consumer, count: usize) -> Result<()> {
    let file = a.hub.config().directory().join("seq").to_string_lossy().into_owned();
    let all = ["--subscription", &consumer.id, "--once", "--limit", "7"];
    let again = a.hub.pull(TENANT, &[&all[..], &["--after", "0"]].concat())?;
    let lines: Vec<Value> =
        again.lines().map(serde_json::from_str).collect::<Result<_, _>>().context(again.clone())?;
    ensure!(lines.len() == count, "{} lines of {count}", lines.len());
    let last = lines.last().context("no line")?["seq"].as_u64().context("no seq")?;
    std::fs::write(&file, format!("{}\n", lines[lines.len() - 3]["seq"]))?;
    let rest = a.hub.pull(TENANT, &[&all[..], &["--state", &file]].concat())?;
    ensure!(rest.lines().count() == 2, "{rest}");
    ensure!(std::fs::read_to_string(&file)?.trim() == last.to_string());
    let nothing = a.hub.pull(TENANT, &[&all[..], &["--state", &file]].concat())?;
    ensure!(nothing.is_empty(), "{nothing}");
    Ok(())
}

fn long_poll(
    a: &mut World,
    apis: &[Api; 2],
    consumers: &mut [Consumer],
    more: &mut More<'_>,
) -> Result<()> {
    // One that has written before: its first records wait half a second for its identity.
    let writer = Writer::prompt(a.broker.bootstrap())?;
    let mut took = Vec::new();
    for round in 0..7 {
        let began = wait::instant();
        let consumer = &mut consumers[round % SUBSCRIPTIONS];
        let (id, processed) = (consumer.id.clone(), consumer.processed);
        let api = apis[round % 2].clone();
        let named = std::thread::Builder::new().name("poll".to_owned());
        let waiting = named.spawn(move || {
            let target = format!("/v1/events?subscription_id={id}&after={processed}&wait=20");
            api.call("GET", &target, None)
        })?;
        // The poll is to wait before there is anything.
        wait::until("the poll to wait", VISIBLE, || {
            let waits = began.elapsed() > Duration::from_millis(100);
            Ok(if waits { Ok(()) } else { Err("too early".to_owned()) })
        })?;
        let sent = wait::instant();
        let new = facts(more.0, 1);
        writer.send(&new[0])?;
        writer.finish()?;
        more.1.extend(new);
        let count = more.1.len();
        let answer = waiting.join().map_err(|_| anyhow::anyhow!("the poll panicked"))??;
        took.push(sent.elapsed().as_millis());
        ensure!(answer.json()["events"].as_array().is_some_and(|e| e.len() == 1), "{answer:?}");
        for consumer in consumers.iter_mut() {
            consumer.follow(&apis[0], count, VISIBLE)?;
        }
    }
    took.sort_unstable();
    say!("produced to visible in a long poll: {took:?} ms");
    // Woken by the commit: looking now and then would have taken until the next look.
    ensure!(took[0] < WOKEN_MS, "{took:?}");
    let began = wait::instant();
    consumers[0].read(&apis[0], "&wait=1")?;
    ensure!(began.elapsed() >= Duration::from_millis(900), "it did not wait");
    Ok(())
}

/// An instance stands still past its session; the other serves its subscriptions; awake again, it
/// answers nothing of what it knew.
fn zombie(a: &mut World, b: &Hub, consumers: &mut [Consumer], more: &mut More<'_>) -> Result<()> {
    b.signal("STOP")?;
    let result: Result<()> = (|| {
        let api = a.hub.api(TENANT);
        let count = produce(a, more, 10)?;
        let began = wait::instant();
        for consumer in consumers.iter_mut() {
            consumer.follow(&api, count, TAKEN_OVER)?;
        }
        say!(
            "an instance stood still: all read elsewhere after {} ms",
            began.elapsed().as_millis()
        );
        Ok(())
    })();
    b.signal("CONT")?;
    result?;
    let api = b.api(TENANT);
    for _ in 0..20 {
        for consumer in consumers.iter() {
            let target = format!("/v1/events?subscription_id={}", consumer.id);
            let answer = api.call("GET", &target, None)?;
            let page = answer.json();
            let empty = page["events"].as_array().is_some_and(Vec::is_empty);
            let current = empty && page["cursor"] == json!(consumer.processed);
            ensure!(answer.status == 503 || current, "a stale owner answered: {answer:?}");
        }
    }
    Ok(())
}

/// An instance dies while consumers read; they go on, and so do they when it is back.
fn killed(
    a: &mut World,
    b: &mut Hub,
    consumers: &mut [Consumer],
    more: &mut More<'_>,
) -> Result<()> {
    b.wait_ready(READY)?;
    let api = a.hub.api(TENANT);
    let count = produce(a, more, 40)?;
    consumers[0].follow(&api, count - 30, VISIBLE)?;
    b.kill9()?;
    b.restart()?;
    for consumer in consumers.iter_mut() {
        consumer.follow(&api, count, TAKEN_OVER)?;
    }
    b.wait_ready(READY)?;
    whole_and_as_sent(consumers, more.1)?;
    any_instance_answers(&[api, b.api(TENANT)], consumers)
}
