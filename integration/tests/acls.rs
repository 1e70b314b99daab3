//! The rights that `streaming-hub acls` prints are enough: a hub whose user has these and nothing
//! else runs, on a broker whose authorizer refuses everything else.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::broker::Broker;
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::config::HubConfig;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::Generator;
use streaming_hub_integration::hub::Hub;
use streaming_hub_integration::internal::Internal;
use streaming_hub_integration::receiver::Receiver;
use streaming_hub_integration::world::{READY, World};
use toml::{Table, Value as Toml};

const TENANT: &str = "acme";
const SETTLED: Duration = Duration::from_secs(60);

#[test]
fn a_hub_runs_with_exactly_the_printed_rights() -> Result<()> {
    let broker = Broker::start_with_authorizer()?;
    let topic = "lerian.streaming.ledger";
    broker.create_topic(topic, 2, &[])?;
    let mut properties = Table::new();
    for (name, value) in [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "hub"),
        ("sasl.password", "hub-secret"),
    ] {
        properties.insert(name.to_owned(), Toml::from(value));
    }
    let config = HubConfig::new(&broker.restricted())?.tenants(&[TENANT]);
    let config = config.set("kafka.properties", properties);
    // Without a right nothing works, and doctor says so.
    let mut hub = Hub::start(config)?;
    ensure!(hub.command(&["doctor"]).is_err(), "there are no rights yet");
    hub.kill9().ok();
    grant(&broker, &hub)?;
    hub.restart()?;
    let receiver = Receiver::start()?;
    let internal = Internal::new(broker.bootstrap(), &hub.config().application())?;
    let (subscribers, sources) = (Vec::new(), Vec::new());
    let mut world = World { hub, receiver, internal, subscribers, sources, broker };
    let result = works(&mut world);
    world.explained(result)
}

fn grant(broker: &Broker, hub: &Hub) -> Result<()> {
    let printed: Value =
        serde_json::from_str(&hub.command(&["acls", "--principal", "User:hub", "--json"])?)?;
    let grants = printed["grants"].as_array().context("grants")?;
    ensure!(grants.len() > 4, "{printed}");
    for grant in grants {
        let words = grant["command"].as_array().context("command")?;
        let words = words.iter().filter_map(Value::as_str).map(str::to_owned);
        // The tool knows its broker.
        let arguments: Vec<_> = words.skip(3).collect();
        broker.tool("acls", &arguments)?;
    }
    Ok(())
}

fn works(world: &mut World) -> Result<()> {
    world.hub.wait_ready(READY)?;
    world.subscribe(Wanted::all(TENANT, "all"))?;
    let mut ids = Generator::new(3);
    let facts: Vec<_> =
        (0..20).map(|_| Fact::new("ledger", TENANT, &ids.id(), ("account", "created"))).collect();
    world.produce(&facts)?;
    world.settle(SETTLED)?;
    world.check(Delivered::Once)?;
    let doctor: Value = serde_json::from_str(&world.hub.command(&["doctor", "--json"])?)?;
    ensure!(doctor["problems"] == 0, "{doctor}");
    let log = std::fs::read_to_string(world.hub.config().log())?;
    let refused = log.lines().rev().find(|line| line.to_lowercase().contains("authoriz"));
    // The first start had none of them.
    let first = log.matches("starting").count();
    ensure!(first >= 2, "{log}");
    let since = log.rfind("starting").unwrap_or(0);
    ensure!(!log[since..].to_lowercase().contains("authorization"), "{refused:?}");
    Ok(())
}
