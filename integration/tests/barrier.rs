//! The restore barrier: a store is restored to the high watermark, not to the last stable offset
//! (LSO).
//!
//! A transaction of a stranger that stays open in the dedup topic holds the LSO below what the hub
//! committed behind it:
//!
//! ```text
//!   dedup/0   [ids of A][commit] [stranger, open] [ids of B][commit]
//!                                ▲ LSO                              ▲ high watermark
//! ```
//!
//! A hub that starts with an empty disk now must not run before it knows B, which no read-committed
//! reader gets to see until the stranger ends. A hub that asks a read-committed client for the end
//! of the topic is told the LSO, takes a store of A alone for restored, and takes every copy of B
//! into the inbox a second time: the inbox grows below while the stranger's transaction is open.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::generate::{Generator, Shape};
use streaming_hub_integration::http::{self, Ask};
use streaming_hub_integration::world::{self, READY, World};
use streaming_hub_integration::{config::HubConfig, say, wait};

const TENANT: &str = "t";
const ANSWER: Duration = Duration::from_secs(20);
const SETTLED: Duration = Duration::from_secs(60);
/// How long the hub is watched while it has all it needs to go wrong: a hub that restores to the
/// LSO has doubled everything within a second.
const WATCHED: Duration = Duration::from_secs(5);

#[test]
fn a_store_is_restored_to_the_high_watermark_while_a_transaction_holds_the_lso_below() -> Result<()>
{
    let shape =
        Shape { tenants: vec![TENANT.to_owned()], duplicates_per_mille: 0, ..Shape::default() };
    let mut generator = Generator::new(31);
    let (a, b) = (generator.facts(200, &shape), generator.facts(200, &shape));
    let new = generator.facts(10, &shape);
    let configure = |config: HubConfig| {
        // One partition of everything: A and B share a dedup log.
        config.tenants(&[TENANT]).set("topics.partitions", 1)
    };
    world::run(&a, configure, |world| {
        world.subscribe(Wanted::all(TENANT, "all").in_flight(16))?;
        world.produce(&a)?;
        world.settle(SETTLED)?;
        let dedup = world.internal.name("dedup");
        let stranger = open_transaction(world.broker.bootstrap(), &dedup)?;
        world.produce(&b)?;
        wait_inbox(world, a.len() + b.len())?;
        lso_is_below_the_high_watermark(world, &dedup)?;
        start_with_an_empty_disk(world)?;
        let copies = [a.as_slice(), &b].concat();
        world.produce(&copies)?;
        world.produce(&new)?;
        nothing_enters_the_inbox(world, a.len() + b.len())?;
        lso_is_below_the_high_watermark(world, &dedup)?;

        stranger.abort_transaction(ANSWER)?;
        world.hub.wait_ready(READY)?;
        world.settle(SETTLED)?;
        let metrics = world.hub.metrics()?;
        let duplicates = metrics.count("streaming_hub_duplicates_total");
        ensure!(duplicates == copies.len() as u64, "{duplicates} copies were dropped");
        let taken = metrics.count("streaming_hub_inbox_events_total");
        ensure!(taken == new.len() as u64, "{taken} new events were taken in");
        world.check(Delivered::AtLeastOnce)?;
        Ok(())
    })
}

/// A record of somebody else in this topic, in a transaction that stays open.
fn open_transaction(bootstrap: &str, topic: &str) -> Result<BaseProducer> {
    let stranger: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", "stranger")
        .set("transaction.timeout.ms", "300000")
        .create()?;
    stranger.init_transactions(ANSWER)?;
    stranger.begin_transaction()?;
    let record = BaseRecord::<[u8], [u8]>::to(topic).partition(0).payload(b"never committed");
    stranger.send(record).map_err(|(error, _)| error)?;
    stranger.flush(ANSWER)?;
    Ok(stranger)
}

/// What the test stands on, asked of the broker itself.
fn lso_is_below_the_high_watermark(world: &World, topic: &str) -> Result<()> {
    let end = |isolation: &str| -> Result<i64> {
        let asker: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", world.broker.bootstrap())
            .set("isolation.level", isolation)
            .create()?;
        Ok(asker.fetch_watermarks(topic, 0, ANSWER)?.1)
    };
    let (stable, high) = (end("read_committed")?, end("read_uncommitted")?);
    say!("{topic}/0: LSO {stable}, high watermark {high}");
    // Beyond the stranger's own record there is B: a packed record and its commit at least.
    ensure!(stable + 3 <= high, "LSO {stable}, high watermark {high}");
    Ok(())
}

fn wait_inbox(world: &mut World, events: usize) -> Result<()> {
    wait::until("the events to be in the inbox", SETTLED, || {
        let found = world.internal.inbox()?.len();
        Ok(if found == events { Ok(()) } else { Err(format!("{found} of {events}")) })
    })
}

/// Kills the hub and takes its stores away.
fn start_with_an_empty_disk(world: &mut World) -> Result<()> {
    world.hub.kill9()?;
    std::fs::remove_dir_all(world.hub.config().directory().join("state")).context("state")?;
    world.hub.restart()
}

/// Watches the hub from the moment on at which every copy lies in front of match: it goes on
/// waiting for its store, and the inbox stays as it is.
fn nothing_enters_the_inbox(world: &mut World, events: usize) -> Result<()> {
    let topics = world.sources.iter().map(|source| source.fact.topic.clone());
    let topics = topics.collect::<BTreeSet<_>>();
    wait::until("ingest to read the copies", SETTLED, || {
        let done = world.internal.has_read("ingest", &topics)?;
        Ok(if done { Ok(()) } else { Err("records are left".to_owned()) })
    })?;
    let began = wait::instant();
    wait::until("the watched time to pass", WATCHED * 2, || {
        let found = world.internal.inbox()?.len();
        ensure!(found == events, "the inbox holds {found} events, not {events}");
        let ask = Ask { method: "GET", target: "/readyz", ..Ask::default() };
        let answer = http::ask(world.hub.address(), &ask)?;
        let waits = answer.status == 503 && answer.body.contains("match: task");
        ensure!(waits, "match does not wait for its store: {} {}", answer.status, answer.body);
        Ok(if began.elapsed() >= WATCHED { Ok(()) } else { Err("not yet".to_owned()) })
    })
}
