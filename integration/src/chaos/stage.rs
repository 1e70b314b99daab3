//! What chaos happens to: three brokers, three hubs with warm copies of each other's stores, a
//! receiver, subscriptions of every tenant.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::load::SourceTopic;
use super::options::Options;
use super::plan::{HUBS, NODES, SESSION_MS, hub_name};
use crate::api::{Subscriber, Wanted};
use crate::broker::Broker;
use crate::config::HubConfig;
use crate::hub::Hub;
use crate::internal::Internal;
use crate::receiver::Receiver;
use crate::say;
use crate::wait;

/// The tenants whose order is kept.
pub const TENANTS: [&str; 5] = ["t-1", "t-2", "t-3", "t-4", "t-5"];
/// The large tenant, which is salted while facts come.
pub const SALTED: &str = "t-hot";
/// The application that half of the subscriptions are about.
pub const ORIGIN: &str = "ledger";
/// Attempts of a job, at most.
pub const CURVE_MS: [i64; 8] = [0, 1_000, 2_000, 3_000, 4_000, 5_000, 5_000, 5_000];
/// In how many seconds the salting begins: the least that the program takes.
const SALT_AFTER: &str = "60";
/// How long a hub may take to be ready.
pub const READY: Duration = Duration::from_secs(120);

/// Everything that runs. Hubs end before brokers.
pub struct Stage {
    /// The hubs.
    pub hubs: Vec<Hub>,
    /// The receiver.
    pub receiver: Receiver,
    /// The subscriptions.
    pub subscribers: Vec<Subscriber>,
    /// The first source topics.
    pub sources: Vec<SourceTopic>,
    /// The brokers.
    pub broker: Broker,
}

impl Stage {
    /// Starts all of it, and waits until each hub knows every subscription.
    ///
    /// # Errors
    /// When something does not start.
    pub fn start(options: &Options) -> Result<Self> {
        say!("seed {}: starting {NODES} brokers and {HUBS} hubs", options.seed);
        let broker = Broker::start_nodes(NODES)?;
        let sources =
            [(ORIGIN, 3), ("lender", 2), ("crm", 1)].map(|(name, n)| SourceTopic::new(name, n));
        for source in &sources {
            broker.create_topic(&source.topic(), source.partitions, &[])?;
        }
        let mut hubs = Vec::new();
        for hub in 0..HUBS {
            hubs.push(Hub::start(config(&broker, hub_name(hub))?)?);
            if hub == 0 {
                // It makes the topics; the others find them.
                hubs[0].wait_ready(READY)?;
            }
        }
        let (receiver, subscribers) = (Receiver::start()?, Vec::new());
        let mut stage = Self { hubs, receiver, subscribers, sources: sources.to_vec(), broker };
        stage.wait_ready()?;
        if options.salt {
            let said =
                stage.hubs[0].command(&["salt", "--tenant", SALTED, "--after", SALT_AFTER])?;
            say!("{}", said.trim());
        }
        stage.subscribe()?;
        Ok(stage)
    }

    /// Waits until every hub is ready.
    ///
    /// # Errors
    /// When one is not in time, or ends.
    pub fn wait_ready(&mut self) -> Result<()> {
        for (number, hub) in self.hubs.iter_mut().enumerate() {
            hub.wait_ready(READY).with_context(|| format!("hub {}", hub_name(number)))?;
        }
        Ok(())
    }

    /// The internal topics, by clients that have seen no fault yet.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn internal(&self) -> Result<Internal> {
        Internal::new(self.broker.bootstrap(), &self.hubs[0].config().application())
    }

    fn subscribe(&mut self) -> Result<()> {
        for tenant in TENANTS.into_iter().chain([SALTED]) {
            // One attempt at once: the order of first attempts can be seen at the receiver.
            self.subscription(Wanted::all(tenant, "all").in_flight(1))?;
            let some = Wanted::all(tenant, "some").keys(&["account.*", "balance.changed"]);
            self.subscription(some.origin(ORIGIN).in_flight(8))?;
        }
        for subscriber in &self.subscribers {
            for hub in &self.hubs {
                let api = hub.api(&subscriber.wanted.tenant);
                wait::until("a subscription on every hub", READY, || {
                    let found = api.get(&subscriber.id)?.unwrap_or_default();
                    let active = found["verification_state"] == "active";
                    Ok(if active { Ok(()) } else { Err(found.to_string()) })
                })?;
            }
        }
        Ok(())
    }

    fn subscription(&mut self, wanted: Wanted) -> Result<()> {
        let path = format!("/{}/{}", wanted.tenant, wanted.name);
        let api = self.hubs[0].api(&wanted.tenant);
        let (id, secret) = api.create(&wanted, &self.receiver.url(&path))?;
        let state = &api.verify(&id)?["verification_state"];
        ensure!(state == "active", "{path} is {state}");
        self.subscribers.push(Subscriber { id, secret, path, wanted, takes: true });
        Ok(())
    }
}

fn config(broker: &Broker, name: &str) -> Result<HubConfig> {
    let tenants = TENANTS.into_iter().chain([SALTED]).collect::<Vec<_>>();
    let config = HubConfig::new(broker.bootstrap())?
        .set("instance_id", name)
        .set("topics.partitions", 6)
        .set("topics.replication_factor", i64::from(NODES))
        .set("runtime.session_timeout_ms", i64::try_from(SESSION_MS)?)
        .set("runtime.num_standby_replicas", 1)
        .set("webhook.timeout_ms", 3_000)
        .set("webhook.connect_timeout_ms", 2_000)
        .retry(&CURVE_MS);
    Ok(config.tenants(&tenants))
}
