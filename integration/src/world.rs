//! Broker, hub and receiver together, as most tests need them, and the steps that they share:
//! subscribe, produce, wait until all is done, read everything, check.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};

use crate::api::{Subscriber, Wanted};
use crate::broker::Broker;
use crate::check::{self, Delivered, History};
use crate::config::HubConfig;
use crate::facts::{Fact, Verdict};
use crate::hub::Hub;
use crate::internal::Internal;
use crate::producer::{self, Source};
use crate::receiver::Receiver;
use crate::wait;

/// How long a hub may take until it is ready.
pub const READY: Duration = Duration::from_secs(60);

/// A broker, a hub on it and a receiver. The hub ends before the broker.
pub struct World {
    /// The hub.
    pub hub: Hub,
    /// The receiver.
    pub receiver: Receiver,
    /// The hub's internal topics.
    pub internal: Internal,
    /// What was subscribed, in order.
    pub subscribers: Vec<Subscriber>,
    /// What was produced, in order.
    pub sources: Vec<Source>,
    /// The broker.
    pub broker: Broker,
}

impl World {
    /// Starts all three; the configuration may be changed on its way.
    ///
    /// # Errors
    /// When one of them does not start.
    pub fn start(configure: impl FnOnce(HubConfig) -> HubConfig) -> Result<Self> {
        Self::start_with(&[], configure)
    }

    /// [`Self::start`], with these topics there before the hub is. (Topics that appear later are
    /// found too, a second later.)
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        facts: &[Fact],
        configure: impl FnOnce(HubConfig) -> HubConfig,
    ) -> Result<Self> {
        let broker = Broker::start()?;
        create_topics(&broker, facts)?;
        let hub = Hub::start(configure(HubConfig::new(broker.bootstrap())?))?;
        let receiver = Receiver::start()?;
        let internal = Internal::new(broker.bootstrap(), &hub.config().application())?;
        let (subscribers, sources) = (Vec::new(), Vec::new());
        let mut world = Self { hub, receiver, internal, subscribers, sources, broker };
        world.hub.wait_ready(READY)?;
        Ok(world)
    }

    /// Creates and verifies a subscription; its receiver's path is `/<tenant>/<name>`.
    ///
    /// # Errors
    /// When the API refuses it, or it does not become active.
    pub fn subscribe(&mut self, wanted: Wanted) -> Result<Subscriber> {
        let path = format!("/{}/{}", wanted.tenant, wanted.name);
        let api = self.hub.api(&wanted.tenant);
        let (id, secret) = api.create(&wanted, &self.receiver.url(&path))?;
        let verified = api.verify(&id)?;
        let state = &verified["verification_state"];
        ensure!(state == "active", "{} was not verified: {verified}", wanted.name);
        let subscriber = Subscriber { id, secret, path, wanted, takes: true };
        self.subscribers.push(subscriber.clone());
        Ok(subscriber)
    }

    /// Says of a subscription that its receiver does not take what it gets.
    pub fn refuses(&mut self, subscriber: &Subscriber) {
        for own in self.subscribers.iter_mut().filter(|own| own.id == subscriber.id) {
            own.takes = false;
        }
    }

    /// Makes the topics of these facts as needed, and produces them in order.
    ///
    /// # Errors
    /// When one of them is not written.
    pub fn produce(&mut self, facts: &[Fact]) -> Result<&[Source]> {
        create_topics(&self.broker, facts)?;
        let first = self.sources.len();
        self.sources.extend(producer::produce(self.broker.bootstrap(), facts)?);
        Ok(&self.sources[first..])
    }

    /// Waits until the hub has read everything that was produced, matched it, and ended every job.
    ///
    /// # Errors
    /// When it has not in time, or the hub ends.
    pub fn settle(&mut self, within: Duration) -> Result<()> {
        self.wait_matched(within)?;
        wait::until("the end of all jobs", within, || {
            self.alive()?;
            let open = self.internal.open_jobs()?;
            let state = || format!("{} open, {:?}", open.len(), open.iter().next());
            Ok(if open.is_empty() { Ok(()) } else { Err(state()) })
        })
    }

    /// Waits until the hub has read and matched everything that was produced.
    ///
    /// # Errors
    /// As [`Self::settle`].
    pub fn wait_matched(&mut self, within: Duration) -> Result<()> {
        let followed = self.sources.iter().filter(|s| s.fact.verdict != Verdict::NotFollowed);
        let topics: BTreeSet<_> = followed.map(|source| source.fact.topic.clone()).collect();
        let accepted = BTreeSet::from([self.internal.name("ingest-repartition")]);
        for (group, topics) in [("ingest", topics), ("match", accepted)] {
            wait::until(&format!("{group} to read all"), within, || {
                self.alive()?;
                let done = self.internal.has_read(group, &topics)?;
                Ok(if done { Ok(()) } else { Err("records are left".to_owned()) })
            })?;
        }
        Ok(())
    }

    fn alive(&mut self) -> Result<()> {
        let ended = self.hub.ended()?;
        ensure!(ended.is_none(), "the hub ended: {ended:?}");
        Ok(())
    }

    /// Everything that happened.
    ///
    /// # Errors
    /// When a topic cannot be read.
    pub fn history(&self, delivered: Delivered) -> Result<History> {
        let internal = &self.internal;
        Ok(History {
            sources: self.sources.clone(),
            subscribers: self.subscribers.clone(),
            default_tenant: None,
            inbox: internal.inbox()?,
            deliveries: internal.deliveries()?,
            quarantine: internal.quarantine()?,
            requests: self.receiver.requests(),
            delivered,
        })
    }

    /// Checks everything that happened.
    ///
    /// # Errors
    /// Every fault that was found.
    pub fn check(&self, delivered: Delivered) -> Result<History> {
        let history = self.history(delivered)?;
        let faults = history.faults();
        ensure!(faults.is_empty(), "{}", check::summary(&faults));
        Ok(history)
    }

    /// Puts the end of the hub's log behind an error.
    ///
    /// # Errors
    /// The one that came in, as one text.
    pub fn explained<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| anyhow!("{error:#}\n{}", self.hub.log_tail()))
    }
}

/// Runs a test on a world of its own, in which the topics of these facts are there from the start;
/// what fails is shown with the end of the hub's log.
///
/// # Errors
/// The test's.
pub fn run(
    facts: &[Fact],
    configure: impl FnOnce(HubConfig) -> HubConfig,
    test: impl FnOnce(&mut World) -> Result<()>,
) -> Result<()> {
    let mut world = World::start_with(facts, configure)?;
    let result = test(&mut world);
    world.explained(result)
}

/// Topics for these facts, with as many partitions as they need, and room for large records.
fn create_topics(broker: &Broker, facts: &[Fact]) -> Result<()> {
    let names: BTreeSet<&str> = facts.iter().map(|fact| fact.topic.as_str()).collect();
    for name in names {
        let used = facts.iter().filter(|fact| fact.topic == name).map(|fact| fact.partition);
        let partitions = used.max().unwrap_or(0) + 1;
        broker.create_topic(name, partitions, &[("max.message.bytes", "16000000")])?;
    }
    Ok(())
}
