//! What happens to a group when its members change at an awkward moment, one after the other on the
//! same two instances: a tenant is salted while they run; one dies and leaves a transaction behind,
//! and the other takes over from its warm copies; then both are down while topics appear and grow,
//! and the one that comes back follows more than before. Nothing is lost, nothing enters twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::broker::Broker;
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::config::HubConfig;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::{Generator, Shape};
use streaming_hub_integration::hub::Hub;
use streaming_hub_integration::world::{self, READY, World};
use streaming_hub_integration::{say, wait};

const PARTITIONS: i32 = 4;
/// The tenant that is salted on the way.
const SALTED: &str = "t-4";
/// The first millisecond of the generator's ids, and one that its first facts do not reach.
const EPOCH_MS: u64 = 1_796_000_000_000;
const SINCE: u64 = EPOCH_MS + 5_000;
const ANSWER: Duration = Duration::from_secs(20);
const SETTLED: Duration = Duration::from_secs(90);
/// A session of 6 s, and time to restore. The transaction that is left behind lasts for minutes.
const TAKEN_OVER: Duration = Duration::from_secs(40);
/// Records that a takeover from warm copies reads at the most: what came in the last moment.
const TAIL_RECORDS: u64 = 60;

#[test]
fn a_group_keeps_its_promises_through_salting_a_warm_takeover_and_topics_that_came_meanwhile()
-> Result<()> {
    let shape = Shape::default();
    let mut generator = Generator::new(41);
    let early = generator.facts(1_000, &shape);
    while generator.id() < id_of(SINCE) {}
    world::run(&early, configure, |a| {
        for tenant in &shape.tenants {
            a.subscribe(Wanted::all(tenant, "all").in_flight(16))?;
        }
        let mut b =
            Hub::start(configure(HubConfig::new(a.broker.bootstrap())?).set("instance_id", "b"))?;
        b.wait_ready(READY)?;
        a.produce(&early)?;
        a.settle(SETTLED)?;
        salt(a, &mut generator, &shape, &early)?;
        take_over(a, &mut b, &generator.facts(200, &shape))?;
        come_back(a, b, &mut generator)?;
        a.check(Delivered::AtLeastOnce)?;
        Ok(())
    })
}

fn configure(config: HubConfig) -> HubConfig {
    let tenants = Shape::default().tenants;
    let tenants = tenants.iter().map(String::as_str).collect::<Vec<_>>();
    config
        .tenants(&tenants)
        .set("topics.partitions", i64::from(PARTITIONS))
        .set("runtime.num_standby_replicas", 1)
        .set("runtime.session_timeout_ms", 6_000)
}

/// The least id of a millisecond.
fn id_of(ms: u64) -> String {
    format!("{:08x}-{:04x}-7", ms >> 16, ms & 0xffff)
}

/// Salts a tenant under the running hubs: ids from then on are spread, older ones stay at home, and
/// copies of both are found.
fn salt(a: &mut World, generator: &mut Generator, shape: &Shape, early: &[Fact]) -> Result<()> {
    let producer = producer(&a.broker, &[])?;
    let (topic, value) = (a.internal.name("salts"), format!("{{\"since\":{SINCE}}}"));
    // Every partition: the test need not know how the hub places it.
    let record = BaseRecord::to(&topic).key(SALTED).payload(&value).partition(0);
    producer.send(record).map_err(|(error, _)| error)?;
    producer.flush(ANSWER)?;
    let home = partitions_of(a)?;
    ensure!(home.values().all(|found| found.len() == 1), "before: {home:?}");
    // Until whoever reads a source partition has heard of it, its facts go where they always went.
    let mut deaf = BTreeSet::new();
    for source in &shape.sources {
        deaf.extend((0..shape.partitions).map(|p| (format!("lerian.streaming.{source}"), p)));
    }
    let at_home = home[SALTED].first().copied().context("a home")?;
    wait::until("ingest to know the salted tenant", ANSWER, || {
        let probes = deaf.iter().map(|(topic, partition)| {
            let source = topic.rsplit('.').next().unwrap_or_default();
            let fact = Fact::new(source, SALTED, &generator.id(), ("probe", "sent"));
            Fact { partition: *partition, ..fact }
        });
        a.produce(&probes.collect::<Vec<_>>())?;
        a.wait_matched(SETTLED)?;
        for record in a.internal.inbox()?.iter().filter(|record| record.partition != at_home) {
            if record.text("hub-tenant") == Some(SALTED) {
                let from = record.text("hub-from").unwrap_or_default();
                let mut parts = from.split('/');
                let topic = parts.next().unwrap_or_default().to_owned();
                let partition = parts.next().and_then(|p| p.parse().ok()).unwrap_or(-1);
                deaf.remove(&(topic, partition));
            }
        }
        Ok(if deaf.is_empty() { Ok(()) } else { Err(format!("{deaf:?}")) })
    })?;
    let late = generator.facts(400, shape);
    let copies = [early, &late, &late].concat();
    a.produce(&copies)?;
    a.settle(SETTLED)?;
    let found = partitions_of(a)?;
    ensure!(found[SALTED].len() == PARTITIONS as usize, "the salted tenant: {:?}", found[SALTED]);
    let others = found.iter().filter(|(tenant, _)| *tenant != SALTED);
    ensure!(others.clone().all(|(_, found)| found.len() == 1), "others: {found:?}");
    a.check(Delivered::AtLeastOnce)?;
    Ok(())
}

/// In which partitions of the inbox each tenant's events lie.
fn partitions_of(world: &World) -> Result<BTreeMap<String, BTreeSet<i32>>> {
    let mut found: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for record in world.internal.inbox()? {
        let tenant = record.text("hub-tenant").unwrap_or_default().to_owned();
        found.entry(tenant).or_default().insert(record.partition);
    }
    Ok(found)
}

/// One instance dies with positions pending in a transaction that would last for minutes; the other
/// takes over from its copies.
fn take_over(a: &mut World, b: &mut Hub, facts: &[Fact]) -> Result<()> {
    wait::until("warm copies", SETTLED, || {
        let metrics = [a.hub.metrics()?, b.metrics()?];
        let of = |name: &str, sub: &str| {
            metrics.iter().map(|m| m.count_with(name, "sub_topology", sub)).sum::<u64>()
        };
        let copies = ["match", "delivery"].map(|s| of("streaming_hub_standby_copies_count", s));
        let lag = ["match", "delivery"].map(|s| of("streaming_hub_standby_lag_records", s));
        let all = u64::from(PARTITIONS.unsigned_abs());
        let done = copies == [all, all] && lag == [0, 0];
        Ok(if done { Ok(()) } else { Err(format!("copies {copies:?}, lag {lag:?}")) })
    })?;
    let restored = |hub: &Hub| -> Result<u64> {
        let name = "streaming_hub_restored_records_total";
        Ok(hub.metrics()?.count_with(name, "sub_topology", "delivery"))
    };
    let before = restored(b)?;
    a.hub.kill9()?;
    let left = leave_transaction(a)?;
    let began = wait::instant();
    std::mem::swap(&mut a.hub, b);
    a.produce(facts)?;
    let matched = a.settle(TAKEN_OVER);
    std::mem::swap(&mut a.hub, b);
    matched.context("the transaction that was left behind was not ended")?;
    let tail = restored(b)? - before;
    let took = began.elapsed().as_millis();
    say!("taken over within {took} ms, {tail} records of the delivery stores restored");
    ensure!(tail <= TAIL_RECORDS, "a warm takeover restored {tail} records");
    // A fenced producer may hang in any call, its own end included (librdkafka #4420).
    std::mem::forget(left);
    Ok(())
}

/// Pending positions of every partition of match, as the dead instance's producer would leave them.
fn leave_transaction(world: &World) -> Result<BaseProducer> {
    let id = world.internal.name("match-a-0");
    let producer = producer(
        &world.broker,
        &[("transactional.id", &id), ("transaction.timeout.ms", "600000")],
    )?;
    producer.init_transactions(ANSWER)?;
    let (group, topic) = (world.internal.name("match"), world.internal.name("ingest-repartition"));
    let stranger: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", world.broker.bootstrap())
        .set("group.id", &group)
        .create()?;
    let mut positions = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        positions.add_partition_offset(&topic, partition, Offset::Offset(1_000_000))?;
    }
    producer.begin_transaction()?;
    let metadata = stranger.group_metadata().context("metadata")?;
    producer.send_offsets_to_transaction(&positions, &metadata, ANSWER)?;
    Ok(producer)
}

/// Both are down while a topic grows and one appears; a third is followed only from now on.
fn come_back(a: &mut World, mut b: Hub, generator: &mut Generator) -> Result<()> {
    b.kill9()?;
    a.broker.grow_topic("lerian.streaming.ledger", 6)?;
    let fact = |source: &str, partition: i32, id: String| {
        let fact = Fact::new(source, "t-1", &id, ("account", "created"));
        Fact { partition, ..fact }
    };
    let mut facts = (0..6).map(|p| fact("ledger", p, generator.id())).collect::<Vec<_>>();
    facts.push(fact("late", 0, generator.id()));
    let mut extra = fact("crm", 0, generator.id()).with("ce-type", "studio.lerian.account.created");
    "extra.account.created".clone_into(&mut extra.topic);
    facts.push(extra);
    a.produce(&facts)?;
    let config = configure(HubConfig::new(a.broker.bootstrap())?);
    a.hub = Hub::start(config.set("ingest.follow_extra", vec!["extra.*"]))?;
    a.hub.wait_ready(READY)?;
    a.settle(SETTLED)
}

fn producer(broker: &Broker, settings: &[(&str, &str)]) -> Result<BaseProducer> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker.bootstrap());
    for (name, value) in settings {
        config.set(*name, *value);
    }
    Ok(config.create()?)
}
