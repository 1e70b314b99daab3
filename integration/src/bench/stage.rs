//! What the hub's parts of the benchmark stand on: a broker, a topic of facts, tenants, a receiver,
//! and hubs on them.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::hook::Hook;
use super::options::Options;
use super::writer::Writer;
use crate::api::Wanted;
use crate::broker::Broker;
use crate::config::HubConfig;
use crate::facts::Fact;
use crate::generate::{Generator, Shape};
use crate::hub::Hub;
use crate::say;

/// Roles of a hub that delivers and is subscribed at.
pub const ALL_ROLES: [&str; 5] = ["ingest", "match", "delivery", "registry", "api"];
/// How long a hub may take to be ready, or to stop.
pub const READY: Duration = Duration::from_secs(120);
/// The producing application.
const SOURCE: &str = "bench";
/// Attempts of one subscription at once.
const IN_FLIGHT: u16 = 16;
/// Facts that are made at once.
const BATCH: usize = 10_000;

/// A broker with a topic of facts, tenants, and a receiver for their subscriptions.
pub struct Stage {
    /// The receiver.
    pub hook: Hook,
    /// The tenants.
    pub tenants: Vec<String>,
    /// What its facts are like.
    pub shape: Shape,
    generator: Generator,
    /// The broker.
    pub broker: Broker,
}

impl Stage {
    /// A stage of so many tenants on this broker.
    ///
    /// # Errors
    /// When the topic cannot be made, or the receiver does not start.
    pub fn new(broker: Broker, options: &Options, tenants: usize) -> Result<Self> {
        let tenants = (1..=tenants).map(|number| format!("tenant-{number:03}"));
        let tenants = tenants.collect::<Vec<_>>();
        let shape = Shape {
            sources: vec![SOURCE.to_owned()],
            tenants: tenants.clone(),
            partitions: options.partitions,
            duplicates_per_mille: options.duplicates_percent * 10,
            payload_bytes: options.payload_bytes,
        };
        let generator = Generator::new(options.seed);
        let stage = Self { hook: Hook::start()?, tenants, shape, generator, broker };
        stage.broker.create_topic(&stage.topic(), options.partitions, &[])?;
        Ok(stage)
    }

    /// The topic of facts.
    #[must_use]
    pub fn topic(&self) -> String {
        format!("lerian.streaming.{SOURCE}")
    }

    /// A hub's configuration: this instance, these roles.
    ///
    /// # Errors
    /// When there is no port or no directory.
    pub fn config(&self, instance: &str, roles: &[&str]) -> Result<HubConfig> {
        let tenants = self.tenants.iter().map(String::as_str).collect::<Vec<_>>();
        let roles = roles.iter().map(|role| (*role).to_owned()).collect::<Vec<_>>();
        let config = HubConfig::new(self.broker.bootstrap())?.tenants(&tenants);
        let config = config.set("topics.partitions", i64::from(self.shape.partitions));
        Ok(config.set("instance_id", instance).set("roles", roles))
    }

    /// Subscribes each tenant so many times to all of its events, through the API of this hub.
    ///
    /// # Errors
    /// When one of them does not become active.
    pub fn subscribe(&self, hub: &Hub, times: usize) -> Result<()> {
        say!("creating {} subscriptions", self.tenants.len() * times);
        let each = self.tenants.iter().flat_map(|tenant| (0..times).map(move |n| (tenant, n)));
        for (tenant, number) in each {
            let api = hub.api(tenant);
            let wanted = Wanted::all(tenant, &format!("all-{number}")).in_flight(IN_FLIGHT);
            let (id, _) = api.create(&wanted, &self.hook.url(&format!("/{tenant}")))?;
            let state = &api.verify(&id)?["verification_state"];
            ensure!(state == "active", "the subscription of {tenant} is {state}");
        }
        Ok(())
    }

    /// So many facts, with duplicates.
    #[must_use]
    pub fn facts(&mut self, count: usize) -> Vec<Fact> {
        self.generator.facts(count, &self.shape)
    }

    /// What its facts are like, each of its own.
    #[must_use]
    pub fn without_duplicates(&self) -> Shape {
        Shape { duplicates_per_mille: 0, ..self.shape.clone() }
    }

    /// So many facts, each of its own.
    #[must_use]
    pub fn unique_facts(&mut self, count: usize) -> Vec<Fact> {
        let shape = self.without_duplicates();
        self.generator.facts(count, &shape)
    }

    /// Writes so many facts, some at a time, and tells each of them.
    ///
    /// # Errors
    /// When one of them is not written.
    pub fn preload(&mut self, count: usize, each: impl FnMut(&Fact)) -> Result<()> {
        self.load(count, &self.shape.clone(), each)
    }

    /// Writes so many facts of another shape, some at a time, and tells each of them.
    ///
    /// # Errors
    /// When one of them is not written.
    pub fn load(&mut self, count: usize, shape: &Shape, mut each: impl FnMut(&Fact)) -> Result<()> {
        let writer = Writer::bulk(self.broker.bootstrap())?;
        let mut left = count;
        while left > 0 {
            let facts = self.generator.facts(left.min(BATCH), shape);
            for fact in &facts {
                writer.send(fact)?;
                each(fact);
            }
            left -= facts.len();
        }
        writer.finish()
    }
}

/// Fails when the hub does not run any more.
///
/// # Errors
/// That.
pub fn runs(hub: &mut Hub) -> Result<()> {
    let ended = hub.ended()?;
    ensure!(ended.is_none(), "the hub ended: {ended:?}");
    Ok(())
}
